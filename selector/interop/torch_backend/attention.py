"""Attention as one operator of ours: before torch takes it apart as its device likes, and where it
has become one of torch's own kernels (in a function of torch, such as that of many heads).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch as installed  # pyright: ignore

from selector.interop.torch_backend.calls import call
from selector.interop.torch_backend.covered import family
from selector.interop.torch_backend.library import ATTENTION, default_scale
from selector.interop.torch_backend.read import operator_name, sized

torch: Any = installed
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_KERNELS = frozenset(
    f"aten._scaled_dot_product_{name}"
    for name in (
        "cudnn_attention", "efficient_attention", "flash_attention", "flash_attention_for_cpu",
    )
)  # fmt: skip


def keep_attention(graph: Any) -> None:
    """Put ours into a graph of Dynamo; one without heads has one."""
    for node in list(graph.graph.nodes):
        if node.target is not torch.nn.functional.scaled_dot_product_attention:
            continue
        given = {**dict(zip(_NAMES, node.args, strict=False)), **node.kwargs}
        operands = [given[n] for n in _NAMES[:3]]
        values = [_example(n) for n in operands]
        if any(v is None for v in values):
            continue
        has_heads = values[0].dim() != 3
        seen = values if has_heads else [v.unsqueeze(1) for v in values]
        if why_not(given, seen):
            continue
        with graph.graph.inserting_before(node):
            if not has_heads:
                operands = [graph.graph.call_method("unsqueeze", (n, 1)) for n in operands]
            found = graph.graph.call_function(ATTENTION, (*operands, *_numbers(given, values[0])))
            if not has_heads:
                found = graph.graph.call_method("squeeze", (found, 1))
        found.meta = dict(node.meta)
        node.replace_all_uses_with(found)
        graph.graph.erase_node(node)
    graph.recompile()


def find_attention(graph: Any) -> Iterator[tuple[str, str]]:
    """Put ours in the place of torch's kernels, whose result lies as theirs; of each that stays,
    its name and why.
    """
    for node in list(graph.nodes):
        if node.op != "call_function" or family(operator_name(node.target)) not in _KERNELS:
            continue
        names = [a.name for a in node.target._schema.arguments]
        given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        operands = [given[n] for n in _NAMES[:3]]
        values = [n.meta["val"] for n in operands]
        results = [u for u in node.users if u.target is not None and u.args[1:] == (0,)]
        why = why_not(given, values)
        if not why and (len(results) != 1 or len(node.users) != 1):
            why = "its gradient is wanted"
        if why:
            yield family(operator_name(node.target)), why
            continue
        (result,) = results
        with graph.inserting_before(node):
            found = call(graph, ATTENTION, *operands, *_numbers(given, values[0]))
        found.meta = dict(result.meta)
        result.replace_all_uses_with(found)
        graph.erase_node(result)
        graph.erase_node(node)


def why_not(given: Mapping[str, Any], values: list[Any]) -> str:
    """Why attention with these arguments, of values with heads, is none of ours; "" if it is."""
    query, key, value = values
    shape, sizes = _sizes(query), (_sizes(key), _sizes(value))
    if given.get("attn_mask") is not None or given.get("attn_bias") is not None:
        return "it has a mask"
    if given.get("dropout_p", 0.0) != 0.0:
        return "it drops some of its weights"
    if any(v.dim() != 4 for v in values) or not all(map(sized, values)):
        return "its sizes are not those of batches of heads"
    if query.dtype not in (torch.float16, torch.bfloat16) or len({v.dtype for v in values}) > 1:
        return f"no tensor instruction multiplies {str(query.dtype).removeprefix('torch.')}"
    if not isinstance(given.get("is_causal", False), bool) or not isinstance(shape[-1], int):
        return "its mask or the channels of its heads are not known"
    if 0 in (*shape, *sizes[0], *sizes[1]):
        return "it has no elements"
    if any(n[0] != shape[0] or not _shares(shape[1], n[1]) for n in sizes):
        return "batches or heads of keys are not those of queries"
    if sizes[1][-1] != shape[-1]:
        return "values have another number of channels than queries"
    return ""


def _numbers(given: Mapping[str, Any], query: Any) -> tuple[bool, float]:
    """Whether later keys are left out, and the scale of scores."""
    scale = given.get("scale")
    causal = bool(given.get("is_causal", False))
    return causal, default_scale(query) if scale is None else float(scale)


def _shares(queries: Any, keys: Any) -> bool:
    """Whether as many heads of queries have each head of keys."""
    known = isinstance(queries, int) and isinstance(keys, int)
    return queries % keys == 0 if known else queries == keys


def _sizes(value: Any) -> tuple[Any, ...]:
    """A shape that can be compared without a guard."""
    return tuple(n.node.expr if isinstance(n, torch.SymInt) else n for n in value.shape)


def _example(node: Any) -> Any:
    found = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
    return found if isinstance(found, torch.Tensor) else None
