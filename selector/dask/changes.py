"""By how much each expression of a program changes as its window moves by ``$s`` tiles.

A change is a polynomial in ``$s``, in strides, and in ``$end.<input>.<dimension>``: where a cut
input ends beside that, which is anywhere. What decides values must not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import gcd
from typing import TypeVar, assert_never

from selector.dask.ranges import Range, Ranges
from selector.dask.regions import Side, Stuck, Uneven
from selector.dataclass import dataclass
from selector.ir.access import access
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    BufferParam,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    ExprVar,
    FloatImm,
    IntImm,
    Let,
    Load,
    LocToLoc,
    Not,
    Ramp,
    Select,
    Shuffle,
    Var,
    VectorReduce,
)  # fmt: skip
from selector.ir.simplify import in_every_lane
from selector.ir.traverse import expr_children, free_vars

S = Var("$s")
NONE = Affine()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stride:
    """An extent of a buffer, ``each*atom + rest``, under a name of its own: what its rows lie
    apart by."""

    name: Var
    atom: Expr
    each: int
    rest: Affine

    @staticmethod
    def of(name: str, extent: Expr) -> Stride | None:
        """None for a number and for what is no multiple of one thing and a rest."""
        total = to_affine(extent)
        for m, c in total:
            if len(m) == 1:
                rest = total.rest(m[0])
                if (total - rest).terms == ((m, c),):
                    return Stride(Var(name), m[0], c, rest)
        return None

    def replaced_in(self, index: Affine) -> Affine:
        """The same index, with this extent by its name where it is a factor."""
        total = index.rest(self.atom)
        for m, c in index.coefficient(self.atom):
            if c % self.each:
                return index
            whole = Affine.of(self.name) - self.rest
            total = total + Affine.build({m: c // self.each}) * whole
        return total


class Changes:
    """``env`` by variable, ``moves`` by buffer: what their indices change by.

    ``margin`` and ``after`` are found on the way, as ``Motion`` has them; ``bounded``: whether a
    window's end moves the last tile back into it.
    """

    def __init__(self, inputs: Mapping[str, BufferParam], cut: frozenset[str]) -> None:
        self._inputs, self._cut = inputs, cut
        self.env: dict[str, Affine] = {}
        self.moves: dict[str, Affine] = {}
        self.strides: dict[str, tuple[Stride, ...]] = {}
        self.ranges = Ranges()
        self.margin = 0
        self.bounded = False
        self.after: dict[Side, int] = {}

    def still(self, e: Expr) -> None:
        """Nothing but loads may know where the window is."""
        if self.of(e).terms:
            raise Stuck(self._position(e))

    def within(self, name: str, moves: Affine, reach: Range, follow: Callable[[], T]) -> T:
        """What follows of a variable's scope."""
        outer = self.env.get(name), self.ranges.known.get(name)
        self.env[name], self.ranges.known[name] = moves, reach
        found = follow()
        del self.env[name], self.ranges.known[name]
        if outer[0] is not None and outer[1] is not None:
            self.env[name], self.ranges.known[name] = outer[0], outer[1]
        return found

    def at(self, buffer: str, index: Expr) -> None:
        """An access: it must be where all others of that buffer are, moved."""
        moves = self._coordinates(self.strides.get(buffer, ()), index)
        due = self.moves.setdefault(buffer, moves)
        if moves == due:
            return
        if buffer in self._cut and not due.terms:
            raise Stuck(f"it needs all of `{buffer}` along an axis")
        if buffer in self._inputs and not due.terms:
            raise Stuck(f"`{buffer}` is read at the place of the output, and is not cut with it")
        raise Stuck(f"`{buffer}` is used at places that do not move with the output")

    def _coordinates(self, strides: Sequence[Stride], index: Expr) -> Affine:
        """What an index changes by. Rows of a buffer that grows with the window lie further apart
        in a larger one, so that its coordinates are followed one by one, times their strides.
        """
        found = access(index) if strides else None
        if found is None:
            return self.of(index)
        parts = [found.base, *(step for step, _ in found.levels)]
        changes = [self._by_strides(strides, part) for part in parts]
        if any(change.terms for change in changes[1:]):
            raise Stuck(self._position(index))
        return changes[0]

    def _by_strides(self, strides: Sequence[Stride], index: Affine) -> Affine:
        for stride in strides:
            index = stride.replaced_in(index)
        names = {s.name for s in strides}
        groups: dict[tuple[Expr, ...], dict[tuple[Expr, ...], int]] = {}
        for m, c in index:
            own = tuple(a for a in m if a in names)
            rest = tuple(a for a in m if a not in names)
            groups.setdefault(own, {})[rest] = c
        total = NONE
        for own, terms in groups.items():
            moves = self.of(Affine.build(terms).to_expr())
            total = total + Affine.build({own: 1}) * moves
        return total

    def of(self, e: Expr) -> Affine:  # noqa: C901 (one case per node)
        match e:
            case IntImm() | FloatImm():
                return NONE
            case Var(name, _):
                return self.env.get(name, NONE)
            case Broadcast(value, _) | LocToLoc(_, _, value) | ExprVar(value):
                return self.of(value)
            case Binary():
                return self._binary(e)
            case Compare():
                return self._compare(e)
            case Ramp(base, stride, _):
                self.still(stride)
                return self.of(base)
            case Load(_, buffer, index, predicate):
                self.at(buffer, index)
                if predicate is not None:
                    self.still(predicate)
                return NONE
            case Select(condition, then, otherwise):
                self.still(condition)
                return self._same(e, self.of(then), self.of(otherwise))
            case Cast(t, value):
                moves = self.of(value)
                if moves.terms and not (t.is_integer and t.bits >= 32):
                    raise Stuck(self._position(value))
                return moves
            case Let(name, value, body):
                return self.within(
                    name, self.of(value), self.ranges.of(value), partial(self.of, body)
                )
            case Shuffle(vectors, _):
                moves = [self.of(v) for v in vectors]
                return self._same(e, *moves)
            case Not() | VectorReduce() | Call():
                for child in expr_children(e):
                    self.still(child)
                return NONE
            case _:
                assert_never(e)

    def _same(self, e: Expr, *moves: Affine) -> Affine:
        if any(m != moves[0] for m in moves):
            raise Stuck(self._position(e))
        return moves[0]

    def _binary(self, e: Binary) -> Affine:
        a, b = self.of(e.a), self.of(e.b)
        match e.op:
            case BinaryOp.ADD:
                return a + b
            case BinaryOp.SUB:
                return a - b
            case BinaryOp.MIN | BinaryOp.MAX:
                if a != b:
                    return self._clamp(e, a, b)
                self.bounded |= bool(a.terms)
                return a
            case _ if not a.terms and not b.terms:
                return NONE
            case BinaryOp.MUL:
                return self._times(e, a, b)
            case BinaryOp.DIV | BinaryOp.MOD:
                return self._divide(e, a, b)
            case _:
                raise Stuck(self._position(e))

    def _times(self, e: Binary, a: Affine, b: Affine) -> Affine:
        moving, factor = (a, e.b) if not b.terms else (b, e.a)
        other = _scalar(factor)
        if (a.terms and b.terms) or other is None:
            raise Stuck(self._position(e))
        return moving * to_affine(other)

    def _divide(self, e: Binary, a: Affine, b: Affine) -> Affine:
        by = _scalar(e.b)
        if b.terms or not isinstance(by, IntImm) or by.value <= 0:
            raise Stuck(self._position(e))
        for m, c in a:
            if c % by.value:
                if S not in m:
                    raise Stuck(self.whole(e.a))
                raise Uneven(by.value // gcd(c, by.value))
        return (a.divided_by(by.value) or NONE) if e.op is BinaryOp.DIV else NONE

    def _clamp(self, e: Binary, a: Affine, b: Affine) -> Affine:
        """An end that is idle away from the image's edges: what it leaves moves as the other."""
        (moving, moves), (end, _) = self._edge(e, a, b)
        begins = not self.of(end).terms
        if (e.op is BinaryOp.MAX) != begins:
            raise Stuck(self._position(e))
        self.ranges.taken[id(e)] = moving
        return moves

    def _compare(self, e: Compare) -> Affine:
        a, b = self.of(e.a), self.of(e.b)
        if a != b:
            if e.op in (CompareOp.EQ, CompareOp.NE):
                raise Stuck(self._position(e))
            self._edge(e, a, b)
        return NONE

    def _edge(
        self, e: Binary | Compare, a: Affine, b: Affine
    ) -> tuple[tuple[Expr, Affine], tuple[Expr, Affine]]:
        """The side that moves and the end that it is compared with, from which kept tiles stay
        away."""
        ends = {end_of(n, k): (n, k) for (n, k) in self._sides()}
        for (x, p), (y, q) in (((e.a, a), (e.b, b)), ((e.b, b), (e.a, a))):
            step = p.coefficient(S).constant
            if step is None or step <= 0 or p.rest(S).terms:
                continue
            if not q.terms:  # the beginning
                low, high = self.ranges.of(x).low, self.ranges.of(y).high
                if low is None or high is None:
                    break
                self.margin = max(self.margin, -((low - high - _strict(e, x, True)) // step))
                return (x, p), (y, q)
            side = ends.get(q - p)
            if side is not None:
                rest = self.ranges.beyond(y, extent_of(self._inputs[side[0]], side[1]))
                high = self.ranges.of(x).high
                if rest is None or rest.low is None or high is None:
                    break
                reach = high - rest.low + _strict(e, x, False)
                self.after[side] = max(self.after.get(side, 0), reach)
                return (x, p), (y, q)
        raise Stuck(self._position(e))

    def _sides(self) -> list[Side]:
        return [(b.name, k) for b in self._inputs.values() for k in range(len(b.dims))]

    def _position(self, e: Expr) -> str:
        names = self._extents_in(e)
        if names:
            return self.whole(e)
        return "the values depend on where in the whole image they are"

    def whole(self, e: Expr) -> str:
        names = self._extents_in(e)
        what = f"the extent of `{names[0]}`" if names else "the position of the window"
        return f"{what} decides what is computed, and not only at the image's edges"

    def _extents_in(self, e: Expr) -> list[str]:
        """The cut inputs whose extents are in an expression."""
        own, sides = free_vars(e), [side for side in self._sides() if side[0] in self._cut]
        return [n for (n, k) in sides if _name(extent_of(self._inputs[n], k)) in own]


def _strict(e: Binary | Compare, moving: Expr, beginning: bool) -> int:
    """0 if it is decided where the moving side equals the end, 1 if only beyond it."""
    if isinstance(e, Binary):
        return 0
    first = e.op in (CompareOp.GE, CompareOp.LT)  # decided by `a >= b`
    return int(first == ((e.a is moving) != beginning))


def _scalar(e: Expr) -> Expr | None:
    e = in_every_lane(e)
    return e if e.type.lanes == 1 and e.type.is_integer else None


def end_of(name: str, k: int) -> Affine:
    return Affine.of(Var(f"$end.{name}.{k}"))


def extent_of(buffer: BufferParam, k: int) -> Expr:
    return buffer.dims[k].extent


def _name(e: Expr) -> str:
    return e.name if isinstance(e, Var) else ""
