"""What a thread of a scan does: the steps of a recurrence, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from selector.ir.affine import settled
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
        return self._turns(x.name, s, lambda turn: [substitute(t, {x.name: turn}) for t in p.tests])

    def _turns(
        self,
        name: str,
        each: Stmt,
        tests: Callable[[Expr], Sequence[Expr]],
        whole: Stmt | None = None,
    ) -> Stmt:
        """``each`` for as many turns as a thread has steps; ``whole`` (or the same without tests)
        unless the last one is left out."""
        count = IntImm(self.count)
        all_turns = whole or self._all(name, each)
        kind = ForKind.SERIAL if self.shared else ForKind.UNROLLED
        some = For(name, IntImm(0), count, kind, _where(tests(Var(name)), each))
        last = tests(IntImm(self.count - 1))
        return IfThenElse(every(last), all_turns, some) if last else all_turns

    def _all(self, name: str, each: Stmt) -> Stmt:
        return For(name, IntImm(0), IntImm(self.count), ForKind.UNROLLED, each)

    def place(self) -> Expr:
        """Where the input of a step is; rows in shared memory are one apart, for its banks."""
        step = Var(self.found.inner[0].name)
        return add(mul(self.along, IntImm(self.count + 1)), step) if self.shared else step

    def moved(self, *, inwards: bool) -> Stmt:
        """Inputs or outputs of a tile, of which threads take neighbours."""
        p, turn = self.found, Var(f"{self.buffers.inputs}.turn")
        count = IntImm(self.count)
        at = add(mul(turn, IntImm(self.threads)), self.along)
        first = {self.along.name: IntImm(0), p.inner[0].name: at}  # as if one thread took all steps
        place = add(at, Binary(BinaryOp.DIV, at, count))
        asked = [settled(substitute(t, first)) for t in p.tests]

        def tests(n: Expr) -> Sequence[Expr]:
            return [substitute(t, {turn.name: n}) for t in asked]

        if not inwards:
            index = settled(substitute(p.store.index, first))
            moved = Store(p.store.buffer, index, Load(p.type, self.buffers.inputs, place))
            return self._turns(turn.name, moved, tests)
        assert self.input is not None
        value = settled(substitute(self.input, first))
        read, size = f"{self.buffers.inputs}.read", (IntImm(self.count),)
        come = self._all(turn.name, Store(read, turn, value))  # before the first is waited for
        gone = self._all(turn.name, Store(self.buffers.inputs, place, Load(p.type, read, turn)))
        whole = Allocate(read, p.type, size, Memory.REGISTER, Block((come, gone)))
        return self._turns(turn.name, Store(self.buffers.inputs, place, value), tests, whole)


def _where(tests: Sequence[Expr], s: Stmt) -> Stmt:
    return IfThenElse(every(tests), s) if tests else s
