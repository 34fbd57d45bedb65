"""What a thread of a scan does: the steps of a recurrence, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from selector.ir.affine import settled
from selector.ir.lanes import in_lanes
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, mul
from selector.ir.traverse import map_expr, substitute
from selector.lowering.predicates import every
from selector.lowering.scans.find import Spread

LANES = 8  # inputs that a thread brings at once


@dataclass(frozen=True, slots=True)
class Buffers:
    """Those of a scan. ``own``: the state of a thread, in registers; ``state``: those of all
    threads, twice; ``before``: the state before a tile; ``powers``: of the transition; ``left``:
    what blocks leave behind; ``inputs``: what a tile reads besides outputs before, which threads
    along a row move in shared memory, side by side, and others keep in registers.
    """

    own: str
    state: str
    before: str
    powers: str
    inputs: str
    left: str


class Steps:
    """Those of the threads ``along`` a recurrence. ``count``: of a thread, 0 where what they read
    is not kept; ``shared``: whether it is kept in shared memory.
    """

    def __init__(self, found: Spread, buffers: Buffers, along: Var, threads: int) -> None:
        self.found, self.buffers, self.along, self.threads = found, buffers, along, threads
        self.input = found.input
        self.count = found.steps if len(found.inner) == 1 and self.input is not None else 0
        self.shared = self.count > 0 and not found.others

    def number(self, n: int) -> Expr:
        return Load(self.found.type, self.buffers.own, IntImm(n))

    def run(self, more: Callable[[Expr], Sequence[Stmt]]) -> Stmt:
        """The steps of a thread; ``more`` is done with each output."""
        p = self.found

        def state(e: Expr) -> Expr:
            if self.count and e == self.input:
                return Load(e.type, self.buffers.inputs, self.place())
            if isinstance(e, Load) and e.buffer == p.store.buffer:
                lag = p.lag(e)
                return self.number(lag - 1) if lag else e
            return map_expr(e, state)

        output = Var(f"{p.store.buffer}.output", p.type)
        older = reversed(list(pairwise(range(p.order))))
        shifted = [Store(self.buffers.own, IntImm(b), self.number(a)) for a, b in older]
        body: Stmt = Block((*shifted, Store(self.buffers.own, IntImm(0), output), *more(output)))
        s = self._each(LetStmt(output.name, state(p.store.value), body))
        if self.shared or not self.count:
            return s
        assert self.input is not None
        loaded = self._each(Store(self.buffers.inputs, self.place(), self.input))
        size = (IntImm(self.count),)
        return Allocate(self.buffers.inputs, p.type, size, Memory.REGISTER, Block((loaded, s)))

    def _each(self, s: Stmt) -> Stmt:
        """Something for every step of a thread."""
        p = self.found
        if not self.count:
            for x in reversed(p.inner):
                s = replace(x, body=_where(p.tests, s))
            return s if p.inner else _where(p.tests, s)
        (x,) = p.inner
        count = IntImm(self.count)
        whole = For(x.name, IntImm(0), count, ForKind.UNROLLED, s)
        kind = ForKind.SERIAL if self.shared else ForKind.UNROLLED
        some = For(x.name, IntImm(0), count, kind, _where(p.tests, s))
        last = [substitute(t, {x.name: IntImm(self.count - 1)}) for t in p.tests]
        return IfThenElse(every(last), whole, some) if last else whole

    def place(self) -> Expr:
        """Where the input of a step is; rows in shared memory are one apart, for its banks."""
        step = Var(self.found.inner[0].name)
        return add(mul(self.along, IntImm(self.count + 1)), step) if self.shared else step

    def stored(self, output: Expr) -> list[Stmt]:
        """What is stored of an output, where it is stored by the thread that computes it."""
        p = self.found
        own: list[Stmt] = [Store(p.store.buffer, p.store.index, output)] if p.kept else []
        return own if p.then is None else [*own, self._made(p.then, output)]

    def _made(self, then: Store, output: Expr) -> Store:
        """What is stored of an output, with the output in it."""

        def made(e: Expr) -> Expr:
            return output if self.found.is_before(e) else map_expr(e, made)

        return replace(then, value=made(then.value))

    def brought(self) -> Stmt:
        """Inputs of a tile, of which threads take so many neighbours at a time."""
        p, lanes = self.found, self._lanes()
        assert self.input is not None
        read, turn, own = f"{self.buffers.inputs}.read", self._turn, self._own(lanes)
        first = self._first(self._at(lanes))
        value = settled(substitute(self.input, first))
        kept = _vector(turn if lanes == 1 else add(mul(turn, IntImm(lanes)), own), own, lanes)
        place = _vector(self._slot(self._at(lanes)), own, lanes)
        come = self._turns(Store(read, kept, _vector(value, own, lanes)), lanes)
        moved = Load(p.type.with_lanes(lanes), read, kept)
        gone = self._turns(Store(self.buffers.inputs, place, moved), lanes)
        size = (IntImm(self.count),)
        whole = Allocate(read, p.type, size, Memory.REGISTER, Block((come, gone)))
        one = Store(self.buffers.inputs, self._slot(self._at(lanes)), value)
        return self._whole_or_some(whole, lanes, one)

    def taken(self) -> Stmt:
        """Outputs of a tile, and what is made of them, of which threads take neighbours."""
        p, lanes = self.found, self._lanes()
        parts = list[Stmt]()
        if p.kept:
            one = self._out(p.store, 1)
            parts.append(self._whole_or_some(self._turns(one, 1), 1, one))
        if p.then is not None:
            own = self._own(lanes)
            one = self._out(p.then, lanes)
            predicate = one.predicate
            assert predicate is not None
            index, value, held = (_vector(e, own, lanes) for e in (one.index, one.value, predicate))
            vector = Store(one.buffer, index, value, held)
            parts.append(self._whole_or_some(self._turns(vector, lanes), lanes, one))
        return Block(tuple(parts))

    def _out(self, s: Store, lanes: int) -> Store:
        """One of the elements that a thread takes out of shared memory."""
        p, at = self.found, self._at(lanes)
        first = self._first(at)
        output = Load(p.type, self.buffers.inputs, self._slot(at))
        index = settled(substitute(s.index, first))
        if s is p.store:
            return Store(s.buffer, index, output)
        found = Var(f"{p.store.buffer}.output", p.type)
        value = settled(substitute(self._made(s, found).value, first))
        asked = None if s.predicate is None else settled(substitute(s.predicate, first))
        return Store(s.buffer, index, substitute(value, {found.name: output}), asked)

    @property
    def _turn(self) -> Var:
        return Var(f"{self.buffers.inputs}.turn")

    def _own(self, lanes: int) -> Var:
        """The number of a neighbour."""
        return Var(f"{self.buffers.inputs}.lane.{lanes}")

    def _lanes(self) -> int:
        return next(n for n in (LANES, LANES // 2, LANES // 4, 1) if self.count % n == 0)

    def _at(self, lanes: int) -> Expr:
        """The number of an element of a tile."""
        run = add(mul(self._turn, IntImm(self.threads)), self.along)
        return run if lanes == 1 else add(mul(run, IntImm(lanes)), self._own(lanes))

    def _first(self, at: Expr) -> dict[str, Expr]:
        """Where a step is as if one thread took all of a tile."""
        return {self.along.name: IntImm(0), self.found.inner[0].name: at}

    def _slot(self, at: Expr) -> Expr:
        return add(at, Binary(BinaryOp.DIV, at, IntImm(self.count)))

    def _turns(self, each: Stmt, lanes: int) -> Stmt:
        turns = IntImm(self.count // lanes)
        return For(self._turn.name, IntImm(0), turns, ForKind.UNROLLED, each)

    def _whole_or_some(self, whole: Stmt, lanes: int, one: Store) -> Stmt:
        """``whole`` unless some of what a thread moves is left out; then ``one`` by one."""
        own, last = self._own(lanes), IntImm(lanes - 1)
        ends = self._asked(IntImm(self.count // lanes - 1), last, lanes)
        each = _where(self._asked(self._turn, own, lanes), one)
        some = For(own.name, IntImm(0), IntImm(lanes), ForKind.SERIAL, each)
        turns = IntImm(self.count // lanes)
        rest = For(self._turn.name, IntImm(0), turns, ForKind.SERIAL, some if lanes > 1 else each)
        return IfThenElse(every(ends), whole, rest) if ends else whole

    def _asked(self, turn: Expr, own: Expr, lanes: int) -> list[Expr]:
        """The tests of a neighbour in a turn."""
        which = {self._turn.name: turn, self._own(lanes).name: own}
        first = self._first(self._at(lanes))
        return [settled(substitute(substitute(t, first), which)) for t in self.found.tests]


def _vector(e: Expr, own: Var, lanes: int) -> Expr:
    return e if lanes == 1 else in_lanes(e, own.name, lanes)


def _where(tests: Sequence[Expr], s: Stmt) -> Stmt:
    return IfThenElse(every(tests), s) if tests else s
