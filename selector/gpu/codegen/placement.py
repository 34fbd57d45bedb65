"""Where the memory of a kernel lies: shared memory, registers, accumulators.

An allocation gets its place when the kernel comes to it; one of the same name that comes after
another has ended lies where that lay. Staged buffers that tensor statements read in windows an even
number of 16-byte chunks apart lie in strips (``gpu.ir.layouts.Dealt``).
"""

from __future__ import annotations

from selector.diagnostics import ScheduleError
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.epilogues.row_registers import declare
from selector.gpu.codegen.instructions import accumulators
from selector.gpu.codegen.products.register_tiles import allocate, register_names
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.gpu.codegen.units import Unit
from selector.gpu.codegen.unwritten import staged_contents, write_zeros
from selector.gpu.ir.expressions import number
from selector.gpu.ir.lane_maps import BLOCK
from selector.gpu.ir.layouts import Composed, Dealt, Layout, in_bytes
from selector.gpu.ir.memory import Array
from selector.gpu.ir.nodes import SHARED_ALIGNMENT
from selector.gpu.ir.nodes import Memory as SharedMemory
from selector.gpu.ir.products import Fragment
from selector.ir.contents import loaded
from selector.ir.nodes import Allocate, IntImm, Memory, Stmt, Store
from selector.ir.simplify import literal
from selector.ir.traverse import stmt_exprs, walk_stmt
from selector.lowering.fragments import BLOCK_BYTES
from selector.lowering.normalize import TENSOR_MEMORY, is_tensor_store
from selector.lowering.structure import constant_elements, stage_elements
from selector.lowering.tiles import Access, align_windows, as_accumulate

WINDOW_BYTES = 64 * 32
"""What compute-sanitizer takes a window of wgmma for: 64 rows of 16 halves, one after the other.
They overlap and end inside the last row, but no address that it may look at is beyond our memory.
"""


class Placement:
    """Declares the allocations of one kernel."""

    def __init__(self, body: Stmt, context: KernelContext, own: frozenset[str]) -> None:
        self.context, self.own = context, own
        self.in_registers = register_names(body)
        self.by_rows: dict[str, int] = {}  # elements of a unit's part, by allocation
        self.kept: set[str] = set()  # shared buffers that are filled before, for all turns
        self._body = body
        self._reserved: dict[str, tuple[int, int]] = {}  # offset and bytes

    def offset(self, name: str) -> int:
        """Where a shared buffer lies."""
        return self._reserved[name][0]

    def held(self) -> int:
        """Registers of tiles, and of numbers of rows, that are kept there."""
        block = 256 if self.context.block.group else 64
        rows = sum(-(-n * 8 // block) for n in self.by_rows.values())
        return rows + sum(
            -(-constant_elements(s) // block)
            for s in walk_stmt(self._body)
            if isinstance(s, Allocate) and s.name in self.in_registers
        )

    def stage_elements(self, s: Allocate) -> int:
        """Elements from one stage of a pipeline to the next."""
        panels = self.context.shared.layouts.panels.get(s.name)
        return stage_elements(s) if panels is None else panels.size // s.type.bytes

    def place(self, s: Allocate, unit: Unit, *, in_warp: bool) -> None:
        """Declare what a kernel calls the memory."""
        c = self.context
        if s.memory is Memory.AMX_TILE:
            raise ScheduleError(f"`{s.name}` is stored in an AMX tile; {c.target.name} has none")
        if s.memory in TENSOR_MEMORY:
            a = c.registers.accumulators[s.name]
            c.writer.add(accumulators(s.type.element, a.register, a.fragments))
            # NVRTC leaves zeros of some lanes out where nobody says what the others hold.
            for fragment in a.shared:
                zero = c.scalar.legal(literal(0, s.type.element))
                c.writer.add(a.filled(fragment, [zero] * 4))
        elif s.name in self.own:
            name, t = c.names.fresh(s.name), s.type.element
            c.storages[s.name] = Storage(name, t, Space.LOCAL)
            c.writer.add(Array(name, c_type(t), constant_elements(s)))
        elif s.name in self.by_rows:
            declare(s, self.by_rows[s.name], c)
        elif s.name in self.in_registers:
            tiles = allocate(s, c.names.fresh(s.name), 4 if c.block.group else 1)
            c.registers.tiles[s.name] = tiles
            c.storages[s.name] = Storage(tiles.name, s.type.element, Space.REGISTERS)
            c.writer.add(Fragment(tiles.name, "u32", (tiles.size,), BLOCK))
        else:
            copies = c.block.warps if in_warp and unit.size == c.block.unit_threads else 1
            self._place_shared(s, copies)
            known = None if s.name in self.kept else staged_contents(s, c)
            if known is not None:
                c.facts.numbers[s.name] = known.written
                if known.runs:
                    write_zeros(s, known, self.stage_elements(s), c, unit)

    def _place_shared(self, s: Allocate, copies: int) -> None:
        """In shared memory, ``copies`` times: each unit has its own."""
        c = self.context
        size = self.stage_elements(s) * s.type.bytes * s.stages
        behind = WINDOW_BYTES if s.name in c.shared.layouts.windows else 0
        offset = self._reserve(size * copies + behind, s.name)
        pointer = c.names.fresh(s.name)
        bytes_, unit = size // s.stages, (number(c.block.number), size) if copies > 1 else (None, 0)
        extents, layout = self._layout(s)
        kind = c_type(s.type.element)
        c.writer.add(SharedMemory(pointer, kind, offset, s.stages, bytes_, extents, layout, *unit))
        c.storages[s.name] = Storage(
            pointer,
            s.type.element,
            Space.SHARED,
            panels=c.shared.layouts.panels.get(s.name),
            strips=c.shared.layouts.strips.get(s.name),
        )

    def _layout(self, s: Allocate) -> tuple[tuple[int, ...], Layout]:
        """The extents of one stage of a shared buffer, and how it lies."""
        layouts = self.context.shared.layouts
        panels, strips = layouts.panels.get(s.name), layouts.strips.get(s.name)
        if panels is not None:
            return (panels.rows, panels.columns), panels.layout
        plain = in_bytes((s.type.element.bytes,))
        return (constant_elements(s),), plain if strips is None else Composed(plain, strips)

    def _reserve(self, size: int, name: str) -> int:
        offset, known = self._reserved.get(name, (0, 0))  # an earlier one is over by now
        if known < size or not known:
            c = self.context
            alignment = (
                c.shared.layouts.alignment if name in c.shared.layouts.panels else SHARED_ALIGNMENT
            )
            offset = c.shared.allocate(size, name, alignment)
        self._reserved[name] = (offset, max(size, known))
        return offset


def find_strips(body: Stmt, *, engine: bool) -> dict[str, Dealt]:
    """The strips of the staged buffers that want them, of a kernel's body. Not of pipelines that
    the copy ``engine`` fills by whole rows: that gains more than bank conflicts cost.
    """
    rows = {
        s.name: s.extents[0].value
        for s in walk_stmt(body)
        if isinstance(s, Allocate)
        and s.memory in (Memory.GPU_SHARED, Memory.AUTO)
        and s.extents
        and isinstance(s.extents[0], IntImm)
        and not (engine and s.stages > 1)
    }
    found: dict[str, Dealt | None] = {}
    for s in walk_stmt(body):
        if not isinstance(s, Store):
            continue
        statement = as_accumulate(s)
        if statement is None:
            touched = {s.buffer} if is_tensor_store(s) else set[str]()
            found |= dict.fromkeys(touched.union(*map(loaded, stmt_exprs(s))))
            continue
        aligned = align_windows(statement)
        for operand in (aligned.a, aligned.b):
            if operand.value is not None:
                found |= dict.fromkeys(operand.sources)
            elif isinstance(operand, Access):
                wanted = _strips(operand, rows.get(operand.buffer, 0))
                if found.setdefault(operand.buffer, wanted) != wanted:
                    found[operand.buffer] = None
    return {name: strips for name, strips in found.items() if strips is not None}


def _strips(o: Access, pitch: int) -> Dealt | None:
    """The strips for windows an even number of chunks apart, none of which leaves its row."""
    per, distance = BLOCK_BYTES // o.type.bytes, o.row_stride.constant
    if not pitch or pitch % per or distance is None or o.predicate is not None:
        return None
    step, rest = divmod(distance, per)
    x = o.base.offset % pitch
    end = x + distance * (o.rows - 1) + -(-o.depth // per) * per
    whole_rows = all(c % pitch == 0 for m, c in o.base if m)
    fits = whole_rows and x % per == 0 and end <= pitch
    if rest or step < 2 or step % 2 or o.depth_stride.constant != 1 or not fits:
        return None
    return Dealt(pitch, step, per)
