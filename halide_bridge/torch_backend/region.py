"""A region as a pipeline, and its kernel."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import halide

from halide_bridge.compile import compile as compiled
from halide_bridge.schedules.auto import autoschedule
from halide_bridge.torch_backend import (
    activations,
    attention,
    convolutions,
    pointwise,
    products,
    quantised,
    rows,
    views,
)
from halide_bridge.torch_backend.values import HALVES, RULES, STORED, Making, Value, loaded, stored
from selector.diagnostics import PerformanceWarning, ScheduleError
from selector.interop.regions.graph import Named, Ref, RegionGraph, Symbolic, TensorType, evaluated
from selector.kernel import Kernel

hl: Any = halide
SECTOR = 32  # bytes that caches move at once
ROOMS = (  # of rules, which they register
    activations,
    attention,
    convolutions,
    pointwise,
    products,
    quantised,
    rows,
    views,
)


def compile_region(graph: RegionGraph, hints: Mapping[str, int], target: str) -> tuple[Kernel, str]:
    """The kernel of a region for a target, and what became of each of its Funcs. ``hints``: sizes
    of its symbols to be fast at; any others are right. Arguments in the order of its inputs. What
    the compiler warns of is in the text.

    ``ScheduleError`` for an operator without a rule and for what a rule refuses.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", PerformanceWarning)
        kernel, report = _compiled(graph, hints, target)
    slow = [w for w in said if issubclass(w.category, PerformanceWarning)]
    for w in said:
        if w not in slow:
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    return kernel, "\n".join([report, *(str(w.message).split("\n  hint")[0] for w in slow)])


def _compiled(graph: RegionGraph, hints: Mapping[str, int], target: str) -> tuple[Kernel, str]:
    sizes = _sizes(graph, hints)
    outputs, params = pipeline_of(graph)
    report = autoschedule(outputs, target=target, sizes=sizes).report
    if not graph.symbols:
        return compiled(outputs, target=target, inputs=params, name="region"), report
    outputs, params = pipeline_of(graph)  # the schedule of one size is not that of all
    kernel = compiled(
        outputs, target=target, inputs=params, name="region", schedule="auto", sizes=[sizes]
    )
    return kernel, report


def pipeline_of(graph: RegionGraph) -> tuple[list[Any], list[Any]]:
    """Its output Funcs (``out0``, ...) and arguments (``in0``, ...). Extents that are no symbols
    are declared: nobody asks then whether a tile is whole.

    ``ScheduleError`` for an operator without a rule and for what a rule refuses.
    """
    params = [
        hl.ImageParam(STORED[t.dtype], len(t.shape), f"in{i}") for i, t in enumerate(graph.inputs)
    ]
    known = {
        name: params[i].dim(len(graph.inputs[i].shape) - 1 - d).extent()
        for name, (i, d) in graph.symbols.items()
    }
    rounded = all(t.dtype in HALVES for t in graph.result_types)
    m = Making(known, rounded=rounded)
    attends = any(node.op.startswith("selector.attention") for node in graph.nodes)
    for p, t in zip(params, graph.inputs, strict=True):
        _declare(p, t, bounded=not attends)
    values: list[Any] = [_argument(m, p, t) for p, t in zip(params, graph.inputs, strict=True)]
    used = _uses(graph)
    for number, node in enumerate(graph.nodes, len(graph.inputs)):
        rule = RULES.get(".".join(node.op.split(".")[:2])) or RULES.get(f"aten.{node.op}")
        if rule is None:
            raise ScheduleError(f"there is no rule for {node.op}", why=f"no rule for {node.op}")
        types = (node.type,) if isinstance(node.type, TensorType) else node.type
        m = replace(m, op=node.op, types=types)
        args = [_decoded(m, a, values) for a in node.args]
        found = rule(m, *args, **{k: _decoded(m, v, values) for k, v in node.named})
        if isinstance(found, Value):
            found = replace(found, shape=m.shape())
            if used[number] > 1 and found.element is None:
                found = m.kept(found, "value")
        values.append(found)
    return [_output(m, values[n], i) for i, n in enumerate(graph.outputs)], params


def _declare(param: Any, t: TensorType, *, bounded: bool) -> None:
    """Say of an argument which extents are numbers, and that of short rows one begins where the
    other ends. Not ``bounded``: a loop over few keys has to stay one.
    """
    row: int | None = 1
    for d, n in enumerate(reversed(t.shape)):
        if d and row is not None and row * param.type().bytes() < SECTOR:
            param.dim(d).set_stride(row)
        if isinstance(n, int) and bounded:
            param.dim(d).set_bounds(0, n)
        row = None if row is None or isinstance(n, str) else row * n


def _argument(m: Making, param: Any, t: TensorType) -> Value:
    def element(index: Sequence[Any]) -> Any:
        return param[tuple(reversed(list(index)))]

    shape = tuple(map(m.extent, t.shape))
    extents = tuple(param.dim(d).extent() for d in reversed(range(len(shape))))
    return Value(t.dtype, shape, lambda i: loaded(element(i), t.dtype), element, extents)


def _output(m: Making, value: Value, number: int) -> Any:
    func, index = hl.Func(f"out{number}"), m.variables(value.rank)
    func[tuple(reversed(index))] = stored(value.at(index), value.dtype)
    for i, n in zip(index, value.shape, strict=True):
        if isinstance(n, int):
            func.bound(i, 0, n)
    return func


def _uses(graph: RegionGraph) -> Counter[int]:
    """How often each value is read."""
    found: Counter[int] = Counter()

    def count(value: Any) -> None:
        match value:
            case Ref(number):
                found[number] += 1
            case tuple():
                for each in value:
                    count(each)
            case _:
                pass

    for node in graph.nodes:
        count(node.args)
        count(tuple(v for _, v in node.named))
    return found


def _decoded(m: Making, value: Any, values: Sequence[Any]) -> Any:
    match value:
        case Ref(number):
            return values[number]
        case Symbolic(size):
            return m.extent(size)
        case Named(name):
            return name
        case tuple():
            return [_decoded(m, v, values) for v in value]
        case _:
            return value


def _sizes(graph: RegionGraph, hints: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Shapes of arguments and outputs at the hints."""
    found: dict[str, tuple[int, ...]] = {}
    for name, types in (("in", graph.inputs), ("out", graph.result_types)):
        for i, t in enumerate(types):
            found[f"{name}{i}"] = tuple(evaluated(n, hints) for n in t.shape)
    return found
