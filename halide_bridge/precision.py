"""Products of floats that a tensor unit has only for narrower types."""

from __future__ import annotations

import halide as hl

_HALF, _FLOAT = hl.Float(16), hl.Float(32)


def split_product(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The product of two float32 values as three of halves, for sums on a tensor unit:
    ``high(a)*high(b) + high(a)*low(b) + low(a)*high(b)`` with ``high(x) = f16(x)`` and ``low(x) =
    f16(x - high(x))``.

    Each product is off by at most 3 * 2**-22 of itself, where one of halves is by 2**-10, as long
    as both values are at most 65504, and no less than 1/8 (below that, each is off by 2**-25
    itself). It takes three times the instructions of a product of halves.
    """
    a, b = hl.cast(_FLOAT, a), hl.cast(_FLOAT, b)
    (high_a, low_a), (high_b, low_b) = _parts(a), _parts(b)
    return high_a * high_b + high_a * low_b + low_a * high_b


def _parts(e: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    high = hl.cast(_FLOAT, hl.cast(_HALF, e))
    return high, hl.cast(_FLOAT, hl.cast(_HALF, e - high))
