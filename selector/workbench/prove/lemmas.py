"""Equality of values that have sums, by lemmas about sums.

* Equal bounds, equal summands: equal sums; also with the terms of one taken from the last one on.
* *Band*: f is zero off ``first + step*j``, step >= 1, j < K. The sum of f(t) over t < R is that of
  f(first + step*j) over j < K.
* *Zeros at the end*: f is zero from K on. The sum over t < R is that over t < K.

``proved_lemmas`` proves them by induction, and that quotient and rest are the only ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import z3

from selector.workbench.prove.formulas import Band, Either, Sum, Value
from selector.workbench.prove.sizes import ONE, Unproved, lane_number
from selector.workbench.prove.values import ORDER, Attempt


def sums_in(at: Attempt, value: Value) -> list[str]:
    """The names of the sums in a value."""
    found: dict[str, None] = {}
    seen: set[int] = set()

    def visit(e: Value) -> None:
        if e.get_id() in seen:
            return
        seen.add(e.get_id())
        if z3.is_const(e) and str(e) in at.sums:
            found[str(e)] = None
        for child in e.children():
            visit(child)

    visit(value)
    return list(found)


def equality(at: Attempt, left: Value, right: Value) -> Iterator[Value | Either]:
    """Formulas of which it follows that two values are equal."""
    ours, theirs = sums_in(at, left), sums_in(at, right)
    if len(ours) != len(theirs) or len(ours) > 1:
        raise Unproved(f"{len(ours)} sums beside {len(theirs)}")
    for a, b in zip(ours, theirs, strict=True):
        yield Either(tuple(_equal_sums(at, at.sums[a], at.sums[b])))
        right = z3.substitute(right, (z3.Int(b), z3.Int(a)))
    yield left == right


def _equal_sums(at: Attempt, a: Sum, b: Sum) -> Iterator[tuple[str, tuple[Value, ...]]]:
    """Ways to prove two sums equal."""
    ours, our_bands = _summand(at, a, "#term")
    theirs, their_bands = _summand(at, b, "#other")
    if at.sizes.expanded(a.extent) == at.sizes.expanded(b.extent):
        term = lane_number(at.fresh("#term", a.extent))
        yield "", (ours == b.summand(term),)
    for long, short, bands, value in ((a, b, our_bands, ours), (b, a, their_bands, theirs)):
        for band in bands:
            if at.sizes.expanded(band.taps) == at.sizes.expanded(short.extent):
                yield "", _banded(at, long, short, band, value, backwards=False)
                yield ORDER, _banded(at, long, short, band, value, backwards=True)
        yield "", _zeros_at_the_end(at, short, long)


def _summand(at: Attempt, total: Sum, about: str) -> tuple[Value, list[Band]]:
    """A sum's term, and the bands that it moves along."""
    term = lane_number(at.fresh(about, total.extent))
    before = len(at.bands)
    value = total.summand(term)
    moved = {*term.names()}
    return value, [band for band in at.bands[before:] if moved & {*band.row.names()}]


def _banded(
    at: Attempt, long: Sum, short: Sum, band: Band, summand: Value, backwards: bool
) -> tuple[Value, ...]:
    """The band's taps are the terms of the shorter sum, in order or from the last one on."""
    tap = lane_number(at.fresh("#tap", band.taps))
    row = band.first + band.step * tap
    return (
        at.z(band.step) >= 1,
        z3.And(at.z(row) >= 0, at.z(row) < at.z(long.extent)),
        z3.Implies(z3.Not(band.inside), summand == 0),
        long.summand(row) == short.summand(band.taps - ONE - tap if backwards else tap),
    )


def _zeros_at_the_end(at: Attempt, short: Sum, long: Sum) -> tuple[Value, ...]:
    """The terms of the longer sum that the shorter one has not are zero."""
    term = lane_number(at.fresh("#first", short.extent))
    beyond = lane_number(at.fresh("#beyond", long.extent))
    is_beyond = at.z(beyond) >= at.z(short.extent)
    return (
        at.z(short.extent) <= at.z(long.extent),
        short.summand(term) == long.summand(term),
        z3.Implies(is_beyond, long.summand(beyond) == 0),
    )


def lemmas() -> Mapping[str, tuple[Value, ...]]:
    """Each lemma as the queries of its proof, all of which have no answer.

    ``f, g`` are summands, ``F(n), G(n)`` the sums of their first n terms; a query is a case of an
    induction over n, denied.
    """
    n, j, i, rows, taps, first, step = z3.Ints("n j i rows taps first step")
    f, g, F, G = (z3.Function(x, z3.IntSort(), z3.IntSort()) for x in "fgFG")  # noqa: N806

    def next_sum(total: Value, of: Value, at: Value) -> Value:
        return total(at + 1) == total(at) + of(at)

    start = z3.And(F(0) == 0, G(0) == 0)
    both = z3.And(next_sum(F, f, n), next_sum(G, g, n), n >= 0)
    backwards = z3.And(next_sum(F, f, taps - 1 - n), next_sum(G, g, n), g(n) == f(taps - 1 - n))

    def so_far(n: Value, j: Value) -> Value:
        """The first n rows hold the first j taps."""
        behind = z3.Or(j == 0, first + step * (j - 1) < n)
        ahead = z3.Or(j == taps, n <= first + step * j)
        return z3.And(j >= 0, j <= taps, behind, ahead)

    band = z3.And(first >= 0, step >= 1, taps >= 1, first + step * (taps - 1) < rows)
    known = z3.And(band, so_far(n, j), n >= 0, n < rows)
    on = z3.And(j < taps, n == first + step * j)
    apart = z3.And(step * i <= step * (j - 1), i < j), z3.And(step * i >= step * j, i >= j)
    a, b, q, r, p, s = z3.Ints("a b q r p s")
    ordered = z3.Or(q == p, *(b * x >= b * y + b for x, y in ((q, p), (p, q))))
    return {
        "equal summands": (
            z3.And(start, F(0) != G(0)),
            z3.And(both, F(n) == G(n), f(n) == g(n), F(n + 1) != G(n + 1)),
        ),
        "terms from the last one on": (
            z3.And(start, F(taps) != F(taps - 0) + G(0)),
            z3.And(
                backwards,
                F(taps) == F(taps - n) + G(n),
                F(taps) != F(taps - 1 - n) + G(n + 1),
            ),
        ),
        "zeros at the end": (
            z3.And(both, n >= rows, F(n) == F(rows), f(n) == 0, F(n + 1) != F(rows)),
        ),
        "band": (
            z3.And(band, z3.Not(so_far(z3.IntVal(0), z3.IntVal(0)))),
            z3.And(known, on, z3.Not(so_far(n + 1, j + 1))),
            z3.And(known, z3.Not(on), z3.Not(so_far(n + 1, j))),
            z3.And(known, z3.Not(on), z3.Or(*apart), i >= 0, i < taps, n == first + step * i),
            z3.And(band, so_far(rows, j), j < taps, step * j <= step * (taps - 1)),
        ),
        "quotient and rest": (
            z3.And(
                a == b * q + r, a == b * p + s, r >= 0, r < b, s >= 0, s < b, ordered,
                z3.Or(q != p, r != s),
            ),
        ),
        "multiples in order": (z3.And(b > 0, q >= p + 1, b * (q - p - 1) < 0),),
    }  # fmt: skip
