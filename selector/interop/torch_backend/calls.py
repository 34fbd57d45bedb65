"""New nodes of a graph of torch."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import torch as installed  # pyright: ignore

torch: Any = installed


def call(graph: Any, target: Any, *args: Any, **named: Any) -> Any:
    """A new node with the value that it would have."""
    node = graph.call_function(target, args, named)
    node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]), **named)
    return node
