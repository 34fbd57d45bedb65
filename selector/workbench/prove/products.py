"""What the relations about products claim: sums, matrices, convolutions and their predicates.

Written as in ``relations``, whose table has them.
"""

from __future__ import annotations

from typing import Any

import z3

from selector.workbench.prove.context import Cls, Context, Say
from selector.workbench.prove.formulas import Value
from selector.workbench.prove.lane_values import product_sum
from selector.workbench.prove.sizes import ONE, Digits, Poly, lane_number
from selector.workbench.prove.strings import BOOL, INT32
from selector.workbench.prove.values import Attempt


def product(say: Say, r: Cls, a: Cls, b: Cls, mn: Poly, k: Poly, t: str) -> None:
    say.size(mn, k)
    say.lanes(r, mn)
    say.lanes(a, mn * k)
    say.lanes(b, mn * k)
    say.same_type(r, t)

    def at_lane(at: Attempt, d: Digits) -> Value:
        def term(i: Poly) -> Value:
            lane = (*at.term(i, k), *d)
            return at.times(t, at.cast(t, a, at.value(a, lane)), at.cast(t, b, at.value(b, lane)))

        return at.total(k, term)

    say.value(r, at_lane)


def _tap(at: Attempt, term: Digits, taps: Poly, direction: Poly) -> Poly:
    """The tap of a term: in order, or from the last one on."""
    k = lane_number(term)
    return k if at.sizes.resolved(direction) == ONE else taps - ONE - k


def _band(say: Say, q: Poly, p: Poly, k: Poly, stride: Poly, dilation: Poly) -> None:
    say.size(q, p, k, stride, dilation)


def band_mask(
    say: Say, p: Cls, m: Poly, q: Poly, ph: Poly, k: Poly, st: Poly, d: Poly, w: Poly
) -> None:
    say.size(m)
    _band(say, q, ph, k, st, d)
    say.either(w, 1, -1)
    say.lanes(p, m * q * ph * k)
    say.same_type(p, BOOL)


def band_split(
    say: Say, p: Cls, m: Poly, q: Poly, ph: Poly, k: Poly, st: Poly, d: Poly, w: Poly,
    image: Cls, taps: Cls,
) -> None:  # fmt: skip
    band_mask(say, p, m, q, ph, k, st, d, w)
    rows = say.context.sizes.as_count(d * (k - ONE) + st * (q - ONE) + ONE)
    say.lanes(image, m * rows)
    say.lanes(taps, ph * k)
    for x in (image, taps):
        say.same_type(x, BOOL)

    def at_lane(at: Attempt, lane: Digits) -> Value:
        term, phase, output, row = at.levels(lane, k, ph, q, m)
        tap = _tap(at, term, k, w)
        t = lane_number(output) * st + tap * d
        left = at.value(image, (*at.digits((t, rows)), *row))
        return z3.And(left, at.value(taps, (*at.term(tap, k), *phase)))

    say.value(p, at_lane)


def convolve(
    say: Say, i: Cls, j: Cls, m: Poly, q: Poly, ph: Poly, k: Poly, base: Cls, unit: Cls,
    along_m: Cls, st: Poly, d: Poly, w: Poly, index: Cls,
) -> None:  # fmt: skip
    say.size(m)
    _band(say, q, ph, k, st, d)
    say.either(w, 1, -1)
    for x in (i, j):
        say.lanes(x, m * q * ph * k)
    say.lanes(index, ph * k)
    for scalar in (base, unit, along_m):
        say.lanes(scalar, ONE)
    say.same_type(i, base, unit, along_m, INT32)
    say.same_type(j, index, INT32)

    def walk(at: Attempt, lane: Digits) -> Value:
        term, _phase, output, row = at.levels(lane, k, ph, q, m)
        t = lane_number(output) * st + _tap(at, term, k, w) * d
        along = at.z(lane_number(row)) * at.scalar(along_m)
        return at.scalar(base) + along + at.scalar(unit) * at.z(t)

    def reads(at: Attempt, lane: Digits) -> Value:
        term, phase, _output, _row = at.levels(lane, k, ph, q, m)
        return at.value(index, (*at.term(_tap(at, term, k, w), k), *phase))

    say.value(i, walk)
    say.value(j, reads)


def convolve_rows(
    say: Say, i: Cls, m: Poly, n: Poly, k: Poly, base: Cls, unit: Cls, along_n: Cls,
    st: Poly, d: Poly,
) -> None:  # fmt: skip
    say.size(m, n, k, st, d)
    say.lanes(i, m * n * k)
    for scalar in (base, unit, along_n):
        say.lanes(scalar, ONE)
    say.same_type(i, base, unit, along_n, INT32)

    def walk(at: Attempt, lane: Digits) -> Value:
        term, column, row = at.levels(lane, k, n, m)
        t = lane_number(row) * st + lane_number(term) * d
        along = at.z(lane_number(column)) * at.scalar(along_n)
        return at.scalar(base) + along + at.scalar(unit) * at.z(t)

    say.value(i, walk)


def matmul(say: Say, r: Cls, m: Poly, n: Poly, k: Poly, a: Cls, b: Cls, *types: str) -> None:
    _matmul(say, r, (m, n, k), ONE, (a, b), types)


def packed_matmul(
    say: Say, r: Cls, m: Poly, n: Poly, k: Poly, g: Poly, a: Cls, b: Cls, *types: str
) -> None:
    say.holds(">", g, ONE)
    _matmul(say, r, (m, n, k), g, (a, b), types)


def _matmul(
    say: Say, r: Cls, shape: tuple[Poly, Poly, Poly], g: Poly, factors: tuple[Cls, Cls],
    types: tuple[str, ...],
) -> None:  # fmt: skip
    m, n, k = shape
    say.size(m, n, k)
    say.lanes(r, m * n)
    say.lanes(factors[0], m * k)
    groups = say.context.sizes.quotient(k + g - ONE, g)[0]
    say.lanes(factors[1], groups * g * n)
    for x, t in zip((*factors, r), types, strict=True):
        say.same_type(x, t)

    def at_lane(at: Attempt, d: Digits) -> Value:
        column, row = at.cut(d, n)
        return product_sum(at, r, factors, shape, g, (row, column))

    say.value(r, at_lane)


def dense_rows(say: Say, a: Cls, dense: Cls) -> None:
    context = say.context
    say.lanes(dense, context.lane_count(a))
    say.same_type(dense, a)
    say.value(dense, lambda at, d: at.value(a, d))
    say.demand(is_dense(context, dense), "rows that are dense in memory")


def is_dense(context: Context, e: Cls) -> bool:
    """A temporary, or rows of one element or of elements side by side."""
    matrices: list[Any] = [n.args for n in context.having(e, "Matrix")]
    return bool(context.having(e, "Materialize")) or any(
        context.literal(args[5]) == ONE or context.sizes.resolved(args[6]) == ONE
        for args in matrices
    )
