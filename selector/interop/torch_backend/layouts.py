"""Images of convolutions whose filters have channels innermost have them so, too: what makes one,
a padding for example, writes it so, where it would have to be turned before it is multiplied.
"""

from __future__ import annotations

from typing import Any

import torch as installed  # pyright: ignore

from selector.interop.torch_backend.calls import call
from selector.interop.torch_backend.covered import family
from selector.interop.torch_backend.read import dense, memory_order, operator_name

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


def _is_mixed(node: Any) -> bool:
    if family(operator_name(node.target)) != "aten.convolution":
        return False
    image, filters, made = (n.meta["val"] for n in (*node.args[:2], node))
    if image.dim() != len(_INNERMOST) or node.args[8] != 1:  # by groups
        return False
    return (
        memory_order(filters) == memory_order(made) == _INNERMOST
        and memory_order(image) != _INNERMOST
        and dense(filters)
    )
