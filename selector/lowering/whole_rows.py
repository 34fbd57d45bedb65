"""Rows as whole vectors from an aligned element on, and single elements at both ends.

    for s < (n + 1023)/1024: p[0 ... 7] = max(p[0 ... 7], a[w*y + 1024*s + 8*x ...]) below n
                                                    =>
    let first = elements before a[w*y + first] is at a multiple of 16 bytes
    let left = (n - first)/8 - x
    let end = an element below first or behind the last vector, another one for each x; or -1
    for s < 6 unrolled: if (128*s < left) p[0 ... 7] = max(p[0 ... 7], kept[8*s ...])
    for s >= 6, 128*s < left: p[0 ... 7] = max(p[0 ... 7], a[w*y + first + 1024*s + 8*x ...])
    if (end >= 0) p[0] = max(p[0], a[w*y + end])

Rows that are aligned in all arrays, of whole vectors no more than stay, have loops of their own, in
which there is no ``first``, no rest and no end.

So the loops of a kernel of rows (``row_loops``) move 16 bytes at once in rows of any length, and
test no lane. What several of them load is kept in registers, all of it loaded before the first use;
so is what one of them computes and a later one computes again. What a long row has behind that is
read, and computed, again. (``kept_rows`` keeps what other kernels of rows load.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce

from selector.dataclass import dataclass
from selector.ir.affine import Affine, to_affine
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
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Ramp,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, div, mod, mul, sub
from selector.ir.traverse import map_expr, map_stmt, substitute, walk_expr
from selector.ir.types import BOOL, INT32
from selector.lowering.predicates import every
from selector.lowering.row_folds import Row
from selector.lowering.row_loops import LANE, ZERO, Loop, RowLoops, row_loops
from selector.lowering.row_marks import ALIGNED, ALL, ANYWHERE, FIRST, MEET, TOGETHER
from selector.lowering.row_work import STEP, RowWork, Vector
from selector.targets import VECTOR_BYTES

MOST_LEFT = Var("row.left")  # of all loops
NONE = IntImm(-1)


@dataclass(frozen=True, slots=True)
class _Part:
    """Elements below a limit: ``left``, vectors of a row from the thread's first one on, and the
    single elements at its ``ends`` that are the thread's, or -1.
    """

    left: Var
    ends: tuple[Var, ...]


def whole_rows(
    body: Stmt, row: Row, arrays: Mapping[str, Sequence[Dim]]
) -> tuple[Stmt, int] | None:
    """The body of a joined kernel with such loops, and how many blocks have registers enough on a
    multiprocessor; None where its loops are others.
    """
    found = row_loops(body, row, arrays)
    if found is None:
        return None
    work = RowWork(found)
    work.read()
    return _Whole(found, work).built(body)


@dataclass(slots=True)
class _Whole:
    """One kernel. ``parts``: what its loops go through, by the limit; ``edges``: arrays of single
    elements that stay; ``short``: all rows of all arrays are aligned, and nothing but what stays.
    """

    rows: RowLoops
    work: RowWork
    short: bool = False
    parts: dict[Affine, _Part] = field(default_factory=dict[Affine, _Part])
    edges: dict[tuple[Vector, Var], str] = field(default_factory=dict[tuple[Vector, Var], str])

    def built(self, body: Stmt) -> tuple[Stmt, int] | None:
        """None where no array has rows, or one has several first elements of them."""
        starts = self.work.starts()
        if not starts or len({v.buffer for v in starts}) < len(starts):
            return None
        resident = self.work.keep(body, len(starts))
        self.part()
        return self._inside(body), resident

    def part(self) -> None:
        """What the loops go through."""
        rows = self.rows
        if self.short:
            self.parts = dict.fromkeys(rows.limits, _Part(MOST_LEFT, ()))
            return
        for number, limit in enumerate(rows.limits):
            ends = -(-2 * (rows.lanes - 1) // rows.row.threads)
            names = tuple(Var(f"row.end.{number}.{k}") for k in range(ends))
            self.parts[limit] = _Part(Var(f"row.left.{number}"), names)

    def _inside(self, s: Stmt) -> Stmt:
        match s:
            case Allocate(memory=Memory.GPU_SHARED) | For(kind=ForKind.GPU_THREAD):
                return replace(s, body=self._inside(s.body))
            case _ if self.work.steps:
                short = _Whole(self.rows, self.work, short=True)
                short.part()
                both = IfThenElse(self._is_short(), short._around(s), self._around(s))
                return LetStmt(TOGETHER, Call(BOOL, TOGETHER, self._asked()), both)
            case _:
                return self._around(s)

    def _asked(self) -> tuple[Expr, ...]:
        """The first element of a row of each array, and of how many a vector is."""
        found = list[Expr]()
        for v in self.work.starts():
            found.append(Load(v.type.element, v.buffer, v.start.to_expr()))
            found.append(IntImm(min(self.rows.lanes, VECTOR_BYTES // v.type.bytes)))
        return tuple(found)

    def _is_short(self) -> Expr:
        """Whether all loops go through as many elements, which are vectors that stay."""
        first, *others = (limit.to_expr() for limit in self.rows.limits)
        lanes = self.rows.lanes
        most = self.work.steps * self.rows.row.threads * lanes
        return every(
            (
                Var(TOGETHER, BOOL),
                *(Compare(CompareOp.EQ, first, x) for x in others),
                Compare(CompareOp.EQ, mod(first, IntImm(lanes)), ZERO),
                Compare(CompareOp.LE, first, IntImm(most)),
            )
        )

    # ------------------------------------------------------------------ around all loops

    def _around(self, s: Stmt) -> Stmt:
        """The statements of a thread, behind what is said of its row."""
        lanes = self.rows.lanes
        ahead = [*self._loaded(), *self._late(before=True)]
        if self.rows.row.blocks > 1:
            ahead.append(Evaluate(Call(BOOL, MEET, ())))
        s = Block((*ahead, self._stmt(s)))
        for (v, _), name in self.edges.items():
            s = Allocate(name, v.type.element, (IntImm(1),), Memory.STACK, s)
        arrays = [(name, v.type.element) for v, name in self.work.kept.items()]
        arrays += [(name, e.type.element) for e, (_, name) in self.work.values.items()]
        if self.short:
            arrays += [(name, v.type.element) for v, name in self.work.late.items()]
        for name, t in arrays:
            s = Allocate(name, t, (IntImm(self.work.steps * lanes),), Memory.STACK, s)
        for name, value in reversed(list(self._numbers())):
            s = LetStmt(name, value, s)
        return s

    def _numbers(self) -> Iterator[tuple[str, Expr]]:
        """What is known of a thread's row, by name."""
        rows, x = self.rows, Var(self.rows.row.x)
        if self.short:
            length = Select(every(rows.alive), rows.limits[0].to_expr(), ZERO)
            yield MOST_LEFT.name, sub(div(length, IntImm(rows.lanes)), x)
            return
        at, *others = self.work.starts()
        per = min(rows.lanes, VECTOR_BYTES // at.type.bytes)
        first = Var(FIRST)
        begin = Load(at.type.element, at.buffer, at.start.to_expr())
        yield FIRST, Call(INT32, FIRST, (begin, IntImm(per)))
        for name, group in self.work.groups(others).items():
            asked = list[Expr]()
            for v in group:
                asked.append(Load(v.type.element, v.buffer, (v.start + first).to_expr()))
                asked.append(IntImm(min(rows.lanes, VECTOR_BYTES // v.type.bytes)))
            yield name, Call(BOOL, ALIGNED, tuple(asked))
        for number, (limit, part) in enumerate(self.parts.items()):
            length = Var(f"row.length.{number}")
            count, alive = limit.to_expr(), list(rows.alive)
            yield length.name, Select(every(alive), count, ZERO) if alive else count
            behind = Binary(BinaryOp.MAX, sub(length, first), ZERO)
            yield part.left.name, sub(div(behind, IntImm(rows.lanes)), x)
            tail = mod(behind, IntImm(rows.lanes))
            for k, end in enumerate(part.ends):
                own = add(x, IntImm(k * rows.row.threads))
                later = sub(own, first)
                ahead = Compare(CompareOp.LT, own, Binary(BinaryOp.MIN, first, length))
                there = every(
                    (Compare(CompareOp.LE, ZERO, later), Compare(CompareOp.LT, later, tail))
                )
                last = add(sub(length, tail), later)
                yield end.name, Select(ahead, own, Select(there, last, NONE))
        left: list[Expr] = [part.left for part in self.parts.values()]
        yield MOST_LEFT.name, reduce(lambda a, b: Binary(BinaryOp.MAX, a, b), left)

    def _loaded(self) -> Iterator[Stmt]:
        """Load what stays: as vectors where the rows of all arrays are aligned."""
        kept, starts = self.work.kept, self.work.starts()
        for name, group in self.work.groups([v for v in starts if v in kept]).items():
            flag = Var(name, BOOL)
            asked = [v for v in group if v != starts[0] and not self.short]
            steps = [self._vectors(group, lie) for lie in (ALL, ANYWHERE)[: 2 if asked else 1]]
            yield IfThenElse(flag, *steps) if asked else steps[0]
        for v in kept:
            for end in (e for part in self._parts_of(self.work.loops_of(v)) for e in part.ends):
                edge = self.edges.setdefault((v, end), f"row.edge.{len(self.edges)}")
                at = (v.start + end).to_expr()
                one = Store(edge, ZERO, Load(v.type.element, v.buffer, at))
                yield IfThenElse(Compare(CompareOp.LE, ZERO, end), one)

    def _vectors(self, group: list[Vector], lie: Expr) -> Stmt:
        """Load the vectors of some arrays that stay, which all loops go through that use any."""
        loops = dict.fromkeys(n for v in group for n in self.work.loops_of(v))
        stores = list[Stmt]()
        for v in group:
            value = Load(v.type, v.buffer, self._moved(v.start, STEP))
            name = self.work.kept.get(v) or self.work.late[v]
            there = Broadcast(lie, self.rows.lanes)
            stores.append(Store(name, self.work.place(STEP), value, there))
        one = IfThenElse(self._goes_on(STEP, self._parts_of(loops)), Block(tuple(stores)))
        return For(STEP.name, ZERO, IntImm(self.work.steps), ForKind.UNROLLED, one)

    def _parts_of(self, loops: Iterable[str]) -> list[_Part]:
        """What those loops go through."""
        return list(dict.fromkeys(self.parts[self.rows.loops[name].limit] for name in loops))

    def _goes_on(self, step: Expr, parts: Sequence[_Part]) -> Expr:
        """Whether there is a vector in a step of one of these parts."""
        own, left = mul(step, IntImm(self.rows.row.threads)), [part.left for part in parts]
        if 1 < len(left) == len(self.parts):
            left = [MOST_LEFT]
        tests: list[Expr] = [Compare(CompareOp.LT, own, x) for x in left]
        return reduce(lambda a, b: Binary(BinaryOp.OR, a, b), tests)

    def _moved(self, start: Affine, step: Expr) -> Expr:
        """The elements of a thread's vector, where row's begin at ``start``."""
        row, lanes = self.rows.row, self.rows.lanes
        own = to_affine(step) * (row.threads * lanes) + Affine.of(Var(row.x)) * lanes
        own = own if self.short else own + Var(FIRST)
        return Ramp((start + own).to_expr(), IntImm(1), lanes)

    # ------------------------------------------------------------------ the loops

    def _stmt(self, s: Stmt) -> Stmt:
        match s:
            case For(name) if name in self.rows.loops:
                return Block(tuple(self._loop(s, self.rows.loops[name])))
            case For(name, body=IfThenElse(_, then, None)) if name in self.rows.folds:
                return replace(s, body=then)
            case Store() if s in self.rows.idle:
                return Block(())
            case Block() | Allocate():
                return map_stmt(s, self._stmt, lambda e: e)
            case _:
                return s

    def _loop(self, s: For, loop: Loop) -> Iterator[Stmt]:
        """What is kept, what lies behind that, and the ends."""
        part, steps, threads = self.parts[loop.limit], self.work.steps, self.rows.row.threads
        turn = Var(s.name)
        if steps:
            first = Block(tuple(self._of_kept(loop, turn)))
            yield For(s.name, ZERO, IntImm(steps), ForKind.UNROLLED, first)
        if self.short:
            if s.name == next(iter(self.rows.loops)):
                yield from self._late(before=False)
            return
        turns = div(add(part.left, IntImm(threads - 1)), IntImm(threads))
        rest = self._vector(loop, loop.store.value, turn)
        extent = sub(turns, IntImm(steps))
        yield For(s.name, IntImm(steps), extent, ForKind.SERIAL, Block((rest,)))
        for end in part.ends:
            yield IfThenElse(Compare(CompareOp.LE, ZERO, end), self._end(loop, end))

    def _late(self, *, before: bool) -> Iterator[Stmt]:
        """Load what later loops are going to need."""
        late = self.work.late
        if late and self.short and before == self.work.early:
            yield self._vectors(list(late), ALL)

    def _of_kept(self, loop: Loop, turn: Expr) -> Iterator[Stmt]:
        """A turn with what is kept: values that stay are computed by the first loop."""
        value = self.work.kept_value(loop, STEP, ahead=self.short)
        found = dict[tuple[_Part, ...], list[Stmt]]()
        for known, (first, name) in self.work.values.items():
            if first == loop.name:
                users = [n for n in self.rows.loops if known in walk_expr(self.work.computed[n])]
                e = next(e for e in walk_expr(value) if self.work.spell(e) == known)
                own = substitute(self.work.replaced(e, loop.name), {STEP.name: turn})
                store = Store(name, self.work.place(turn), own)
                found.setdefault(tuple(self._parts_of(users)), []).append(store)
        value = substitute(self.work.replaced(value, loop.name, own=True), {STEP.name: turn})
        last = self._vector(loop, value, turn)
        found.setdefault(tuple(self._parts_of((loop.name,))), []).append(last)
        for parts, stmts in found.items():
            yield IfThenElse(self._goes_on(turn, parts), Block(tuple(stmts)))

    def _vector(self, loop: Loop, value: Expr, turn: Expr) -> Stmt:
        """A turn, of whole vectors."""

        def at(start: Affine) -> Expr:
            return self._moved(start, turn)

        rows, store = self.rows, loop.store
        names = {*self.work.kept.values(), *(name for _, name in self.work.values.values())}
        names |= {*self.work.late.values()}

        def moved(e: Expr) -> Expr:
            if isinstance(e, Load) and e.buffer in names:
                return e
            if isinstance(e, Load | Ramp):
                return rows.at_elements(e, loop.name, at)
            return map_expr(e, moved)

        value = moved(value)
        index = store.index if loop.op is not None else moved(store.index)
        there = Broadcast(ALL, rows.lanes)
        local = rows.local | names
        loads = [e for e in walk_expr(value) if isinstance(e, Load)]
        alone = loop.op is not None and all(e.buffer in local for e in loads)
        return Store(store.buffer, index, value, None if alone else there)

    def _end(self, loop: Loop, end: Var) -> Stmt:
        """A turn of one element."""
        rows, store = self.rows, loop.store
        own = {e: self.edges.get((v, end)) for e, v in self.work.vectors[loop.name].items()}

        def one(e: Expr) -> Expr:
            match e:
                case Load() if (name := own.get(e)) is not None:
                    return Broadcast(Load(e.type.element, name, ZERO), rows.lanes)
                case Load(t, buffer, Ramp()) if buffer in rows.local:
                    return Broadcast(Load(t.element, buffer, ZERO), rows.lanes)
                case Ramp():
                    return rows.at_elements(
                        e, loop.name, lambda a: Broadcast((a + end).to_expr(), rows.lanes)
                    )
                case _:
                    return map_expr(e, one)

        digits = ((LANE, rows.lanes),)
        index = ZERO if loop.op is not None else lane(one(store.index), digits)
        return Store(store.buffer, index, lane(one(store.value), digits))
