"""Operators that torch takes apart before its passes run, and that are one for regions:
activations, of which a kernel does less as a whole than part by part. What no region has is taken
apart afterwards, as torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch as installed  # pyright: ignore
from torch.fx.experimental.proxy_tensor import make_fx  # pyright: ignore

from selector.interop.torch_backend.library import ATTENTION

torch: Any = installed
aten: Any = torch.ops.aten
_WHOLE = (aten.gelu.default, aten.silu.default)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Inductor's, but for those."""
    return {op: how for op, how in _table().items() if op not in _WHOLE}


def _table() -> dict[Any, Callable[..., Any]]:
    from torch._inductor.decomposition import select_decomp_table  # pyright: ignore

    return select_decomp_table()


def taken_apart(graph: Any) -> None:
    """What is still ``selector::attention`` is torch's own, which Inductor knows, and activations
    are what they are made of.
    """
    table = _table()
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is ATTENTION:
            *given, causal, scale = node.args
            _put(graph, node, make_fx(_attends(causal, scale)), given)
        elif node.target in _WHOLE:
            parts = make_fx(_bound(node), decomposition_table=table)
            _put(graph, node, parts, [node.args[0]])


def _bound(node: Any) -> Callable[[Any], Any]:
    rest, named = node.args[1:], dict(node.kwargs)
    return lambda x: node.target(x, *rest, **named)


def _put(graph: Any, node: Any, traced: Callable[..., Any], given: Any) -> None:
    """The operators that are traced in the place of a node."""
    made = traced(*(n.meta["val"] for n in given))
    inputs = [n for n in made.graph.nodes if n.op == "placeholder"]
    with graph.inserting_before(node):
        found: Any = graph.graph_copy(made.graph, dict(zip(inputs, given, strict=True)))
    (found,) = found if isinstance(found, (tuple, list)) else (found,)
    node.replace_all_uses_with(found)
    graph.erase_node(node)


def _attends(causal: bool, scale: float) -> Callable[..., Any]:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )

    return attend
