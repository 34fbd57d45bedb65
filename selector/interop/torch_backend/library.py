"""The operator that stands for a region in torch's graphs: ``selector::region(key, inputs)``; and
``selector::attention``, which keeps ``scaled_dot_product_attention`` one operator until then.

What a region computes is found by its key, in this process or in the store's folder, so that
graphs that torch has kept on disk work in the next process.
"""

from __future__ import annotations

import importlib
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch as installed  # pyright: ignore

from selector.interop.regions import store
from selector.interop.regions.graph import Named, Node, Ref, RegionGraph, Symbolic, evaluated
from selector.ir.nodes import BufferParam
from selector.runtime import arguments
from selector.runtime.arrays import view

torch: Any = installed

_LIBRARY = torch.library.Library("selector", "FRAGMENT")
_SCHEMA = "region(str key, Tensor[] inputs) -> Tensor[]"
_ATTENTION = "attention(Tensor q, Tensor k, Tensor v, bool is_causal, float scale) -> Tensor"
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
_runs: dict[str, Callable[[Sequence[Any]], list[Any]]] = {}  # of regions with a kernel, by key


def _on_gpu(key: str, inputs: Sequence[Any]) -> list[Any]:
    return run_of(key)(inputs)


def run_of(key: str) -> Callable[[Sequence[Any]], list[Any]]:
    """What runs a region on a GPU."""
    run = _runs.get(key)
    if run is None:
        run = _runs[key] = _runner(key)
    return run


def _on_cpu(key: str, inputs: Sequence[Any]) -> list[Any]:
    entry = store.found(key)
    if not entry.interpreted or entry.kernel is None:
        return reference(entry.graph, inputs)
    kernel, made = entry.kernel, _empty(entry.graph, inputs)
    names = [b.name for b in arguments.outputs_of(kernel.plan)]
    sizes = {n: tuple(t.shape) for n, t in zip(names, made, strict=True)}
    found = kernel.interpret(*(t.contiguous() for t in as_bytes(inputs)), sizes=sizes)
    for t, result in zip(made, [found] if len(made) == 1 else found.values(), strict=True):
        t.copy_(result)
    return made


def as_bytes(tensors: Sequence[Any]) -> Sequence[Any]:
    """Tensors as kernels have them: of bool as the same bytes."""
    return [t.view(torch.uint8) if t.dtype == torch.bool else t for t in tensors]


def _empty(graph: RegionGraph, inputs: Sequence[Any]) -> list[Any]:
    """The results of a region, as they lie in memory."""
    shapes = graph.shapes([t.shape for t in inputs])
    found: list[Any] = []
    for shape, t in zip(shapes, graph.result_types, strict=True):
        order = graph.order or tuple(range(len(shape)))
        made = inputs[0].new_empty([shape[d] for d in order], dtype=getattr(torch, t.dtype))
        found.append(made.permute([order.index(d) for d in range(len(order))]))
    return found


def _traced(key: str, inputs: Sequence[Any]) -> list[Any]:
    return _empty(store.found(key).graph, inputs)


def _runner(key: str) -> Callable[[Sequence[Any]], list[Any]]:
    """What runs a region on a GPU: its kernel, or torch by operators where there is none."""
    entry = store.found(key)
    graph, kernel = entry.graph, entry.kernel
    if kernel is None:
        return lambda inputs: reference(graph, inputs)
    buffers = arguments.inputs_of(kernel.plan)
    names = [b.name for b in arguments.outputs_of(kernel.plan)]
    has_bool = any(t.dtype == "bool" for t in (*graph.inputs, *graph.result_types))

    def run(inputs: Sequence[Any]) -> list[Any]:
        given = as_bytes(inputs) if has_bool else inputs
        for t in given:
            if not t.is_contiguous():
                given = [readable(b, t) for b, t in zip(buffers, given, strict=True)]
                break
        made = _empty(graph, inputs)
        into = as_bytes(made) if has_bool else made
        kernel(*given, out=into[0] if len(into) == 1 else dict(zip(names, into, strict=True)))
        return made

    return run


def readable(buffer: BufferParam, tensor: Any) -> Any:
    """The tensor as a kernel reads it: as it lies, or a copy."""
    seen = view(buffer.name, tensor)
    return (
        tensor.contiguous() if 0 in seen.strides or arguments.strides_fit(buffer, seen) else tensor
    )


def reference(graph: RegionGraph, inputs: Sequence[Any]) -> list[Any]:
    """The region by torch's own operators. Results lie as the types of its outputs say."""
    values: list[Any] = list(inputs)
    for _, call, _ in steps_of(graph, values):
        values.append(call())
    made = _empty(graph, inputs)
    return [m.copy_(values[n]) for m, n in zip(made, graph.outputs, strict=True)]


def steps_of(
    graph: RegionGraph, values: Sequence[Any]
) -> Iterator[tuple[Node, Callable[[], Any], list[Any]]]:
    """Each node, what computes it by torch's operator, and the tensors that it reads. ``values``:
    the inputs, behind which whoever asks puts each node's before asking for the next.
    """
    known = {name: values[i].shape[d] for name, (i, d) in graph.symbols.items()}
    device = values[0].device

    def value(v: Any) -> Any:
        match v:
            case Ref(number):
                return values[number]
            case Symbolic(size):
                return evaluated(size, known)
            case Named(name):
                return getattr(torch, name)
            case tuple():
                return [value(each) for each in v]
            case _:
                return v

    if any(node.op.startswith("quantized_decomposed.") for node in graph.nodes):
        importlib.import_module("torch.ao.quantization.fx._decomposed")  # defines them
    for node in graph.nodes:
        args, named = value(node.args), {k: value(v) for k, v in node.named}
        operands = [x for x in args if isinstance(x, torch.Tensor)]
        if node.op == "getitem":
            yield node, partial(operator.getitem, args[0], args[1]), operands
            continue
        if _makes(node):
            named["device"] = device
        space, name, overload = node.op.split(".")
        function = getattr(getattr(getattr(torch.ops, space), name), overload)
        yield node, partial(function, *args, **named), operands


def _makes(node: Node) -> bool:
    """Whether it makes a tensor of none, and so has to be told where."""
    return node.op.split(".")[1] in ("full", "iota")


def _attention(q: Any, k: Any, v: Any, is_causal: bool, scale: float) -> Any:
    found = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=is_causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    wanted = _like_queries(q, v)
    return found.clone() if wanted.stride() == found.stride() else wanted.copy_(found)


def _like_queries(q: Any, v: Any) -> Any:
    """An empty result: heads lie where those of the queries do."""
    heads_inside = q.stride(1) < q.stride(2)
    batch, heads, length, depth = *q.shape[:3], v.shape[3]
    if heads_inside:
        return q.new_empty((batch, length, heads, depth)).transpose(1, 2)
    return q.new_empty((batch, heads, length, depth))


def _attention_traced(q: Any, k: Any, v: Any, is_causal: bool, scale: float) -> Any:
    del k, is_causal, scale
    return _like_queries(q, v)


def default_scale(q: Any) -> float:
    return 1 / math.sqrt(q.shape[-1])


_LIBRARY.define(_SCHEMA, tags=_TAGS)
_LIBRARY.impl("region", _on_gpu, "CUDA")
_LIBRARY.impl("region", _on_cpu, "CPU")
torch.library.register_fake("selector::region", _traced, lib=_LIBRARY)
_LIBRARY.define(_ATTENTION, tags=_TAGS)
_LIBRARY.impl("attention", _attention, "CUDA")
_LIBRARY.impl("attention", _attention, "CPU")
torch.library.register_fake("selector::attention", _attention_traced, lib=_LIBRARY)
REGION: Any = torch.ops.selector.region.default
ATTENTION: Any = torch.ops.selector.attention.default
