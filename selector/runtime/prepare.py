"""The slow half of a call: checks and evaluations that hold for every call with the same shapes.

``prepare`` takes what the arrays look like (``ArrayView``) and gives a ``Prepared`` call: launch
geometry, scalar arguments and output shapes, with holes for addresses and scalar parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import field, replace
from math import prod
from typing import Any
from weakref import WeakValueDictionary

from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError, InternalError
from selector.ir.interpreter import evaluate_scalar
from selector.ir.nodes import BufferParam, Role, Var
from selector.ir.traverse import free_vars
from selector.ir.types import Kind
from selector.runtime import arguments
from selector.runtime.arrays import ArrayView, Library, accepted_dtypes, numpy_dtype
from selector.runtime.driver import Function, Grid, StreamKey
from selector.runtime.host import result_library
from selector.runtime.plan import (
    BufferArgument,
    Launch,
    MapArgument,
    MapsReady,
    Plan,
    ValueArgument,
)
from selector.runtime.promises import check_promises
from selector.runtime.sizes import (
    Environment,
    Size,
    bind_extent,
    check_requirements,
    constant_extents,
    environment,
    infer_extents,
)
from selector.runtime.tensor_map import TensorMap

_GRID_LIMITS = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, technical specifications
LoadFunction = Callable[[Launch, bool], Function]  # early or not


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """One launch with everything but addresses and scalar parameters filled in.

    ``addresses`` pairs an argument's position with an index among inputs, outputs and
    intermediates; ``scalars`` with an index among the scalar parameters; ``maps`` gives position,
    index and shape of each tensor map, ``ready`` where the kernel looks whether there are all of
    those at some positions. ``made`` holds the values of those arguments, by the addresses that
    they were made for. ``early``: the same function, to be launched while the launch before it
    ends; None for a launch that has to wait for it.
    """

    function: Function
    grid: Grid
    block: Grid
    shared_bytes: int
    template: tuple[Any, ...]
    addresses: tuple[tuple[int, int], ...]
    scalars: tuple[tuple[int, int], ...]
    once: bool = False
    maps: tuple[tuple[int, int, TensorMap], ...] = ()
    ready: tuple[tuple[int, frozenset[int]], ...] = ()
    early: Function | None = None
    made: dict[Hashable, tuple[tuple[int, Any], ...]] = field(
        default_factory=dict[Hashable, tuple[tuple[int, Any], ...]]
    )


@dataclass(frozen=True, slots=True)
class NewArray:
    """An output to allocate: shape with the last axis innermost, dtype by name."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(slots=True, weakref_slot=True)
class Scratch:
    """Intermediate buffers, which ``owners`` keep alive, and their addresses. ``filled``: the
    launches that run once have done so.
    """

    owners: list[Any]
    addresses: list[int]
    filled: bool = False


@dataclass(slots=True)
class Prepared:
    """What all calls of one signature share.

    ``spans`` are the bytes from the address that each input, then each output reaches over.
    ``scratch`` holds the intermediate buffers of each stream, ``recorded`` those of graphs as long
    as there are any, ``repeated`` the launches of a call that finds those done that run once,
    ``program`` the same for the native module.
    """

    device: int
    launches: tuple[PreparedLaunch, ...]
    outputs: tuple[NewArray, ...]
    library: Library
    spans: tuple[int, ...]
    scratch_bytes: tuple[int, ...]
    scratch: dict[StreamKey, Scratch] = field(default_factory=dict[StreamKey, Scratch])
    recorded: WeakValueDictionary[Hashable, Scratch] = field(
        default_factory=WeakValueDictionary[Hashable, Scratch]
    )
    repeated: tuple[PreparedLaunch, ...] = field(init=False)
    program: Any = None

    def __post_init__(self) -> None:
        self.repeated = tuple(launch for launch in self.launches if not launch.once)


def prepare(
    plan: Plan,
    views: Mapping[str, ArrayView],
    scalars: Mapping[str, arguments.Scalar],
    sizes: Any,
    device: int,
    multiprocessors: Callable[[int], int],
    load: LoadFunction,
) -> Prepared:
    """Check a call and work out its launches. ``views`` holds the inputs, and all outputs or
    none.
    """
    known = {b.name: _accept(b, views[b.name]) for b in plan.buffers if b.name in views}
    values = arguments.numbers(plan, scalars)
    if all(b.name in views for b in arguments.outputs_of(plan)):
        if sizes is not None:
            raise ArgumentError("out= and sizes= exclude each other", why="out= has a size")
    else:
        known |= output_sizes(plan, known, values, sizes)
    env = environment(plan, known, values)
    check_requirements(plan, env)
    check_promises(plan, env, scalars)
    library = result_library(views.values())
    outputs = arguments.outputs_of(plan)
    return Prepared(
        device,
        _prepare_launches(plan, env, load, lambda: multiprocessors(device)),
        tuple(NewArray(known[b.name].extents[::-1], _dtype(b, library)) for b in outputs),
        library,
        tuple(_span(known[b.name]) * b.type.bytes for b in arguments.inputs_then_outputs(plan)),
        tuple(max(evaluate_scalar(i.elements, env), 1) * i.type.bytes for i in plan.intermediates),
    )


def output_sizes(
    plan: Plan, known: Mapping[str, Size], scalars: Environment, sizes: Any
) -> dict[str, Size]:
    """Sizes of outputs that are not given as arrays: from ``sizes=``, the plan, or the inputs."""
    found = output_shapes(plan, known, scalars, sizes)
    return {b.name: arguments.dense_size(b, found[b.name]) for b in arguments.outputs_of(plan)}


def output_shapes(
    plan: Plan, known: Mapping[str, Size], scalars: Environment, sizes: Any
) -> dict[str, tuple[int, ...]]:
    """Shapes of outputs, last axis innermost, however large; see ``output_sizes``."""
    given = arguments.match_sizes(plan, sizes)
    env = environment(plan, known, scalars)
    unknown: list[tuple[BufferParam, int]] = []
    outputs = arguments.outputs_of(plan)
    for buffer in outputs:
        shape = given.get(buffer.name)
        extents = constant_extents(buffer) if shape is None else shape[::-1]
        for d, extent in enumerate(extents):
            if extent is None:
                unknown.append((buffer, d))
            else:
                bind_extent(env, buffer, d, extent)
    infer_extents(plan, env, unknown)
    return {
        b.name: tuple(env[f"{b.name}.extent.{d}"] for d in reversed(range(len(b.dims))))
        for b in outputs
    }


def sizes_use_scalars(plan: Plan) -> bool:
    """Whether anything but a kernel argument depends on the value of a scalar parameter."""
    names = {s.name for s in plan.scalars}
    exprs = [e for launch in plan.launches for e in launch.grid]
    exprs += [i.elements for i in plan.intermediates]
    exprs += [e for r in plan.requirements for e in (r.minimum, r.maximum)]
    exprs += [e for p in plan.promises for e in p.exprs]
    exprs += [
        a.value
        for launch in plan.launches
        for a in launch.arguments
        if isinstance(a, ValueArgument) and not isinstance(a.value, Var)
    ]
    exprs += [
        e
        for launch in plan.launches
        for a in launch.arguments
        if isinstance(a, MapArgument)
        for e in (*a.extents, *a.strides)
    ]
    return any(free_vars(e) & names for e in exprs)


def _accept(buffer: BufferParam, array: ArrayView) -> Size:
    """The size of an array that passed every check that looks at it alone."""
    arguments.check_array(buffer, array)
    arguments.check_in_place(buffer, array)
    if buffer.role is Role.OUTPUT:
        arguments.check_output(buffer, array)
    return arguments.size_of(buffer, array)


def _dtype(buffer: BufferParam, library: Library) -> str:
    """The dtype of a new output: bfloat16 where torch knows it, its bits elsewhere."""
    if buffer.type.kind is Kind.BFLOAT and library is Library.TORCH:
        return "bfloat16"
    return accepted_dtypes(buffer.type)[-1]


def _span(size: Size) -> int:
    if 0 in size.extents:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(size.extents, size.strides, strict=True))


def _prepare_launches(
    plan: Plan, env: Environment, load: LoadFunction, multiprocessors: Callable[[], int]
) -> tuple[PreparedLaunch, ...]:
    """Those that there is something to do for."""
    found: list[PreparedLaunch] = []
    before = 0  # blocks of the last one that runs in every call
    for launch in plan.launches:
        prepared = _prepare_launch(plan, launch, env, load, multiprocessors)
        if prepared is None:
            continue
        blocks = prod(prepared.grid)
        if launch.crowd and blocks <= (multiprocessors() - before) * launch.crowd:
            prepared = replace(prepared, early=None)
        before = before if launch.once else blocks
        found.append(prepared)
    return tuple(found)


def _prepare_launch(
    plan: Plan,
    launch: Launch,
    env: Environment,
    load: LoadFunction,
    multiprocessors: Callable[[], int],
) -> PreparedLaunch | None:
    """One launch for sizes in ``env``; None if there is nothing to do."""
    x, y, z = (evaluate_scalar(e, env) for e in launch.grid)
    if min(x, y, z) <= 0:
        return None
    x, y, z = grid_of((x, y, z), launch, multiprocessors)
    if any(extent > limit for extent, limit in zip((x, y, z), _GRID_LIMITS, strict=True)):
        raise ArgumentError(
            f"{launch.entry}: a grid of {x} x {y} x {z} blocks is too large",
            why=f"the limits are {' x '.join(map(str, _GRID_LIMITS))}",
            hint="tell these sizes when the schedule is made, or ask for `in_line`: then all "
            "blocks are along x; or split the call along an outer axis",
        )
    names = [b.name for b in arguments.inputs_then_outputs(plan)]
    names += [i.name for i in plan.intermediates]
    outputs = {b.name for b in arguments.outputs_of(plan)}
    parameters = [s.name for s in plan.scalars]
    template: list[Any] = []
    addresses: list[tuple[int, int]] = []
    scalars: list[tuple[int, int]] = []
    maps: list[tuple[int, int, TensorMap]] = []
    ready: list[tuple[int, frozenset[str]]] = []
    for position, argument in enumerate(launch.arguments):
        value: Any = 0
        match argument:
            case BufferArgument(name):
                addresses.append((position, names.index(name)))
            case ValueArgument(Var(name, _), _) if name in parameters:
                scalars.append((position, parameters.index(name)))
            case ValueArgument():
                value = _value(argument, env)
            case MapArgument(name):
                shape = replace(_map(argument, env), stored=name in outputs)
                maps.append((position, names.index(name), shape))
            case MapsReady(wanted):
                ready.append((position, frozenset(wanted)))
        template.append(value)
    return PreparedLaunch(
        load(launch, False),
        (x, y, z),
        (launch.threads, 1, 1),
        launch.shared_bytes,
        tuple(template),
        tuple(addresses),
        tuple(scalars),
        launch.once,
        tuple(maps),
        tuple((position, _wanted(launch, found)) for position, found in ready),
        load(launch, True) if launch.early else None,
    )


def _wanted(launch: Launch, names: frozenset[str]) -> frozenset[int]:
    """The positions of the maps of these buffers, of all where none is named."""
    return frozenset(
        position
        for position, argument in enumerate(launch.arguments)
        if isinstance(argument, MapArgument) and (not names or argument.name in names)
    )


def grid_of(work: Grid, launch: Launch, multiprocessors: Callable[[], int]) -> Grid:
    """The blocks that do the work of a grid: whole clusters, and no more than are persistent."""
    size = launch.cluster
    grid = (-(-work[0] // size) * size, *work[1:])
    if not launch.persistent:
        return grid
    most = max(multiprocessors() * launch.persistent // size, 1) * size
    return (min(grid[0] * grid[1] * grid[2], most), 1, 1)


def _map(argument: MapArgument, env: Environment) -> TensorMap:
    return TensorMap(
        argument.type,
        tuple(evaluate_scalar(e, env) for e in argument.extents),
        tuple(evaluate_scalar(e, env) * argument.type.bytes for e in argument.strides),
        argument.box,
        rounds=argument.rounds,
        steps=argument.steps,
    )


def _value(argument: ValueArgument, env: Environment) -> Any:
    """A kernel argument worked out from the sizes, as a NumPy scalar."""
    if not argument.type.is_integer:
        raise InternalError(f"a computed kernel argument must be an integer: {argument}")
    return numpy_dtype(argument.type).type(evaluate_scalar(argument.value, env))
