"""What stays of a row in a thread's registers: what several loops of a kernel of rows
(``row_loops``) load, and what one of them computes of that and a later one computes again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.contents import loaded
from selector.ir.nodes import Binary, Call, Expr, IntImm, Load, Ramp, Stmt, Store, Var
from selector.ir.simplify import mul
from selector.ir.traverse import map_expr, walk_expr, walk_stmt
from selector.ir.types import Type
from selector.lowering.kept_rows import KEPT, MANY, REGISTERS
from selector.lowering.row_folds import WARP
from selector.lowering.row_loops import Loop, RowLoops
from selector.lowering.row_marks import ALIGNED
from selector.lowering.row_values import ROW_VALUE

MOST, LEAST = 32, 16  # elements of a row that a thread has, those of less than a warp the least
SHARE = 64  # bytes of all that is loaded of these, but for what all rows share
BYTES = 128  # of a thread that stay
AHEAD = 192  # the same with what later loops load, if that is done early
FEW = 112  # the same in the largest blocks, which have few registers for each thread
OTHERS = 29  # registers of a thread beside what stays, and the addresses in each array
ADDRESSES = 3
FEW_BLOCKS, SPARED = 4, 4  # so many blocks are worth a few registers: nvcc finds others
END = 4  # registers for a further element of an array at an end of a row
STEP = Var("row.step")


@dataclass(frozen=True, slots=True)
class Vector:
    """``lanes`` elements of a buffer's row that begins at ``start``."""

    buffer: str
    type: Type
    start: Affine


@dataclass(slots=True)
class RowWork:
    """One kernel. ``vectors``: what each loop loads; ``kept``: of those, what stays, by its array;
    ``values``: what a loop computes and stays, by the loop and its array; ``computed``: what each
    loop stores, of what is kept, as ``spelled`` by numbers of rows; ``late``: what one of the later
    loops loads, if that is done ``early`` or right behind the first one; ``steps``: vectors that
    stay.
    """

    rows: RowLoops
    vectors: dict[str, dict[Load, Vector]] = field(default_factory=dict[str, dict[Load, Vector]])
    kept: dict[Vector, str] = field(default_factory=dict[Vector, str])
    values: dict[Expr, tuple[str, str]] = field(default_factory=dict[Expr, tuple[str, str]])
    computed: dict[str, Expr] = field(default_factory=dict[str, Expr])
    spelled: dict[str, Expr] = field(default_factory=dict[str, Expr])
    late: dict[Vector, str] = field(default_factory=dict[Vector, str])
    steps: int = 0

    @property
    def early(self) -> bool:
        """Whether all is loaded at first. Where ``values`` stay, they take the vectors' registers;
        blocks that have a row together wait for each other longer than for what is loaded then.
        """
        return not self.values and self.rows.row.blocks == 1

    def read(self) -> None:
        """Note what the loops load."""
        for name, loop in self.rows.loops.items():
            self.vectors[name] = dict(self._loads(loop))

    def starts(self) -> list[Vector]:
        """The rows of arrays, the first of which vectors begin at multiples of 16 bytes in: one of
        the smallest elements, which is stored if any is.
        """
        found = dict[tuple[str, Affine], Vector]()
        for x in self.rows.loops.values():
            if x.op is None:
                v = Vector(x.store.buffer, x.store.value.type, self._start(x))
                found.setdefault((v.buffer, v.start), v)
        for loads in self.vectors.values():
            for v in loads.values():
                found.setdefault((v.buffer, v.start), v)
        return sorted(found.values(), key=lambda v: v.type.bytes)

    def groups(self, others: list[Vector]) -> dict[str, list[Vector]]:
        """Arrays whose rows begin at multiples together or are loaded from anywhere: those that
        have rows, those that all rows share, and each that is stored; by what tells.
        """
        found = dict[str, list[Vector]]()
        stored = {x.store.buffer for x in self.rows.loops.values()}
        for v in others:
            shared = v.start.constant is not None
            name = v.buffer if v.buffer in stored else "shared" if shared else "own"
            found.setdefault(f"{ALIGNED}.{name}", []).append(v)
        return found

    def loops_of(self, v: Vector) -> list[str]:
        """The loops that load a vector."""
        return [n for n, loads in self.vectors.items() if v in loads.values()]

    def _start(self, x: Loop) -> Affine:
        match x.store.index:
            case Ramp(base, IntImm(1), _) if (at := self.rows.element(base, x.name)) is not None:
                return at
            case _:
                raise AssertionError(x.store)

    def _loads(self, loop: Loop) -> Iterator[tuple[Load, Vector]]:
        """The vectors that a loop loads in each turn."""
        for e in walk_expr(loop.store.value):
            match e:
                case Load(t, buffer, Ramp(base, IntImm(1), _)) if (
                    buffer not in self.rows.local
                    and (start := self.rows.element(base, loop.name)) is not None
                ):
                    yield e, Vector(buffer, t, start)
                case _:
                    pass

    def keep(self, body: Stmt, arrays: int) -> int:
        """Choose what stays; how many blocks there are registers for, of so many ``arrays``."""
        row, used = self.rows.row, dict[Vector, set[str]]()
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
        self.kept = {v: f"{KEPT}{n}" for n, v in enumerate(again)}
        values = self._common(body)
        computed = max((_bytes(e.type) for e in values), default=0)
        if row.threads > MANY and row.blocks == 1:
            self.steps, values, computed = FEW // loaded, {}, 0
        else:
            of_rows = [v for v in used if v.start.constant is None]
            bytes_ = 0 if row.blocks > 1 else sum(v.type.bytes for v in of_rows)
            elements = elements_of(bytes_, row.threads)
            steps = -(-elements * 3 // (2 * self.rows.lanes))  # the same sizes share a kernel
            self.steps = min(steps, BYTES // max(loaded, computed))
        for n, (e, name) in enumerate(values.items()):
            self.values[e] = name, f"{KEPT}value.{n}"
        first, *_ = self.rows.loops
        late = [v for v, loops in used.items() if len(loops) == 1 and first not in loops]
        late = [v for v in late if v.buffer not in stored]
        ahead = sum(_bytes(v.type) for v in late)
        if self.steps * (loaded + ahead) <= AHEAD:
            self.late = {v: f"{KEPT}late.{n}" for n, v in enumerate(late)}
        ends = -(-2 * (self.rows.lanes - 1) // row.threads)
        others = OTHERS + ADDRESSES * arrays + END * len(again) * (ends - 1)
        registers = others + self.steps * max(loaded, computed) // 4
        each = REGISTERS // (row.threads * row.rows)
        return max(each // registers, min(FEW_BLOCKS, each // (registers - SPARED)))

    def _common(self, body: Stmt) -> dict[Expr, str]:
        """What a loop computes of what is kept, and a later one computes again: by the loop."""
        seen, found = dict[Expr, str](), dict[Expr, str]()
        order = list(walk_stmt(body))
        of_rows = (s for s in order if isinstance(s, Store) and s.buffer.startswith(ROW_VALUE))
        self.spelled = {s.buffer: s.value for s in of_rows}
        for name, loop in self.rows.loops.items():
            self.computed[name] = value = self.spell(self.kept_value(loop, STEP))

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

    def kept_value(self, loop: Loop, step: Expr, *, ahead: bool = False) -> Expr:
        """What a loop stores, of what is kept, and maybe of what is loaded ahead."""
        kept = {**self.kept, **self.late} if ahead else self.kept
        own = {e: v for e, v in self.vectors[loop.name].items() if v in kept}

        def expr(e: Expr) -> Expr:
            if isinstance(e, Load) and e in own:
                return Load(e.type, kept[own[e]], self.place(step))
            return map_expr(e, expr)

        return expr(loop.store.value)

    def spell(self, e: Expr) -> Expr:
        """With what numbers of rows are computed of (``row_values``), whatever they are called."""
        if isinstance(e, Load) and e.buffer in self.spelled:
            return self.spell(self.spelled[e.buffer])
        return map_expr(e, self.spell)

    def place(self, step: Expr) -> Expr:
        """Where a vector that stays is in its array."""
        return Ramp(mul(step, IntImm(self.rows.lanes)), IntImm(1), self.rows.lanes)

    def replaced(self, e: Expr, loop: str, *, own: bool = False) -> Expr:
        """With what earlier loops have computed, and maybe what this one has before."""
        found = self.values.get(self.spell(e))
        if found is not None:
            first, name = found
            if own or first != loop:
                return Load(e.type, name, self.place(STEP))
        return map_expr(e, lambda x: self.replaced(x, loop, own=own))


def elements_of(bytes_: int, threads: int) -> int:
    """Elements of a row that a thread of so many has, each of so many bytes of its row's arrays."""
    if threads == MANY:  # the longest rows of two blocks at a time
        return BYTES // max(bytes_, 1)
    return min(MOST, max(LEAST, SHARE // max(bytes_, 1))) if threads >= WARP else LEAST


def _bytes(t: Type) -> int:
    return t.bytes * t.lanes
