"""What the loops of a kernel of rows (``joined_rows``) do with the elements of a row, where that
follows from the elements' numbers alone, whichever thread they are of.

    for s < (n + 1023)/1024:
      if (all of 1024*s + 8*x ... < n) p[0 ... 7] = max(p[0 ... 7], a[w*y + 1024*s + 8*x ...])
      else p[0 ... 7] = ... where they are

is a ``Loop`` below the limit n: of elements e, ``p = max(p, a[w*y + e])``. Such elements may be
dealt out to threads otherwise (``whole_rows``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from selector.dataclass import dataclass
from selector.ir.affine import Affine, split_by_strides, to_affine
from selector.ir.lanes import lane
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Call,
    Compare,
    CompareOp,
    Dim,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Load,
    Ramp,
    ReduceOp,
    Select,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import conjuncts, free_vars, map_expr, walk_expr, walk_stmt
from selector.lowering.joined_rows import ROW_JOIN
from selector.lowering.predicates import is_predicated, slack
from selector.lowering.row_folds import OPERATIONS, Fold, Row, fold_of, neutral_of

LANE = Var("$l0")
ZERO, ONE = IntImm(0), IntImm(1)


class NoRowLoops(Exception):  # noqa: N818
    """Its loops are no such loops."""


@dataclass(frozen=True, slots=True)
class Loop:
    """``store`` is done with all elements below ``limit``, a vector in each turn of a loop: it
    stores in an array of the caller's, or takes a local array of one vector further by ``op``.
    """

    loop: For
    store: Store
    limit: Affine
    op: BinaryOp | None

    @property
    def name(self) -> str:
        return self.loop.name


@dataclass(slots=True)
class RowLoops:
    """The loops of a kernel: a thread has ``lanes`` elements in a turn. ``arrays``: dimensions of
    those that are not ``local``; ``alive``: tests that there is a row; ``idle``: statements that
    leave out what threads without elements have, which is neutral.
    """

    row: Row
    arrays: Mapping[str, Sequence[Dim]]
    local: frozenset[str]
    lanes: int = 0
    loops: dict[str, Loop] = field(default_factory=dict[str, Loop])
    alive: dict[Expr, None] = field(default_factory=dict[Expr, None])
    idle: set[Stmt] = field(default_factory=set[Stmt])
    neutral: dict[str, Expr] = field(default_factory=dict[str, Expr])  # what arrays begin as
    folds: dict[str, Fold] = field(default_factory=dict[str, Fold])  # of lanes, by the loop

    @property
    def limits(self) -> list[Affine]:
        return list(dict.fromkeys(x.limit for x in self.loops.values()))

    def element(self, base: Expr, loop: str) -> Affine | None:
        """Where element 0 of the row is, if ``base`` is that of a thread in a turn."""
        at, own = to_affine(base), (Var(loop), Var(self.row.x))
        steps = [at.coefficient(v).constant for v in own]
        rest = at.rest(own[0]).rest(own[1])
        if steps != [self.row.threads * self.lanes, self.lanes]:
            return None
        return None if any(rest.mentions(v.name) for v in own) else rest

    def at_elements(self, e: Expr, loop: str, of: Callable[[Affine], Expr]) -> Expr:
        """A vector of a turn with ``of(start)`` for the numbers ``start``, ``start + 1`` ... of its
        elements. ``NoRowLoops`` if it depends on the turn, or the thread, otherwise.
        """
        match e:
            case Load(_, buffer, Ramp(IntImm(0), IntImm(1), _)) if buffer in self.local:
                return e
            case Load(_, buffer) if buffer in self.local and e.type.lanes > 1:
                raise NoRowLoops
            case Ramp(base, IntImm(1), lanes) if base.type.lanes == 1 and lanes == self.lanes:
                start = self.element(base, loop)
                if start is None:
                    raise NoRowLoops
                return of(start)
            case VectorReduce():
                raise NoRowLoops
            case _ if e.type.lanes == 1:
                if free_vars(e) & {loop, self.row.x}:
                    raise NoRowLoops
                return e
            case _:
                return map_expr(e, lambda x: self.at_elements(x, loop, of))


def row_loops(body: Stmt, row: Row, arrays: Mapping[str, Sequence[Dim]]) -> RowLoops | None:
    """Those of a joined kernel; None if there are others, or none."""
    local = frozenset(s.name for s in walk_stmt(body) if isinstance(s, Allocate))
    found = RowLoops(row, arrays, local)
    try:
        _read(body, found)
        _check(found, body)
    except NoRowLoops:
        return None
    return found if found.loops else None


def _read(s: Stmt, found: RowLoops) -> None:
    match s:
        case Block(stmts):
            for x in stmts:
                _read(x, found)
        case Allocate(body=body) | For(kind=ForKind.GPU_THREAD, body=body):
            _read(body, found)
        case For(min=IntImm(0), kind=ForKind.SERIAL | ForKind.UNROLLED):
            fold = fold_of(s)
            if fold is not None and fold.load.buffer in found.local:
                found.folds[s.name] = fold
            else:
                _read_loop(s, found)
        case Store(name, Ramp(IntImm(0), IntImm(1)), Broadcast(value)) if name in found.local:
            found.neutral[name] = value
        case Store(name, IntImm(0), value) if name in found.local and value.type.lanes == 1:
            _read_number(s, found)
        case IfThenElse() if not any(isinstance(x, For) for x in walk_stmt(s)):
            if any(isinstance(x, Store) and x.value.type.lanes > 1 for x in walk_stmt(s)):
                raise NoRowLoops
        case _:
            raise NoRowLoops


def _read_number(s: Store, found: RowLoops) -> None:
    """A number of a thread: what it begins as, or what leaves it out."""
    match s.value:
        case Select(_, Load(_, name, IntImm(0)), other) if name == s.buffer:
            found.idle.add(s)
            if found.neutral.get(name) != other:
                raise NoRowLoops
        case Load(_, name, IntImm(0)) if name in found.neutral and s.buffer not in found.neutral:
            found.neutral[s.buffer] = found.neutral[name]
        case Call(_, name) if name.startswith(ROW_JOIN):
            op = BinaryOp[name.removeprefix(ROW_JOIN)]
            if found.neutral.get(s.buffer) != neutral_of(op, s.value.type):
                raise NoRowLoops
        case value:
            found.neutral.setdefault(s.buffer, value)


def _read_loop(s: For, found: RowLoops) -> None:
    store, conditions = _vector_store(s.body)
    lanes = store.value.type.lanes
    if lanes == 1 or found.lanes not in (0, lanes):
        raise NoRowLoops
    found.lanes = lanes
    limits, alive = list[Affine](), list[Expr]()
    for c in conditions:
        if c.type.lanes == 1 and not free_vars(c) & {s.name, found.row.x}:
            alive.append(c)
        else:
            limits.append(_limit(c, s.name, found))
    if len(limits) != 1:
        raise NoRowLoops
    limit, turn = limits[0], found.row.threads * lanes
    if not _reaches(s.extent, limit, turn):
        last = Affine.of(s.extent) * turn
        limit = Affine.of(Binary(BinaryOp.MIN, limit.to_expr(), last.to_expr()))
    found.alive.update(dict.fromkeys(alive))
    op = _operation(store, found)
    if store.buffer not in found.local:
        found.at_elements(store.index, s.name, lambda a: _row_start(store.buffer, a, found))
    value = found.at_elements(store.value, s.name, lambda a: Broadcast(a.to_expr(), lanes))
    for e in walk_expr(value):
        if isinstance(e, Load) and e.buffer not in found.local:
            if e.predicate is not None:
                raise NoRowLoops
            if isinstance(e.index, Broadcast):
                _row_start(e.buffer, to_affine(e.index.value), found)
            elif e.type.lanes > 1:  # clamped, say: no neighbours
                raise NoRowLoops
    found.loops[s.name] = Loop(s, store, limit, op)


def _reaches(extent: Expr, limit: Affine, turn: int) -> bool:
    """Whether so many turns go through all elements below a limit, for certain."""
    match limit.to_expr():
        case Binary(BinaryOp.DIV, own, IntImm(by)) if by > 0:
            pass
        case own:
            by = 1
    match extent:
        case Binary(BinaryOp.DIV, begun, IntImm(n)) if n == turn * by:
            left = to_affine(begun) - to_affine(own) - (turn - 1) * by
        case _:
            left = Affine.of(extent) * turn - limit
    return left.constant is not None and left.constant >= 0


def _vector_store(s: Stmt) -> tuple[Store, list[Expr]]:
    """What a turn stores, and the conditions of that, lane by lane."""
    match s:
        case IfThenElse(
            VectorReduce(ReduceOp.AND, lanes, 1), Store() as store, Store() as other
        ) if is_predicated(store, lanes, other):
            return store, list(conjuncts(lanes))
        case IfThenElse(condition, Store(predicate=None) as store, None) if (
            condition.type.lanes == 1
        ):
            return store, list(conjuncts(condition))
        case Store(buffer, index, value, predicate) if predicate is not None:
            return Store(buffer, index, value), list(conjuncts(predicate))
        case _:
            raise NoRowLoops


def _limit(condition: Expr, loop: str, found: RowLoops) -> Affine:
    """n where a condition is that elements are below n."""
    lanes = found.lanes
    one = lane(condition, ((LANE, lanes),)) if condition.type.lanes > 1 else condition
    room = slack(one)
    if room is None or room.coefficient(LANE).constant != -1:
        raise NoRowLoops
    limit = found.element((-room.rest(LANE)).to_expr(), loop)
    if limit is None or limit.mentions(LANE.name):
        raise NoRowLoops
    return -limit + 1


def _operation(store: Store, found: RowLoops) -> BinaryOp | None:
    """By which a local array is taken further, if it is one."""
    if store.buffer not in found.local:
        return None
    match store.index, store.value:
        case Ramp(IntImm(0), IntImm(1)), Binary(op, a, b) if op in OPERATIONS:
            own = [isinstance(x, Load) and (x.buffer, x.index) == (store.buffer, store.index)
                   for x in (a, b)]  # fmt: skip
            term = b if own[0] else a
            again = any(isinstance(x, Load) and x.buffer == store.buffer for x in walk_expr(term))
            if sum(own) == 1 and not again:
                return op
        case _:
            pass
    raise NoRowLoops


def _row_start(buffer: str, start: Affine, found: RowLoops) -> Expr:
    """Note the tests that a row is one of an array; its element 0."""
    dims = found.arrays.get(buffer)
    at = None if dims is None else split_by_strides(start.to_expr(), tuple(dims))
    if dims is not None and at is None:
        raise NoRowLoops
    for c, d in zip((at or ())[1:], (dims or ())[1:], strict=True):
        found.alive[Compare(CompareOp.LE, ZERO, c)] = None
        found.alive[Compare(CompareOp.LT, c, d.extent)] = None
    return Broadcast(start.to_expr(), found.lanes)


def _check(found: RowLoops, body: Stmt) -> None:
    """Whether what local arrays begin as is neutral for all that they are joined by."""
    for x in found.loops.values():
        if x.op is None:
            continue
        folds = [f for f in found.folds.values() if f.load.buffer == x.store.buffer]
        neutral = neutral_of(x.op, x.store.value.type.element)
        if len(folds) != 1 or folds[0].op is not x.op or folds[0].count != found.lanes:
            raise NoRowLoops
        if (
            found.neutral.get(x.store.buffer) != neutral
            or found.neutral.get(folds[0].to) != neutral
        ):
            raise NoRowLoops
    read = {f.load.buffer for f in found.folds.values()}
    taken = {x.store.buffer for x in found.loops.values() if x.op is not None}
    if read != taken:
        raise NoRowLoops
