"""Tile statements as C: fills, products and read-outs of accumulators that live in tile registers.

An operand whose rows are adjacent elements inside a buffer is loaded from there; a test ahead of
the loops around a product says so once, where it can. Everything else goes through a tile of 1024
bytes on the stack, as do fills and read-outs that are not plain blocks of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from selector.diagnostics import EmitError
from selector.emit.c_context import CContext
from selector.emit.c_lanes import LaneLoops, scalar_lane
from selector.emit.c_operands import (
    COLUMN,
    INNER,
    ROW,
    TILE_BYTES,
    TILE_ROWS,
    Dense,
    Matrix,
    Product,
    as_product,
)
from selector.emit.c_plain import PlainCode, holds_in, loop_bounds
from selector.emit.c_ranges import Ranges, Tests
from selector.emit.c_registers import Shape, Sums, TileScope
from selector.emit.scalar import Space, Storage, c_type
from selector.intrinsics import TILE_FILL, TILE_READ
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Call,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    For,
    IntImm,
    Load,
    Ramp,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import constant
from selector.ir.traverse import free_vars, stmt_children, substitute, walk_all_exprs, walk_expr
from selector.lowering.predicates import TRUE
from selector.lowering.tiles import first_lane

_STEP = Var("$k")  # number of a piece of k, where they are a loop
_UNROLLED = 2  # pieces of k that are written one after the other


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``row`` ... and elements ``column`` ... of an operand, in a register of ``shape``."""

    matrix: Matrix
    row: Affine
    column: Affine
    rows: int
    width: int
    shape: Shape

    @property
    def bytes(self) -> int:
        return self.width * self.matrix.type.bytes

    @property
    def exact(self) -> bool:
        return self.shape == (self.rows, self.bytes)

    @property
    def start(self) -> Affine:
        """Index of its first element in the buffer, if the matrix is dense."""
        dense = self.matrix.dense
        assert dense is not None
        return dense.base + self.row * dense.step + self.column

    def key(self) -> object:
        """Equal for pieces of equal contents."""
        dense = self.matrix.dense
        if dense is not None and dense.predicate is None:
            return dense.buffer, self.start, dense.step, self.rows, self.width, self.shape
        return self


class TileCode:
    """Writes the tile statements of one scope."""

    def __init__(self, context: CContext, plain: PlainCode, scope: TileScope) -> None:
        self.context = context
        self.plain = plain
        self.scope = scope
        self.direct: frozenset[Dense] = frozenset()  # operands that a test ahead covers

    # ------------------------------------------------------------------ products

    def covered(self, products: Iterable[tuple[Product, Ranges]]) -> tuple[
        frozenset[Dense], tuple[Expr, ...]
    ]:  # fmt: skip
        """Operands that can be loaded in place if the tests hold."""
        tests = Tests.ahead(self.context.ranges)
        inner = tests.ranges
        direct: set[Dense] = set()
        failing: set[Dense] = set()
        for product, ranges in products:
            for matrix in (product.a, product.b):
                dense = matrix.dense
                if dense is None:
                    continue
                tests.ranges = inner.extended({**ranges.bounds, **_matrix_bounds(matrix)})
                holds = TRUE if dense.predicate is None else holds_in(dense.predicate, tests.ranges)
                size = self.context.storages[dense.buffer].elements
                place = dense.base + dense.step * ROW + to_affine(COLUMN) * matrix.packing + INNER
                if holds is None or size is None or not tests.inside(place, size):
                    failing.add(dense)
                    continue
                direct.add(dense)
                if holds != TRUE:
                    tests.others.append(holds)
        return frozenset(direct - failing), tests.condition()

    def products(self, run: Sequence[Product]) -> None:
        """Consecutive products; their operands are loaded as seldom as registers allow."""
        if self.context.guarded:
            self._run(run)
            return
        direct, tests = self.covered((p, Ranges()) for p in run)
        self._two_versions(tests, lambda d: self._covered(d, lambda: self._run(run)), direct)

    def loop(self, s: For) -> None:
        """A loop around nothing but products (and loops): the iterations up to the first whose
        operands are not all inside their buffers, then the others.
        """
        c = self.context
        bounds = {s.name: loop_bounds(s)}
        with c.inside(bounds):
            direct, tests = self.covered(_loop_products(s.body, Ranges()))
        split = self._split(tests, s.name, Ranges({}, c.ranges.nonnegative).extended(bounds))
        if split is None:
            self._loop(s, frozenset())
            return
        always, prefix = split
        if not prefix:
            self._two_versions(always, lambda d: self._loop(s, d), direct)
            return
        first, stop = c.scalar.index(s.min), c.scalar.index((to_affine(s.min) + s.extent).to_expr())
        name, inside = c.names.get(s.name), c.names.fresh("inside")
        with c.writer.block(""):
            start = f"{c.conjunction(always)} ? {stop} : {first}" if always else stop
            c.writer.line(f"int {inside} = {start}, {name} = {first};")
            last = {s.name: Var(c.names.verbatim(f"({inside} - 1)"))}
            test = c.conjunction(tuple(substitute(t, last) for t in prefix))
            c.writer.line(f"while ({inside} > {first} && !({test})) --{inside};")
            with c.writer.block(f"for (; {name} < {inside}; ++{name})"), c.inside(bounds):
                self._covered(direct, lambda: self._body(s.body))
            with c.writer.block(f"for (; {name} < {stop}; ++{name})"), c.inside(bounds):
                self._covered(frozenset(), lambda: self._body(s.body))

    def _split(
        self, tests: tuple[Expr, ...], loop: str, ranges: Ranges
    ) -> tuple[tuple[Expr, ...], tuple[Expr, ...]] | None:
        """Tests for the whole loop, and tests that hold up to some iteration; None if one of them
        is neither.
        """
        always: list[Expr] = []
        prefix: list[Expr] = []
        for test in _conjuncts(tests):
            if loop not in free_vars(test):
                always.append(test)
                continue
            match test:
                case Compare(CompareOp.LE, a, b):
                    difference = to_affine(b) - to_affine(a)
                case Compare(CompareOp.LT, a, b):
                    difference = to_affine(b) - to_affine(a) - 1
                case _:
                    return None
            factor = difference.coefficient(Var(loop))
            linear = not (factor.mentions(loop) or difference.rest(Var(loop)).mentions(loop))
            if linear and ranges.at_least_zero(-factor):
                prefix.append(test)
                continue
            found = ranges.interval(difference)
            if found is None:
                return None
            always.append(Compare(CompareOp.LE, IntImm(0), found[0].to_expr()))
        return tuple(dict.fromkeys(always)), tuple(dict.fromkeys(prefix))

    def _two_versions(
        self,
        tests: tuple[Expr, ...],
        write: Callable[[frozenset[Dense]], None],
        direct: frozenset[Dense],
    ) -> None:
        """With ``direct`` operands under the tests, and without."""
        c = self.context
        if not tests:
            write(direct)
            return
        with c.writer.block(f"if ({c.conjunction(tests)})"):
            write(direct)
        with c.writer.block("else"):
            write(frozenset())

    def _covered(self, direct: frozenset[Dense], write: Callable[[], None]) -> None:
        outer, self.direct = self.direct, self.direct | direct
        with self.context.covered(frozenset(), frozenset()):
            write()
        self.direct = outer

    def _loop(self, s: For, direct: frozenset[Dense]) -> None:
        c = self.context
        with c.writer.block(loop_head(s, c)), c.inside({s.name: loop_bounds(s)}):
            self._covered(direct, lambda: self._body(s.body))

    def _body(self, s: Stmt) -> None:
        """What is inside a loop around products; tests stand further out where they cover all."""
        match s:
            case For():
                products = list(_loop_products(s, Ranges()))
                if all(d in self.direct for p, _ in products for d in _dense(p)):
                    self._loop(s, frozenset())
                else:
                    self.loop(s)
            case Block(stmts) if any(isinstance(x, For) for x in stmts):
                for x in stmts:
                    self._body(x)
            case _:
                self._run([p for p, _ in _loop_products(s, Ranges())])

    def _run(self, run: Sequence[Product]) -> None:
        rest = list(run)
        for p in rest:
            if p.initial is not None:
                self._fill_initial(p)
        while rest:
            first = rest[0]
            same = [p for p in rest if (p.k, p.depth) == (first.k, first.depth)]
            group = rest[: len(same)] if rest[: len(same)] == same else rest[:1]
            self._group(group)
            del rest[: len(group)]

    def _fill_initial(self, p: Product) -> None:
        lanes = p.m * p.n
        assert p.initial is not None
        self.fill(Store(p.accumulator, Ramp(IntImm(p.offset), IntImm(1), lanes), p.initial))

    def _group(self, group: Sequence[Product]) -> None:
        """Products of one k: all of them for each piece of k."""
        first, c = group[0], self.context
        whole, tail = divmod(first.k, first.depth)
        if whole > _UNROLLED:
            name = c.names.get(_STEP.name)
            bounds = {_STEP.name: (IntImm(0), IntImm(whole - 1))}
            head = f"for (int {name} = 0; {name} < {whole}; ++{name})"
            with c.writer.block(head), c.inside(bounds):
                self._step(group, to_affine(_STEP), first.depth)
        else:
            for number in range(whole):
                self._step(group, Affine.of(number), first.depth)
        if tail:
            self._step(group, Affine.of(whole), tail)

    def _step(self, group: Sequence[Product], number: Affine, k: int) -> None:
        """One piece of k of every product."""
        wanted: list[tuple[Piece, Piece, str]] = []
        for p in group:
            block = self.scope.block(p)
            for (i, j), register in block.registers.items():
                a, b = self._pieces(p, i, j, number, k)
                wanted.append((a, b, f"{p.function}({register}, {{a}}, {{b}});"))
        rows = list(dict.fromkeys(a.key() for a, _, _ in wanted))
        columns = list(dict.fromkeys(b.key() for _, b, _ in wanted))
        by_rows = len(rows) >= len(columns)  # the smaller side stays in registers
        wanted.sort(
            key=lambda w: (
                (rows.index(w[0].key()), columns.index(w[1].key()))
                if by_rows
                else (columns.index(w[1].key()), rows.index(w[0].key()))
            )
        )
        self._issue(wanted)

    def _pieces(self, p: Product, i: int, j: int, number: Affine, k: int) -> tuple[Piece, Piece]:
        v, pad = p.instruction.packing, self.scope.padding
        rows, columns = min(TILE_ROWS, p.m - 16 * i), min(TILE_ROWS, p.n - 16 * j)
        depth = p.depth_bytes(k)
        a = Piece(
            p.a, Affine.of(16 * i), number * p.depth, rows, k, pad.a(rows, depth)
        )  # fmt: skip
        groups = -(-k // v)
        b = Piece(
            p.b, number * (p.depth // v), Affine.of(16 * j * v), groups, columns * v,
            pad.b(depth, columns),
        )  # fmt: skip
        return a, b

    def _issue(self, wanted: Sequence[tuple[Piece, Piece, str]]) -> None:
        """Loads and instructions in order; the register needed last is the one to be reused."""
        held: dict[int, object] = {}
        uses = [(a.key(), b.key()) for a, b, _ in wanted]
        for at, (a, b, text) in enumerate(wanted):
            places: dict[str, int] = {}
            for side, piece, other in (("b", b, a.key()), ("a", a, b.key())):
                key = piece.key()
                pool = self.scope.pools[piece.shape]
                register = next((r for r in pool if held.get(r) == key), None)
                if register is None:
                    free = [r for r in pool if held.get(r) != other]
                    register = max(free, key=lambda r: (_next_use(uses, at, held.get(r)), -r))
                    held[register] = key
                    self._load(piece, register)
                places[side] = register
            self.context.writer.line(text.format(**places))

    # ------------------------------------------------------------------ operands

    def _load(self, piece: Piece, register: int) -> None:
        c, dense = self.context, piece.matrix.dense
        if dense is None:
            self._load_elements(piece, register)
            return
        storage, size = c.storages[dense.buffer], piece.matrix.type.bytes
        stride = c.scalar.index((dense.step * size).to_expr())
        if dense in self.direct and piece.exact:
            place = c.scalar.index(piece.start.to_expr())
            c.writer.line(f"tile_load({register}, &{storage.pointer}[{place}], {stride});")
        elif dense.predicate is None or dense in self.direct:
            self._load_checked(piece, dense, register)
        else:
            self._load_elements(piece, register)

    def _load_checked(self, piece: Piece, dense: Dense, register: int) -> None:
        """Rows without a condition: in place if they are inside, else by way of the stack."""
        c, size = self.context, piece.matrix.type.bytes
        storage = c.storages[dense.buffer]
        assert storage.elements is not None
        limit = c.scalar.index((to_affine(storage.elements) * size).to_expr())
        place = c.scalar.index((piece.start * size).to_expr())
        stride = c.scalar.index((dense.step * size).to_expr())
        with c.writer.block(""):
            c.writer.line(f"_Alignas(64) u8 scratch[{TILE_ROWS * TILE_BYTES}];")
            what = f"{storage.pointer}, {limit}, {place}"
            if piece.exact:
                c.writer.line(f"s64 stride = {stride};")
                call = f"tile_rows(scratch, {what}, &stride, {piece.rows}, {piece.bytes})"
                c.writer.line(f"const void *from = {call};")
                c.writer.line(f"tile_load({register}, from, stride);")
            else:
                call = f"tile_copy(scratch, {what}, {stride}, {piece.rows}, {piece.bytes})"
                c.writer.line(f"tile_load({register}, {call}, {TILE_BYTES});")

    def _load_elements(self, piece: Piece, register: int) -> None:
        """Any operand, element by element."""
        c, m = self.context, piece.matrix
        size, v = m.type.bytes, m.packing
        name = "$tile"
        columns = piece.width // v
        digits = tuple(
            (x, n) for x, n in ((INNER, v), (COLUMN, columns), (ROW, piece.rows)) if n > 1
        )
        first = piece.column.divided_by(v)
        assert first is not None
        at = {
            ROW.name: (piece.row + (ROW if piece.rows > 1 else 0)).to_expr(),
            COLUMN.name: (first + (COLUMN if columns > 1 else 0)).to_expr(),
            INNER.name: INNER if v > 1 else IntImm(0),
        }
        value = substitute(m.element, at)
        live = {x for x, _ in digits}
        index = Affine()
        for x, factor in ((ROW, TILE_BYTES // size), (COLUMN, v), (INNER, 1)):
            if x in live:
                index += to_affine(x) * factor
        with c.writer.block(""):
            count = TILE_ROWS * TILE_BYTES // size
            whole = piece.exact and piece.bytes == TILE_BYTES
            zero = "" if whole else " = {0}"
            c.writer.line(f"_Alignas(64) {c_type(m.type)} scratch[{count}]{zero};")
            with c.stored(name, Storage("scratch", m.type, Space.LOCAL)), c.fresh_guard():
                self.plain.form(LaneLoops(digits, (), Store(name, index.to_expr(), value)))
            c.writer.line(f"tile_load({register}, scratch, {TILE_BYTES});")

    # ------------------------------------------------------------------ fills and read-outs

    def fill(self, s: Store) -> None:
        """Any store to an accumulator but a product."""
        value = _bare(s.value)
        blocks = self._whole_blocks(s.index, s.buffer)
        zero = constant(value) == 0 or _is_zero(value)
        if blocks is not None and s.predicate is None and zero:
            for b in blocks:
                for register in b.registers.values():
                    self.context.writer.line(f"tile_zero({register});")
            return
        with self.context.writer.block(""):
            partly = blocks is None or s.predicate is not None
            filled = partly or _reads(value, s.buffer)
            with self.in_memory(s.buffer, filled=filled), self.context.fresh_guard():
                self.plain.store(Store(s.buffer, s.index, value, s.predicate))
            for b in self.scope.of(s.buffer) if blocks is None else blocks:
                self._fetch(b)

    def _whole_blocks(self, index: Expr, accumulator: str) -> list[Sums] | None:
        """The blocks that a dense index covers exactly; None if it covers others in part."""
        if not isinstance(index, Ramp) or index.stride != IntImm(1):
            return None
        first = first_lane(index).constant
        if first is None:
            return None
        last = first + index.type.lanes
        found = [b for b in self.scope.of(accumulator) if first <= b.offset and b.end <= last]
        touched = [b for b in self.scope.of(accumulator) if b.offset < last and first < b.end]
        covered = sum(b.m * b.n for b in found) == last - first
        return found if found == touched and covered else None

    def read_out(self, s: Store) -> None:
        """A store to ordinary memory whose value reads accumulators."""
        block = self._bare_read(s)
        if block is None or not self._read_in_place(s, block):
            self.through_memory(s, lambda: self.plain.store(s))

    def through_memory(self, s: Stmt, write: Callable[[], None], tested: bool = False) -> None:
        """Write a statement that only reads accumulators, from an image of them in memory.

        ``tested``: what can be tested ahead does not hold.
        """
        names = [a for a in dict.fromkeys(b.accumulator for b in self.scope.blocks)
                 if loads_of(s, a)]  # fmt: skip
        with self.context.writer.block(""), ExitStack() as stack:
            for name in names:
                stack.enter_context(self.in_memory(name, filled=True, read_by=s))
            guard = self.context.covered(frozenset(), frozenset())
            stack.enter_context(guard if tested else self.context.fresh_guard())
            write()

    def in_memory(
        self, accumulator: str, *, filled: bool, read_by: Stmt | None = None
    ) -> AbstractContextManager[None]:
        """An image of an accumulator on the stack; ``filled``: with what the registers hold, or as
        much of it as a statement reads.
        """
        c = self.context
        home = c.storages[accumulator]
        pointer = c.names.fresh(f"{home.pointer}_image")
        assert isinstance(home.elements, IntImm)
        kind = c_type(home.type)
        c.writer.line(f"_Alignas(64) {kind} {pointer}[{home.elements.value}];")
        image = Storage(pointer, home.type, Space.LOCAL, None, home.elements)
        if filled:
            for b in self.scope.of(accumulator):
                if read_by is None or _may_read(read_by, b):
                    self._spill(b, pointer)
        self._image = pointer
        return c.stored(accumulator, image)

    def _spill(self, b: Sums, pointer: str) -> None:
        w = self.context.writer
        for (i, j), register in b.registers.items():
            at = b.offset + 16 * i * b.n + 16 * j
            if self._padded(b, i, j):
                with w.block(""):
                    w.line(f"_Alignas(64) u8 scratch[{TILE_ROWS * TILE_BYTES}];")
                    w.line(f"tile_store({register}, scratch, {TILE_BYTES});")
                    with w.block(f"for (int i = 0; i < {b.rows(i)}; ++i)"):
                        w.line(
                            f"memcpy(&{pointer}[{at} + i * {b.n}], scratch + {TILE_BYTES} * i, "
                            f"{4 * b.columns(j)});"
                        )
            else:
                w.line(f"tile_store({register}, &{pointer}[{at}], {4 * b.n});")

    def _fetch(self, b: Sums) -> None:
        """The registers of a block from the image made last."""
        w, pointer = self.context.writer, self._image
        for (i, j), register in b.registers.items():
            at = b.offset + 16 * i * b.n + 16 * j
            if self._padded(b, i, j):
                with w.block(""):
                    w.line(f"_Alignas(64) u8 scratch[{TILE_ROWS * TILE_BYTES}];")
                    call = (
                        f"tile_copy(scratch, {pointer}, sizeof {pointer}, {4 * at}, {4 * b.n}, "
                        f"{b.rows(i)}, {4 * b.columns(j)})"
                    )
                    w.line(f"tile_load({register}, {call}, {TILE_BYTES});")
            else:
                w.line(f"tile_load({register}, &{pointer}[{at}], {4 * b.n});")

    def _padded(self, b: Sums, i: int, j: int) -> bool:
        return self.scope.shapes[b.registers[i, j]] != (b.rows(i), 4 * b.columns(j))

    def _bare_read(self, s: Store) -> Sums | None:
        """The one block that a store writes as it is, if it is that."""
        value = _bare(s.value)
        if not isinstance(value, Load) or value.predicate is not None:
            return None
        blocks = self.scope.of(value.buffer)
        home = self.context.storages.get(s.buffer)
        if not blocks or home is None or home.type != value.type.element:
            return None
        found = self._whole_blocks(value.index, value.buffer)
        return found[0] if found is not None and len(found) == 1 else None

    def _read_in_place(self, s: Store, b: Sums) -> bool:
        """Store the tiles straight to memory; False if the rows there are not dense."""
        digits = ((COLUMN, b.n), (ROW, b.m))
        place = to_affine(scalar_lane(s.index, digits))
        step, base = place.coefficient(ROW), place.rest(ROW).rest(COLUMN)
        dense = b.n == 1 or place.coefficient(COLUMN).constant == 1
        if not dense or any(x.mentions(v.name) for x in (step, base) for v in (ROW, COLUMN)):
            return False
        if any(self._padded(b, i, j) for i, j in b.registers):
            return False
        tests: tuple[Expr, ...] = ()
        if s.predicate is not None:
            condition = scalar_lane(s.predicate, digits) if s.predicate.type.lanes > 1 else (
                s.predicate
            )  # fmt: skip
            bounds = {ROW.name: (IntImm(0), IntImm(b.m - 1)),
                      COLUMN.name: (IntImm(0), IntImm(b.n - 1))}  # fmt: skip
            holds = holds_in(condition, Ranges(bounds, self.context.ranges.nonnegative))
            if holds is None or any(isinstance(x, Load) for x in walk_expr(holds)):
                return False
            tests = () if holds == TRUE else (holds,)
        c = self.context
        if not tests:
            self._store_block(s, b, base, step)
            return True
        with c.writer.block(f"if ({c.conjunction(tests)})"):
            self._store_block(s, b, base, step)
        c.writer.line("else")
        self.through_memory(s, lambda: self.plain.store(s), tested=True)
        return True

    def _store_block(self, s: Store, b: Sums, base: Affine, step: Affine) -> None:
        c = self.context
        pointer = c.storages[s.buffer].pointer
        stride = c.scalar.index((step * 4).to_expr())
        for (i, j), register in b.registers.items():
            place = c.scalar.index((base + step * (16 * i) + 16 * j).to_expr())
            c.writer.line(f"tile_store({register}, &{pointer}[{place}], {stride});")


def loop_head(s: For, c: CContext) -> str:
    """``for (...)`` over the iterations of a loop."""
    name, low, extent = c.names.get(s.name), c.scalar.index(s.min), c.scalar.index(s.extent)
    stop = extent if low == "0" else c.scalar.index((to_affine(s.min) + s.extent).to_expr())
    return f"for (int {name} = {low}; {name} < {stop}; ++{name})"


def loads_of(s: Stmt, accumulator: str) -> bool:
    """Whether a statement tree reads a buffer."""
    return any(isinstance(e, Load) and e.buffer == accumulator for e in walk_all_exprs(s))


def _dense(p: Product) -> list[Dense]:
    return [m.dense for m in (p.a, p.b) if m.dense is not None]


def _conjuncts(tests: Iterable[Expr]) -> Iterable[Expr]:
    for test in tests:
        match test:
            case Binary(BinaryOp.AND, a, b):
                yield from _conjuncts((a, b))
            case _:
                yield test


def _may_read(s: Stmt, b: Sums) -> bool:
    """Whether a statement reads elements of a block; dense indices are looked at closely."""
    for e in walk_all_exprs(s):
        if not isinstance(e, Load) or e.buffer != b.accumulator:
            continue
        first = first_lane(e.index).constant
        dense = isinstance(e.index, Ramp) and e.index.stride == IntImm(1)
        if not dense or first is None or (first < b.end and b.offset < first + e.type.lanes):
            return True
    return False


def _next_use(uses: Sequence[tuple[object, object]], at: int, key: object) -> int:
    if key is None:
        return len(uses) + 1
    later = (i for i in range(at, len(uses)) if key in uses[i])
    return next(later, len(uses))


def _matrix_bounds(m: Matrix) -> dict[str, tuple[Expr, Expr]]:
    extents = ((ROW, m.rows), (COLUMN, m.columns), (INNER, m.packing))
    return {v.name: (IntImm(0), IntImm(n - 1)) for v, n in extents}


def _loop_products(s: Stmt, ranges: Ranges) -> Iterable[tuple[Product, Ranges]]:
    """Every product below a statement with the loops around it."""
    match s:
        case Store():
            product = as_product(s)
            if product is None:
                raise EmitError(f"a store to `{s.buffer}` among products is none")
            yield product, ranges
        case For():
            yield from _loop_products(s.body, ranges.extended({s.name: loop_bounds(s)}))
        case _:
            for child in stmt_children(s):
                yield from _loop_products(child, ranges)


def _bare(e: Expr) -> Expr:
    """A value without the marks of fills and read-outs."""
    while isinstance(e, Call) and e.name in (TILE_FILL, TILE_READ):
        e = e.args[0]
    return e


def _is_zero(e: Expr) -> bool:
    while isinstance(e, Broadcast):
        e = e.value
    return isinstance(e, FloatImm) and e.value == 0


def _reads(e: Expr, buffer: str) -> bool:
    return any(isinstance(x, Load) and x.buffer == buffer for x in walk_expr(e))
