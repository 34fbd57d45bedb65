"""Functions of tensors as regions, and what their kernels give in the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from halide_bridge.torch_backend import compile_region
from selector.interop.regions.graph import Node, RegionGraph
from selector.interop.torch_backend.read import Symbols, checked, encoded, typed

TARGET = "sm_90a"


def region_of(
    function: Callable[..., Any],
    *tensors: Any,
    decompositions: Mapping[Any, Any] | None = None,
    symbolic: bool = False,
) -> tuple[RegionGraph, Symbols]:
    """All that a function of contiguous tensors does, as one region."""
    mode = "symbolic" if symbolic else "fake"
    made = make_fx(function, decomposition_table=decompositions, tracing_mode=mode)(*tensors)
    symbols, numbers, types = Symbols(), dict[Any, int](), list[Any]()
    nodes: list[Node] = []
    outputs: Sequence[Any] = ()
    for node in made.graph.nodes:
        match node.op:
            case "placeholder":
                numbers[node] = len(types)
                types.append(typed(node.meta["val"], symbols))
            case "call_function" if "sym_size" not in str(node.target):
                symbols.closed = True
                numbers[node] = len(types) + len(nodes)
                nodes.append(encoded(node, numbers, symbols))
            case "output":
                (result,) = node.args
                outputs = result if isinstance(result, (tuple, list)) else [result]
            case _:
                pass
    found = tuple(numbers[n] for n in outputs)
    return checked(RegionGraph(tuple(types), tuple(nodes), found)), symbols


def interpreted(kernel: Any, graph: RegionGraph, tensors: Sequence[Any]) -> list[Any]:
    """The results of a region's kernel."""
    shapes = graph.shapes([t.shape for t in tensors])
    names = [b.name for b in kernel.plan.buffers if b.name.startswith("out")]
    names.sort(key=lambda n: int(n[3:]))
    given = [t.to(torch.uint8) if t.dtype == torch.bool else t for t in tensors]
    found = kernel.interpret(*given, sizes=dict(zip(names, shapes, strict=True)))
    results = [found] if len(names) == 1 else [found[n] for n in names]
    return [r if isinstance(r, torch.Tensor) else torch.as_tensor(r) for r in results]


def run(
    function: Callable[..., Any], *tensors: Any, **how: Any
) -> tuple[list[Any], list[Any], str]:
    """What a function's kernel gives, what torch gives, and what became of the Funcs."""
    graph, symbols = region_of(function, *tensors, **how)
    kernel, report = compile_region(graph, symbols.hints, TARGET)
    wanted = function(*tensors)
    wanted = list(wanted) if isinstance(wanted, (tuple, list)) else [wanted]
    return interpreted(kernel, graph, tensors), wanted, report


def near(found: Any, wanted: Any, tolerance: float | None = None) -> None:
    """Within ``tolerance`` of the largest element (by default what the dtype rounds away)."""
    assert tuple(found.shape) == tuple(wanted.shape)
    if tolerance is None:
        tolerance = {torch.float16: 1.5e-3, torch.bfloat16: 1.2e-2}.get(wanted.dtype, 2e-6)
    if not wanted.dtype.is_floating_point:
        assert torch.equal(found.to(wanted.dtype), wanted)
        return
    largest = max(float(wanted.abs().max()) if wanted.numel() else 0.0, 1e-3)
    assert float((found.double() - wanted.double()).abs().max()) <= tolerance * largest


def random(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)
