"""What the parts of the CUDA emitter share while one kernel is written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace

from selector.diagnostics import EmitError, ScheduleError
from selector.emit.legalize_scalars import ScalarEmitter
from selector.emit.names import Names
from selector.emit.register_tiles import RegisterTiles
from selector.emit.scalar import Space, Storage
from selector.emit.taking import Taking
from selector.emit.warpgroups.left_boxes import LeftBox
from selector.emit.warpgroups.panels import ALIGNMENT as PANEL_ALIGNMENT
from selector.emit.warpgroups.panels import Panels
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import FALSE, both, element, equal, flag, masked, pointer
from selector.gpu.ir.lane_maps import ELEMENTS, ROWS
from selector.gpu.ir.layouts import Dealt
from selector.gpu.ir.memory import Map
from selector.gpu.ir.nodes import SHARED_ALIGNMENT
from selector.intrinsics.unwritten import Marks, Reach, Scope
from selector.ir.affine import Affine, to_affine
from selector.ir.contents import holds
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    BufferParam,
    Call,
    Cast,
    Expr,
    IntImm,
    Load,
    Role,
    Store,
    Var,
)
from selector.ir.traverse import free_vars, substitute, walk_expr
from selector.ir.types import INT32, UINT64, Type
from selector.lowering.tiles import Access, Accumulate, Operand, align_windows, as_accumulate
from selector.targets import Target

LANE_ROW = Var("$g")  # g, lane / 4: the row of a fragment that a lane holds
LANE_PAIR = Var("$q")  # q, lane % 4: the pair of columns
LANE_NAMES = frozenset({"$m", "$n", LANE_ROW.name, LANE_PAIR.name})  # differ between elements

Element = tuple[int, int, int]  # tile row, tile column, register of the tile


@dataclass(frozen=True, slots=True)
class Region:
    """A block of m x n accumulator elements at ``offset``, cut into tiles of ``rows`` x 8: 16 rows
    are of one warp, 64 of the four warps of a group, 16 each. A block of fewer columns is one part
    of a tile, which it shares with those beside it.

    ``swapped``: tiles hold the transposed block. ``tall``: every two of a warp are 32 rows in turn.
    """

    offset: int
    m: int
    n: int
    swapped: bool
    rows: int = 16
    tall: bool = False

    @property
    def first(self) -> int:
        """Number of its first fragment; a fragment holds ``rows`` * 8 elements."""
        return self.offset // (self.rows * 8)

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along (rows, columns) of the stored, possibly transposed block."""
        rows, columns = (self.n, self.m) if self.swapped else (self.m, self.n)
        return (rows // self.rows, max(1, columns // 8))

    @property
    def parts(self) -> int:
        """Blocks that share a tile."""
        return max(1, 8 // self.n) if not self.swapped else 1

    @property
    def part(self) -> int:
        """Which one of a tile's this is."""
        return self.offset // (self.rows * self.n) % self.parts

    def piece(self, i: int, j: int = 0) -> int:
        """Number of its fragment (i, j), or part of one, among those of its size."""
        return self.fragment(i, j) * self.parts + self.part

    def fragment(self, i: int, j: int) -> int:
        return self.first + i * self.tiles[1] + j

    def row(self, i: int) -> int:
        """From a lane's first row to that of its tile number ``i`` of a column."""
        return i // 2 * 128 + i % 2 * 16 if self.tall else self.rows * i

    def offsets(self, element: Element) -> tuple[int, int]:
        """Rows and columns of the tiles from a lane's first element to this one."""
        i, j, e = element
        row, column = ELEMENTS[e]
        return self.row(i) + row, 8 * j + column


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Registers of one tensor allocation, as one warp holds them."""

    register: str
    fragments: int
    regions: dict[int, Region]
    half: bool
    integer: bool = False


@dataclass(frozen=True, slots=True)
class RowRegisters:
    """The array of registers of an allocation that is kept by rows (``row_registers``); ``rows``:
    16 of a warp, or 64 of a group.
    """

    name: str
    rows: int

    def at(self, row: int, t: Type) -> Expr:
        """The register of row ``row + g``, where ``row`` begins a half of a tile; what is there is
        of a type.
        """
        return element(t, pointer(self.name), ROWS[self.rows](row)["register"])


@dataclass(slots=True)
class Staging:
    """Shared memory in which results wait for the copy engine: that of operands which nobody reads
    any more, or its ``own``, into which a loop puts boxes again and again; ``evenly`` if every box
    has the same place in all iterations.
    """

    offset: int
    bytes: int
    own: bool = False
    evenly: bool = False
    box_bytes: int = 0  # of all boxes
    stored: int = 0


@dataclass(slots=True)
class KernelContext:
    """The state of one kernel being emitted."""

    name: str
    target: Target
    names: Names
    params: dict[str, BufferParam]
    required: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    sizes: frozenset[str] = frozenset()  # variables that the host knows at a launch
    grid: frozenset[str] = frozenset()  # variables of the grid's loops
    # What stands for gpu_thread variables of warps.
    units: dict[str, Var] = field(default_factory=dict[str, Var])
    # What numbers that are worked out once are called; how, where that is not the host's work.
    quotients: dict[Expr, tuple[str, Expr | None]] = field(default_factory=dict)
    warps: int = 1  # or groups of four of them, in a kernel with wgmma
    group: bool = False
    producer: bool = False  # one more group, behind the others, feeds the rings
    tensor: bool = False  # accumulators in tensor memory; a warp of that group asks for products
    tall: bool = False  # by instructions of 128 rows
    self_fed: bool = False  # no such group: those that multiply ask for their operands
    threads: int = 32
    panels: dict[str, Panels] = field(default_factory=dict)
    windows: dict[str, Dealt] = field(default_factory=dict)
    slots: set[str] = field(default_factory=set[str])  # shared buffers that rings fill ahead
    strips: dict[str, Dealt] = field(default_factory=dict)
    maps: list[Map] = field(default_factory=list[Map])
    staging: Staging | None = None
    left_boxes: list[LeftBox] = field(default_factory=list[LeftBox])
    persistent: int = 0  # blocks a multiprocessor that do the work of the whole grid
    teams: int = 1  # of so many warps or groups each, that do a block's work in turn
    member: str = ""  # the number of a warp or group in its team, where there are several
    cluster: int = 1  # neighbours along the innermost loop of the grid, which this is:
    neighbours: str = ""
    stored_maps: set[str] = field(default_factory=set)  # buffers that boxes are stored to
    storages: dict[str, Storage] = field(default_factory=dict)
    accumulators: dict[str, Accumulator] = field(default_factory=dict)
    register_tiles: dict[str, RegisterTiles] = field(default_factory=dict)
    row_registers: dict[str, RowRegisters] = field(default_factory=dict)
    loops: Scope = field(default_factory=Scope)  # that are alike wherever their names come
    reached: dict[Hashable, Reach | None] = field(default_factory=dict[Hashable, "Reach | None"])
    # What is known to be one, of the elements of staged buffers, of every 16 bytes of bands.
    numbers: dict[str, Marks] = field(default_factory=dict[str, Marks])
    thread_vars: dict[str, int] = field(default_factory=dict)
    flags: dict[Expr, str] = field(default_factory=dict[Expr, str])  # names of conditions
    spelled: dict[tuple[Expr, str], str] = field(default_factory=dict[tuple[Expr, str], str])
    copies: dict[str, Taking] = field(default_factory=dict)  # by what they fill
    shared_bytes: int = 0
    interleaved: list[Callable[[], None]] = field(
        default_factory=list
    )  # code for among tensor instructions
    writer: Builder = field(default_factory=Builder)

    @property
    def scalar(self) -> ScalarEmitter:
        return ScalarEmitter(self.names, self.storages, self.quotient_name)

    def quotient_name(self, e: Binary) -> str | None:
        """The name of a number that takes a division or an extremum to work out: an argument where
        it follows from the sizes. A quotient or remainder that follows from the place in the grid
        or the block, too, is a constant of the block or warp. None for others, and for divisions by
        powers of two, which cost nothing.
        """
        if e.type != INT32:
            return None
        quotient = e.op in (BinaryOp.DIV, BinaryOp.MOD)
        units = {v.name for v in self.units.values()}
        for name in free_vars(e):
            known = self.units[name].name if name in self.units else name
            fixed = known in self.grid or known in units
            if known not in self.sizes and not (quotient and fixed):
                return None  # most of them, so that this comes before any work
        placed = self.grid | units
        e = Binary(e.op, substitute(e.a, self.units), substitute(e.b, self.units))
        names = free_vars(e)
        if not names:
            return None
        if names & placed and isinstance(e.b, IntImm):
            return None
        if not names & placed and not any(map(_costly, walk_expr(e))):
            return None
        if holds(e, Load) or holds(e, Call):
            return None
        e = Binary(e.op, to_affine(e.a).to_expr(), to_affine(e.b).to_expr())
        if e not in self.quotients:
            own = None if names <= self.sizes else self.scalar.quotient(e)
            self.quotients[e] = (self.names.fresh("quotient"), own)
        return self.quotients[e][0]

    def number(self, e: Expr) -> Expr:
        """A value of the program, spelled here and now, for the kernel's control."""
        return self.known(e, self.scalar.index(e))

    def known(self, e: Expr, text: str) -> Expr:
        """A value of the program that C spells so, for the kernel's control."""
        if text.removeprefix("-").isdecimal():
            return IntImm(int(text))
        named = substitute(e, {n: Var(self.names.known(n), t) for n, t in _variables(e)})
        name = self.spelled.setdefault((named, text), f"known.{len(self.spelled)}")
        return Var(name, e.type)

    def host_value(self, e: Expr) -> Expr:
        """A number that the host works out from the sizes: a constant or an argument."""
        e = to_affine(e).to_expr()
        if isinstance(e, IntImm | Var):
            return self.scalar.number(e)
        if e not in self.quotients:
            self.quotients[e] = (self.names.fresh("count"), None)
        return Var(self.quotients[e][0])

    @property
    def unit(self) -> str:
        """What a gpu_thread loop counts, and the C variable that numbers it."""
        return self.member or ("group" if self.group else "warp")

    @property
    def unit_threads(self) -> int:
        return 128 if self.group else 32

    @property
    def group_operands(self) -> set[str]:
        """Shared memory that wgmma reads."""
        return self.panels.keys() | self.windows.keys()

    @property
    def consumers(self) -> int:
        """Threads of all warps or groups of all teams."""
        return self.teams * self.warps * self.unit_threads

    @property
    def warp_rows(self) -> int:
        """Rows of an instruction of a group that a warp has one after the other."""
        return 32 if self.tall else 16

    @property
    def shared_alignment(self) -> int:
        return PANEL_ALIGNMENT if self.panels else SHARED_ALIGNMENT

    def is_input(self, buffer: str) -> bool:
        """Whether a buffer is an array that the caller gives and the kernel only reads."""
        param = self.params.get(buffer)
        return param is not None and param.role is Role.INPUT

    def as_accumulate(self, s: Store) -> Accumulate | None:
        """The parts of an accumulate statement, windows in shared memory aligned; None for any
        other store.
        """
        statement = as_accumulate(s)
        if statement is None:
            return None
        rows = self.windows.get(statement.a.buffer)
        aligned = align_windows(statement)
        if rows is not None:
            aligned = align_windows(statement, rows.step, rows.pitch)
        for operand in (statement.a, statement.b):
            if isinstance(operand, Access) and aligned is not statement:
                # What is not known yet is allocated in the kernel.
                storage = self.storages.get(operand.buffer)
                if storage is not None and storage.space is Space.GLOBAL:
                    return statement
        a, b = self._laid(aligned.a), self._laid(aligned.b)
        same = a is aligned.a and b is aligned.b
        return aligned if same else replace(aligned, a=a, b=b)

    def _laid(self, operand: Operand) -> Operand:
        """An operand that knows how its buffer lies in memory."""
        if isinstance(operand, Access) and operand.buffer in self.strips:
            return replace(operand, strips=self.strips[operand.buffer])
        return operand

    def allocate_shared(self, size: int, what: str, alignment: int = SHARED_ALIGNMENT) -> int:
        """Reserve bytes of shared memory; the offset. ScheduleError when the block's share is used
        up.
        """
        offset = -(-self.shared_bytes // alignment) * alignment
        self.shared_bytes = offset + size
        if self.shared_bytes + self.shared_alignment > self.target.shared_memory:
            raise ScheduleError(
                f"the kernel of `{self.name}` needs {self.shared_bytes} bytes of shared memory",
                f"{self.target.name} has {self.target.shared_memory}; `{what}` takes {size}",
                "use smaller tiles, fewer pipeline stages, or stage less",
            )
        return offset

    def shared_left(self) -> int:
        """Bytes that a large allocation could still have."""
        alignment = self.shared_alignment
        used = -(-self.shared_bytes // alignment) * alignment
        return self.target.shared_memory - alignment - used

    def aligned_flag(self, buffer: str, elements: int) -> Expr:
        """A uniform condition: all rows of the buffer start at multiples of ``elements``."""
        storage = self.storages[buffer]
        assert storage.space is Space.GLOBAL
        start, size = Cast(UINT64, pointer(storage.base)), elements * storage.type.bytes
        tests = [equal(masked(start, size - 1), 0)]
        for dim in () if storage.param is None else storage.param.dims[1:]:
            if not isinstance(dim.stride, IntImm):
                stride = self.scalar.number(dim.stride)
                tests.append(equal(masked(stride, elements - 1), 0))
            elif dim.stride.value % elements:
                return FALSE
        condition = both(*tests)
        if condition not in self.flags:
            self.flags[condition] = self.names.fresh(f"aligned_{storage.base}_{size}")
        return flag(self.flags[condition])

    def is_multiple(self, index: Affine, elements: int, buffer: str | None = None) -> bool:
        """Whether ``index`` is a multiple of ``elements``, given that the strides of ``buffer``
        are.
        """
        known: set[Expr] = set()
        param = self.params.get(buffer) if buffer else None
        if param is not None:
            known = {d.stride for d in param.dims[1:]}
        return all(c % elements == 0 or any(a in known for a in m) for m, c in index)


def _variables(e: Expr) -> Iterator[tuple[str, Type]]:
    """The names and types of an expression's variables."""
    return ((x.name, x.type) for x in walk_expr(e) if isinstance(x, Var))


def _costly(e: Expr) -> bool:
    match e:
        case Binary(BinaryOp.MIN | BinaryOp.MAX):
            return True
        case Binary(BinaryOp.DIV | BinaryOp.MOD, _, IntImm(value)):
            return value & (value - 1) != 0
        case Binary(BinaryOp.DIV | BinaryOp.MOD):
            return True
        case _:
            return False


def thread_part(index: Affine, context: KernelContext) -> Affine:
    """The terms of an accumulator index that choose the warp."""
    warps = context.thread_vars
    terms = {m: c for m, c in index if any(isinstance(a, Var) and a.name in warps for a in m)}
    return Affine.build(terms)


def slice_offset(index: Expr | Affine, context: KernelContext, what: str) -> int:
    """The constant part of an accumulator index, the part that chooses the warp dropped."""
    affine = index if isinstance(index, Affine) else to_affine(index)
    constant = (affine - thread_part(affine, context)).constant
    if constant is None:
        raise EmitError(
            f"`{what}` is kept in registers, which are only ever indexed by constants",
            f"its index {context.scalar.index(affine.to_expr())} varies at run time",
            "unroll the loops over its tiles",
        )
    return constant
