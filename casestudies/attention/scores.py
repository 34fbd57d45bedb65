"""Variants of attention: what becomes of a score, as plain Halide.

A variant is a function of the scaled score s of key n, query m and head h; the schedule stays.

- soft capping: ``c * tanh(s / c)``, so that no score is beyond c
- slopes (ALiBi): ``s + slope * (n - m)``, a slope for each head
- bias: ``s + bias``, a number for each key, query and head
"""

from __future__ import annotations

import halide as hl

from casestudies.attention.algorithm import Variant, matrix
from casestudies.attention.problem import SOFT_CAP


def variant(name: str) -> Variant | None:
    """The score of a problem; None for the plain one. It has the parameters ``slopes`` (f32, of
    heads) or ``bias`` (f16, keys x queries x heads in Halide's order).
    """
    match name:
        case "soft_cap":
            return Variant(soft_cap, factor=SOFT_CAP)
        case "slopes":
            slopes = hl.ImageParam(hl.Float(32), 1, "slopes")
            return Variant(lambda s, n, m, h: s + slopes[h] * hl.f32(n - m), (slopes,))
        case "bias":
            bias = hl.ImageParam(hl.Float(16), 3, "bias")
            inside = matrix(bias)
            return Variant(lambda s, n, m, h: s + hl.f32(inside[n, m, h]), (bias,), (inside,))
        case _:
            return None


def soft_cap(s: hl.Expr, n: hl.Expr, m: hl.Expr, h: hl.Expr) -> hl.Expr:
    """In units of the cap. Rounded to f16, the hyperbolic tangent is as accurate as weights are."""
    return hl.f32(hl.cast(hl.Float(16), hl.tanh(s * hl.f32(1 / SOFT_CAP))))
