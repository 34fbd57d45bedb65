"""The statements of a scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from selector.dataclass import dataclass
from selector.ir.affine import Affine
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
from selector.ir.simplify import add, mul, sub
from selector.ir.traverse import substitute
from selector.ir.types import Type
from selector.lowering.predicates import every
from selector.lowering.scans.find import Spread
from selector.lowering.scans.memory import ahead, known_weights
from selector.lowering.scans.powers import powers
from selector.lowering.scans.states import States, flat
from selector.lowering.scans.steps import Buffers, Steps


@dataclass(frozen=True, slots=True)
class Ends:
    """What a kernel leaves for the next one: ``elements`` of a type."""

    name: str
    type: Type
    elements: Expr


@dataclass(frozen=True, slots=True)
class Rounds:
    """How the states of ``threads`` are joined: with those of so many threads before
    (``distances``), round by round. ``of_block``: the power by which a block carries a state on.
    """

    threads: int
    distances: tuple[int, ...]
    of_block: int


class Scan:
    """The statements of one."""

    def __init__(
        self,
        found: Spread,
        *,
        among: bool = True,
        kept: int = 0,
        inputs: str = "",
        following: Expr | None = None,
        led: bool = False,
        dealt: bool = False,
    ) -> None:
        """``among``: it may be one of several blocks that run through steps ahead of theirs, at
        least ``kept``. ``inputs``: where it has what its steps read, if not by itself;
        ``following``: what the next recurrence reads of its outputs, which is left there; ``led``:
        there is one before it that does so (``cascades``); ``dealt``: for one of these steps are.
        """
        self.found, self.following, self.led = found, following, led
        inputs = inputs or f"{found.store.buffer}.inputs"
        parts = ("own_state", "states", "state_before", "powers")
        names = (f"{found.store.buffer}.{part}" for part in parts)
        place = inputs if among else f"{inputs}_ahead"
        left, crossed = f"{found.loops[0].name}.left", f"{found.store.buffer}.crossed"
        self.buffers = Buffers(*names, inputs=place, left=left, crossed=crossed)
        extent = found.along.extent
        assert isinstance(extent, IntImm)
        threads, turns = extent.value, _turns(found)
        self.known = known_weights(found.weights, found.type)
        self.memory = 0 if self.known is None else self.known.memory
        own = self.memory or threads * found.steps
        distances = [1 << n for n in range((threads - 1).bit_length())]
        self.rounds = Rounds(
            threads,
            tuple(d for d in distances if d * found.steps < own),
            len(distances) + turns.bit_length() - 1,
        )
        self.ahead: Scan | None = None
        if among and self.memory and not found.in_place:
            before = ahead(found, max(own, kept), threads, few=kept > 0)
            if before is not None:
                self.ahead = Scan(
                    before, among=False, inputs=inputs, following=following, led=led, dealt=dealt
                )
        self.along = Var(found.along.name)
        if self.known is not None and not self.memory:
            powers_of = (found.steps << n for n in range(self._rounds()))
            self.known = self.known if all(map(self.known.bounded, powers_of)) else None
        self.steps = Steps(found, self.buffers, self.along, threads, dealt)
        self.states = States(
            found, self.buffers, self.along, threads, self.known, *flat(found.others)
        )

    @property
    def alone(self) -> bool:
        """Whether blocks need nothing of each other."""
        return self.found.blocks is None or self.ahead is not None

    def ends(self) -> For:
        """The first of two kernels: what each block leaves behind."""
        tail = [
            Store(
                self.buffers.left,
                self._left(n, self._block()),
                Load(self.found.type, self.buffers.before, at),
            )
            for n in range(self.found.order)
            for at in [self.states.before(n)]
        ]
        last = IfThenElse(self._is(self.rounds.threads - 1), Block(tuple(tail)))
        return _kernel([self], [self.begun(), _tiles([self], stored=False), self._nest(last)])

    def rest(self) -> For:
        """The second: from what all blocks before leave behind."""
        return _kernel([self], [self.begun(), self._chained(), _tiles([self], stored=True)])

    def between(self) -> Ends:
        elements: Expr = IntImm(self.found.order * self.states.count)
        for x in self.found.grid:
            elements = mul(elements, x.extent)
        return Ends(self.buffers.left, self.found.type, elements)

    def begun(self) -> Stmt:
        """The state before the first tile."""
        return self._nest(self._start())

    def led_there(self, tiles: Stmt) -> Stmt:
        """The steps ahead of a block, which the first one has not."""
        turns = Binary(BinaryOp.MIN, self._block(), IntImm(1))
        return For(f"{self.buffers.left}.turn", IntImm(0), turns, ForKind.SERIAL, tiles)

    @property
    def computed(self) -> bool:
        """Whether powers of the transition are, by the kernel."""
        return not self.found.plain and self.known is None

    def powers(self) -> list[Stmt]:
        found = powers(self.found, self.buffers.powers, self._rounds()) if self.computed else None
        return [] if found is None else [self._nest(found)]

    def with_memory(self, body: Stmt) -> Stmt:
        """A kernel's body with what a scan keeps in shared memory."""
        p, state = self.found, self.found.order * self.states.count
        sizes = {self.buffers.state: 2 * state * self.rounds.threads, self.buffers.before: state}
        if self.computed:
            sizes[self.buffers.powers] = self._rounds() * p.order**2
        for name, elements in sizes.items():
            body = Allocate(name, p.type, (IntImm(elements),), Memory.GPU_SHARED, body)
        return body

    def with_inputs(self, body: Stmt) -> Stmt:
        """And what threads have of its inputs, and of those ahead."""
        for scan in (self, self.ahead):
            if scan is not None and scan.steps.row:
                elements, memory = scan.steps.kept
                name, t = scan.buffers.inputs, self.found.type
                body = Allocate(name, t, (IntImm(elements),), memory, body)
        return body

    def with_crossed(self, tiles: Stmt) -> Stmt:
        """And where outputs cross."""
        if not self.steps.crossing or self.following is not None:
            return tiles
        size = (IntImm(self.steps.crossed),)
        return Allocate(self.buffers.crossed, self.found.type, size, Memory.GPU_SHARED, tiles)

    def _rounds(self) -> int:
        """Powers of the transition that are needed."""
        number = max(1, len(self.rounds.distances))
        return number if self.alone else self.rounds.of_block + number

    def tile(self, *, stored: bool) -> list[Stmt]:
        """What a block does with a tile of its part: with ``stored`` outputs, or for the state
        behind it.
        """
        tile, half = self._scanned(self._first(), 0)
        if self.steps.row and not self.led:
            tile.insert(0, self._nest(self.steps.brought()))
        if stored or self.following is not None:
            tile.append(self._nest(self._second(half)))
        if stored and self.steps.row and self.following is None:
            tile += map(self._nest, self.steps.taken())
        return [*tile, self._nest(self._last(half, IntImm(self.rounds.threads - 1)))]

    def _scanned(self, first: Stmt, power: int) -> tuple[list[Stmt], int]:
        """States of all threads joined, from those that ``first`` stores, and which half has them;
        ``power``: of a state to the next thread's."""
        found, half = [self._nest(first)], 0
        for n, distance in enumerate(self.rounds.distances):
            found.append(self._nest(self._joined(power + n, distance, half)))
            half = 1 - half
        return found, half

    def _block(self) -> Expr:
        """The number of a block along the recurrence."""
        blocks = self.found.blocks
        assert blocks is not None
        return sub(Var(blocks.name), blocks.min)

    def _left(self, n: int, block: Expr) -> Expr:
        """Where number ``n`` of what a block leaves behind is."""
        index: Expr = IntImm(0)
        for x in self.found.grid:
            here = block if x is self.found.blocks else sub(Var(x.name), x.min)
            index = add(mul(index, x.extent), here)
        row = add(mul(index, IntImm(self.found.order)), IntImm(n))
        return add(mul(row, IntImm(self.states.count)), self.states.beside)

    def _chained(self) -> Stmt:
        """What all blocks before leave behind, so many at a time as there are threads."""
        p, places = self.found, range(self.found.order)
        turn = Var(f"{self.buffers.left}.turn")
        block = add(mul(turn, IntImm(self.rounds.threads)), self.along)
        loaded = [
            Store(
                self.buffers.own, IntImm(n), Load(p.type, self.buffers.left, self._left(n, block))
            )
            for n in places
        ]
        none = [Store(self.buffers.own, IntImm(n), self.states.zero) for n in places]
        there = Compare(CompareOp.LT, block, self._block())
        own = IfThenElse(there, Block(tuple(loaded)), Block(tuple(none)))
        before = [Load(p.type, self.buffers.before, self.states.before(n)) for n in places]
        kept: list[Stmt] = []
        for n in places:
            own_number = self.steps.number(n)
            joined = self.states.combined(own_number, n, before, self.rounds.of_block)
            kept.append(self.states.stored(0, n, Select(self._is(0), joined, own_number)))
        tile, half = self._scanned(self._own([own], Block(tuple(kept))), self.rounds.of_block)
        left = sub(self._block(), mul(turn, IntImm(self.rounds.threads)))
        last = sub(Binary(BinaryOp.MIN, left, IntImm(self.rounds.threads)), IntImm(1))
        tile.append(self._nest(self._last(half, last)))
        turns = Binary(
            BinaryOp.DIV,
            add(self._block(), IntImm(self.rounds.threads - 1)),
            IntImm(self.rounds.threads),
        )
        return For(turn.name, IntImm(0), turns, ForKind.SERIAL, Block(tuple(tile)))

    def _is(self, thread: int | Expr) -> Expr:
        number = IntImm(thread) if isinstance(thread, int) else thread
        return Compare(CompareOp.EQ, self.along, number)

    def _nest(self, s: Stmt) -> Stmt:
        for x in reversed(self.found.threads):
            s = replace(x, body=s)
        return s

    def _own(self, starts: Sequence[Stmt], inner: Stmt, after: Sequence[Stmt] = ()) -> Stmt:
        """A thread's state and what is done with it."""
        body = Block((*starts, inner, *after))
        return Allocate(
            self.buffers.own, self.found.type, (IntImm(self.found.order),), Memory.REGISTER, body
        )

    def _start(self) -> Stmt:
        """The state before the first tile is what lies before the outputs."""
        p = self.found
        first = {x.name: x.min for x in p.loops}
        index = Affine.of(substitute(p.store.index, first))
        places = range(p.order)
        back = [(index - p.step * (n + 1)).to_expr() for n in places]
        loads = p.begun or [Load(p.type, p.store.buffer, b) for b in back]
        s: Stmt = Block(
            tuple(Store(self.buffers.before, self.states.before(n), loads[n]) for n in places)
        )
        zero = self.states.zero
        none = Block(tuple(Store(self.buffers.before, self.states.before(n), zero) for n in places))
        tests = [substitute(t, first) for t in p.tests]
        if p.blocks is not None:
            tests.insert(0, Compare(CompareOp.EQ, self._block(), IntImm(0)))
        if tests:
            s = IfThenElse(every(tests), s, none)
        return IfThenElse(self._is(0), s)

    def _first(self) -> Stmt:
        """From a state of zero, or for the first thread from the true one."""
        p, own = self.found, list[Stmt]()
        at_first, zero = self._is(0), self.states.zero
        for n in range(p.order):
            before = Load(p.type, self.buffers.before, self.states.before(n))
            own.append(Store(self.buffers.own, IntImm(n), Select(at_first, before, zero)))
        after = [self.states.stored(0, n, self.steps.number(n)) for n in range(p.order)]
        return self._own(own, self.steps.run(lambda _: ()), after)

    def _joined(self, power: int, distance: int, half: int) -> Stmt:
        """With the state of the thread so many before, if there is one: no two ways of a branch,
        which threads of a warp would go one after the other.
        """
        states, earlier = self.states, sub(self.along, IntImm(distance))
        places = range(self.found.order)
        there = Compare(CompareOp.LE, IntImm(distance), self.along)
        others = [Select(there, states.at(half, n, earlier), states.zero) for n in places]
        names = [Var(f"{self.buffers.state}.other.{n}", self.found.type) for n in places]
        values = [states.at(half, n, self.along) for n in places]
        s: Stmt = Block(
            tuple(
                states.stored(1 - half, n, states.combined(values[n], n, names, power))
                for n in places
            )
        )
        for name, other in zip(names, others, strict=True):
            s = LetStmt(name.name, other, s)
        return s

    def _second(self, half: int) -> Stmt:
        """From the true state, and what it gives is stored."""
        p, places = self.found, range(self.found.order)
        true = [Load(p.type, self.buffers.before, self.states.before(n)) for n in places]
        earlier = [self.states.at(half, n, sub(self.along, IntImm(1))) for n in places]
        start = [
            Store(self.buffers.own, IntImm(n), Select(self._is(0), true[n], earlier[n]))
            for n in places
        ]
        if not self.steps.row:
            return self._own(start, self.steps.run(self.steps.stored))
        if self.following is not None:
            return self._own(start, self.steps.run(lambda _: (), self.following))
        place = self.steps.place()
        return self._own(start, self.steps.run(lambda y: [Store(self.buffers.inputs, place, y)]))

    def _last(self, half: int, thread: Expr) -> Stmt:
        """The state before the next tile is what a thread leaves behind."""
        stores = [
            Store(self.buffers.before, self.states.before(n), self.states.at(half, n, self.along))
            for n in range(self.found.order)
        ]
        return IfThenElse(self._is(thread), Block(tuple(stores)))


def whole(scans: Sequence[Scan]) -> For:
    """The only kernel of a scan, or of some each of which reads the one before: from where they
    begin, or from what is left of what lies before.
    """
    found, ahead = [s.begun() for s in scans], [s.ahead for s in scans if s.ahead is not None]
    if ahead:
        found.append(scans[0].led_there(_tiles(ahead, stored=False)))
    return _kernel(scans, [*found, _tiles(scans, stored=True)])


def _tiles(scans: Sequence[Scan], *, stored: bool) -> Stmt:
    """What a block does with its part, tile by tile."""
    around: Stmt = Block(tuple(s for scan in scans for s in scan.tile(stored=stored)))
    for x in reversed(scans[0].found.outer):
        around = replace(x, body=around)
    return scans[-1].with_crossed(around) if stored else around


def _kernel(scans: Sequence[Scan], stmts: Sequence[Stmt]) -> For:
    body: Stmt = Block((*(s for scan in scans for s in scan.powers()), *stmts))
    for scan in scans:
        body = scan.with_memory(body)
    body = scans[0].with_inputs(body)
    for x in reversed(scans[0].found.grid):
        body = replace(x, body=body)
    assert isinstance(body, For)
    return body


def _turns(found: Spread) -> int:
    """Tiles of a block, one after the other."""
    return prod(x.extent.value for x in found.outer if isinstance(x.extent, IntImm))
