"""Banded (Toeplitz) operands: read out of zero-padded taps in shared memory.

A lane's word of a block of the band is some neighbouring taps, or zeros beside them: a window of
the row ``0 ... 0 tap 0 ... tap n-1 0 ... 0``. That row is written once per block for each value of
the serial loops that the taps depend on, and each phase; and as often as a word holds elements, one
element later in each copy, so that every window is an aligned word of one of them. Every value is
a tap or zero: a NaN in the signal next to the band's zeros still spreads to the row's eight
outputs, as it does in every Toeplitz formulation.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import reduce
from math import gcd, prod

from selector.dataclass import dataclass
from selector.diagnostics import EmitError
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.legal import guarded
from selector.gpu.codegen.units import Unit
from selector.gpu.ir.expressions import (
    below,
    element,
    equal,
    minus,
    mixed_radix,
    moved,
    number,
    packed,
    plus,
    pointer,
    quotient,
    remainder,
    times,
)
from selector.gpu.ir.layouts import in_bytes
from selector.gpu.ir.memory import Point
from selector.gpu.ir.nodes import Comment, Let, Memory
from selector.gpu.ir.products import LoadFragment, Register
from selector.gpu.ir.views import View
from selector.ir.affine import Affine, split_by_strides, to_affine
from selector.ir.nodes import Cast, Expr, IntImm, Var
from selector.ir.traverse import free_vars, substitute
from selector.ir.types import INT32, UINT32
from selector.lowering.fragments import BLOCK_ROWS, Block, depth_blocks
from selector.lowering.ranges import constant_ends
from selector.lowering.tiles import DEPTH, PHASE, Banded

LARGEST_TABLE = 96 * 1024


BANKS = 32  # of shared memory, a word wide
WORD = "const u32"
MEMBER = "$member"  # loop over tables that are filled together


@dataclass(frozen=True, slots=True)
class Table:
    """The padded taps of one banded operand: ``copies`` of ``pitch`` words for each phase, for each
    value of ``loops``. ``step`` elements lie between two copies, ``front`` words of zeros before
    the taps, and ``length`` words are written.
    """

    pointer: str
    operand: Banded
    loops: tuple[tuple[str, int, int], ...]  # (variable, min, extent), the fastest first
    step: int
    front: int
    length: int
    offset: int = 0  # in shared memory, bytes

    @staticmethod
    def of(
        pointer: str, o: Banded, loops: tuple[tuple[str, int, int], ...], offset: int = 0
    ) -> Table:
        count = 4 // o.type.bytes
        farthest = o.stride * ((o.rows - 1) // o.phases) + o.lead
        front = farthest // count
        step = gcd(count, o.stride, o.lead)
        return Table(pointer, o, loops, step, front, front + 4 * depth_blocks(o), offset)

    @property
    def copies(self) -> int:
        return 4 // self.operand.type.bytes // self.step

    @property
    def rows(self) -> int:
        """Padded rows for one value of the loops."""
        return self.copies * self.operand.phases

    @property
    def pitch(self) -> int:
        """Words from a row to the next: the windows of a warp lie in banks of their own."""
        if self.rows == 1:
            return self.length
        apart = max(4, BANKS // self.rows)
        return self.length + (apart - self.length) % BANKS

    @property
    def words(self) -> int:
        """Words for one value of the loops."""
        return self.rows * self.pitch

    @property
    def values(self) -> int:
        return prod(extent for _, _, extent in self.loops)


class BandTables:
    """The tables of a kernel. ``add`` before its body is written, ``fill`` at its start, ``fetch``
    in it.
    """

    def __init__(self, context: KernelContext) -> None:
        self.context = context
        self._tables: dict[Hashable, Table] = {}
        self._windows: dict[tuple[Hashable, int], str] = {}

    def add(self, operand: Banded, loops: dict[str, tuple[Expr, Expr]]) -> None:
        """Make room for an operand used inside ``loops`` (variable -> min, extent)."""
        if operand in self._tables:
            return
        used = {n for m, _ in operand.base for a in m for n in free_vars(a)}
        if operand.value is not None:
            used |= free_vars(operand.value)
        if operand.predicate is not None:
            used |= free_vars(operand.predicate)
        dims: list[tuple[str, int, int]] = []
        for name in sorted(used & loops.keys()):
            low, extent = loops[name]
            if not isinstance(low, IntImm) or not isinstance(extent, IntImm):
                raise EmitError(
                    f"the taps in `{operand.buffer}` depend on the loop {name}",
                    "its extent is not a constant",
                    hint=_constant_extent(name),
                )
            dims.append((name, low.value, extent.value))
        pointer = self.context.names.fresh(f"band_{self.context.names.get(operand.buffer)}")
        table = Table.of(pointer, operand, tuple(dims))
        size = 4 * table.words * table.values
        if size > LARGEST_TABLE:
            raise EmitError(
                f"the banded matrices of `{operand.buffer}` take {size} bytes of shared memory",
                hint="vectorize fewer taps per statement or make the outer tap loop the slower one",
            )
        offset = self.context.shared.allocate(size, f"bands of {operand.buffer}")
        self._tables[operand] = replace(table, offset=offset)
        w = self.context.writer
        w.add(Memory(pointer, "u32", offset, 1, size, (size // 4,), in_bytes((4,))))
        for block in range(operand.rows // BLOCK_ROWS):
            index = _window(table, block)
            w.add(Point(f"{pointer}_rows{block}", WORD, View(pointer, index=index), "terms"))

    def __bool__(self) -> bool:
        return bool(self._tables)

    def loops(self, operand: Banded) -> tuple[str, ...]:
        """The variables of loops that the taps of an operand depend on."""
        return tuple(name for name, _, _ in self._tables[operand].loops)

    def place(self, operand: Banded, values: tuple[int, ...]) -> int:
        """Words from the table's begin to the padded taps for these values of the ``loops``."""
        offset, table = 0, self._tables[operand]
        scale = table.words
        for value, (_, low, extent) in zip(values, table.loops, strict=True):
            offset += (value - low) * scale
            scale *= extent
        return offset

    def window(self, operand: Banded, row: Expr, *further: Expr) -> View:
        """The first word of a row of the band, for the first values of the loops, moved on so many
        words; every four words are a block.
        """
        table = self._tables[operand]
        index = reduce(moved, further, _windows_of(table, row, number(0)))
        return View(table.pointer, index=index)

    @property
    def sources(self) -> set[str]:
        """Buffers that the taps come from."""
        return {name for table in self._tables.values() for name in table.operand.sources}

    def fill(self, unit: Unit) -> None:
        """Write all tables, spread over the threads of the unit."""
        tables = list(self._tables.values())
        while tables:
            members = _progression(tables)
            self._fill_together(members, unit)
            tables = [t for t in tables if t not in members]

    def _fill_together(self, members: list[Table], unit: Unit) -> None:
        """Each thread writes some words of the padded rows of tables that differ in where their
        taps begin.
        """
        table, w = members[0], self.context.writer
        if len(members) > 1:
            apart = members[1].operand.base - members[0].operand.base
            base = table.operand.base + apart * Var(MEMBER)
            whole = replace(table.operand, base=base)
            table = replace(table, operand=whole, loops=(*table.loops, (MEMBER, 0, len(members))))
        o, total = table.operand, number(table.length * table.rows * table.values)
        count = 4 // o.type.bytes
        band = f"{o.taps} taps{_in_phases(o)} of a {o.depth} x {o.rows} band"
        w.add(Comment(f"{table.pointer}: {band}, with zeros around them"))
        with w.loop("item", unit.thread, total, "fours", number(unit.size)):
            place, values = self._decode(table, (members[-1].offset - members[0].offset) // 4)
            at = times(minus("word", table.front), count)
            if table.copies > 1:
                at = minus(at, times(table.step, "copy") if table.step > 1 else "copy")
            w.add(Let("int", ("at",), (at,)))
            elements = tuple(self._element(table, n, values) for n in range(count))
            w.store(element(UINT32, pointer(table.pointer), place), packed(*elements))

    def _decode(self, table: Table, span: int) -> tuple[Expr, dict[str, Expr]]:
        """Take ``item`` apart; the index of its word, and what stands for the loops' variables.
        ``span``: words from the first to the last of the tables filled together.
        """
        names, scalar = self.context.names, self.context.scalar
        digits = [("word", table.length, 0, 1), ("copy", table.copies, 0, table.pitch)]
        digits.append(("phase", table.operand.phases, 0, table.copies * table.pitch))
        scale, values = table.words, dict[str, Expr]()
        for n, (loop, low, extent) in enumerate(table.loops):
            pitch = span // (extent - 1) if loop == MEMBER else scale
            digits.append((f"loop{n}", extent, low, pitch))
            values[loop] = names.variable(f"loop{n}")
            scale *= extent
        place = Affine.of(0)
        several = mixed_radix("item", [n for _, n, _, _ in digits if n > 1])
        for name, extent, low, pitch in digits:
            if extent == 1 and not name.startswith("loop"):
                continue
            value = moved(next(several), low) if extent > 1 else number(low)
            self.context.writer.add(Let("int", (name,), (value,)))
            place = place + (Affine.of(names.variable(name)) - low) * pitch * (extent > 1)
        values[PHASE.name] = names.variable("phase")
        return scalar.number(place.to_expr()), values

    def _element(self, table: Table, n: int, values: dict[str, Expr]) -> Expr:
        """The tap at depth ``at + n``, zero off the band."""
        o = table.operand
        scalar, names = self.context.scalar, self.context.names
        at, tap = moved("at", n), f"tap{n}"
        depth = at if o.dilation == 1 else quotient(at, o.dilation)
        self.context.writer.add(Let("int", (tap,), (depth,)))
        held = names.variable(tap)
        if o.value is not None:
            value = scalar.legal(substitute(o.value, {DEPTH.name: held, **values}))
            tests: list[Expr | None] = self._on_band(o, at)
            return guarded(Cast(INT32, value) if o.type.is_integer else value, *tests)
        place = o.base + o.tap_stride * held
        if o.phases > 1:
            place = place + o.phase_stride * PHASE
        index = substitute(place.to_expr(), values)
        predicate = o.predicate
        if predicate is not None:
            predicate = substitute(predicate, {DEPTH.name: held, **values})
        storage = self.context.storages[o.buffer]
        tests = self._on_band(o, at)
        if not self._is_required(table, index, f"${tap}"):
            tests.append(scalar.bounds(storage, index))
        tests.append(None if predicate is None else scalar.legal(predicate))
        found = scalar.access(storage, index)
        return guarded(Cast(INT32, found) if o.type.is_integer else found, *tests)

    def _on_band(self, o: Banded, at: Expr) -> list[Expr | None]:
        """Whether there is a tap so far behind the first."""
        tests: list[Expr | None] = [below(at, o.dilation * (o.taps - 1) + 1)]
        if o.dilation > 1:
            tests.append(equal(remainder(at, o.dilation), 0))
        return tests

    def _is_required(self, table: Table, index: Expr, tap: str) -> bool:
        """Whether the algorithm itself needs every tap, so that the call has checked that they
        exist.
        """
        o = table.operand
        param = self.context.host.params.get(o.buffer)
        coordinates = None if param is None else split_by_strides(index, param.dims)
        if coordinates is None or o.predicate is not None:
            return False
        ranges = {tap: (0, o.taps - 1), PHASE.name: (0, o.phases - 1)}
        for n, (_, low, extent) in enumerate(table.loops):
            ranges[f"$loop{n}"] = (low, low + extent - 1)
        for dim, coordinate in enumerate(coordinates):
            reach = constant_ends(to_affine(coordinate), ranges)
            needed = self.context.host.required.get((o.buffer, dim))
            if reach is None or needed is None or reach[0] < needed[0] or reach[1] > needed[1]:
                return False
        return True

    def fetch(self, block: Block, register: Register, bases: dict[Hashable, str]) -> None:
        """Declare ``register`` with this lane's word of a block. ``bases`` are the pointers that
        the scope has already, and get those that it needs.
        """
        assert isinstance(block.operand, Banded)
        table, w = self._tables[block.operand], self.context.writer
        offset, scale = Affine.of(4 * block.depth), table.words
        for name, low, extent in table.loops:
            offset = offset + (Affine.of(Var(name)) - low) * scale
            scale *= extent
        symbolic, base = offset - offset.offset, f"{table.pointer}_rows{block.row}"
        if symbolic.terms:
            key = (base, symbolic)
            if key not in bases:
                bases[key] = f"w{len(bases)}"
                index = self.context.scalar.number(symbolic.to_expr())
                w.add(Point(bases[key], WORD, View(base, index=index)))
            base = bases[key]
        w.add(LoadFragment((register,), "word", base, offset.offset))


def _constant_extent(loop: str) -> str:
    """How a loop of Halide's, ``func.s1.r$x.ro`` or ``func.s0.x.xo``, gets a constant extent."""
    func, _, *variables = loop.split(".")
    if any("$" in v for v in variables):
        return "give the reduction domain constant extents"
    bounded = variables[0] if variables else loop
    return f"`{func}.bound({bounded}, 0, extent)`, with a constant extent"


def _progression(tables: list[Table]) -> list[Table]:
    """The first table and those after it whose taps begin, one after the other, as much later, and
    are the same otherwise.
    """
    first, *rest = tables
    members = [first]
    for t in rest:
        if t != replace(first, operand=t.operand, pointer=t.pointer, offset=t.offset):
            continue
        if replace(t.operand, base=first.operand.base) != first.operand:
            continue
        last = members[-1]
        if len(members) > 1:
            before = members[-2]
            if t.operand.base - last.operand.base != last.operand.base - before.operand.base:
                continue
            if t.offset - last.offset != last.offset - before.offset:
                continue
        members.append(t)
    return members


def _window(table: Table, block: int) -> Expr:
    """Where the windows of a lane's row of the band begin, in words from the table's begin."""
    row = moved(quotient("lane", 4), BLOCK_ROWS * block)
    return _windows_of(table, row, remainder("lane", 4))


def _windows_of(table: Table, row: Expr, first: Expr) -> Expr:
    """Where the windows of a row of the band begin, from their word ``first`` on."""
    o, count = table.operand, 4 // table.operand.type.bytes
    output = row if o.phases == 1 else quotient(row, o.phases)
    before = moved(output if o.stride == 1 else times(output, o.stride), o.lead)
    found = minus(moved(table.front, first), quotient(before, count))
    if table.copies > 1:
        copy = remainder(before, count)
        copy = copy if table.step == 1 else quotient(copy, table.step)
        found = plus(found, times(copy, table.pitch))
    if o.phases > 1:
        found = plus(found, times(remainder(row, o.phases), table.copies * table.pitch))
    return found


def _in_phases(o: Banded) -> str:
    return f" in each of {o.phases} phases" if o.phases > 1 else ""
