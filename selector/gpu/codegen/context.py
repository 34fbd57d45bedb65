"""What the parts of the CUDA emitter share while one kernel is written."""

from __future__ import annotations

from collections.abc import Hashable, Set
from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.diagnostics import EmitError
from selector.gpu.codegen.arrangement import Arrangement
from selector.gpu.codegen.epilogues.regions import Registers
from selector.gpu.codegen.scalars.legal import Around, ScalarEmitter
from selector.gpu.codegen.scalars.names import Names
from selector.gpu.codegen.scalars.storage import Space, Storage
from selector.gpu.codegen.shared_memory import SharedMemory
from selector.gpu.cuda.expressions import spell
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import FALSE, both, equal, flag, given, masked, pointer
from selector.gpu.ir.memory import Map
from selector.intrinsics.regions import Marks, Reach
from selector.intrinsics.unwritten import Scope
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
from selector.ir.types import INT32, UINT64
from selector.lowering.kernels import GridLoop
from selector.lowering.tiles import Access, Accumulate, Operand, align_windows, as_accumulate
from selector.targets import Target

Quotients = dict[Expr, tuple[str, Expr | None]]


@dataclass(frozen=True, slots=True)
class HostValues:
    """What a launch brings: arrays (``params``); ``sizes`` that the host knows, and, by buffer and
    dimension, between what an index has to begin (``required``). ``quotients``: what numbers are
    called that are worked out once; how, where that is not the host's work. ``flags``: names of
    conditions. Tensor ``maps``, and the buffers that boxes are stored to.
    """

    params: dict[str, BufferParam] = field(default_factory=dict[str, BufferParam])
    sizes: frozenset[str] = frozenset()
    required: dict[tuple[str, int], tuple[int, int]] = field(
        default_factory=dict[tuple[str, int], tuple[int, int]]
    )
    quotients: Quotients = field(default_factory=dict[Expr, tuple[str, Expr | None]])
    flags: dict[Expr, str] = field(default_factory=dict[Expr, str])
    maps: list[Map] = field(default_factory=list[Map])
    stored_maps: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, slots=True)
class Indices:
    """The variables that number blocks and threads: the loops of the ``grid``, and those of their
    variables that a block has one value of (``block``); what stands for those of warps (``units``);
    all that count from 0 on (``counts``); those of ``threads`` whose sums take vectors of terms;
    those along the first dimension of ``few`` threads, less than a warp.
    """

    grid: tuple[GridLoop, ...] = ()
    block: frozenset[str] = frozenset()
    units: dict[str, Var] = field(default_factory=dict[str, Var])
    counts: set[str] = field(default_factory=set[str])
    threads: set[str] = field(default_factory=set[str])
    few: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of memory where the emitter stands: loads ``inside`` their arrays, which need
    no test (``threads.bounds``); what tells whether vectors of a buffer's ``rows`` begin at
    multiples, if that has to be asked (``row_vectors``); which elements of buffers are ``numbers``
    (every 16 bytes of bands), by the ``loops`` that are alike wherever their names come, and what
    operands have ``reached``.
    """

    loops: Scope = field(default_factory=Scope)
    inside: set[Load] = field(default_factory=set[Load])
    rows: dict[str, Expr] = field(default_factory=dict[str, Expr])
    numbers: dict[str, Marks] = field(default_factory=dict[str, Marks])
    reached: dict[Hashable, Reach | None] = field(default_factory=dict[Hashable, "Reach | None"])


@dataclass(frozen=True, slots=True)
class KernelContext:
    """A kernel that is being written."""

    name: str
    target: Target
    names: Names
    block: Arrangement
    indices: Indices
    host: HostValues
    shared: SharedMemory
    facts: Facts = field(default_factory=Facts)
    registers: Registers = field(default_factory=Registers)
    storages: dict[str, Storage] = field(default_factory=dict[str, Storage])
    writer: Builder = field(default_factory=Builder)

    @property
    def scalar(self) -> ScalarEmitter:
        around = Around(self.facts.inside, self.indices.threads)
        return ScalarEmitter(self.names, self.storages, self.quotient_name, around)

    def quotient_name(self, e: Binary) -> str | None:
        """The name of a number that takes a division or an extremum to work out: an argument where
        it follows from the sizes. A quotient or remainder that follows from the place in the grid
        or the block, too, is a constant of the block or warp. None for others, and for divisions by
        powers of two, which cost nothing.
        """
        if e.type != INT32:
            return None
        quotient = e.op in (BinaryOp.DIV, BinaryOp.MOD)
        sizes, units = self.host.sizes, self.indices.units
        inside = {units[name].name if name in units else name for name in free_vars(e)} - sizes
        if inside and not quotient:
            return None  # most of them, so that this comes before any work
        placed = self.indices.block | {v.name for v in units.values()}
        if not inside <= placed:
            return None
        e = Binary(e.op, substitute(e.a, units), substitute(e.b, units))
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
        if e not in self.host.quotients:
            own = None if names <= self.host.sizes else self.scalar.quotient(e)
            self.host.quotients[e] = (self.names.fresh("quotient"), own)
        return self.host.quotients[e][0]

    def is_met(self, room: Affine) -> bool:
        """Whether a number is at least 0 wherever a block or thread is."""
        return all(
            factor > 0 and all(isinstance(a, Var) and a.name in self.indices.counts for a in atoms)
            for atoms, factor in room
        )

    def number(self, e: Expr) -> Expr:
        """An integer of the program, for the kernel's control."""
        return given(self.scalar.number(e))

    def condition(self, e: Expr) -> Expr:
        """A condition of the program, for the kernel's control."""
        return given(self.scalar.legal(e))

    def host_value(self, e: Expr) -> Expr:
        """A number that the host works out from the sizes: a constant or an argument."""
        e = to_affine(e).to_expr()
        if isinstance(e, IntImm | Var):
            return self.scalar.number(e)
        if e not in self.host.quotients:
            self.host.quotients[e] = (self.names.fresh("count"), None)
        return Var(self.host.quotients[e][0])

    def is_input(self, buffer: str) -> bool:
        """Whether a buffer is an array that the caller gives and the kernel only reads."""
        param = self.host.params.get(buffer)
        return param is not None and param.role is Role.INPUT

    def as_accumulate(self, s: Store) -> Accumulate | None:
        """The parts of an accumulate statement, windows in shared memory aligned; None for any
        other store.
        """
        statement = as_accumulate(s)
        if statement is None:
            return None
        rows = self.shared.layouts.windows.get(statement.a.buffer)
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
        strips = self.shared.layouts.strips
        if isinstance(operand, Access) and operand.buffer in strips:
            return replace(operand, strips=strips[operand.buffer])
        return operand

    def aligned_flag(self, buffer: str, elements: int, known: Set[str] = frozenset()) -> Expr:
        """A uniform condition: all rows of the buffer start at multiples of ``elements``, whatever
        the ``known`` strides are.
        """
        storage = self.storages[buffer]
        assert storage.space is Space.GLOBAL
        start, size = Cast(UINT64, pointer(storage.base)), elements * storage.type.bytes
        tests = [equal(masked(start, size - 1), 0)]
        for dim in () if storage.param is None else storage.param.dims[1:]:
            if isinstance(dim.stride, Var) and dim.stride.name in known:
                continue
            if not isinstance(dim.stride, IntImm):
                stride = self.scalar.number(dim.stride)
                tests.append(equal(masked(stride, elements - 1), 0))
            elif dim.stride.value % elements:
                return FALSE
        condition = both(*tests)
        if condition not in self.host.flags:
            self.host.flags[condition] = self.names.fresh(f"aligned_{storage.base}_{size}")
        return flag(self.host.flags[condition])

    def is_multiple(self, index: Affine, elements: int, buffer: str | None = None) -> bool:
        """Whether ``index`` is a multiple of ``elements``, given that the strides of ``buffer``
        are.
        """
        known: set[Expr] = set()
        param = self.host.params.get(buffer) if buffer else None
        if param is not None:
            known = {d.stride for d in param.dims[1:]}
        return all(c % elements == 0 or any(a in known for a in m) for m, c in index)


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
    warps = context.registers.thread_vars
    terms = {m: c for m, c in index if any(isinstance(a, Var) and a.name in warps for a in m)}
    return Affine.build(terms)


def slice_offset(index: Expr | Affine, context: KernelContext, what: str) -> int:
    """The constant part of an accumulator index, the part that chooses the warp dropped."""
    affine = index if isinstance(index, Affine) else to_affine(index)
    constant = (affine - thread_part(affine, context)).constant
    if constant is None:
        raise EmitError(
            f"`{what}` is kept in registers, which are only ever indexed by constants",
            f"its index {spell(context.scalar.number(affine.to_expr()))} varies at run time",
            "unroll the loops over its tiles",
        )
    return constant
