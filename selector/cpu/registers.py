"""Which tile registers a scope uses, and of which shapes: one configuration for the whole scope.

A block of M x N sums is cut into pieces of at most 16 x 16, each in a register of its own from the
scope's begin to its end. The other registers hold pieces of A and B. Shapes are exact where that
leaves registers enough; else the last pieces along k, then m, then n count as whole ones, padded
with zeros.

Tile registers belong to a thread: where all scopes of a stretch of one thread's code share one
configuration it is loaded at the start of the stretch, else at the start of each scope that finds
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from selector.cpu.context import CContext
from selector.cpu.operands import TILE_ROWS, Product, as_product
from selector.dataclass import dataclass
from selector.diagnostics import EmitError, SelectionError, Where
from selector.gpu.codegen.scalars.names import comment
from selector.ir.nodes import Allocate, For, ForKind, Memory, Stmt, Store
from selector.ir.traverse import stmt_children, walk_stmt

REGISTERS = 8
Shape = tuple[int, int]  # rows, bytes of a row


@dataclass(frozen=True, slots=True)
class Sums:
    """M x N sums of an accumulator, row after row from ``offset``; ``registers`` is by (i, j)."""

    accumulator: str
    offset: int
    m: int
    n: int
    registers: Mapping[tuple[int, int], int]

    @property
    def end(self) -> int:
        return self.offset + self.m * self.n

    def rows(self, i: int) -> int:
        return min(TILE_ROWS, self.m - TILE_ROWS * i)

    def columns(self, j: int) -> int:
        return min(TILE_ROWS, self.n - TILE_ROWS * j)


@dataclass(frozen=True, slots=True)
class Padding:
    """Extents that pieces are padded to; None: none are."""

    depth: int | None = None  # bytes of k
    rows: int | None = None
    columns: int | None = None

    def a(self, rows: int, depth: int) -> Shape:
        return self.rows or rows, self.depth or depth

    def b(self, depth: int, columns: int) -> Shape:
        return (self.depth or depth) // 4, 4 * (self.columns or columns)

    def c(self, rows: int, columns: int) -> Shape:
        return self.rows or rows, 4 * (self.columns or columns)


@dataclass(frozen=True, slots=True)
class TileScope:
    """Registers and shapes of one scope. ``pools``: registers for operands by shape; ``ahead``:
    accumulators whose operands are to be loaded ahead of their products.
    """

    blocks: tuple[Sums, ...]
    shapes: tuple[Shape, ...]  # by register
    pools: Mapping[Shape, tuple[int, ...]]
    padding: Padding
    ahead: frozenset[str] = frozenset()

    def of(self, accumulator: str) -> tuple[Sums, ...]:
        return tuple(b for b in self.blocks if b.accumulator == accumulator)

    def block(self, p: Product) -> Sums:
        return next(b for b in self.of(p.accumulator) if b.offset == p.offset)


def is_tile_allocation(s: Stmt) -> bool:
    """Whether a statement allocates accumulators that products use."""
    return isinstance(s, Allocate) and s.memory is Memory.AMX_TILE and any(_products(s, s.name))


def _products(s: Stmt, name: str | None = None) -> Iterable[Product]:
    for x in walk_stmt(s):
        if isinstance(x, Store) and (name is None or x.buffer == name):
            product = as_product(x)
            if product is not None:
                yield product


def depths(p: Product) -> list[int]:
    """Elements of k in each piece."""
    return [min(p.depth, p.k - at) for at in range(0, p.k, p.depth)]


def tile_scope(s: Allocate) -> TileScope:
    """Registers for an outermost allocation of accumulators and those inside it.

    ``SelectionError`` if there are too many pieces.
    """
    products = list(_products(s))
    blocks = _blocks(products)
    pieces = sum(len(b.registers) for b in blocks)
    if pieces > REGISTERS - 2:
        raise _too_many(s, blocks, pieces)
    for padding in _paddings(products):
        needed = _operand_shapes(products, padding)
        if pieces + sum(least for least, _ in needed.values()) <= REGISTERS:
            found = _assigned(blocks, needed, pieces, padding)
            allocations = (x for x in walk_stmt(s) if isinstance(x, Allocate))
            return replace(found, ahead=frozenset(a.name for a in allocations if a.stages > 1))
    raise _too_many(s, blocks, pieces)


def _too_many(s: Allocate, blocks: Sequence[Sums], pieces: int) -> SelectionError:
    sizes = ", ".join(dict.fromkeys(f"{b.m} x {b.n}" for b in blocks))
    return SelectionError(
        f"`{s.name}` needs {pieces} tile registers for its sums; {REGISTERS - 2} are free for them",
        f"its blocks are {sizes}, cut into tiles of at most {TILE_ROWS} x {TILE_ROWS}, of "
        f"{REGISTERS} registers one holds a piece of each operand",
        "compute fewer outputs at a time: 32 x 32, 16 x 96 or 48 x 32 fit",
        Where(func=s.name.split(".")[0]),
    )


def _blocks(products: Sequence[Product]) -> tuple[Sums, ...]:
    found: dict[tuple[str, int], Sums] = {}
    count = 0
    for p in products:
        key = (p.accumulator, p.offset)
        known = found.get(key)
        if known is not None:
            if (known.m, known.n) != (p.m, p.n):
                raise _overlap(p)
            continue
        inside = [(i, j) for i in range(-(-p.m // 16)) for j in range(-(-p.n // 16))]
        registers = {at: count + number for number, at in enumerate(inside)}
        count += len(inside)
        found[key] = Sums(p.accumulator, p.offset, p.m, p.n, registers)
    ordered = sorted(found.values(), key=lambda b: (b.accumulator, b.offset))
    for first, second in pairwise(ordered):
        if first.accumulator == second.accumulator and second.offset < first.end:
            raise _overlap(next(p for p in products if p.accumulator == first.accumulator))
    return tuple(found.values())


def _overlap(p: Product) -> EmitError:
    return EmitError(
        f"blocks of `{p.accumulator}` overlap",
        f"one of {p.m} x {p.n} begins at {p.offset}, and another shares elements with it",
        "give all updates of the Func the same tiles",
    )


def _paddings(products: Sequence[Product]) -> Iterable[Padding]:
    depth = max((p.depth_bytes(k) for p in products for k in depths(p)), default=4)
    rows = max((min(p.m, TILE_ROWS) for p in products), default=1)
    columns = max((min(p.n, TILE_ROWS) for p in products), default=1)
    yield Padding()
    yield Padding(depth)
    yield Padding(depth, rows)
    yield Padding(depth, rows, columns)


def _operand_shapes(products: Sequence[Product], padding: Padding) -> dict[Shape, tuple[int, int]]:
    """The least number of registers of each shape that do, and the most that are of use."""
    pieces: dict[Shape, set[object]] = {}
    least: dict[Shape, int] = {}
    for p in products:
        for k in depths(p):
            depth = p.depth_bytes(k)
            for i in range(-(-p.m // 16)):
                for j in range(-(-p.n // 16)):
                    a = padding.a(min(16, p.m - 16 * i), depth)
                    b = padding.b(depth, min(16, p.n - 16 * j))
                    pieces.setdefault(a, set()).add(("a", p.a, i))
                    pieces.setdefault(b, set()).add(("b", p.b, j))
                    for shape, count in ((a, 2 if a == b else 1), (b, 2 if a == b else 1)):
                        least[shape] = max(least.get(shape, 0), count)
    return {shape: (least[shape], max(least[shape], len(pieces[shape]))) for shape in pieces}


def _assigned(
    blocks: tuple[Sums, ...], needed: Mapping[Shape, tuple[int, int]], pieces: int, padding: Padding
) -> TileScope:
    counts = {shape: least for shape, (least, _) in needed.items()}
    free = REGISTERS - pieces - sum(counts.values())
    while free and any(counts[s] < most for s, (_, most) in needed.items()):
        shape = min(
            (s for s, (_, most) in needed.items() if counts[s] < most),
            key=lambda s: (needed[s][1] - counts[s], s),
        )
        counts[shape] += 1
        free -= 1
    shapes: dict[int, Shape] = {}
    for b in blocks:
        for (i, j), register in b.registers.items():
            shapes[register] = padding.c(b.rows(i), b.columns(j))
    pools: dict[Shape, tuple[int, ...]] = {}
    for shape in sorted(counts, reverse=True):
        first = len(shapes)
        pools[shape] = tuple(range(first, first + counts[shape]))
        shapes |= dict.fromkeys(pools[shape], shape)
    return TileScope(blocks, tuple(shapes[r] for r in sorted(shapes)), pools, padding)


class Configurations:
    """The scopes of a function with their configurations; writes what loads them."""

    def __init__(self, context: CContext) -> None:
        self.context = context
        self._scopes: dict[int, tuple[TileScope, str]] = {}  # by identity of the allocation
        self._configured = False  # one configuration holds throughout
        self._tracked = False  # which one is loaded is known at run time

    def of(self, s: Stmt) -> TileScope | None:
        """The scope that an allocation opens, if it opens one."""
        found = self._scopes.get(id(s))
        return None if found is None else found[0]

    def any_in(self, s: Stmt) -> bool:
        return any(id(x) in self._scopes for x in walk_stmt(s))

    def enter(self, s: Stmt) -> None:
        """The start of a scope: say what is where, and load its configuration if need be."""
        scope, shapes = self._scopes[id(s)]
        w = self.context.writer
        for line in _description(scope):
            w.line(comment(line))
        if not self._configured:
            with w.block(f"if (configured != &{shapes})"):
                w.line(f"tile_configure(&{shapes});")
                w.line(f"configured = &{shapes};")

    def forget(self) -> None:
        """After a parallel loop, whose first thread is this one."""
        if self._tracked:
            self.context.writer.line("configured = NULL;")

    def plan(self, s: Stmt) -> None:
        """Registers of every scope, and a constant for every configuration."""
        if is_tile_allocation(s):
            assert isinstance(s, Allocate)
            scope = tile_scope(s)
            self._scopes[id(s)] = (scope, self._constant(scope))
            return
        for child in stmt_children(s):
            self.plan(child)

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

    def thread(self, s: Stmt, write: Callable[[], None]) -> None:
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
            if not self.starts_threads(child):
                yield from self._configurations(child)

    def _parallel_scopes(self, s: Stmt) -> Iterator[Stmt]:
        """Parallel loops whose threads use tiles."""
        for child in stmt_children(s):
            if self.starts_threads(child):
                if any(id(x) in self._scopes for x in walk_stmt(child)):
                    yield child
            else:
                yield from self._parallel_scopes(child)

    def starts_threads(self, s: Stmt) -> bool:
        return isinstance(s, For) and s.kind is ForKind.PARALLEL and not self.context.parallel


def _description(scope: TileScope) -> Iterable[str]:
    for b in scope.blocks:
        registers = " ".join(str(r) for r in b.registers.values())
        yield f"{b.accumulator}[{b.offset} ...], {b.m} x {b.n}: tiles {registers}"
    for (rows, size), pool in scope.pools.items():
        registers = " ".join(str(r) for r in pool)
        yield f"operands of {rows} x {size} bytes: tiles {registers}"
