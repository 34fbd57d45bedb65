"""Vector indices in one canonical form: nested ramps and broadcasts of one scalar base.

Halide vectorizes a sum over several loops into sums of full-length vectors, such as

    ramp(x512(a), x512(s), 64) + x2048(ramp(b, 1, 16))

A vector whose lanes are affine in their position is the same as a scalar base with a list of levels
(stride, count), innermost first; here base a + b and levels (1, 16), (0, 32), (s, 64), which reads

    ramp(x32(ramp(a + b, 1, 16)), x512(s), 64)
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.ir.nodes import Binary, BinaryOp, Broadcast, Expr, IntImm, Ramp
from selector.ir.types import INT32

_ZERO = IntImm(0)


@dataclass(frozen=True, slots=True)
class Level:
    """``count`` repetitions, ``stride`` apart."""

    stride: Expr
    count: int


@dataclass(frozen=True, slots=True)
class Lanes:
    """A base and its levels, innermost first."""

    base: Expr
    levels: tuple[Level, ...]


def canonical_index(e: Expr, lanes: int = 0) -> Expr:
    """The same vector as nested ramps; ``e`` itself where its lanes are not affine.

    ``lanes`` is the length of the vector, if the caller knows it.
    """
    count = lanes or e.type.lanes
    if count == 1 or not isinstance(e, Ramp | Broadcast | Binary) or _is_plain(e):
        return e
    if e.type.element != INT32:
        return e
    levels = analyse(e, count)
    return e if levels is None else build(levels)


def _is_plain(e: Expr) -> bool:
    """One ramp or broadcast of scalars."""
    match e:
        case Ramp(base, _, _):
            return base.type.lanes == 1
        case _:
            return False


def analyse(e: Expr, lanes: int) -> Lanes | None:
    """The levels of a vector of ``lanes`` lanes, or None where they are not affine."""
    match e:
        case _ if lanes == 1:
            return Lanes(e, ())
        case Broadcast(value, count):
            inner = analyse(value, lanes // count)
            return inner and Lanes(inner.base, (*inner.levels, Level(_ZERO, count)))
        case Ramp(base, stride, count):
            inner, step = analyse(base, lanes // count), _uniform(stride, lanes // count)
            if inner is None or step is None:
                return None
            return Lanes(inner.base, (*inner.levels, Level(step, count)))
        case Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b):
            return _combine(op, analyse(a, lanes), analyse(b, lanes))
        case Binary(BinaryOp.MUL, a, b):
            factor = _uniform(b, lanes)
            if factor is not None:
                return _scale(analyse(a, lanes), factor)
            factor = _uniform(a, lanes)
            return None if factor is None else _scale(analyse(b, lanes), factor)
        case _:
            return None


def build(lanes: Lanes) -> Expr:
    """The nested ramps of the levels; levels that continue one another are joined."""
    e, width = lanes.base, 1
    for level in _joined(lanes.levels):
        if _is_zero(level.stride):
            e = Broadcast(e, level.count)
        elif width == 1:
            e = Ramp(e, level.stride, level.count)
        else:
            e = Ramp(e, Broadcast(level.stride, width), level.count)
        width *= level.count
    return e


def _uniform(e: Expr, lanes: int) -> Expr | None:
    """The scalar that every lane of ``e`` has, if it is seen at once."""
    match e:
        case _ if lanes == 1:
            return e
        case Broadcast(value, count):
            return _uniform(value, lanes // count)
        case _:
            return None


def _joined(levels: tuple[Level, ...]) -> list[Level]:
    joined: list[Level] = []
    for level in levels:
        if level.count == 1:
            continue
        if joined and _continues(joined[-1], level):
            joined[-1] = Level(joined[-1].stride, joined[-1].count * level.count)
        else:
            joined.append(level)
    return joined


def _continues(inner: Level, outer: Level) -> bool:
    match inner.stride, outer.stride:
        case IntImm(a, _), IntImm(b, _):
            return b == a * inner.count
        case _:
            return False


def _combine(op: BinaryOp, a: Lanes | None, b: Lanes | None) -> Lanes | None:
    if a is None or b is None:
        return None
    counts = _common_counts(a.levels, b.levels)
    if counts is None:
        return None
    left, right = _refine(a.levels, counts), _refine(b.levels, counts)
    levels = tuple(
        Level(arithmetic(op, x.stride, y.stride), x.count) for x, y in zip(left, right, strict=True)
    )
    return Lanes(arithmetic(op, a.base, b.base), levels)


def _scale(lanes: Lanes | None, factor: Expr) -> Lanes | None:
    if lanes is None:
        return None
    levels = tuple(
        Level(arithmetic(BinaryOp.MUL, level.stride, factor), level.count) for level in lanes.levels
    )
    return Lanes(arithmetic(BinaryOp.MUL, lanes.base, factor), levels)


def _common_counts(a: tuple[Level, ...], b: tuple[Level, ...]) -> list[int] | None:
    """Counts into which both lists of levels can be cut, innermost first."""
    left, right = [x.count for x in reversed(a)], [x.count for x in reversed(b)]
    counts: list[int] = []
    while left and right:
        x, y = left.pop(), right.pop()
        small, large = min(x, y), max(x, y)
        if large % small != 0:
            return None
        counts.append(small)
        if large > small:
            (left if x > y else right).append(large // small)
    return counts


def _refine(levels: tuple[Level, ...], counts: list[int]) -> list[Level]:
    refined: list[Level] = []
    rest = list(counts)
    for level in levels:
        done = 1
        while done < level.count:
            count = rest.pop(0)
            step = arithmetic(BinaryOp.MUL, level.stride, IntImm(done))
            refined.append(Level(step, count))
            done *= count
        while rest and rest[0] == 1:
            rest.pop(0)
    return refined


def arithmetic(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    """``a op b`` of scalars with the trivial cases folded."""
    match op, a, b:
        case BinaryOp.ADD, IntImm(x, t), IntImm(y, _):
            return IntImm(x + y, t)
        case BinaryOp.SUB, IntImm(x, t), IntImm(y, _):
            return IntImm(x - y, t)
        case BinaryOp.MUL, IntImm(x, t), IntImm(y, _):
            return IntImm(x * y, t)
        case BinaryOp.ADD, _, IntImm(0, _):
            return a
        case BinaryOp.SUB, _, IntImm(0, _):
            return a
        case BinaryOp.ADD, IntImm(0, _), _:
            return b
        case BinaryOp.MUL, _, IntImm(1, _):
            return a
        case BinaryOp.MUL, IntImm(1, _), _:
            return b
        case BinaryOp.MUL, IntImm(0, _), _:
            return a
        case BinaryOp.MUL, _, IntImm(0, _):
            return b
        case _:
            return Binary(op, a, b)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, IntImm) and e.value == 0
