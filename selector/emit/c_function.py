"""The body of the C function that a module becomes: loops, threads, memory, and who configures the
tile registers.

A parallel loop is OpenMP's; one inside another runs serially, as OpenMP would have it. Tile
registers belong to a thread: where all scopes of a stretch of one thread's code share one
configuration it is loaded at the start of the stretch, else at the start of each scope that finds
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext

from selector.diagnostics import EmitError, ScheduleError, Where
from selector.emit.c_context import CContext
from selector.emit.c_operands import as_product
from selector.emit.c_plain import PlainCode, is_simple, loop_bounds
from selector.emit.c_registers import TileScope, is_tile_allocation, tile_scope
from selector.emit.c_tiles import TileCode, loads_of, loop_head
from selector.emit.scalar import Space, Storage, c_type
from selector.ir.affine import to_affine
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Block,
    Call,
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
    Var,
)
from selector.ir.simplify import mul
from selector.ir.traverse import free_vars, stmt_children, walk_all_exprs, walk_stmt
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
        self._scopes: dict[int, tuple[TileScope, str]] = {}  # by identity of the allocation
        self._configured = False  # one configuration holds throughout
        self._tracked = False  # which one is loaded is known at run time

    def emit(self, body: Stmt) -> None:
        """The whole body."""
        for s in walk_stmt(body):
            self._refuse(s)
        self._plan(body)
        self._thread(Block((body,)), lambda: self.statement(body))

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

    # ------------------------------------------------------------------ configurations

    def _plan(self, s: Stmt) -> None:
        """Registers of every scope, and a constant for every configuration."""
        if is_tile_allocation(s):
            assert isinstance(s, Allocate)
            scope = tile_scope(s)
            self._scopes[id(s)] = (scope, self._constant(scope))
            return
        for child in stmt_children(s):
            self._plan(child)

    def _constant(self, scope: TileScope) -> str:
        """The name of a configuration, written ahead of the function."""
        row_bytes = ", ".join(str(b) for _, b in scope.shapes)
        rows = ", ".join(str(r) for r, _ in scope.shapes)
        value = f"{{.palette = 1, .row_bytes = {{{row_bytes}}}, .rows = {{{rows}}}}};"
        for number, known in enumerate(self.context.constants):
            if known.endswith(value):
                return f"shapes_{number}"
        name = f"shapes_{len(self.context.constants)}"
        self.context.constants.append(f"static const tile_shapes {name} = {value}")
        return name

    def _thread(self, s: Stmt, write: Callable[[], None]) -> None:
        """Code of one thread, with the configurations that it needs."""
        c = self.context
        own = set(self._configurations(s))
        outer = self._configured, self._tracked
        self._configured = len(own) == 1 and not any(self._parallel_scopes(s))
        self._tracked = bool(own) and not self._configured
        if self._configured:
            c.writer.line(f"tile_configure(&{next(iter(own))});")
        elif own:
            c.writer.line("const tile_shapes *configured = NULL;")
        write()
        if own:
            test = "" if self._configured else "if (configured != NULL) "
            c.writer.line(f"{test}tile_release();")
        self._configured, self._tracked = outer

    def _configurations(self, s: Stmt) -> Iterator[str]:
        """Configurations that a thread uses outside of parallel loops further in."""
        if id(s) in self._scopes:
            yield self._scopes[id(s)][1]
            return
        for child in stmt_children(s):
            if not self._starts_threads(child):
                yield from self._configurations(child)

    def _parallel_scopes(self, s: Stmt) -> Iterator[Stmt]:
        """Parallel loops whose threads use tiles."""
        for child in stmt_children(s):
            if self._starts_threads(child):
                if any(id(x) in self._scopes for x in walk_stmt(child)):
                    yield child
            else:
                yield from self._parallel_scopes(child)

    def _starts_threads(self, s: Stmt) -> bool:
        return isinstance(s, For) and s.kind is ForKind.PARALLEL and not self.context.parallel

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
            case Evaluate(value):
                self._evaluate(value)

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
            self.tiles.fill(s)
        elif self.tiles is not None and self._reads_tiles(s):
            self.tiles.read_out(s)
        else:
            self.plain.store(s)

    def _evaluate(self, value: Expr) -> None:
        if isinstance(value, Call) and value.name == "prefetch":
            (load,) = value.args
            assert isinstance(load, Load)
            storage = self.context.storages[load.buffer]
            place = self.context.scalar.address(storage, first_lane(load.index).to_expr())
            self.context.writer.line(f"__builtin_prefetch(&{place});")

    # ------------------------------------------------------------------ loops

    def _loop(self, s: For) -> None:
        c = self.context
        if s.kind is ForKind.PARALLEL and not c.parallel:
            self._parallel_loop(s)
            return
        if self.tiles is not None and self._touches_tiles(s):
            self._tile_loop(s)
            return
        simple = is_simple(s) and not any(self._starts_threads(x) for x in walk_stmt(s))
        if simple and self.plain.tests_stand_here(s):
            self.plain.versions(self.plain.cover(s), lambda: self._loop_text(s))
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
            self.tiles.through_memory(s, lambda: self._outside_tiles(s))
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
        tiles = any(id(x) in self._scopes for x in walk_stmt(s))
        inner = s.body
        both = isinstance(inner, For) and inner.kind is ForKind.PARALLEL and (
            s.name not in free_vars(inner.min) | free_vars(inner.extent)
        )  # fmt: skip
        collapse = " collapse(2)" if both else ""
        own, self.tiles = self.tiles, None
        with w.block("") if tiles else nullcontext():
            if tiles:
                w.line("#pragma omp parallel")
                with w.block(""):
                    c.parallel = True
                    self._thread(s, lambda: self._shared_loop("for", collapse, s, both))
            else:
                c.parallel = True
                self._shared_loop("parallel for", collapse, s, both)
        c.parallel = False
        self.tiles = own
        if tiles and self._tracked:
            w.line("configured = NULL;")

    def _shared_loop(self, what: str, collapse: str, s: For, both: bool) -> None:
        self.context.writer.line(f"#pragma omp {what} schedule(static){collapse}")
        with self._head(s):
            if both:
                assert isinstance(s.body, For)
                with self._head(s.body):
                    self.statement(s.body.body)
            else:
                self.statement(s.body)

    # ------------------------------------------------------------------ memory

    def _allocate(self, s: Allocate) -> None:
        if id(s) in self._scopes:
            self._tile_allocation(s, *self._scopes[id(s)])
        elif self.tiles is not None and self.tiles.scope.of(s.name):
            self._accumulators(s)
        else:
            self._memory(s)

    def _tile_allocation(self, s: Allocate, scope: TileScope, shapes: str) -> None:
        c = self.context
        with c.writer.block(""):
            for line in _description(scope):
                c.writer.line(f"// {line}")
            if not self._configured:
                with c.writer.block(f"if (configured != &{shapes})"):
                    c.writer.line(f"tile_configure(&{shapes});")
                    c.writer.line(f"configured = &{shapes};")
            self.tiles = TileCode(c, self.plain, scope)
            self._accumulators(s)
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
                    self.statement(s.body)
                return
            if not isinstance(elements, IntImm):
                size = c.names.fresh(f"{name}_size")
                w.line(f"const s64 {size} = max((s64)({c.scalar.index(elements)}), 0);")
                elements = Var(c.names.verbatim(size))
                c.ranges = c.ranges.extended({})
                c.ranges = type(c.ranges)(c.ranges.bounds, c.ranges.nonnegative | {size})
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
                self.statement(s.body)
            w.line(f"memory_give({name});")

    # ------------------------------------------------------------------ what touches tiles

    def _accumulator_names(self) -> set[str]:
        assert self.tiles is not None
        return {b.accumulator for b in self.tiles.scope.blocks}

    def _reads_tiles(self, s: Stmt) -> bool:
        return any(loads_of(s, name) for name in self._accumulator_names())

    def _stores_tiles(self, s: Stmt) -> bool:
        names = self._accumulator_names()
        return any(isinstance(x, Store) and x.buffer in names for x in walk_stmt(s))

    def _touches_tiles(self, s: Stmt) -> bool:
        return self._reads_tiles(s) or self._stores_tiles(s)

    def _varying_read(self, s: Stmt) -> bool:
        names = self._accumulator_names()
        return any(
            isinstance(e, Load) and e.buffer in names and first_lane(e.index).constant is None
            for e in walk_all_exprs(s)
        )


def _is_product_part(s: Stmt) -> bool:
    match s:
        case Store():
            return as_product(s) is not None
        case For() | Block():
            return True
        case _:
            return False


def _elements(s: Allocate) -> Expr:
    total: Expr = IntImm(1)
    for extent in s.extents:
        total = mul(total, extent)
    return total


def _description(scope: TileScope) -> Iterable[str]:
    for b in scope.blocks:
        registers = " ".join(str(r) for r in b.registers.values())
        yield f"{b.accumulator}[{b.offset} ...], {b.m} x {b.n}: tiles {registers}"
    for (rows, size), pool in scope.pools.items():
        registers = " ".join(str(r) for r in pool)
        yield f"operands of {rows} x {size} bytes: tiles {registers}"
