"""The body of the C function that a module becomes: loops, threads, and memory.

A parallel loop is OpenMP's; one inside another runs serially, as OpenMP would have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import reduce
from itertools import accumulate

from selector.cpu.context import CContext, loop_head, shared_head
from selector.cpu.cover import is_simple
from selector.cpu.operands import as_product
from selector.cpu.plain import PlainCode
from selector.cpu.registers import Configurations, TileScope
from selector.cpu.tiles import TileCode
from selector.diagnostics import EmitError, ScheduleError, Where
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.gpu.codegen.threads.nests import as_nest, independent
from selector.intrinsics.unwritten import fills, masked_buffers, reads_of
from selector.intrinsics.windows import windows
from selector.ir.affine import to_affine
from selector.ir.contents import loaded
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Block,
    Evaluate,
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
)
from selector.ir.simplify import mul
from selector.ir.traverse import free_vars, map_stmt, substitute_stmt, walk_all_exprs, walk_stmt
from selector.lowering.predicates import test_of_all
from selector.lowering.ranges import loop_bounds
from selector.lowering.structure import loaded_names, stored_names
from selector.lowering.tiles import first_lane

STACK_BYTES = 16 << 10  # larger allocations are on the heap
_GPU_LOOPS = (ForKind.GPU_BLOCK, ForKind.GPU_THREAD, ForKind.GPU_LANE)
_GPU_MEMORY = (Memory.GPU_SHARED, Memory.WMMA_ACCUMULATOR, Memory.WGMMA_ACCUMULATOR)


class FunctionBody:
    """Writes a body into ``context.writer``."""

    def __init__(self, context: CContext) -> None:
        self.context = context
        self.plain = PlainCode(context)
        self.tiles: TileCode | None = None
        self.configurations = Configurations(context)
        self.windows: frozenset[str] = frozenset()
        self.masked: frozenset[str] = frozenset()

    def emit(self, body: Stmt) -> None:
        """The whole body."""
        for s in walk_stmt(body):
            self._refuse(s)
        body = _without_vector_lets(body)
        self.windows, self.masked = windows(body), masked_buffers(body)
        self.configurations.plan(body)
        self.configurations.thread(Block((body,)), lambda: self.statement(body))

    def _refuse(self, s: Stmt) -> None:
        if isinstance(s, For) and s.kind in _GPU_LOOPS:
            raise ScheduleError(
                f"the loop {s.name} is a {s.kind.value} loop; {self.context.target.name} has none",
                "the program was scheduled for a GPU",
                "use parallel(...) and vectorize(...) for the CPU",
            )
        if isinstance(s, Allocate) and s.memory in _GPU_MEMORY:
            func = s.name.split(".")[0]
            raise ScheduleError(
                f"`{s.name}` is stored in {s.memory.value}; {self.context.target.name} has none",
                "that memory is a GPU's",
                "use MemoryType.AMXTile for sums in tile registers, Stack or Heap for the rest",
                Where(func=func),
            )

    # ------------------------------------------------------------------ statements

    def statement(self, s: Stmt) -> None:
        c = self.context
        match s:
            case Block(stmts):
                self._sequence(stmts)
            case Store():
                self._sequence((s,))
            case For():
                self._loop(s)
            case IfThenElse(condition, t, f):
                condition = test_of_all(condition)
                with c.writer.block(f"if ({c.scalar.condition(condition)})"):
                    self.statement(t)
                if f is not None:
                    with c.writer.block("else"):
                        self.statement(f)
            case LetStmt(name, value, body):
                text = c.scalar.expr(value)
                with c.writer.block(""):  # the same name may come again after it
                    c.writer.line(f"const {c_type(value.type)} {c.names.get(name)} = {text};")
                    self.statement(body)
            case Allocate():
                self._allocate(s)
            case Atomic(_, body):
                self.statement(body)
            case Evaluate():
                pass

    def _sequence(self, stmts: Sequence[Stmt]) -> None:
        """Statements in order; consecutive products are written together."""
        run: list[Store] = []
        for s in stmts:
            if isinstance(s, Store) and self.tiles is not None and as_product(s) is not None:
                run.append(s)
                continue
            self._flush(run)
            if isinstance(s, Store):
                self._store(s)
            else:
                self.statement(s)
        self._flush(run)

    def _flush(self, run: list[Store]) -> None:
        if run:
            assert self.tiles is not None
            self.tiles.products([p for s in run if (p := as_product(s)) is not None])
            run.clear()

    def _store(self, s: Store) -> None:
        if self.tiles is not None and self.tiles.scope.of(s.buffer):
            self.tiles.sums.fill(s)
        elif self.tiles is not None and self._reads_tiles(s):
            self.tiles.sums.read_out(s)
        else:
            self.plain.store(s)

    # ------------------------------------------------------------------ loops

    def _loop(self, s: For) -> None:
        c = self.context
        if s.kind is ForKind.PARALLEL and not c.parallel:
            self._parallel_loop(s)
            return
        if self.tiles is not None and self._touches_tiles(s):
            self._tile_loop(s)
            return
        simple = is_simple(s) and not any(
            self.configurations.starts_threads(x) for x in walk_stmt(s)
        )
        if simple and self.plain.covering.tests_stand_here(s):
            self.plain.covering.versions(self.plain.covering.cover(s), lambda: self._loop_text(s))
        else:
            self._loop_text(s)

    def _loop_text(self, s: For) -> None:
        c = self.context
        innermost = isinstance(s.body, Store | IfThenElse) and s.kind is not ForKind.UNROLLED
        if innermost and self.plain.is_independent(s):
            c.writer.line("INDEPENDENT")
        with self._head(s):
            self.statement(s.body)

    def _head(self, s: For) -> ExitStack:
        """The head of a loop; a context for its body."""
        stack = ExitStack()
        stack.enter_context(self.context.writer.block(loop_head(s, self.context)))
        stack.enter_context(self.context.inside({s.name: loop_bounds(s)}))
        return stack

    def _tile_loop(self, s: For) -> None:
        assert self.tiles is not None
        if all(_is_product_part(x) for x in walk_stmt(s)):
            self.tiles.loop(s)
        elif not self._stores_tiles(s) and self._varying_read(s):
            self.tiles.sums.through_memory(s, lambda: self._outside_tiles(s))
        else:
            self._loop_text(s)

    def _outside_tiles(self, s: Stmt) -> None:
        """Accumulators are in memory for this statement."""
        outer, self.tiles = self.tiles, None
        self.statement(s)
        self.tiles = outer

    def _parallel_loop(self, s: For) -> None:
        c, w = self.context, self.context.writer
        if self.tiles is not None and self._touches_tiles(s):
            raise ScheduleError(
                f"the parallel loop {s.name} uses tile registers that another thread fills",
                "tile registers belong to one thread",
                "compute the Func inside the parallel loop, or make the loop serial",
            )
        tiles, loops = self.configurations.any_in(s), _shared(s)
        own, self.tiles = self.tiles, None
        with w.block("") if tiles else nullcontext():
            if tiles:
                w.line("#pragma omp parallel")
                with w.block(""):
                    c.parallel = True
                    self.configurations.thread(s, lambda: self._shared_loops("for", loops))
            else:
                c.parallel = True
                self._shared_loops("parallel for", loops)
        c.parallel = False
        self.tiles = own
        if tiles:
            self.configurations.forget()

    def _shared_loops(self, what: str, loops: Sequence[For]) -> None:
        c = self.context
        collapse = f" collapse({len(loops)})" if len(loops) > 1 else ""
        heads = [shared_head(loop, c) for loop in loops]
        c.writer.line(f"#pragma omp {what} schedule(static){collapse}")
        with ExitStack() as stack:
            for loop, head in zip(loops, heads, strict=True):
                stack.enter_context(c.writer.block(head))
                stack.enter_context(c.inside({loop.name: loop_bounds(loop)}))
            self.statement(loops[-1].body)

    # ------------------------------------------------------------------ memory

    def _allocate(self, s: Allocate) -> None:
        scope = self.configurations.of(s)
        if scope is not None:
            self._tile_allocation(s, scope)
        elif self.tiles is not None and self.tiles.scope.of(s.name):
            self._accumulators(s)
        else:
            self._memory(s)

    def _tile_allocation(self, s: Allocate, scope: TileScope) -> None:
        c = self.context
        with c.writer.block(""):
            self.configurations.enter(s)
            self.tiles = TileCode(c, self.plain, scope)
            self._accumulators(s)
            for name in sorted(scope.ahead - self.tiles.pipelined):
                func = name.split(".")[0]
                raise ScheduleError(
                    f"no operands of `{func}` can be loaded ahead",
                    "a loop around nothing but its products, whose tiles lie in memory row by row, "
                    "would load those of the next step among the products of this one",
                    "a loop over the sum, of one instruction's depth a step; or no pipeline_stages",
                    Where(func=func),
                )
            self.tiles = None

    def _accumulators(self, s: Allocate) -> None:
        elements = _elements(s)
        if not isinstance(elements, IntImm):
            raise EmitError(
                f"`{s.name}` is kept in tile registers and has no constant size",
                hint="bound the extents it is computed over, or split by constants",
            )
        element = s.type.element
        home = Storage(self.context.names.get(s.name), element, Space.LOCAL, None, elements)
        with self.context.stored(s.name, home):
            self.statement(s.body)

    def _memory(self, s: Allocate) -> None:
        c, w, element = self.context, self.context.writer, s.type.element
        kind, name = c_type(element), c.names.fresh(s.name)
        elements = _elements(s)
        with w.block(""):
            if isinstance(elements, IntImm) and elements.value * element.bytes <= STACK_BYTES:
                w.line(f"_Alignas(64) {kind} {name}[{max(1, elements.value)}];")
                with c.stored(s.name, Storage(name, element, Space.LOCAL, None, elements)):
                    self._clear(s, name, f"sizeof {name}")
                    self.statement(s.body)
                return
            if not isinstance(elements, IntImm):
                size = c.names.fresh(f"{name}_size")
                w.line(f"const s64 {size} = max((s64)({c.scalar.index(elements)}), 0);")
                elements = c.names.variable(size)
                c.ranges = c.ranges.extended({})
                c.ranges = type(c.ranges)(c.ranges.bounds, c.ranges.nonnegative | {elements.name})
            self._heap(s, name, Storage(name, element, Space.LOCAL, None, elements))

    def _heap(self, s: Allocate, name: str, storage: Storage) -> None:
        c, w, kind = self.context, self.context.writer, c_type(storage.type)
        c.can_fail = True
        assert storage.elements is not None
        size = c.scalar.index((to_affine(storage.elements) * storage.type.bytes).to_expr())
        w.line(f"{kind} *restrict {name} = memory_take({size});")
        with w.block(f"if ({name} == NULL)"):
            if c.parallel:
                w.line("#pragma omp atomic write")
            w.line("failed = 1;")
        with w.block("else"):
            with c.stored(s.name, storage):
                self._clear(s, name, size)
                self.statement(s.body)
            w.line(f"memory_give({name});")

    def _clear(self, s: Allocate, name: str, size: str) -> None:
        window = s.name in self.windows
        zeroed = () if window else tuple(fills(s, reads_of(self.masked)))
        if not (window or zeroed) or _fills(s):
            return
        if window:
            zeros = f"memset({name}, 0, {size});"
            self.context.writer.line(f"{zeros}  // what nobody computes meets zeros of a band")
        for x in zeroed:
            self.statement(x)

    # ------------------------------------------------------------------ what touches tiles

    def _accumulator_names(self) -> set[str]:
        assert self.tiles is not None
        return {b.accumulator for b in self.tiles.scope.blocks}

    def _reads_tiles(self, s: Stmt) -> bool:
        return not loaded_names(s).isdisjoint(self._accumulator_names())

    def _stores_tiles(self, s: Stmt) -> bool:
        return not stored_names(s).isdisjoint(self._accumulator_names())

    def _touches_tiles(self, s: Stmt) -> bool:
        return self._reads_tiles(s) or self._stores_tiles(s)

    def _varying_read(self, s: Stmt) -> bool:
        names = self._accumulator_names()
        return any(
            isinstance(e, Load) and e.buffer in names and first_lane(e.index).constant is None
            for e in walk_all_exprs(s)
        )


def _shared(s: For) -> list[For]:
    """The parallel loops that stand directly in each other, and do not say how many turns others
    have: threads share all of them at once.
    """
    found, body = [s], s.body
    while isinstance(body, For) and body.kind is ForKind.PARALLEL:
        if {loop.name for loop in found} & (free_vars(body.min) | free_vars(body.extent)):
            break
        found.append(body)
        body = body.body
    return found


def _is_product_part(s: Stmt) -> bool:
    match s:
        case Store():
            return as_product(s) is not None
        case For() | Block():
            return True
        case _:
            return False


def _without_vector_lets(s: Stmt) -> Stmt:
    """Names for vectors replaced by what they stand for, where that changes nothing."""
    match s:
        case LetStmt(name, value, body) if value.type.lanes > 1:
            read = loaded(value)
            if read & stored_names(body):
                raise EmitError(f"a vector of `{min(read)}` is used after that may have changed")
            return _without_vector_lets(substitute_stmt(body, {name: value}))
        case _:
            return map_stmt(s, _without_vector_lets, lambda e: e)


def _fills(s: Allocate) -> bool:
    """Whether the first thing that happens to a buffer is that all of it is written."""
    first = s.body.stmts[0] if isinstance(s.body, Block) else s.body
    nest = as_nest(first)
    if nest is None or nest.store.buffer != s.name:
        return False
    count = reduce(mul, (d.extent for d in nest.digits), IntImm(1))
    whole = nest.store.predicate is None and nest.condition is None
    pitches = tuple(accumulate(s.extents, mul))[:-1]
    pitches = tuple(p for p in pitches if not isinstance(p, IntImm))
    return (
        whole and to_affine(count) == to_affine(_elements(s)) and independent(nest, None, pitches)
    )


def _elements(s: Allocate) -> Expr:
    return reduce(mul, s.extents, IntImm(1))
