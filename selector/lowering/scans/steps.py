"""What a thread of a scan does: the steps of a recurrence, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from selector.dataclass import dataclass
from selector.ir.affine import Affine, settled
from selector.ir.contents import holds
from selector.ir.lanes import in_lanes
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Compare,
    CompareOp,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, div, literal, mod, mul
from selector.ir.traverse import (
    change_expr,
    free_vars,
    replaced_all,
    substitute,
    substitute_stmt,
    walk_expr,
)
from selector.ir.types import Type
from selector.lowering.predicates import every, slack
from selector.lowering.scans.find import Spread
from selector.lowering.scans.zeros import without_zeros
from selector.targets import VECTOR_BYTES

BANKS_BYTES = 128  # of shared memory, read at once
LARGEST = 64 << 10  # bytes of shared memory that leave room for other blocks


@dataclass(frozen=True, slots=True)
class Buffers:
    """Those of a scan. ``own``: the state of a thread, in registers; ``state``: those of all
    threads, twice; ``before``: the state before a tile; ``powers``: of the transition; ``left``:
    what blocks leave behind; ``inputs``: what the steps of a thread read besides outputs before,
    and then their outputs, in registers; ``crossed``: these, where another thread takes them.
    """

    own: str
    state: str
    before: str
    powers: str
    inputs: str
    left: str
    crossed: str


def earlier(steps: int, t: Type) -> Expr:
    """The output so many steps before, in what is made of it."""
    return Var(f"$earlier.{steps}", t)


def begins_at_vectors(found: Spread) -> bool:
    """Whether the steps of a thread begin at a multiple of vectors, if rows of the array do:
    elsewhere each of them would be moved alone, as far from its neighbour's as it has steps.
    """
    index, per = Affine.of(found.store.index), VECTOR_BYTES // found.type.bytes
    return found.step.constant == 1 and index.offset % per == 0 and found.steps % per == 0


class Steps:
    """Those of the threads ``along`` a recurrence. ``count``: of a thread, 0 where what they read
    is not kept; ``row``: whether they lie in a row, and it is kept from one turn to the next, by
    the thread itself where its steps are whole vectors of memory. Elsewhere it is ``dealt``: kept
    in shared memory, where neighbouring threads bring and take neighbours. Outputs of a thread that
    are several vectors are ``crossing``: neighbouring threads store vectors side by side, since
    half of a sector that is stored alone takes a whole one's time.
    """

    def __init__(
        self, found: Spread, buffers: Buffers, along: Var, threads: int, dealt: bool = False
    ) -> None:
        self.found, self.buffers, self.along, self.threads = found, buffers, along, threads
        self.input = found.input
        self.count = found.steps if len(found.inner) == 1 and self.input is not None else 0
        self.row = self.count > 0 and not found.others
        self.dealt = self.row and self.count > 1 and (dealt or not begins_at_vectors(found))
        largest = max(s.value.type.bytes for s in self.stored(literal(0, found.type)))
        self.vector = VECTOR_BYTES // largest
        several = self.row and not self.dealt and self.count % (2 * self.vector) == 0
        self.crossing = several and self._banks % self.count == 0

    @property
    def kept(self) -> tuple[int, Memory]:
        """How many elements the row takes, and where."""
        elements = self.threads * self.count
        if self.dealt:
            return elements + elements // self._banks, Memory.GPU_SHARED
        return elements, Memory.REGISTER

    @property
    def _banks(self) -> int:
        return BANKS_BYTES // self.found.type.bytes

    @property
    def crossed(self) -> int:
        """Elements of shared memory by which outputs cross: 16 bytes lie between lines of banks."""
        elements = self.threads * self.count
        return elements + elements // self._banks * self._apart

    @property
    def _apart(self) -> int:
        return VECTOR_BYTES // self.found.type.bytes

    def number(self, n: int) -> Expr:
        return Load(self.found.type, self.buffers.own, IntImm(n))

    def run(self, more: Callable[[Expr], Sequence[Stmt]], following: Expr | None = None) -> Stmt:
        """The steps of a thread; ``more`` is done with each output; what is made of it and of those
        before (``following``) takes the place of the step's input.
        """
        p = self.found
        loads = [w for w in p.weights if holds(w, Load)]  # once, not at every step
        read = {w: Var(f"{self.buffers.own}.weight.{n}", w.type) for n, w in enumerate(loads)}

        def state(e: Expr) -> Expr | None:
            if e in read:
                return read[e]
            if self.count and e == self.input:
                return Load(e.type, self.buffers.inputs, self.place())
            if isinstance(e, Load) and e.buffer == p.store.buffer:
                lag = p.lag(e)
                return self.number(lag - 1) if lag else e
            return None

        output = Var(f"{p.store.buffer}.output", p.type)
        older = reversed(list(pairwise(range(p.order))))
        shifted = [Store(self.buffers.own, IntImm(b), self.number(a)) for a, b in older]
        made: list[Stmt] = []
        if following is not None:
            kept = {earlier(n + 1, p.type): self.number(n) for n in range(p.order)}
            value = replaced_all(following, {earlier(0, p.type): output, **kept})
            made.append(Store(self.buffers.inputs, self.place(), value))
        last = Store(self.buffers.own, IntImm(0), output)
        body: Stmt = Block((*made, *shifted, last, *more(output)))
        s = self._each(LetStmt(output.name, change_expr(self._value(), state), body))
        for weight, name in read.items():
            s = LetStmt(name.name, weight, s)
        if self.row or not self.count:
            return s
        assert self.input is not None
        loaded = self._each(Store(self.buffers.inputs, self.place(), self.input))
        size = (IntImm(self.count),)
        return Allocate(self.buffers.inputs, p.type, size, Memory.REGISTER, Block((loaded, s)))

    def _value(self) -> Expr:
        """Of a step: the newest output is added last, so that the next step waits for no more."""
        p, value = self.found, self.found.store.value
        loads = [e for e in walk_expr(value) if isinstance(e, Load)]
        outputs = {e: lag for e in loads if (lag := self._lag(e))}
        if p.order < 2 or not p.type.is_float or not p.weights:
            return value
        own = Var(f"{self.buffers.inputs}.own", p.type)
        kept = {} if self.input is None else {self.input: own}
        rest = replaced_all(value, {**kept, **dict.fromkeys(outputs, literal(0, p.type))})
        total = without_zeros(rest)
        for lag, output in sorted({lag: e for e, lag in outputs.items()}.items(), reverse=True):
            total = add(total, mul(p.weights[lag - 1], output))
        return total if self.input is None else substitute(total, {own.name: self.input})

    def _lag(self, e: Load) -> int:
        return (self.found.lag(e) or 0) if e.buffer == self.found.store.buffer else 0

    def _each(self, s: Stmt) -> Stmt:
        """Something for every step of a thread."""
        p = self.found
        if not self.count:
            for x in reversed(p.inner):
                s = replace(x, body=_where(p.tests, s))
            return s if p.inner else _where(p.tests, s)
        (x,) = p.inner
        if self.dealt:  # what lies behind the last step is read by none, and not stored
            return For(x.name, IntImm(0), IntImm(self.count), ForKind.UNROLLED, s)
        return self._unless(For(x.name, IntImm(0), IntImm(self.count), ForKind.UNROLLED, s), s)

    def _unless(self, whole: Stmt, one: Stmt) -> Stmt:
        """What does all steps, unless some are left out, of which ``one`` does each."""
        (x,), tests = self.found.inner, self.found.tests
        each = For(x.name, IntImm(0), IntImm(self.count), ForKind.UNROLLED, _where(tests, one))
        ends = [IntImm(0 if self.found.begins_late(t) else self.count - 1) for t in tests]
        all_ = [substitute(t, {x.name: end}) for t, end in zip(tests, ends, strict=True)]
        return IfThenElse(every(all_), whole, each) if all_ else whole

    def place(self) -> Expr:
        """Where the input of a step is."""
        step = Var(self.found.inner[0].name)
        if not self.row:
            return step
        place = add(mul(self.along, IntImm(self.count)), step)
        if not self.dealt:
            return place
        # apart, so that the same step of threads in a row is in different banks
        whole = self._banks % self.count == 0
        line = div(self.along, IntImm(self._banks // self.count)) if whole else None
        return add(place, div(place, IntImm(self._banks)) if line is None else line)

    def stored(self, output: Expr) -> list[Store]:
        """What is stored of an output, where it is stored by the thread that computes it."""
        p = self.found
        own = [Store(p.store.buffer, p.store.index, output)] if p.kept else []
        return own if p.then is None else [*own, self._made(p.then, output)]

    def _made(self, then: Store, output: Expr) -> Store:
        """What is stored of an output, with the output in it."""

        made = change_expr(then.value, lambda e: output if self.found.is_before(e) else None)
        return replace(then, value=made)

    def brought(self) -> Stmt:
        """Inputs of a tile, of which a thread reads those of its steps as a vector."""
        assert self.input is not None
        brought = Store(self.buffers.inputs, self.place(), self.input)
        if not self.dealt:
            return self._whole_or_some(brought)
        # all of it is asked for before the first of it is waited for
        t, held, turn = self.found.type, f"{self.buffers.inputs}.held", self._turn
        asked = Store(held, turn, self.input)
        loaded = self._by_neighbours(asked, replace(asked, value=literal(0, t)))
        moved = substitute_stmt(replace(brought, value=Load(t, held, turn)), self._neighbour())
        both = Block((loaded, self._turns(moved)))
        return Allocate(held, t, (IntImm(self.count),), Memory.REGISTER, both)

    def taken(self) -> Sequence[Stmt]:
        """Outputs of a tile, and what is made of them: what threads do, one after the other."""
        output = Load(self.found.type, self.buffers.inputs, self.place())
        if not self.crossing:
            return [Block(tuple(map(self._whole_or_some, self.stored(output))))]
        (x,) = self.found.inner
        own = add(mul(self.along, IntImm(self.count)), Var(x.name))
        put = Store(self.buffers.crossed, self._between(self.along, own, self.count), output)
        return [_vector(put, x.name, self.count), self._crossing()]

    def _between(self, vector: Expr, place: Expr, elements: int) -> Expr:
        """Where one of the elements of a vector crosses, at its place among all."""
        line = div(vector, IntImm(self._banks // elements))
        return add(place, mul(line, IntImm(self._apart)))

    def _crossing(self) -> Stmt:
        """Vectors of outputs, as threads side by side store them side by side."""
        (x,), turn = self.found.inner, Var(f"{self.buffers.crossed}.turn")
        vector, lane = add(mul(turn, IntImm(self.threads)), self.along), Var(f"{x.name}.lane")
        place = add(mul(vector, IntImm(self.vector)), lane)
        output = Load(
            self.found.type, self.buffers.crossed, self._between(vector, place, self.vector)
        )
        first = {self.along.name: IntImm(0), x.name: place}  # as if one thread took all steps
        tests = [substitute(t, first) for t in self.found.tests]
        ends = [0 if self.found.begins_late(t) else self.vector - 1 for t in self.found.tests]
        whole = [substitute(t, {lane.name: IntImm(e)}) for t, e in zip(tests, ends, strict=True)]
        found = list[Stmt]()
        for one in self.stored(Var(self.buffers.crossed, output.type)):
            s = substitute_stmt(substitute_stmt(one, first), {self.buffers.crossed: output})
            assert isinstance(s, Store)
            all_ = _vector(s, lane.name, self.vector)
            some = _where(tests, s)
            each = For(lane.name, IntImm(0), IntImm(self.vector), ForKind.UNROLLED, some)
            found.append(IfThenElse(every(whole), all_, each) if tests else all_)
        times = IntImm(self.count // self.vector)
        return For(turn.name, IntImm(0), times, ForKind.UNROLLED, Block(tuple(found)))

    def _whole_or_some(self, one: Store) -> Stmt:
        """A statement of each step as that of a vector, unless some steps are left out."""
        (x,) = self.found.inner
        if self.dealt:
            return self._by_neighbours(one)
        if self.count == 1:
            return self._unless(substitute_stmt(one, {x.name: IntImm(0)}), one)
        return self._unless(_vector(one, x.name, self.count), one)

    def _by_neighbours(self, one: Store, other: Store | None = None) -> Stmt:
        """A statement of each step, as threads side by side do it for steps side by side; the
        ``other`` one behind the last step.
        """
        tests, done, at = self.found.tests, Var(f"{self.buffers.inputs}.done"), self._neighbour()
        s, rest = (None if y is None else substitute_stmt(y, at) for y in (one, other))
        assert s is not None
        count = self._done()
        if count is None:
            each: Stmt = IfThenElse(every([substitute(t, at) for t in tests]), s, rest)
            return self._turns(each)
        if not tests:
            return self._turns(s)
        each = IfThenElse(Compare(CompareOp.LT, self._place, done), s, rest)
        whole = Compare(CompareOp.LE, IntImm(self.threads * self.count), done)
        both = IfThenElse(whole, self._turns(s), self._turns(each))
        return LetStmt(done.name, count, both)

    @property
    def _turn(self) -> Var:
        """In which threads side by side have steps side by side."""
        return Var(f"{self.buffers.inputs}.turn")

    @property
    def _place(self) -> Expr:
        """Which step of the tile that is."""
        return add(mul(self._turn, IntImm(self.threads)), self.along)

    def _neighbour(self) -> dict[str, Expr]:
        """The thread whose step it is, and which one of that."""
        (x,), count = self.found.inner, IntImm(self.count)
        return {self.along.name: div(self._place, count), x.name: mod(self._place, count)}

    def _turns(self, body: Stmt) -> For:
        return For(self._turn.name, IntImm(0), IntImm(self.count), ForKind.UNROLLED, body)

    def _done(self) -> Expr | None:
        """How many steps of a tile are done, at least where that is less than all; None where it is
        not known ahead.
        """
        step, total = Var(self.found.inner[0].name), IntImm(self.threads * self.count)
        count, asked = total, list[Expr]()
        for test in self.found.tests:
            room = slack(test)
            if not free_vars(test) & {step.name, self.along.name}:
                asked.append(test)
                continue
            factors = (
                [] if room is None else [room.coefficient(v).constant for v in (step, self.along)]
            )
            rest = None if room is None else room.rest(step).rest(self.along)
            match factors:
                case [0, int(a)] if a < 0 and rest is not None:
                    most = mul(add(div(rest.to_expr(), IntImm(-a)), IntImm(1)), IntImm(self.count))
                case [int(b), int(a)] if b < 0 and a == b * self.count and rest is not None:
                    most = add(div(rest.to_expr(), IntImm(-b)), IntImm(1))
                case _:
                    return None
            count = Binary(BinaryOp.MIN, count, most)
        return Select(every(asked), count, IntImm(0)) if asked else count


def _vector(s: Store, name: str, lanes: int) -> Store:
    """One statement for all values of a variable."""
    predicate = None if s.predicate is None else in_lanes(settled(s.predicate), name, lanes)
    index, value = (in_lanes(settled(e), name, lanes) for e in (s.index, s.value))
    return Store(s.buffer, index, value, predicate)


def _where(tests: Sequence[Expr], s: Stmt) -> Stmt:
    return IfThenElse(every(tests), s) if tests else s
