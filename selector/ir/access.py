"""How a vector index walks memory: a base and one (stride, count) per level, innermost first.

This is what the rules find by rewriting, computed directly. In selection it serves messages, in
which a miss is explained in terms of strides along axes, and to write out all dimensions of a
reduction but one (``selector.operands.slices``); operands are found by the rules alone.
"""

from __future__ import annotations

from math import prod

from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Broadcast, Expr, IntImm, Ramp

Level = tuple[Affine, int]


@dataclass(frozen=True, slots=True)
class Access:
    """Lane ``d0 + c0*(d1 + c1*(...))`` is at ``base + sum(d_i * stride_i)``; no level has count
    1."""

    base: Affine
    levels: tuple[Level, ...] = ()

    @property
    def lanes(self) -> int:
        return prod(count for _, count in self.levels)

    def is_dense(self) -> bool:
        """Whether the lanes are one run of consecutive elements."""
        merged = merge(self.levels)
        return not merged or (len(merged) == 1 and merged[0][0].constant == 1)


def access(index: Expr) -> Access | None:
    """The levels of an index; None if it is not affine in its lanes."""
    if index.type.lanes == 1:
        return Access(Affine.of(index)) if index.type.is_integer else None
    match index:
        case Broadcast(value, count):
            return _stack(access(value), Affine(), count)
        case Ramp(base, stride, count):
            step = access(stride)
            if step is None or any(s.terms for s, _ in step.levels):
                return None
            return _stack(access(base), step.base, count)
        case Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b):
            return _total(access(a), access(b), 1 if op is BinaryOp.ADD else -1)
        case Binary(BinaryOp.MUL, a, b):
            return _product(access(a), access(b))
        case Binary(BinaryOp.DIV | BinaryOp.MOD as op, a, Broadcast(IntImm(divisor), _)):
            return divided(op, access(a), divisor)
        case _:
            return None


def divided(op: BinaryOp, a: Access | None, divisor: int) -> Access | None:
    """The quotient or remainder of a walk in whole groups: ``divisor*q + r`` in every lane, r below
    the divisor."""
    if a is None or divisor <= 0:
        return None
    rest = a.base.offset % divisor
    whole = (a.base - rest).divided_by(divisor)
    if whole is None:
        return None
    quotients, remainders = list[Level](), list[Level]()
    for stride, count in _grouped(a.levels, divisor):
        multiple = stride.divided_by(divisor)
        if multiple is None and (stride.constant is None or stride.constant < 0):
            return None
        quotients.append((multiple or Affine(), count))
        remainders.append((Affine() if multiple is not None else stride, count))
    most = rest + sum((s.constant or 0) * (count - 1) for s, count in remainders)
    if most >= divisor:
        return None
    if op is BinaryOp.DIV:
        return Access(whole, tuple(quotients))
    return Access(Affine.of(rest), tuple(remainders))


def _grouped(levels: tuple[Level, ...], divisor: int) -> list[Level]:
    """Levels that walk through groups of ``divisor`` cut into a walk inside one and one over
    them."""
    found: list[Level] = []
    for stride, count in levels:
        step = stride.constant
        inside = divisor // step if step and step > 0 and divisor % step == 0 else 0
        if 1 < inside < count and count % inside == 0:
            found += [(stride, inside), (stride * inside, count // inside)]
        else:
            found.append((stride, count))
    return found


def _stack(inner: Access | None, stride: Affine, count: int) -> Access | None:
    if inner is None or count == 1:
        return inner
    return Access(inner.base, (*inner.levels, (stride, count)))


def _total(a: Access | None, b: Access | None, sign: int) -> Access | None:
    pairs = None if a is None or b is None else align(a.levels, b.levels)
    if a is None or b is None or pairs is None:
        return None
    levels = tuple((s + t * sign, count) for s, t, count in pairs)
    return Access(a.base + b.base * sign, levels)


def _product(a: Access | None, b: Access | None) -> Access | None:
    if a is None or b is None:
        return None
    if any(s.terms for s, _ in b.levels):
        a, b = b, a
    if any(s.terms for s, _ in b.levels):
        return None
    return Access(a.base * b.base, tuple((s * b.base, count) for s, count in a.levels))


def align(
    a: tuple[Level, ...], b: tuple[Level, ...]
) -> tuple[tuple[Affine, Affine, int], ...] | None:
    """Both nests over common counts; None if their levels cut across each other."""
    left, right, out = list(a), list(b), list[tuple[Affine, Affine, int]]()
    while left and right:
        (s, n), (t, m) = left.pop(0), right.pop(0)
        count = min(n, m)
        if n % count or m % count:
            return None
        if n > count:
            left.insert(0, (s * count, n // count))
        if m > count:
            right.insert(0, (t * count, m // count))
        out.append((s, t, count))
    return tuple(out) if not left and not right else None


def cut(
    levels: tuple[Level, ...], lanes: int
) -> tuple[tuple[Level, ...], tuple[Level, ...]] | None:
    """The inner levels that count ``lanes`` lanes, and the outer rest; None if a level is cut
    unevenly."""
    inner: list[Level] = []
    rest = list(levels)
    while lanes > 1:
        if not rest:
            return None
        stride, count = rest.pop(0)
        if count > lanes:
            if count % lanes:
                return None
            rest.insert(0, (stride * lanes, count // lanes))
            count = lanes
        if lanes % count:
            return None
        inner.append((stride, count))
        lanes //= count
    return tuple(inner), tuple(rest)


def merge(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """Levels that continue one another as one."""
    out: list[Level] = []
    for stride, count in levels:
        if out and (out[-1][0] * out[-1][1] - stride).constant == 0:
            out[-1] = (out[-1][0], out[-1][1] * count)
        else:
            out.append((stride, count))
    return tuple(out)


def walk(base: Affine, levels: tuple[Level, ...]) -> Expr:
    """The index of a base and its levels, innermost first: the inverse of ``access``."""
    result = base.to_expr()
    for stride, count in levels:
        result = level(result, stride.to_expr(), count)
    return result


def level(base: Expr, stride: Expr, count: int) -> Expr:
    """One level of an index: nothing for one part, a broadcast for stride 0."""
    if count == 1:
        return base
    if stride == IntImm(0):
        return Broadcast(base, count)
    return Ramp(base, repeated(stride, base.type.lanes), count)


def repeated(e: Expr, lanes: int) -> Expr:
    """A scalar in every lane of a vector."""
    return e if lanes == 1 else Broadcast(e, lanes)
