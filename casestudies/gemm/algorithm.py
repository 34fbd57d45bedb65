"""The matrix product, in plain Halide: ``mm(n, m) += wide(A(k, m)) * wide(B(n, k))`` with n
innermost.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

HALIDE_TYPES = {
    "f16": hl.Float(16),
    "bf16": hl.BFloat(16),
    "f32": hl.Float(32),
    "s8": hl.Int(8),
    "s32": hl.Int(32),
}


@dataclass(frozen=True, slots=True)
class Product:
    """The Funcs that a schedule talks about."""

    a: hl.ImageParam
    b: hl.ImageParam
    mm: hl.Func
    output: hl.Func
    n: hl.Var
    m: hl.Var
    k: hl.RDom


def multiply(types: str) -> Product:
    """The unscheduled pipeline for operand and result types such as ``f16-f32``; any M, N and K."""
    operand, result = (HALIDE_TYPES[t] for t in types.split("-"))
    wide = hl.Int(32) if types.startswith("s8") else hl.Float(32)
    a, b = hl.ImageParam(operand, 2, "A"), hl.ImageParam(operand, 2, "B")
    mm, output = hl.Func("mm"), hl.Func("C")
    n, m = hl.Var("n"), hl.Var("m")
    k = hl.RDom([(0, a.width())], "k")
    mm[n, m] = hl.cast(wide, 0)
    mm[n, m] += hl.cast(wide, a[k.x, m]) * hl.cast(wide, b[n, k.x])
    output[n, m] = hl.cast(result, mm[n, m])
    return Product(a, b, mm, output, n, m, k)
