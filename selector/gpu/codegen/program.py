"""CUDA: a selected module becomes one source text and the plan that runs it.

The way through: ``lowering.kernels`` cuts the body into kernels; ``kernel`` writes each body;
this file adds parameters, flags, helper functions and launch geometry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import reduce

from selector.dataclass import dataclass
from selector.gpu.codegen.arrangement import Arrangement
from selector.gpu.codegen.context import Facts, HostValues, Indices, KernelContext
from selector.gpu.codegen.copies.costs import copy_costs
from selector.gpu.codegen.grids import asked_of, check_grids, is_in_line, resident_of
from selector.gpu.codegen.kernel import KernelEmitter
from selector.gpu.codegen.scalars.legal import computed
from selector.gpu.codegen.scalars.names import Names, comment, identifier
from selector.gpu.codegen.scalars.storage import Space, Storage
from selector.gpu.codegen.shared_memory import SharedMemory
from selector.gpu.codegen.text_size import text_size
from selector.gpu.codegen.unwritten import loops_of
from selector.gpu.codegen.warpgroups.arrangement import arrange
from selector.gpu.codegen.warpgroups.boxes import READY, STORES_READY
from selector.gpu.codegen.warpgroups.clusters import clamped, from_the_end
from selector.gpu.codegen.warpgroups.tensor_kernels import NAMES
from selector.gpu.cuda.preamble import preamble
from selector.gpu.cuda.printer import printed
from selector.gpu.ir import nodes as ir
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    BLOCK,
    THREAD,
    both,
    equal,
    flag,
    masked,
    moved,
    of_first_lane,
    plus,
    shifted,
    times,
)
from selector.gpu.ir.memory import Prefetch
from selector.gpu.ir.parameters import Parameter
from selector.gpu.passes import Options, Watch, run_passes, unwatched
from selector.gpu.passes.start_early import crowd
from selector.ir.affine import join_dims
from selector.ir.kinds import GridKind
from selector.ir.module import Module
from selector.ir.nodes import BinaryOp, BufferParam, Dim, Expr, IntImm, Role, Var
from selector.ir.simplify import mul
from selector.ir.types import INT32, Type
from selector.lowering.constants import constant_kernels, traffic_of
from selector.lowering.kernels import Kernel, Program, split_kernels
from selector.lowering.normalize import holds_tensor
from selector.runtime.plan import (
    Argument,
    BufferArgument,
    Intermediate,
    Launch,
    MapArgument,
    MapsReady,
    Plan,
    ValueArgument,
)
from selector.targets import Target

BLACKWELL = 100


def emit(module: Module, target: Target, patience: float | None = None) -> Plan:
    """Source and plan of a selected module for a CUDA target. ``patience``: seconds that a thread
    waits at a barrier in shared memory before it ends its launch in an error.

    ``ScheduleError`` for what has no form in a kernel, or asks for a kernel that there is not.
    """
    return emit_kernels(module, target, patience)[1]


def emit_kernels(
    module: Module, target: Target, patience: float | None = None, watch: Watch = unwatched
) -> tuple[tuple[ir.Kernel, ...], Plan]:
    """The same, with the kernels that the source is printed from; ``watch`` is told what each pass
    leaves.
    """
    program = split_kernels(module)
    check_grids(module, program)
    written = [_emit_kernel(kernel, module, program, target) for kernel in program.kernels]
    once = constant_kernels(program, module)
    again = [n for n in range(len(program.kernels)) if n not in once]
    early = again[1:] if target.has("griddepcontrol") else []
    shared = {n: _shared(program, n, [b for b in again if b < n]) for n in early}
    options = [
        Options(
            kernel.name,
            target.shared_memory,
            resident_of(kernel, module),
            patience,
            written[number].pointing(shared[number]) if number in early else None,
            not early or number in once or number == again[-1],
            target.multiprocessor,
        )
        for number, kernel in enumerate(program.kernels)
    ]
    kernels = run_passes([*zip((w.kernel for w in written), options, strict=True)], watch)
    launches = [
        replace(w.launched(kernel), once=number in once, early=number in early)
        for number, (w, kernel) in enumerate(zip(written, kernels, strict=True))
    ]
    for before, number in zip(again, early, strict=False):
        assert target.multiprocessor is not None
        asked = options[before].resident
        found = crowd(kernels[before], kernels[number], target.multiprocessor, asked)
        launches[number] = replace(launches[number], crowd=found)
    used: dict[str, str] = {}
    texts = [printed(kernel, used) for kernel in kernels]
    body = "\n".join(map(str, texts))
    head = comment(f"{module.name} for {target.name}, made by tensor-selector.") + "\n"
    helpers = preamble(body, used, own=target.capability >= BLACKWELL)
    source = f"{head}{helpers}\n{body}"
    intermediates = tuple(Intermediate(b.name, b.type.element, b.elements) for b in program.buffers)
    plan = Plan(
        module.name, target.name, source, module.buffers, module.scalars, module.requirements,
        intermediates, tuple(launches), patience, module.promises,
        text_size(texts, module),
    )  # fmt: skip
    return kernels, plan


def _shared(program: Program, number: int, earlier: Sequence[int]) -> Set[str]:
    """Buffers that a kernel cannot touch while ``earlier`` ones run: what they write, and what it
    writes and they read.
    """
    reads, writes = traffic_of(program.kernels[number])
    found = set[str]()
    for read, written in (traffic_of(program.kernels[n]) for n in earlier):
        found |= written & (reads | writes) | read & writes
    return found


@dataclass(frozen=True, slots=True)
class _Written:
    """A kernel as it is written, the ``arguments`` of its parameters, by name, and how it is
    launched, but for what passes decide.
    """

    kernel: ir.Kernel
    arguments: dict[str, Argument]
    launch: Launch

    def pointing(self, buffers: Set[str]) -> frozenset[str]:
        """The parameters by which the kernel comes to some buffers."""
        found: list[str] = []
        for name, argument in self.arguments.items():
            match argument:
                case BufferArgument(buffer) | MapArgument(name=buffer) if buffer in buffers:
                    found.append(name)
                case _:
                    pass
        return frozenset(found)

    def launched(self, kernel: ir.Kernel) -> Launch:
        """How the kernel is launched that passes made of it."""
        arguments = tuple(self.arguments[p.name] for p in kernel.parameters)
        return replace(self.launch, shared_bytes=kernel.shared, arguments=arguments)


def _emit_kernel(kernel: Kernel, module: Module, program: Program, target: Target) -> _Written:
    """With all parameters that it might take."""
    context = _context(kernel, module, target)
    given = _parameters(module, program, context)
    for loop in kernel.grid:
        context.names.get(loop.name)
    KernelEmitter(kernel, context).emit()
    declarations = Builder()
    _prologue(context, declarations, tensor=holds_tensor(kernel.body))
    _declare(kernel, context, declarations)
    given += _maps(context)
    for value, (name, own) in context.host.quotients.items():
        if own is None:
            given.append((Parameter("value", INT32, name), ValueArgument(value, INT32)))
    room = context.shared.layouts.alignment if context.shared.bytes else 0
    emitted = ir.Kernel(
        f"kernel_{identifier(kernel.name) or 'k'}",
        context.block.threads,
        context.block.cluster,
        tuple(parameter for parameter, _ in given),
        declarations.body(),
        context.writer.body(),
        shared=-(-context.shared.bytes // 128) * 128 + room,
        alignment=room,
    )
    launch = Launch(
        emitted.name,
        _grid(kernel, context),
        context.block.threads,
        emitted.shared,
        (),
        persistent=context.block.persistent,
        cluster=context.block.cluster,
        copies=() if kernel.otherwise else copy_costs(kernel.body, kernel.name, context),
    )
    return _Written(emitted, {parameter.name: a for parameter, a in given}, launch)


def _grid(kernel: Kernel, context: KernelContext) -> tuple[Expr, Expr, Expr]:
    """The blocks along x, y and z."""
    extents = [loop.extent for loop in reversed(kernel.grid)]
    if context.block.in_line:
        return reduce(mul, extents), IntImm(1), IntImm(1)
    x, y, *others = extents + [IntImm(1)] * 3
    return x, y, reduce(mul, others)


def _context(kernel: Kernel, module: Module, target: Target) -> KernelContext:
    """The state that a kernel's emission begins with: what is asked of its grid, and what is known
    of sizes.
    """
    names = Names(NAMES if target.has("tcgen05") else frozenset())
    for taken in ("g", "q"):
        names.variable(taken)
        names.fresh(taken)
    asked = Arrangement(
        self_fed=asked_of(kernel, module, GridKind.SELF_FED) > 0,
        persistent=asked_of(kernel, module, GridKind.PERSISTENT),
        resident=resident_of(kernel, module),
        teams=max(1, asked_of(kernel, module, GridKind.TEAMS)),
        cluster=max(kernel.cluster, asked_of(kernel, module, GridKind.CLUSTER)),
        neighbours=kernel.grid[-1].name,
    )
    asked = replace(asked, in_line=is_in_line(kernel, module, asked))
    block, layouts = arrange(kernel.body, kernel.name, target, asked)
    host = HostValues(
        {b.name: kernel.with_known(b) for b in module.buffers},
        frozenset(name for name, t, _ in _values(module) if t == INT32),
        {
            (r.buffer, r.dim): (r.minimum.value, r.maximum.value)
            for r in module.requirements
            if isinstance(r.minimum, IntImm) and isinstance(r.maximum, IntImm)
        },
    )
    alike = frozenset() if block.persistent else frozenset(loop.name for loop in kernel.grid)
    indices = Indices(kernel.grid, alike)
    shared = SharedMemory(kernel.name, target, layouts)
    facts = Facts(loops_of(kernel.body))
    return KernelContext(kernel.name, target, names, block, indices, host, shared, facts)


def _declare(kernel: Kernel, context: KernelContext, w: Builder) -> None:
    """The block's numbers, what is made of sizes, and flags."""
    for number in _block_numbers(kernel, context):
        w.add(number)
    for name, own in context.host.quotients.values():
        if own is not None:
            w.add(ir.Let("int", (name,), (own,)))
    for condition, name in context.host.flags.items():
        w.add(ir.Let("bool", (name,), (condition,)))


def _block_numbers(kernel: Kernel, context: KernelContext) -> tuple[ir.Let, ...]:
    """The variables of the grid's loops."""
    found: list[ir.Let] = []
    in_line, inner = context.block.in_line, list[Expr]()
    for loop, axis in zip(reversed(kernel.grid), "xyz", strict=False):
        if context.block.persistent:
            break
        number: Expr = Var(f"blockIdx.{axis}")
        if in_line:
            before = context.scalar.number(reduce(mul, inner, IntImm(1)))
            number = computed(BinaryOp.DIV, BLOCK, before, INT32) if inner else BLOCK
            inner.append(loop.extent)
            if loop is not kernel.grid[0]:
                extent = context.scalar.number(loop.extent)
                number = computed(BinaryOp.MOD, number, extent, INT32)
        if axis == "x" and context.block.cluster > 1:
            number = clamped(number, loop, context)
        elif loop.descending:
            number = from_the_end(number, loop, context)
        value = moved(number, context.scalar.number(loop.min))
        found.append(ir.Let("int", (context.names.get(loop.name),), (value,)))
    return tuple(found)


def _maps(context: KernelContext) -> Iterator[tuple[Parameter, Argument]]:
    """The tensor maps of a kernel, and whether there are those that it reads and stores by."""
    mapped = dict.fromkeys(m.of for m in context.host.maps)
    stored = tuple(name for name in mapped if name in context.host.stored_maps)
    read = tuple(name for name in mapped if name not in context.host.stored_maps)
    for ready, buffers in ((READY, read), (STORES_READY, stored)):
        if buffers:
            yield Parameter("value", INT32, ready), MapsReady(buffers)
    for m in context.host.maps:
        argument = MapArgument(
            m.of, m.type, m.extents, m.strides, m.box, bool(m.become), m.steps
        )  # fmt: skip
        yield Parameter("map", m.type, m.name), argument


def _prologue(context: KernelContext, w: Builder, *, tensor: bool) -> None:
    """Tensor maps, and the numbers of a thread: lane 4 g + q of a warp (of a group: g counts the
    rows of 16 that a warp holds), warp or group of the block.
    """
    for m in context.host.maps:
        w.add(m)
        ready = STORES_READY if m.of in context.host.stored_maps else READY
        with w.when(both(flag(ready), equal(THREAD, 0))):
            w.add(Prefetch(m.name))
    lane, g, q = masked(THREAD, 31), shifted("lane", 2), masked("lane", 3)
    if context.block.group:
        w.add(ir.Let("int", ("lane", "q"), (lane, q)))
        first = times(masked(shifted(THREAD, 5), 3), context.block.warp_rows)
        w.add(ir.Let("int", ("g",), (plus(first, g),)))
        w.add(ir.Let("int", ("group",), (of_first_lane(shifted(THREAD, 7)),)))
    elif tensor:
        w.add(ir.Let("int", ("lane", "g", "q"), (lane, g, q)))
        w.add(ir.Let("int", ("warp",), (of_first_lane(shifted(THREAD, 5)),)))


def _parameters(
    module: Module, program: Program, context: KernelContext
) -> list[tuple[Parameter, Argument]]:
    """All that a kernel might take beside tensor maps and what the host works out."""
    found: list[tuple[Parameter, Argument]] = []
    for b in module.buffers:
        name, t = context.names.get(b.name), b.type.element
        way = "read" if b.role is Role.INPUT else "write"
        found.append((Parameter(way, t, name), BufferArgument(b.name)))
        joined = replace(b, dims=join_dims(context.host.params[b.name].dims))
        context.storages[b.name] = Storage(name, t, Space.GLOBAL, joined)
    for buffer in program.buffers:
        name, t = context.names.get(buffer.name), buffer.type.element
        found.append((Parameter("pass", t, name), BufferArgument(buffer.name)))
        flat = (Dim(IntImm(0), buffer.elements, IntImm(1)),)
        param = BufferParam(buffer.name, t, flat, Role.INPUT)
        context.storages[buffer.name] = Storage(
            name, t, Space.GLOBAL, param, buffer.elements, buffer.pitches, own=True
        )
    for name, t, value in _values(module):
        parameter = Parameter("value", t, context.names.get(name))
        found.append((parameter, ValueArgument(value, t)))
    return found


def _values(module: Module) -> Iterator[tuple[str, Type, Expr]]:
    for b in module.buffers:
        for part in _symbols(b):
            yield part.name, INT32, part
    for s in module.scalars:
        yield s.name, s.type, Var(s.name, s.type)


def _symbols(b: BufferParam) -> list[Var]:
    found: list[Var] = []
    for d in b.dims:
        candidates: tuple[Expr, ...] = (d.extent, d.stride, d.min)
        found += [e for e in candidates if isinstance(e, Var)]
    return found
