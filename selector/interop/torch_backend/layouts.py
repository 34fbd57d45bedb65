"""Images of convolutions whose filters have channels innermost have them so, too: what makes one,
a padding for example, writes it so, where it would have to be turned before it is multiplied. What
is done to turned results of products is done before they are turned, so that their kernel does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch as installed  # pyright: ignore

from selector.interop.torch_backend.calls import call
from selector.interop.torch_backend.covered import FLAT, POINTWISE, PRODUCTS, family
from selector.interop.torch_backend.read import dense, memory_order, operator_name, sized

torch: Any = installed
aten: Any = torch.ops.aten
_INNERMOST = (0, 2, 3, 1)


def turn_images(graph: Any) -> None:
    """Put a copy before each convolution of two dimensions whose image lies otherwise."""
    turned: dict[Any, Any] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not _is_mixed(node):
            continue
        image = node.args[0]
        if image not in turned:
            with graph.inserting_before(node):
                turned[image] = call(
                    graph, aten.clone.default, image, memory_format=torch.channels_last
                )
        node.replace_input_with(image, turned[image])


def turn_last(graph: Any) -> None:
    """Put what is done element by element to a permuted result of a product before the permutation,
    which costs nothing then, where all that it reads can be permuted back.
    """
    behind: set[Any] = set()
    for node in list(graph.nodes):
        name = family(operator_name(node.target)) if node.op == "call_function" else ""
        if name in POINTWISE:
            turned = [n for n in node.all_input_nodes if _is_turned(n, behind)]
            with graph.inserting_before(node):
                found = _before(graph, node, turned[0]) if turned else None
            if found is not None:
                behind.add(found.args[0])
                node.replace_all_uses_with(found)
                for gone in (node, *turned):
                    if not gone.users:
                        graph.erase_node(gone)
                continue
        if name in PRODUCTS or (
            name in FLAT | POINTWISE and any(n in behind for n in node.all_input_nodes)
        ):
            behind.add(node)


def _is_turned(node: Any, behind: set[Any]) -> bool:
    if node.op != "call_function" or family(operator_name(node.target)) != "aten.permute":
        return False
    return node.args[0] in behind and len(node.users) == 1


def _before(graph: Any, node: Any, turned: Any) -> Any:
    """The permutation of what ``node`` does; None where that would lie otherwise in memory."""
    value = node.meta["val"]
    order = [d % value.dim() for d in turned.args[1]]
    back = [order.index(d) for d in range(len(order))]
    operands = [n for n in node.all_input_nodes if n.meta["val"].dim() > 0]
    if any(n.meta["val"].shape != value.shape for n in operands):
        return None
    if not all(_lies(n.meta["val"], order) for n in (node, *operands)):
        return None
    given = {n: call(graph, aten.permute.default, n, back) for n in operands if n is not turned}
    given[turned] = turned.args[0]

    def before(n: Any) -> Any:
        return given.get(n, n)

    args, named = torch.fx.map_arg((node.args, node.kwargs), before)
    return call(graph, aten.permute.default, call(graph, node.target, *args, **named), order)


def _lies(value: Any, order: Sequence[int]) -> bool:
    """Whether a tensor is a permutation, in that order, of one that lies row by row."""
    back = tuple(order.index(d) for d in range(len(order)))
    return sized(value) and dense(value) and memory_order(value) == back


def _is_mixed(node: Any) -> bool:
    if family(operator_name(node.target)) != "aten.convolution":
        return False
    image, filters, made = (n.meta["val"] for n in (*node.args[:2], node))
    if image.dim() != len(_INNERMOST) or node.args[8] != 1:  # by groups
        return False
    if not all(map(sized, (image, filters, made))):
        return False
    return (
        memory_order(filters) == memory_order(made) == _INNERMOST
        and memory_order(image) != _INNERMOST
        and dense(filters)
    )
