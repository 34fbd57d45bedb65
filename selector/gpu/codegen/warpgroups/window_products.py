"""Convolutions of a warpgroup: wgmma whose A is windows of a raw row, whose B is a band.

A's rows are windows of a row in shared memory, 8 elements of 16 bits apart. A descriptor without
a swizzle reads them where they lie: a core matrix is 8 windows of 16 bytes, 128 bytes in a row, the
next 8 windows follow it (stride offset 128), and the next 16 bytes of all windows are one window
further (leading offset 16). So rows of A overlap, and A is never formed.

The statements of a nest of constant loops are taken together. Those that read the same window, for
accumulators that lie side by side, become one instruction of up to 256 columns (``core_bands``): a
row of an image serves every row of outputs that its taps reach. Where a row of taps takes half an
instruction more, two rows of an image share it (``window_pairs``). All instructions of a nest are
one ``asm`` statement: as statements of their own they take the compiler ten times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, pairwise, product

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.context import KernelContext, slice_offset
from selector.gpu.codegen.products.banded import BandTables
from selector.gpu.codegen.units import Unit
from selector.gpu.codegen.unwritten import check_windows
from selector.gpu.codegen.warpgroups.core_bands import (
    COLUMNS,
    CORE_BYTES,
    CoreBands,
    Entry,
    Pair,
    chains_of,
)
from selector.gpu.codegen.warpgroups.part_products import PartProducts
from selector.gpu.codegen.warpgroups.window_code import (
    STEP_BYTES,
    WIDEST,
    WINDOWS,
    BandAddress,
    Pieces,
    WindowCode,
    WindowProduct,
)
from selector.gpu.codegen.warpgroups.window_pairs import paired
from selector.gpu.codegen.warpgroups.windows import CHUNK, is_window
from selector.ir.nodes import For, IntImm, Stmt, Store, Var
from selector.ir.printer import print_expr
from selector.ir.traverse import stmt_children
from selector.lowering.fragments import BLOCK_BYTES
from selector.lowering.normalize import sequence
from selector.lowering.tiles import Access, Accumulate, Banded

Loops = tuple[tuple[str, int, int], ...]  # (variable, first value, number)
Run = tuple[Stmt, ...]  # products and nests of them that follow each other


@dataclass(frozen=True, slots=True)
class Nested:
    """An accumulate statement and the constant loops around it."""

    statement: Accumulate
    loops: Loops


class WindowEmitter:
    """Writes runs and nests of such statements."""

    def __init__(self, context: KernelContext, tables: BandTables) -> None:
        self.context = context
        self.tables = tables
        self.bands = CoreBands(context, tables)
        self.parts: dict[int, PartProducts] = {}  # by their columns
        self.apart: set[int] = set()  # columns of parts whose last half steps share nothing
        self.pieces: Pieces | None = None  # in which the rows arrive
        self._found: dict[Run, list[WindowProduct]] = {}
        self._in_order: dict[Run, list[WindowProduct]] = {}
        self._instructions: dict[Run, list[WindowProduct]] = {}

    # ------------------------------------------------------------------ before the body

    def prepare(self, body: Stmt) -> None:
        """Lay out the bands of all such statements of a kernel."""
        runs = list(_runs(body))
        following: dict[Entry | Pair, Entry | Pair] = {}
        seen: dict[Entry | Pair, None] = {}
        for run in runs:
            products = [p for p in self._all(run) if p.entry.columns == COLUMNS]
            seen |= dict.fromkeys(p.entry for p in products)
            for a, b in pairwise(products):
                if a.window == b.window and b.first == a.first + a.n // COLUMNS:
                    following.setdefault(a.entry, b.entry)
        self.bands.lay(chains_of(list(seen), following))
        self._lay_parts(runs)

    def _lay_parts(self, runs: list[Run]) -> None:
        """The same for parts of instructions."""
        found = {p.entry.columns for run in runs for p in self._all(run)}
        for columns in sorted(found - {COLUMNS}):
            self.parts[columns] = parts = PartProducts(columns, self.context, self.tables)
            of_columns = [[p for p in self._all(r) if p.entry.columns == columns] for r in runs]
            if not parts.arrange(of_columns):
                self.apart.add(columns)
                self._in_order.clear()
                of_columns = [[p for p in self._all(r) if p.entry.columns == columns] for r in runs]
                parts.arrange(of_columns)
            parts.bands.lay()

    def fill_bands(self, unit: Unit) -> None:
        """Write all bands out of the padded taps."""
        self.bands.fill(unit)
        for parts in self.parts.values():
            parts.bands.fill(unit)

    def __bool__(self) -> bool:
        """Whether there are any products."""
        return bool(self.bands or self.parts)

    # ------------------------------------------------------------------ from statements to products

    def _nested(self, stmts: Run, loops: Loops) -> list[Nested]:
        found: list[Nested] = []
        for s in stmts:
            match s:
                case For(name, IntImm(low), IntImm(extent), _, body):
                    found += self._nested(sequence(body), (*loops, (name, low, extent)))
                case Store():
                    statement = self.context.as_accumulate(s)
                    assert statement is not None
                    found.append(Nested(statement, loops))
                case _:
                    raise AssertionError("a nest holds loops and products")
        return found

    def _all(self, run: Run) -> list[WindowProduct]:
        """All products of a run, by the windows that they read."""
        if run not in self._found:
            self._found[run] = [p for n in self._nested(run, ()) for p in self._products(n)]
        if run not in self._in_order:
            self._in_order[run] = self._ordered(self._found[run])
        return self._in_order[run]

    def _ordered(self, every: list[WindowProduct]) -> list[WindowProduct]:
        numbers: dict[tuple[object, ...], int] = {}
        sharing = [p for p in every if p.entry.columns not in self.apart]
        found = paired(sharing, self.context.shared.layouts.windows)
        found += [p for p in every if p.entry.columns in self.apart]
        for p in found:
            numbers.setdefault((p.accumulator, p.buffer, p.symbolic), len(numbers))
        return sorted(
            found,
            key=lambda p: (
                numbers[p.accumulator, p.buffer, p.symbolic],
                p.offset + (p.along if isinstance(p.entry, Pair) else 0),
                p.step,
                p.first,
            ),
        )

    def _products(self, n: Nested) -> Iterator[WindowProduct]:
        s, a, b = n.statement, n.statement.a, n.statement.b
        assert isinstance(a, Access)
        assert isinstance(b, Banded)
        self._check(s, a)
        region = self.context.registers.accumulators[s.accumulator].regions[
            slice_offset(s.offset, self.context, s.accumulator)
        ]
        variables = [Var(name) for name, _, _ in n.loops]
        steps = [a.base.coefficient(v).constant for v in variables]
        base = a.base
        for v in variables:
            base = base.rest(v)
        taps = self.tables.loops(b)
        if any(t in self.context.registers.thread_vars for t in taps):
            raise ScheduleError(
                f"the taps of `{b.buffer}` for `{s.accumulator}` differ from group to group",
                "the bands of a block are shared by all of its warpgroups",
                "give a block one warpgroup's rows, or place it in WMMAAccumulator: each warp has "
                "bands of its own",
                Where(func=s.accumulator),
            )
        places = [[name for name, _, _ in n.loops].index(t) for t in taps if t in self._names(n)]
        if (
            None in steps
            or len(places) != len(taps)
            or any(base.mentions(v.name) for v in variables)
        ):
            raise ScheduleError(
                f"the taps of `{b.buffer}` for `{s.accumulator}` depend on a loop around others",
                "the bands that meet one window are laid side by side, so that the loops over rows "
                "of taps have to be innermost, with constant extents",
                f"reorder the update of `{s.accumulator}`",
                Where(func=s.accumulator),
            )
        start, size = base.offset, a.type.bytes
        symbolic = (base - start) * size
        rows = self.context.shared.layouts.windows[a.buffer]
        for values in product(*(range(low, low + extent) for _, low, extent in n.loops)):
            at = start + sum(v * (c or 0) for v, c in zip(values, steps, strict=True))
            entry = Entry(b, tuple(values[i] for i in places))
            line, column = divmod(at, rows.pitch)
            place = line * rows.pitch * size + column // rows.step * size
            for i, j in product(range(s.m // WINDOWS), range(0, s.n, COLUMNS)):
                part = replace(entry, first=j)
                for step in range(entry.blocks // 2):
                    first, second = (size * rows.place(CHUNK * c) for c in (2 * step, 2 * step + 1))
                    yield WindowProduct(
                        s.accumulator, region.piece(i, j // COLUMNS), entry.columns, a.buffer,
                        symbolic, place + WINDOWS * BLOCK_BYTES * i + first, second - first,
                        step, part,
                    )  # fmt: skip

    def _names(self, n: Nested) -> list[str]:
        return [name for name, _, _ in n.loops]

    def _check(self, s: Accumulate, a: Access) -> None:
        """Windows 16 bytes apart that start at multiples of 16 bytes, and end inside their rows."""
        rows = self.context.shared.layouts.windows[a.buffer]
        per = BLOCK_BYTES // a.type.bytes * rows.step
        fits = s.n % COLUMNS == 0 or s.instruction.apart > 0
        plain = a.predicate is None and a.depth_stride.constant == 1 and fits
        aligned = a.row_stride.constant == per and all(c % rows.pitch % per == 0 for _, c in a.base)
        one_row = a.base.constant is not None and a.base.offset < rows.pitch
        aligned = aligned and (one_row or rows.pitch % CHUNK == 0)
        if not plain or not aligned or a.type.bytes != 2:
            raise ScheduleError(
                f"`{a.buffer}` cannot be read by {s.instruction.name} as windows",
                "windows of 8 outputs lie 8 elements apart, or 16, 32 ... where these divide the "
                "staged rows, and start at multiples of as many; these are "
                f"{print_expr(a.row_stride.to_expr())} apart, {s.n} outputs each",
                "vectorize 512 neighbouring outputs (256 or 128 at strides of 2 or 4) and stage "
                "whole multiples of 16 bytes; or place the accumulators in "
                "MemoryType.WMMAAccumulator",
                Where(func=s.accumulator),
            )
        steps = -(-s.k * a.type.bytes // STEP_BYTES)
        whole = all(c % rows.pitch == 0 for m, c in a.base if m)
        needed = a.base.offset % rows.pitch + per * (s.m - 1) + STEP_BYTES // a.type.bytes * steps
        if not whole or needed > rows.pitch:
            raise ScheduleError(
                f"the windows of `{a.buffer}` reach {needed} elements into its rows, of which "
                f"{rows.pitch} are staged",
                f"{s.instruction.name} reads whole steps of {s.instruction.k} elements: what lies "
                "past a window meets zeros, and has to be a number",
                f"bound_extent(..., {needed}) on the staged copy's rows",
                Where(func=s.accumulator),
            )

    def _merged(self, products: list[WindowProduct]) -> list[WindowProduct]:
        found: list[WindowProduct] = []
        for columns, same in groupby(products, key=lambda p: p.entry.columns):
            whole = columns == COLUMNS
            found += (self._side_by_side if whole else self.parts[columns].join)(same)
        return found

    def _side_by_side(self, products: Iterable[WindowProduct]) -> list[WindowProduct]:
        """The instructions of whole core matrices: those of neighbours that meet one window."""
        found: list[WindowProduct] = []
        places = self.bands.places
        for p in products:
            last = found[-1] if found else None
            if (
                last is not None
                and last.window == p.window
                and last.entry.blocks == p.entry.blocks
                and p.first == last.first + last.n // COLUMNS
                and last.n + p.n <= WIDEST
                and places[p.entry] == places[last.entry] + last.n // COLUMNS * p.entry.bytes
            ):
                last.n += p.n
            else:
                at = places[p.entry] + 2 * CORE_BYTES * p.step
                band = BandAddress(self.bands.pointer, at, CORE_BYTES, p.entry.bytes)
                found.append(replace(p, band=band))
        return found

    def run(self, stmts: Run) -> list[WindowProduct]:
        """The instructions of such statements, in the order in which they are issued."""
        if stmts not in self._instructions:
            self._instructions[stmts] = self._merged(self._all(stmts))
        return self._instructions[stmts]

    def emit(self, stmts: Run) -> None:
        """Write a run of products and nests of them."""
        products = self.run(stmts)
        check_windows(products, self.context)
        WindowCode(self.context, products, self.pieces).write()


def _runs(s: Stmt) -> Iterator[Run]:
    """The runs of such statements in a body."""
    if is_window(s):
        yield (s,)
        return
    for windows, run in groupby(stmt_children(s), key=is_window):
        if windows:
            yield tuple(run)
        else:
            yield from (inner for x in run for inner in _runs(x))
