"""From a stock Halide pipeline to a ``selector.ir.Module``.

The native module runs Halide's own passes up to vectorization, with ours in between
(``cpp/passes.h``); its flat records become nodes (``records``), the loops get their normal form
(``normalise``), and every directive that cannot be met is an error that says where it was given
(``checks``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from halide_bridge import checks
from halide_bridge.clamps import BoundedClamps
from halide_bridge.constant_sizes import constant_sizes
from halide_bridge.memory import Directives, apart, caller_location, directives_of, unused_marks
from halide_bridge.names import Names, plain
from halide_bridge.native import native
from halide_bridge.normalise import normalise
from halide_bridge.promises import promises_of
from halide_bridge.records import Reader, Record, read_type
from halide_bridge.stock import Func, Pipeline
from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError
from selector.garbage import collector_paused
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    BufferParam,
    Dim,
    Expr,
    IntImm,
    Role,
    ScalarParam,
    Stmt,
    Store,
    Var,
)
from selector.ir.remarks import GridDirective, Origin, Requirement
from selector.ir.traverse import map_stmt, walk_stmt
from selector.lowering.guarded import guarded
from selector.lowering.online import Online, fuse_online
from selector.lowering.ranges import Ranges
from selector.targets import Target, find_target

_BARE = "x86-64-linux-no_runtime-no_bounds_query-no_asserts"
_HALIDE_TARGET = {"cuda": f"{_BARE}-cuda-cuda_capability_80", "amx": _BARE}


@dataclass(frozen=True, slots=True)
class Options:
    """Which of our passes run between Halide's. All off: the loops that stock Halide prints."""

    accumulators: bool = True  # one dense ramp per accumulator tile
    tails: bool = True  # predicated stores and loads
    rows: bool = True  # block allocations in shared memory, with padded rows
    strip: bool = True  # no asserts and no prologue; buffers start at 0


@dataclass(frozen=True, slots=True)
class _Pipeline:
    outputs: list[Func]
    wrapped: tuple[tuple[str, str], ...]  # outputs that are wrappers, and the Funcs that they wrap
    directives: dict[str, Directives]  # by Halide's name of the Func
    location: str
    request: dict[str, Any]
    inlined: frozenset[str]


def lower(
    output: Func | Pipeline | Sequence[Func],
    *,
    target: str | Target = "sm_90a",
    name: str | None = None,
    inputs: Sequence[object] | None = None,
    options: Options | None = None,
) -> Module:
    """The vectorized loops of a pipeline, its parameters, and what the algorithm needs of them.

    ``inputs`` fixes the calling order of ImageParams and Params, which else is that of their names.
    ``name`` is the module's, by default the output's. ``str(module)`` is the text form. An output
    with a wrapper for everyone (``output.in_()``) is what that wrapper stores: the output itself
    can then be computed elsewhere, a tensor unit's memory included.
    ``ScheduleError`` for whatever cannot be lowered, with Halide's own text where Halide refused.
    """
    with collector_paused():
        return _lowered(_open(output, target, name, options or Options()), name, inputs)


def lower_copy(
    output: Func | Pipeline | Sequence[Func],
    schedule: Callable[[list[Func]], object],
    *,
    target: str | Target,
    name: str | None,
    inputs: Sequence[object] | None,
    pipeline: Pipeline | None = None,
) -> Module:
    """The same of a copy that ``schedule`` schedules: the pipeline stays as it is. ``pipeline``:
    one with requirements, of which these are outputs.
    """
    with collector_paused(), apart():
        opened = _open(output, target, name, Options(), schedule, pipeline)
        return _lowered(opened, name, inputs)


def _lowered(pipeline: _Pipeline, name: str | None, inputs: Sequence[object] | None) -> Module:
    lowered = checks.run_native(
        native().lower, pipeline.outputs, pipeline.request, pipeline.location
    )
    checks.refuse_embedded(lowered["embedded"], pipeline.location)
    checks.refuse_repeated(lowered["repeated"], pipeline.location)
    arrays = (b[0] for b in lowered["buffers"] if not b[2])
    names = Names((*arrays, *(s[0] for s in lowered["scalars"])), lowered["variables"])
    for wrapper, func in pipeline.wrapped:
        names.stands_for(wrapper, func)
    buffers, scalars = _parameters(lowered, names, inputs, pipeline.location)
    marked = frozenset(n for n, d in pipeline.directives.items() if d.kind is not None)
    booleans = frozenset(b[0] for b in lowered["buffers"] if read_type(b[1]).is_bool)
    reader = Reader(lowered["records"], names, marked, booleans)
    body = reader.stmt(lowered["body"])
    if reader.has_vector_lets:
        body = normalise(body)
    if reader.has_clamps:
        extents = (d.extent for b in buffers for d in b.dims)
        sizes = frozenset(e.name for e in extents if isinstance(e, Var))
        body = BoundedClamps(Ranges(nonnegative=sizes)).stmt(body)
    checks.check_marked(body, pipeline.directives, names)  # while conditions stand as written
    body = constant_sizes(guarded(body))
    body = _place(body, {names(name): d for name, d in pipeline.directives.items()})
    for func, asked in pipeline.directives.items():
        if asked.along:
            along = tuple(names(s) for s in asked.along)
            body = fuse_online(body, Online(names(func), along, asked.location))
    return Module(
        names(pipeline.request["name"]) if name is None else name,
        buffers,
        scalars,
        body,
        _requirements(lowered["regions"], reader, names, buffers),
        _origins(pipeline.directives, names),
        _grids(pipeline, names, body),
        promises_of(lowered["promises"], reader, buffers, scalars, pipeline.location),
    )


def lower_text(
    output: Any, *, target: str | Target = "sm_90a", options: Options | None = None
) -> str:
    """Halide's own print of the loops, before any conversion; for tests and bug reports."""
    pipeline = _open(output, target, None, options or Options())
    return checks.run_native(
        native().lower_text, pipeline.outputs, pipeline.request, pipeline.location
    )


def _open(
    output: Any,
    target: str | Target,
    name: str | None,
    options: Options,
    schedule: Callable[[list[Func]], object] | None = None,
    pipeline: Pipeline | None = None,
) -> _Pipeline:
    location = caller_location()
    asked = checks.output_funcs(output, location)
    if schedule is not None:
        asked = native().copy(asked)
        schedule(asked)
    outputs: list[Func] = native().wrapped(asked)
    pairs = ((w.name(), f.name()) for w, f in zip(outputs, asked, strict=True))
    families = (
        find_target("sm_90a" if target == "cuda" else target) if isinstance(target, str) else target
    )
    described = native().describe_funcs(outputs)
    env = [f[0] for f in described]
    directives = directives_of(env)
    checks.check_unused(unused_marks(), env, outputs)
    checks.check_directives(described, directives, outputs)
    request: dict[str, Any] = {
        **asdict(options),
        "target": _HALIDE_TARGET[families.family],
        "name": outputs[0].name() if name is None else name,
        "pipeline": output if checks.is_pipeline(output) else pipeline,
        "tensor_funcs": {n for n, d in directives.items() if d.kind is not None},
    }
    wrapped = tuple((w, f) for w, f in pairs if w != f)
    inlined = frozenset(f[0] for f in described if f[2])
    return _Pipeline(outputs, wrapped, directives, location, request, inlined)


def _place(s: Stmt, directives: Mapping[str, Directives]) -> Stmt:
    """Every allocation of a Func with directives gets its memory kind and number of copies. One
    that nothing is added up in, because its reduction domain turned out empty, is ordinary memory.
    """
    if isinstance(s, Allocate) and s.name in directives:
        asked = directives[s.name]
        summed = asked.kind is not None and checks.is_updated(s.body, s.name)
        memory = asked.kind.memory if asked.kind is not None and summed else s.memory
        s = replace(s, memory=memory, stages=asked.stages)
    return map_stmt(s, lambda b: _place(b, directives), lambda e: e)


def _parameters(
    lowered: Mapping[str, Any], names: Names, inputs: Sequence[object] | None, location: str
) -> tuple[tuple[BufferParam, ...], tuple[ScalarParam, ...]]:
    order = checks.input_order(inputs, location)
    given = sorted(lowered["buffers"], key=lambda b: (b[2], *order(b[0], b[2])))
    scalars = sorted(lowered["scalars"], key=lambda s: order(s[0], False))
    return (
        tuple(_buffer(b, names) for b in given),
        tuple(ScalarParam(names(s[0]), read_type(s[1])) for s in scalars),
    )


def _buffer(record: Record, names: Names) -> BufferParam:
    name, type_, is_output, dims = record
    clean = names(name)
    return BufferParam(
        clean,
        read_type(type_),
        tuple(_dim(name, d, known, names) for d, known in enumerate(dims)),
        Role.OUTPUT if is_output else Role.INPUT,
    )


def _dim(name: str, d: int, known: tuple[int | None, ...], names: Names) -> Dim:
    low, extent, stride = known

    def value(constant: int | None, what: str) -> Expr:
        return Var(names(f"{name}.{what}.{d}")) if constant is None else IntImm(constant)

    return Dim(IntImm(low or 0), value(extent, "extent"), value(stride, "stride"))


def _requirements(
    regions: Sequence[Record], reader: Reader, names: Names, buffers: tuple[BufferParam, ...]
) -> tuple[Requirement, ...]:
    shapes = {b.name: b for b in buffers}
    found: list[Requirement] = []
    for name, dim, low, high in regions:
        if low < 0 or high < 0:
            raise ScheduleError(
                f"the pipeline reads an unbounded region of dimension {dim} of `{names(name)}`",
                why="an index depends on data, so no size of that buffer is large enough",
                hint="clamp the index to the buffer: `hl.clamp(index, 0, width - 1)`",
            )
        buffer = shapes[names(name)]
        requirement = Requirement(buffer.name, dim, reader.expr(low), reader.expr(high))
        if not (buffer.role is Role.OUTPUT and _is_whole(requirement, buffer.dims[dim])):
            found.append(requirement)
    return tuple(found)


def _is_whole(requirement: Requirement, dim: Dim) -> bool:
    match requirement.maximum, dim.extent, dim.min:
        case Binary(BinaryOp.ADD, Var(a, _), IntImm(-1, _)), Var(b, _), IntImm(0, _):
            return a == b and requirement.minimum == dim.min
        case IntImm(high, _), IntImm(extent, _), IntImm(low, _):
            return high == low + extent - 1 and requirement.minimum == dim.min
        case _:
            return False


def _grids(pipeline: _Pipeline, names: Names, body: Stmt) -> tuple[GridDirective, ...]:
    """What is asked of the grids of kernels: not of one that nobody reads, as a condition is never
    true, and that Halide has left out.
    """
    written = {s.buffer for s in walk_stmt(body) if isinstance(s, Store)}
    found = (
        GridDirective(kind, names(n), blocks)
        for n, d in pipeline.directives.items()
        if n in pipeline.inlined or names(n) in written
        for kind, blocks in d.grids
    )
    return tuple(sorted(found, key=lambda g: (g.func, g.kind.value)))


def _origins(directives: Mapping[str, Directives], names: Names) -> tuple[Origin, ...]:
    """The Funcs with directives, at the place of those: Halide keeps no place of a definition."""
    found = (Origin(names(n), plain(n), d.location) for n, d in directives.items())
    return tuple(sorted(found, key=lambda o: o.name))
