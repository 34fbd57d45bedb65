"""Rows as whole vectors from an aligned element on, and single elements at both ends.

    for s < (n + 1023)/1024: p[0 ... 7] = max(p[0 ... 7], a[w*y + 1024*s + 8*x ...]) below n
                                                    =>
    let first = elements before a[w*y + first] is at a multiple of 16 bytes
    let left = (n - first)/8 - x
    let end = an element below first or behind the last vector, another one for each x; or -1
    for s < 6 unrolled: if (128*s < left) p[0 ... 7] = max(p[0 ... 7], kept[8*s ...])
    for s >= 6, 128*s < left: p[0 ... 7] = max(p[0 ... 7], a[w*y + first + 1024*s + 8*x ...])
    if (end >= 0) p[0] = max(p[0], a[w*y + end])

So the loops of a kernel of rows (``row_loops``) move 16 bytes at once in rows of any length, and
test no lane. What several of them load is kept in registers, all of it loaded before the first use;
so is what one of them computes and a later one computes again. What a long row has behind that is
read, and computed, again. (``kept_rows`` keeps what other kernels of rows load.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from selector.ir.affine import Affine, to_affine
from selector.ir.contents import loaded
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
from selector.ir.traverse import map_expr, map_stmt, substitute, walk_expr, walk_stmt
from selector.ir.types import BOOL, INT32, Type
from selector.lowering.joined_rows import Row
from selector.lowering.kept_rows import KEPT, MANY, REGISTERS
from selector.lowering.predicates import every
from selector.lowering.row_loops import LANE, ZERO, Loop, RowLoops, row_loops
from selector.lowering.row_values import ROW_VALUE

BYTES = 128  # of a thread that stay
STEPS = 3  # vectors that stay of an array: those of a size class have sqrt(2) to 2 * sqrt(2)
LONG = 6  # the same in the largest blocks, where threads may have more
OTHERS = 32  # registers of a thread beside what stays, and the addresses in each array
VECTOR_BYTES = 16
FIRST, ALIGNED, WHOLE = "row.first", "row.aligned", "row.whole"
STEP = Var("row.step")
NONE = IntImm(-1)
ALL = Call(BOOL, WHOLE, ())
"""The predicate of stores all of whose lanes are elements of a row."""


@dataclass(frozen=True, slots=True)
class _Vector:
    """``lanes`` elements of a buffer's row that begins at ``start``."""

    buffer: str
    type: Type
    start: Affine


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
    whole = None if found is None else _Whole(found)
    return None if whole is None or not whole.read() else whole.built(body)


@dataclass(slots=True)
class _Whole:
    """One kernel. ``vectors``: what each loop loads; ``kept``: of those, what stays, by its array;
    ``values``: what a loop computes and stays, by the loop and its array; ``computed``: what each
    loop stores, of what is kept, as ``spelled`` by numbers of rows.
    """

    rows: RowLoops
    vectors: dict[str, dict[Load, _Vector]] = field(default_factory=dict[str, dict[Load, _Vector]])
    kept: dict[_Vector, str] = field(default_factory=dict[_Vector, str])
    values: dict[Expr, tuple[str, str]] = field(default_factory=dict[Expr, tuple[str, str]])
    computed: dict[str, Expr] = field(default_factory=dict[str, Expr])
    spelled: dict[str, Expr] = field(default_factory=dict[str, Expr])
    parts: dict[Affine, _Part] = field(default_factory=dict[Affine, _Part])
    edges: dict[tuple[_Vector, Var], str] = field(default_factory=dict[tuple[_Vector, Var], str])
    steps: int = 0

    def read(self) -> bool:
        """Note what the loops load; whether there is one first element of rows in each array."""
        for name, loop in self.rows.loops.items():
            self.vectors[name] = dict(self._loads(loop))
        found = {(v.buffer, v.start) for loads in self.vectors.values() for v in loads.values()}
        stores = (x for x in self.rows.loops.values() if x.op is None)
        found |= {(x.store.buffer, self._start(x)) for x in stores}
        return len(dict(found)) == len(found)

    def built(self, body: Stmt) -> tuple[Stmt, int]:
        rows = self.rows
        resident = self._keep(body)
        for number, limit in enumerate(rows.limits):
            ends = -(-2 * (rows.lanes - 1) // rows.row.threads)
            names = tuple(Var(f"row.end.{number}.{k}") for k in range(ends))
            self.parts[limit] = _Part(Var(f"row.left.{number}"), names)
        return self._inside(body), resident

    def _inside(self, s: Stmt) -> Stmt:
        match s:
            case Allocate(memory=Memory.GPU_SHARED) | For(kind=ForKind.GPU_THREAD):
                return replace(s, body=self._inside(s.body))
            case _:
                return self._around(s)

    def _loads(self, loop: Loop) -> Iterator[tuple[Load, _Vector]]:
        """The vectors that a loop loads in each turn."""
        for e in walk_expr(loop.store.value):
            match e:
                case Load(t, buffer, Ramp(base, IntImm(1), _)) if (
                    buffer not in self.rows.local
                    and (start := self.rows.element(base, loop.name)) is not None
                ):
                    yield e, _Vector(buffer, t, start)
                case _:
                    pass

    # ------------------------------------------------------------------ what stays

    def _keep(self, body: Stmt) -> int:
        """Choose what stays; how many blocks there are registers for."""
        row, used = self.rows.row, dict[_Vector, set[str]]()
        for name, loads in self.vectors.items():
            for v in loads.values():
                used.setdefault(v, set()).add(name)
        again = [v for v, loops in used.items() if len(loops) > 1]
        stored = {x.store.buffer for x in self.rows.loops.values()}
        again = [v for v in again if v.buffer not in stored]
        again = again[: BYTES // (2 * max((_bytes(v.type) for v in again), default=1))]
        if not again:
            return 0
        loaded = sum(_bytes(v.type) for v in again)
        self.steps = min(LONG if row.threads > MANY else STEPS, BYTES // loaded)
        self.kept = {v: f"{KEPT}{n}" for n, v in enumerate(again)}
        values = self._common(body)
        computed = max((_bytes(e.type) for e in values), default=0)
        if self.steps * computed > BYTES:
            values, computed = {}, 0
        for n, (e, name) in enumerate(values.items()):
            self.values[e] = name, f"{KEPT}value.{n}"
        registers = OTHERS + 4 * len(self._starts()) + self.steps * max(loaded, computed) // 4
        return REGISTERS // (row.threads * row.rows * registers)

    def _common(self, body: Stmt) -> dict[Expr, str]:
        """What a loop computes of what is kept, and a later one computes again: by the loop."""
        seen, found = dict[Expr, str](), dict[Expr, str]()
        order = list(walk_stmt(body))
        of_rows = (s for s in order if isinstance(s, Store) and s.buffer.startswith(ROW_VALUE))
        self.spelled = {s.buffer: s.value for s in of_rows}
        for name, loop in self.rows.loops.items():
            self.computed[name] = value = self._spelled(self._kept_value(loop, STEP))

            def look(e: Expr, name: str = name) -> None:
                if seen.get(e, name) != name:
                    found[e] = seen[e]
                    return
                map_expr(e, lambda x: look(x, name) or x)

            look(value)
            behind = order[next(n for n, s in enumerate(order) if s is loop.loop) :]
            changed = {s.buffer for s in behind if isinstance(s, Store)}
            for e in walk_expr(value):
                if self._is_work(e) and not changed & set(loaded(e)):
                    seen.setdefault(e, name)
        return found

    def _is_work(self, e: Expr) -> bool:
        """Whether it is computed of what is kept, and takes as long as to load it again."""
        loads = [x for x in walk_expr(e) if isinstance(x, Load)]
        local = self.rows.local | {*self.kept.values()}
        taken = {x.store.buffer for x in self.rows.loops.values()}
        own = all(x.buffer in local and x.buffer not in taken for x in loads)
        vectors = [x for x in loads if x.buffer in self.kept.values()]
        computed = isinstance(e, Binary | Call) and e.type.lanes == self.rows.lanes
        return computed and own and bool(vectors) and e.type.is_float and e.type.bits == 32

    def _kept_value(self, loop: Loop, step: Expr) -> Expr:
        """What a loop stores, of what is kept."""
        own = {e: v for e, v in self.vectors[loop.name].items() if v in self.kept}

        def expr(e: Expr) -> Expr:
            if isinstance(e, Load) and e in own:
                return Load(e.type, self.kept[own[e]], self._place(step))
            return map_expr(e, expr)

        return expr(loop.store.value)

    def _spelled(self, e: Expr) -> Expr:
        """With what numbers of rows are computed of (``row_values``), whatever they are called."""
        if isinstance(e, Load) and e.buffer in self.spelled:
            return self._spelled(self.spelled[e.buffer])
        return map_expr(e, self._spelled)

    def _place(self, step: Expr) -> Expr:
        """Where a vector that stays is in its array."""
        return Ramp(mul(step, IntImm(self.rows.lanes)), IntImm(1), self.rows.lanes)

    # ------------------------------------------------------------------ around all loops

    def _around(self, s: Stmt) -> Stmt:
        """The statements of a thread, behind what is said of its row."""
        lanes = self.rows.lanes
        ahead = self._loaded()
        s = Block((*ahead, self._stmt(s)))
        for (v, _), name in self.edges.items():
            s = Allocate(name, v.type.element, (IntImm(1),), Memory.STACK, s)
        arrays = [(name, v.type.element) for v, name in self.kept.items()]
        arrays += [(name, e.type.element) for e, (_, name) in self.values.items()]
        for name, t in arrays:
            s = Allocate(name, t, (IntImm(self.steps * lanes),), Memory.STACK, s)
        for name, value in reversed(list(self._numbers())):
            s = LetStmt(name, value, s)
        return s

    def _numbers(self) -> Iterator[tuple[str, Expr]]:
        """What is known of a thread's row, by name."""
        rows, x = self.rows, Var(self.rows.row.x)
        at, *others = self._starts()
        per = min(rows.lanes, VECTOR_BYTES // at.type.bytes)
        first = Var(FIRST)
        begin = Load(at.type.element, at.buffer, at.start.to_expr())
        yield FIRST, Call(INT32, FIRST, (begin, IntImm(per)))
        for v in others:
            begin = Load(v.type.element, v.buffer, (v.start + first).to_expr())
            per = min(rows.lanes, VECTOR_BYTES // v.type.bytes)
            yield f"{ALIGNED}.{v.buffer}", Call(BOOL, ALIGNED, (begin, IntImm(per)))
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

    def _starts(self) -> list[_Vector]:
        """The rows of arrays, the first of which vectors begin at multiples of 16 bytes in: one of
        the smallest elements, which is stored if any is.
        """
        found = dict[str, _Vector]()
        for x in self.rows.loops.values():
            if x.op is None:
                t = x.store.value.type
                start = self._start(x)
                found.setdefault(x.store.buffer, _Vector(x.store.buffer, t, start))
        for loads in self.vectors.values():
            for v in loads.values():
                found.setdefault(v.buffer, v)
        return sorted(found.values(), key=lambda v: v.type.bytes)

    def _start(self, x: Loop) -> Affine:
        match x.store.index:
            case Ramp(base, IntImm(1), _) if (at := self.rows.element(base, x.name)) is not None:
                return at
            case _:
                raise AssertionError(x.store)

    def _loaded(self) -> Iterator[Stmt]:
        """Load what stays."""
        rows = self.rows
        for v, name in self.kept.items():
            parts = self._parts_of(n for n, loads in self.vectors.items() if v in loads.values())
            index = self._moved(v.start, STEP)
            store = Store(name, self._place(STEP), Load(v.type, v.buffer, index), _all(rows.lanes))
            one = IfThenElse(self._goes_on(STEP, parts), store)
            yield For(STEP.name, ZERO, IntImm(self.steps), ForKind.UNROLLED, one)
            for end in (e for part in parts for e in part.ends):
                edge = self.edges.setdefault((v, end), f"row.edge.{len(self.edges)}")
                at = (v.start + end).to_expr()
                one = Store(edge, ZERO, Load(v.type.element, v.buffer, at))
                yield IfThenElse(Compare(CompareOp.LE, ZERO, end), one)

    def _parts_of(self, loops: Iterable[str]) -> list[_Part]:
        """What those loops go through."""
        return list(dict.fromkeys(self.parts[self.rows.loops[name].limit] for name in loops))

    def _goes_on(self, step: Expr, parts: Sequence[_Part]) -> Expr:
        """Whether there is a vector in a step of one of these parts."""
        own = mul(step, IntImm(self.rows.row.threads))
        tests: list[Expr] = [Compare(CompareOp.LT, own, part.left) for part in parts]
        return reduce(lambda a, b: Binary(BinaryOp.OR, a, b), tests)

    def _moved(self, start: Affine, step: Expr) -> Expr:
        """The elements of a thread's vector, where row's begin at ``start``."""
        row, lanes = self.rows.row, self.rows.lanes
        own = to_affine(step) * (row.threads * lanes) + Affine.of(Var(row.x)) * lanes
        return Ramp((start + Var(FIRST) + own).to_expr(), IntImm(1), lanes)

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
        part, steps, threads = self.parts[loop.limit], self.steps, self.rows.row.threads
        turn = Var(s.name)
        if steps:
            first = Block(tuple(self._of_kept(loop, turn)))
            yield For(s.name, ZERO, IntImm(steps), ForKind.UNROLLED, first)
        turns = div(add(part.left, IntImm(threads - 1)), IntImm(threads))
        rest = self._vector(loop, loop.store.value, turn)
        extent = sub(turns, IntImm(steps))
        yield For(s.name, IntImm(steps), extent, ForKind.SERIAL, Block((rest,)))
        for end in part.ends:
            yield IfThenElse(Compare(CompareOp.LE, ZERO, end), self._end(loop, end))

    def _of_kept(self, loop: Loop, turn: Expr) -> Iterator[Stmt]:
        """A turn with what is kept: values that stay are computed by the first loop."""
        value, found = self._kept_value(loop, STEP), dict[tuple[_Part, ...], list[Stmt]]()
        for known, (first, name) in self.values.items():
            if first == loop.name:
                users = [n for n in self.rows.loops if known in walk_expr(self.computed[n])]
                e = next(e for e in walk_expr(value) if self._spelled(e) == known)
                own = substitute(self._replaced(e, loop.name), {STEP.name: turn})
                store = Store(name, self._place(turn), own)
                found.setdefault(tuple(self._parts_of(users)), []).append(store)
        value = substitute(self._replaced(value, loop.name, own=True), {STEP.name: turn})
        last = self._vector(loop, value, turn)
        found.setdefault(tuple(self._parts_of((loop.name,))), []).append(last)
        for parts, stmts in found.items():
            yield IfThenElse(self._goes_on(turn, parts), Block(tuple(stmts)))

    def _replaced(self, e: Expr, loop: str, *, own: bool = False) -> Expr:
        """With what earlier loops have computed, and maybe what this one has before."""
        found = self.values.get(self._spelled(e))
        if found is not None:
            first, name = found
            if own or first != loop:
                return Load(e.type, name, self._place(STEP))
        return map_expr(e, lambda x: self._replaced(x, loop, own=own))

    def _vector(self, loop: Loop, value: Expr, turn: Expr) -> Stmt:
        """A turn, of whole vectors."""

        def at(start: Affine) -> Expr:
            return self._moved(start, turn)

        rows, store = self.rows, loop.store
        names = {*self.kept.values(), *(name for _, name in self.values.values())}

        def moved(e: Expr) -> Expr:
            if isinstance(e, Load) and e.buffer in names:
                return e
            if isinstance(e, Load | Ramp):
                return rows.at_elements(e, loop.name, at)
            return map_expr(e, moved)

        value = moved(value)
        index = store.index if loop.op is not None else moved(store.index)
        there = _all(rows.lanes)
        local = rows.local | names
        loads = [e for e in walk_expr(value) if isinstance(e, Load)]
        alone = loop.op is not None and all(e.buffer in local for e in loads)
        return Store(store.buffer, index, value, None if alone else there)

    def _end(self, loop: Loop, end: Var) -> Stmt:
        """A turn of one element."""
        rows, store = self.rows, loop.store
        own = {e: self.edges.get((v, end)) for e, v in self.vectors[loop.name].items()}

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


def _all(lanes: int) -> Expr:
    return Broadcast(ALL, lanes)


def _bytes(t: Type) -> int:
    return t.bytes * t.lanes
