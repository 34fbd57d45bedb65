"""Convolutions of windows that neither overlap nor leave gaps, as products of matrices: a row for
each window, as in the embedding of patches of a vision transformer.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch as installed  # pyright: ignore

from selector.interop.torch_backend.calls import call
from selector.interop.torch_backend.covered import family
from selector.interop.torch_backend.read import dense, memory_order, operator_name

torch: Any = installed
aten: Any = torch.ops.aten


def as_products(graph: Any) -> None:
    """Put a product in the place of each that can be one; what it reads is moved before it."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not _is_of_patches(node):
            continue
        with graph.inserting_before(node):
            found = _product(graph, node)
        found.meta = {**node.meta, "val": found.meta["val"]}
        node.replace_all_uses_with(found)
        graph.erase_node(node)


def _is_of_patches(node: Any) -> bool:
    if family(operator_name(node.target)) != "aten.convolution":
        return False
    image, filters, _, stride, padding, dilation, transposed, _, groups = node.args
    shape, taps = image.meta["val"].shape, filters.meta["val"].shape[2:]
    return (
        not transposed
        and groups == 1
        and not any(padding)
        and all(isinstance(n, int) for n in (*shape[1:], *filters.meta["val"].shape))
        and prod(taps) > 1
        and list(stride) == list(taps)
        and all(d == 1 or t == 1 for d, t in zip(dilation, taps, strict=True))
        and all(n % t == 0 for n, t in zip(shape[2:], taps, strict=True))
        and dense(filters.meta["val"])
    )


def _product(graph: Any, node: Any) -> Any:
    image, filters, bias = node.args[:3]
    weights = filters.meta["val"]
    taps, pixels = weights.shape[2:], weights.dim() - 2
    order = memory_order(weights)  # filters, then what a sum is over, as it lies
    if order[0] != 0:
        order = tuple(range(weights.dim()))
    batch, _, *extents = image.meta["val"].shape
    counts = [n // t for n, t in zip(extents, taps, strict=True)]
    split = [batch, weights.shape[1]]
    for count, tap in zip(counts, taps, strict=True):
        split += [count, tap]
    inner = {1: 1, **{2 + d: 3 + 2 * d for d in range(pixels)}}  # axes of filters in the image
    rows = [0, *(2 + 2 * d for d in range(pixels))]
    x = call(graph, aten.reshape.default, image, split)
    x = call(graph, aten.permute.default, x, [*rows, *(inner[d] for d in order[1:])])
    x = call(graph, aten.reshape.default, x, [-1, prod(weights.shape[1:])])
    w = call(graph, aten.permute.default, filters, list(order))
    w = call(graph, aten.reshape.default, w, [weights.shape[0], -1])
    w = call(graph, aten.permute.default, w, [1, 0])
    if bias is None:
        found = call(graph, aten.mm.default, x, w)
    else:
        found = call(graph, aten.addmm.default, bias, x, w)
    found = call(graph, aten.reshape.default, found, [batch, *counts, weights.shape[0]])
    found = call(graph, aten.permute.default, found, [0, pixels + 1, *range(1, pixels + 1)])
    if memory_order(found.meta["val"]) == memory_order(node.meta["val"]):
        return found
    return call(graph, aten.clone.default, found, memory_format=torch.contiguous_format)
