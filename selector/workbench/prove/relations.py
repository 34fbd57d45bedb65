"""What the relations of the rules mean: claims of answers, preconditions of questions.

One table is both premise and goal: a premise is taken as true, a row that a rule makes is proved.
``selector.eqsat.claims`` says the same of single rows in NumPy, and tests compare the two. A
question's meaning is what its answers rely on. Digits are written innermost first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import z3

from selector.workbench.prove.context import Cls, Say, Unit
from selector.workbench.prove.formulas import Value
from selector.workbench.prove.products import (
    band_mask,
    band_split,
    convolve,
    convolve_rows,
    dense_rows,
    matmul,
    packed_matmul,
    product,
)
from selector.workbench.prove.sizes import ONE, ZERO, Digits, Poly, lane_number
from selector.workbench.prove.strings import BOOL
from selector.workbench.prove.values import UNSIGNED_ZERO, Attempt

Meaning = Callable[..., None]


def _walk(say: Say, e: Cls, base: Cls, steps: tuple[tuple[Cls, Poly], ...]) -> None:
    """e = base + sum of step * digit over extents that make its lanes, innermost first."""
    extents = tuple(n for _, n in steps)
    say.size(*extents)
    total = ONE
    for extent in extents:
        total *= extent
    say.lanes(e, total)
    for scalar in (base, *(s for s, _ in steps)):
        say.lanes(scalar, ONE)
    say.same_type(e, base)
    say.strided(e, *(s for s, _ in steps))

    def at_lane(at: Attempt, d: Digits) -> Value:
        value = at.scalar(base)
        for (step, _), digit in zip(steps, at.levels(d, *extents), strict=True):
            if not say.context.is_zero(step):
                value = value + at.z(lane_number(digit)) * at.scalar(step)
        return value

    say.value(e, at_lane)


def tile(say: Say, e: Cls, m: Poly, n: Poly, k: Poly, base: Cls, sm: Cls, sn: Cls, sk: Cls) -> None:
    _walk(say, e, base, ((sk, k), (sn, n), (sm, m)))


def phased(say: Say, e: Cls, m: Poly, q: Poly, p: Poly, k: Poly, base: Cls, *steps: Cls) -> None:
    sm, sq, sp, sk = steps
    _walk(say, e, base, ((sk, k), (sp, p), (sq, q), (sm, m)))


def tile_packed(
    say: Say, e: Cls, m: Poly, n: Poly, k: Poly, g: Poly, base: Cls, *steps: Cls
) -> None:
    sm, sn, inside, groups = steps
    _groups(say, k, g)
    _walk(say, e, base, ((inside, g), (groups, _over(say, k, g)), (sn, n), (sm, m)))


def _over(say: Say, k: Poly, g: Poly) -> Poly:
    return say.context.sizes.quotient(k, g)[0]


def _groups(say: Say, k: Poly, g: Poly) -> None:
    """Groups of more than one, and whole ones."""
    say.size(k, g)
    say.holds(">", g, ONE)
    say.holds("|", g, k)


def block(say: Say, r: Cls, *extents: Poly) -> None:
    say.size(*extents)
    total = ONE
    for extent in extents:
        total *= extent
    say.lanes(r, total)


def split(say: Say, p: Cls, m: Poly, n: Poly, k: Poly, _side: str, left: Cls, right: Cls) -> None:
    say.size(m, n, k)
    say.lanes(p, m * n * k)
    say.lanes(left, m * k)
    say.lanes(right, k * n)
    for x in (p, left, right):
        say.same_type(x, BOOL)

    def at_lane(at: Attempt, d: Digits) -> Value:
        term, column, row = at.levels(d, k, n, m)
        return z3.And(at.value(left, (*term, *row)), at.value(right, (*column, *term)))

    say.value(p, at_lane)


def packed_split(say: Say, p: Cls, m: Poly, n: Poly, k: Poly, g: Poly, packed: Cls) -> None:
    say.size(m, n)
    _groups(say, k, g)
    say.lanes(p, m * n * k)
    say.lanes(packed, k * n)
    groups = _over(say, k, g)
    for x in (p, packed):
        say.same_type(x, BOOL)

    def at_lane(at: Attempt, d: Digits) -> Value:
        low, high, column, _row = at.levels(d, g, groups, n, m)
        return at.value(packed, (*low, *column, *high))

    say.value(p, at_lane)


def scaled(say: Say, s: Cls, unit: Cls, c: Poly) -> None:
    factor(say, s)
    say.lanes(unit, ONE)
    say.same_type(s, unit)
    say.value(s, lambda at, d: at.scalar(unit) * at.z(c))


def factor(say: Say, s: Cls) -> None:
    say.lanes(s, ONE)
    say.integer(s)


def divided(say: Say, e: Cls, c: Poly, q: Cls, r: Cls, most: Poly) -> None:
    say.holds(">", c, ZERO)
    say.holds("<", most, c)
    for x in (q, r):
        say.lanes(x, say.context.lane_count(e))
        say.same_type(x, e)
    say.integer(e)

    def at_lane(at: Attempt, d: Digits) -> Value:
        quotient, rest = at.value(q, d), at.value(r, d)
        value = at.z(c) * quotient + rest
        if say is at.context:
            at.once(value, at.z(c), quotient, rest)
        return value

    def small(at: Attempt, d: Digits) -> Value:
        rest = at.value(r, d)
        return z3.And(rest >= 0, rest <= at.z(most))

    say.value(e, at_lane)
    say.lanewise(r, small)


def want_divided(say: Say, e: Cls, c: Poly) -> None:
    say.holds(">", c, ZERO)
    say.integer(e)


def zero(say: Say, z: Cls) -> None:
    def is_zero(at: Attempt, d: Digits) -> Value:
        if say is at.context:
            at.fact(z3.BoolVal(True), UNSIGNED_ZERO)
        return at.value(z, d) == 0

    say.lanewise(z, is_zero)


def gcd(say: Say, a: Poly, b: Poly, g: Poly) -> None:
    want_gcd(say, a, b)
    say.holds(">", g, ZERO)
    say.holds("|", g, a)
    say.holds("|", g, b)
    say.greatest(a, b, g)


def want_gcd(say: Say, a: Poly, b: Poly) -> None:
    say.holds(">", a, ZERO)
    say.holds(">", b, ZERO)


def lanes(say: Say, e: Cls, n: Poly) -> None:
    say.lanes(e, n)


def want(say: Say, _: Cls, parts: Poly) -> None:
    say.size(parts)


def demand(say: Say, e: Cls, *extents: Poly) -> None:
    block(say, e, *extents)


def demand_packed(say: Say, e: Cls, m: Poly, n: Poly, k: Poly, g: Poly) -> None:
    _groups(say, k, g)
    block(say, e, m, n, k)


def mask(say: Say, p: Cls, m: Poly, n: Poly, k: Poly, _side: str) -> None:
    block(say, p, m, n, k)
    say.same_type(p, BOOL)


def packed_mask(say: Say, p: Cls, m: Poly, n: Poly, k: Poly, g: Poly) -> None:
    demand_packed(say, p, m, n, k, g)
    say.same_type(p, BOOL)


def instruction(say: Say, location: str, f: str, m: Poly, n: Poly, a: str, b: str, c: str) -> None:
    say.size(m, n)
    say.context.target.units.append(Unit(location, f, m, n, (a, b, c)))


def part(
    say: Say, location: str, f: str, m: Poly, n: Poly, apart: Poly, a: str, b: str, c: str
) -> None:
    say.size(m, n)
    say.context.target.units.append(Unit(location, f, m, n, (a, b, c), apart))


def packing(say: Say, f: str, g: Poly) -> None:
    say.size(g)
    say.context.target.packings[f] = g


def configurable(say: Say, f: str) -> None:
    say.context.target.configurable.add(f)


def embeds(say: Say, narrow: str, wide: str) -> None:
    say.context.target.embeds.append((narrow, wide))


def product_fits(say: Say, narrow: str, product: str) -> None:
    say.context.target.fits.append((narrow, product))


MEANINGS: Mapping[str, Meaning] = {
    "lanes": lanes,
    "gcd": gcd,
    "zero": zero,
    "tile": tile,
    "phased": phased,
    "tile-packed": tile_packed,
    "product": product,
    "block": block,
    "columns": block,
    "split": split,
    "packed-split": packed_split,
    "band-split": band_split,
    "convolve": convolve,
    "convolve-rows": convolve_rows,
    "scaled": scaled,
    "divided": divided,
    "matmul": matmul,
    "packed-matmul": packed_matmul,
    "stored-matmul": packed_matmul,
    "dense-rows": dense_rows,
    "want": want,
    "want-gcd": want_gcd,
    "want-divided": want_divided,
    "demand": demand,
    "demand-phased": demand,
    "demand-packed": demand_packed,
    "mask": mask,
    "packed-mask": packed_mask,
    "band-mask": band_mask,
    "factor": factor,
    "phases": want,
}
"""Of answers what they claim, of questions what their answers rely on."""

GIVEN: Mapping[str, Meaning] = {
    "instruction": instruction,
    "part": part,
    "packing": packing,
    "configurable": configurable,
    "embeds": embeds,
    "product-fits": product_fits,
}
"""Facts of the target and of types: no rule makes a row, ``bits`` proves those that are written."""
