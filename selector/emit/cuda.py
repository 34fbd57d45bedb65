"""CUDA: a selected module becomes one source text and the plan that runs it.

The way through: ``lowering.kernels`` cuts the body into kernels; ``emit.kernel`` writes each body;
this file adds parameters, flags, helper functions and launch geometry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from selector.diagnostics import ScheduleError, Where
from selector.emit.context import LANE_PAIR, LANE_ROW, KernelContext
from selector.emit.copy_costs import copy_costs
from selector.emit.elements import FIRST_PAIR, FIRST_ROW
from selector.emit.kernel import KernelEmitter
from selector.emit.names import Names, comment
from selector.emit.places import column_text, row_text
from selector.emit.scalar import Space, Storage, c_type
from selector.emit.warpgroups.boxes import READY, STORES_READY
from selector.emit.warpgroups.clusters import clamped
from selector.emit.warpgroups.tensor_kernels import NAMES
from selector.gpu.cuda.expressions import spell
from selector.gpu.cuda.preamble import preamble, words
from selector.gpu.cuda.printer import INDENT, print_body, print_kernel
from selector.gpu.cuda.snippets.barriers import ARRIVALS_BYTES, RESET
from selector.gpu.ir import nodes as ir
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import THREAD, both, equal, flag, moved
from selector.gpu.ir.memory import Prefetch
from selector.gpu.ir.nodes import walk
from selector.ir.affine import join_dims
from selector.ir.kinds import GridKind
from selector.ir.module import Module
from selector.ir.nodes import BufferParam, Dim, Expr, IntImm, Role, Var
from selector.ir.types import INT32
from selector.lowering.constants import constant_kernels, traffic_of
from selector.lowering.kernels import Kernel, Program, split_kernels
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

COUNTED = ("block", "named")  # barriers at which threads have to be counted to wait with patience
BLACKWELL = 100
RESERVED = 1024  # bytes of shared memory that a block takes beside its own (sm_80 and later)


def emit(module: Module, target: Target, patience: float | None = None) -> Plan:
    """Source and plan of a selected module for a CUDA target. ``patience``: seconds that a thread
    waits at a barrier in shared memory before it ends its launch in an error.

    ``ScheduleError`` for what has no form in a kernel, or asks for a kernel that there is not.
    """
    return emit_kernels(module, target, patience)[1]


def emit_kernels(
    module: Module, target: Target, patience: float | None = None
) -> tuple[tuple[ir.Kernel, ...], Plan]:
    """The same, with the kernels that the source is printed from."""
    program = split_kernels(module)
    _check_grids(module, program)
    kernels: list[ir.Kernel] = []
    parts: list[str] = []
    used: dict[str, str] = {}
    launches: list[Launch] = []
    once = constant_kernels(program, module)
    for number, kernel in enumerate(program.kernels):
        following = _following(number, program, once, target)
        emitted, text, launch = _emit_kernel(kernel, module, program, target, following, used)
        if patience is not None:
            emitted, launch = _counted(kernel, emitted, launch, target)
        kernels.append(emitted)
        parts.append(print_kernel(emitted, text))
        launches.append(replace(launch, once=number in once, early=following[0] is not None))
    body = "\n".join(parts)
    head = comment(f"{module.name} for {target.name}, made by tensor-selector.") + "\n"
    helpers = preamble(body, used, patience, own=target.capability >= BLACKWELL)
    source = f"{head}{helpers}\n{body}"
    intermediates = tuple(Intermediate(b.name, b.type.element, b.elements) for b in program.buffers)
    plan = Plan(
        module.name, target.name, source, module.buffers, module.scalars, module.requirements,
        intermediates, tuple(launches), patience, module.promises,
    )  # fmt: skip
    return tuple(kernels), plan


def _following(
    number: int, program: Program, once: frozenset[int], target: Target
) -> tuple[frozenset[str] | None, bool]:
    """What a launch that starts while the one before it ends must not touch before that has; None
    for one that does not. And whether it is the last.
    """
    again = [n for n in range(len(program.kernels)) if n not in once]
    if number in once or not target.has("griddepcontrol"):
        return None, True
    written = frozenset[str]().union(*(traffic_of(program.kernels[n])[1] for n in again))
    return None if number == again[0] else written, number == again[-1]


def _counted(
    kernel: Kernel, emitted: ir.Kernel, launch: Launch, target: Target
) -> tuple[ir.Kernel, Launch]:
    """A kernel whose named barriers are bounded: what counts their arrivals is made first."""
    if not any(isinstance(node, ir.Sync) and node.scope in COUNTED for node in walk(emitted.body)):
        return emitted, launch
    shared = launch.shared_bytes + ARRIVALS_BYTES
    if shared > target.shared_memory:
        raise ScheduleError(
            f"the kernel of `{kernel.name}` has no room to count who comes to its barriers",
            f"with SELECTOR_PATIENCE it needs {ARRIVALS_BYTES} bytes of shared memory more",
            "fewer stages, or no SELECTOR_PATIENCE",
            Where(func=kernel.name),
        )
    declarations = (ir.Raw((f"{RESET}();",)), *emitted.declarations)
    return replace(emitted, declarations=declarations), replace(launch, shared_bytes=shared)


def _entry(kernel: Kernel) -> str:
    return "kernel_" + (re.sub(r"\W+", "_", kernel.name).strip("_") or "k")


def _asked(kernel: Kernel, module: Module, kind: GridKind) -> int:
    """The number of blocks in a directive of that kind; 0 without one."""
    loops = {loop.name.split(".")[0] for loop in kernel.grid}
    return max((g.blocks for g in module.grids if g.kind is kind and g.func in loops), default=0)


def _check_grids(module: Module, program: Program) -> None:
    """Every directive about a grid has a kernel that it is about."""
    computed = {loop.name.split(".")[0] for kernel in program.kernels for loop in kernel.grid}
    for g in module.grids:
        if g.func not in computed:
            known = ", ".join(f"`{name}`" for name in sorted(computed))
            raise ScheduleError(
                f"`{g.func}` has no kernel of its own",
                f"a directive asks for one ({g.kind.value}), and the kernels compute {known}",
                "name the Func whose loops are gpu_blocks",
                Where(func=g.func),
            )


def _resident(kernel: Kernel, module: Module, context: KernelContext) -> int:
    """The blocks that were asked for on one multiprocessor, as far as shared memory holds them."""
    asked = _asked(kernel, module, GridKind.RESIDENT) or 1
    room = (context.target.shared_memory + RESERVED) // (context.shared_bytes + RESERVED)
    return max(1, min(asked, room))


def _emit_kernel(
    kernel: Kernel,
    module: Module,
    program: Program,
    target: Target,
    following: tuple[frozenset[str] | None, bool],
    wrappers: dict[str, str],
) -> tuple[ir.Kernel, str, Launch]:
    """The kernel, the lines of its body, and how it is launched; the ``wrappers`` of instructions
    that it calls are added.
    """
    context = _context(kernel, module, target)
    context.shared_launches, context.last_launch = following
    arguments, parameters = _parameters(module, program, context)
    for loop in kernel.grid:
        context.names.get(loop.name)
    emitter = KernelEmitter(kernel, context)
    emitter.emit()
    numbers = _block_numbers(kernel, context)
    for argument, parameter in _maps(context):
        arguments.append(argument)
        parameters.append(parameter)
    body = context.writer.body()
    known = tuple(ir.Number(name, e, text) for (e, text), name in context.spelled.items())
    printed = print_body((*known, *body), INDENT, wrappers)
    text = " ".join([printed, *context.flags.values(), print_body(numbers)])
    for value, (name, own) in context.quotients.items():
        if own is not None:
            text += f" {spell(own, {})}"
        else:
            arguments.append(ValueArgument(value, INT32))
            parameters.append(f"const int {name}")
    used = words(text)
    declared = zip(arguments, parameters, strict=True)
    kept = [(a, p) for (a, p) in declared if p.split()[-1].lstrip("*") in used]
    declarations = Builder()
    _prologue(context, declarations, tensor=emitter.tensor, warps="warp" in used)
    _declare(context, declarations, numbers)
    emitted = ir.Kernel(
        _entry(kernel),
        _bounds(kernel, module, context),
        context.threads,
        context.cluster,
        tuple(p for _, p in kept),
        (*known, *declarations.body()),
        body,
    )
    room = context.shared_alignment if context.shared_bytes else 0
    shared = -(-context.shared_bytes // 128) * 128 + room
    grid = [loop.extent for loop in reversed(kernel.grid)] + [IntImm(1)] * 3
    launch = Launch(
        emitted.name,
        (grid[0], grid[1], grid[2]),
        context.threads,
        shared,
        tuple(a for a, _ in kept),
        persistent=context.persistent,
        cluster=context.cluster,
        copies=copy_costs(kernel.body, kernel.name, context),
    )
    return emitted, printed, launch


def _context(kernel: Kernel, module: Module, target: Target) -> KernelContext:
    """The state that a kernel's emission begins with: what is asked of its grid, and what is known
    of sizes.
    """
    names = Names(NAMES if target.has("tcgen05") else frozenset())
    context = KernelContext(kernel.name, target, names, {b.name: b for b in module.buffers})
    for r in module.requirements:
        if isinstance(r.minimum, IntImm) and isinstance(r.maximum, IntImm):
            context.required[r.buffer, r.dim] = (r.minimum.value, r.maximum.value)
    names.bind(LANE_ROW.name, "g")
    names.bind(LANE_PAIR.name, "q")
    names.bind(FIRST_ROW.name, row_text(0))
    names.bind(FIRST_PAIR.name, column_text(0))
    for taken in ("g", "q"):
        names.fresh(taken)
    context.sizes = frozenset(name for name, t, _ in _values(module) if t == INT32)
    context.persistent = _asked(kernel, module, GridKind.PERSISTENT)
    context.self_fed = _asked(kernel, module, GridKind.SELF_FED) > 0
    context.teams = max(1, _asked(kernel, module, GridKind.TEAMS))
    context.cluster = max(1, _asked(kernel, module, GridKind.CLUSTER))
    context.neighbours = kernel.grid[-1].name
    if not context.persistent:
        context.grid = frozenset(loop.name for loop in kernel.grid)
    return context


def _declare(context: KernelContext, w: Builder, numbers: tuple[ir.Let, ...]) -> None:
    """The block's numbers, what is made of sizes, and flags."""
    for number in numbers:
        w.add(number)
    for name, own in context.quotients.values():
        if own is not None:
            w.add(ir.Let("int", (name,), (own,)))
    for name, condition in context.flags.items():
        w.line(f"const bool {name} = {condition};")


def _bounds(kernel: Kernel, module: Module, context: KernelContext) -> str:
    """Threads of a block, blocks of a multiprocessor, blocks of a cluster."""
    resident = 1 if context.group else _resident(kernel, module, context)
    panels = bool(context.panels)  # their shared memory leaves room for few blocks anyway
    least = f", {resident}" if panels or context.group or resident > 1 else ""
    bounds = f"__launch_bounds__({context.threads}{least})"
    size = context.cluster
    return f"__cluster_dims__({size}, 1, 1) {bounds}" if size > 1 else bounds


def _block_numbers(kernel: Kernel, context: KernelContext) -> tuple[ir.Let, ...]:
    """The variables of the grid's loops."""
    found: list[ir.Let] = []
    for loop, axis in zip(reversed(kernel.grid), "xyz", strict=False):
        if context.persistent:
            break
        number: Expr = Var(f"blockIdx.{axis}")
        if axis == "x" and context.cluster > 1:
            number = clamped(number, loop, context)
        value = moved(number, context.scalar.number(loop.min))
        found.append(ir.Let("int", (context.names.get(loop.name),), (value,)))
    return tuple(found)


def _maps(context: KernelContext) -> Iterator[tuple[Argument, str]]:
    """The tensor maps of a kernel, and whether there are those that it reads and stores by."""
    mapped = dict.fromkeys(m.of for m in context.maps)
    stored = tuple(name for name in mapped if name in context.stored_maps)
    read = tuple(name for name in mapped if name not in context.stored_maps)
    for ready, buffers in ((READY, read), (STORES_READY, stored)):
        if buffers:
            yield MapsReady(buffers), f"const int {ready}"
    for m in context.maps:
        argument = MapArgument(m.of, m.type, m.extents, m.strides, m.box)
        yield argument, f"const __grid_constant__ TensorMap {m.name}"


def _prologue(context: KernelContext, w: Builder, *, tensor: bool, warps: bool) -> None:
    """Shared memory, and the numbers of a thread: lane 4 g + q of a warp (of a group: g counts the
    rows of 16 that a warp holds), warp or group of the block.
    """
    if context.panels:
        w.line("extern __shared__ __align__(1024) unsigned char memory[];")
        align = context.shared_alignment - 1
        w.line(f"unsigned char* const smem = memory + (-shared_address(memory) & {align});")
    elif context.shared_bytes:
        w.line("extern __shared__ __align__(128) unsigned char smem[];")
    for m in context.maps:
        w.add(m)
        ready = STORES_READY if m.of in context.stored_maps else READY
        with w.when(both(flag(ready), equal(THREAD, 0))):
            w.add(Prefetch(m.name))
    if context.group:
        w.line("const int lane = threadIdx.x & 31, q = lane & 3;")
        w.line(f"const int g = (threadIdx.x >> 5 & 3) * {context.warp_rows} + (lane >> 2);")
        w.line("const int group = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0);")
    elif tensor:
        w.line("const int lane = threadIdx.x & 31, g = lane >> 2, q = lane & 3;")
    if tensor and not context.group and (context.warps > 1 or warps):
        w.line("const int warp = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0);")


def _parameters(
    module: Module, program: Program, context: KernelContext
) -> tuple[list[Argument], list[str]]:
    """Every argument that a kernel might take, with its declaration; unused ones go later."""
    arguments: list[Argument] = []
    declarations: list[str] = []
    for b in module.buffers:
        pointer = context.names.get(b.name)
        constant = "const " if b.role is Role.INPUT else ""
        arguments.append(BufferArgument(b.name))
        declarations.append(f"{constant}{c_type(b.type.element)}* __restrict__ {pointer}")
        joined = replace(b, dims=join_dims(b.dims))
        context.storages[b.name] = Storage(pointer, b.type.element, Space.GLOBAL, joined)
    for buffer in program.buffers:
        pointer = context.names.get(buffer.name)
        arguments.append(BufferArgument(buffer.name))
        declarations.append(f"{c_type(buffer.type.element)}* {pointer}")
        flat = (Dim(IntImm(0), buffer.elements, IntImm(1)),)
        param = BufferParam(buffer.name, buffer.type.element, flat, Role.INPUT)
        context.storages[buffer.name] = Storage(
            pointer, buffer.type.element, Space.GLOBAL, param, buffer.elements, buffer.pitches
        )
    for name, t, value in _values(module):
        arguments.append(ValueArgument(value, t))
        declarations.append(f"const {c_type(t)} {context.names.get(name)}")
    return arguments, declarations


def _values(module: Module):
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
