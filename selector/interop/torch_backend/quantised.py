"""Bytes that stand for floats, as PT2E has them: ``dequantise -> product -> ... -> quantise``. The
operands of a product become bytes themselves, so that a region of it multiplies bytes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch as installed  # pyright: ignore

from selector.interop.torch_backend.calls import call
from selector.interop.torch_backend.covered import (
    DEQUANTISES,
    FLAT,
    OF_CHANNELS,
    PRODUCTS,
    QUANTISES,
    family,
)
from selector.interop.torch_backend.read import operator_name

torch: Any = installed
_BYTES = (torch.int8, torch.uint8)
_MOVES = FLAT | {"aten.permute", "aten.clone"}


def dequantises(node: Any) -> bool:
    """Whether it makes float32 of bytes, by numbers that are in the graph or one for a channel."""
    name = operator_name(node.target) if node.op == "call_function" else ""
    return (
        family(name) in DEQUANTISES
        and name.endswith(".default")
        and node.args[0].meta["val"].dtype in _BYTES
        and node.meta["val"].dtype == torch.float32
    )


def quantises(node: Any) -> bool:
    """Whether it makes bytes of floats, by numbers that are in the graph."""
    name = operator_name(node.target) if node.op == "call_function" else ""
    return family(name) in QUANTISES and name.endswith(".default")


def multiplied(product: Any) -> tuple[Any, Any]:
    """The two operands of a product, in its order."""
    first = int(family(operator_name(product.target)) in ("aten.addmm", "aten.baddbmm"))
    return product.args[first], product.args[first + 1]


def of_bytes(product: Any) -> bool:
    """Whether both operands of a product are bytes that stand for floats."""
    operands = multiplied(product)
    return all(isinstance(n, torch.fx.Node) and dequantises(n) for n in operands)


def widens(node: Any) -> bool:
    """Whether it makes floats of 16 bits of bytes, which have all of these."""
    return (
        node.op == "call_function"
        and family(operator_name(node.target)) == "prims.convert_element_type"
        and node.meta["val"].dtype in (torch.float16, torch.bfloat16)
        and node.args[0].meta["val"].dtype in _BYTES
    )


def dequantise_last(graph: Any) -> None:
    """Move views of operands of products that are made of bytes, and copies, to the bytes."""
    for node in list(graph.nodes):
        if node.op != "call_function" or family(operator_name(node.target)) not in PRODUCTS:
            continue
        for operand in multiplied(node):
            views, source = _views(operand)
            made = dequantises(source) or widens(source)
            if views and made and _moves(views, source):
                with graph.inserting_before(node):
                    node.replace_input_with(operand, _moved(graph, views, source))


def unsigned(graph: Any) -> None:
    """Quantise to unsigned bytes whose zero point is 0 what is so to signed ones whose zero point
    is the least of them, as behind a ReLU: then products need no correction, and edges are zeros.
    """
    for node in list(graph.nodes):
        if not quantises(node) or node.args[5] != torch.int8 or node.args[2] != node.args[3]:
            continue
        if not all(dequantises(user) for user in node.users):
            continue
        source, scale, least, _, high, _ = node.args
        with graph.inserting_before(node):
            limits = (0, high - least, torch.uint8)
            found = call(graph, node.target, source, scale, 0, *limits)
        for user in list(node.users):
            _, scale, zero, *_ = user.args
            with graph.inserting_before(user):
                made = call(graph, user.target, found, scale, zero - least, *limits, **user.kwargs)
            user.replace_all_uses_with(made)
            graph.erase_node(user)
        graph.erase_node(node)


def _views(operand: Any) -> tuple[list[Any], Any]:
    """Views, the last one first, and what they are of."""
    found: list[Any] = []
    while operand.op == "call_function" and family(operator_name(operand.target)) in _MOVES:
        found.append(operand)
        operand = operand.args[0]
    return found, operand


def _moves(views: Sequence[Any], source: Any) -> bool:
    """Whether what each channel has is still along an axis."""
    of_channels = family(operator_name(source.target)) == OF_CHANNELS
    return not of_channels or all(
        family(operator_name(v.target)) in ("aten.permute", "aten.clone") for v in views
    )


def _moved(graph: Any, views: Sequence[Any], source: Any) -> Any:
    found, args, named = source.args[0], list(source.args), dict(source.kwargs)
    for view in reversed(views):
        found = call(graph, view.target, found, *view.args[1:], **view.kwargs)
        if family(operator_name(view.target)) == "aten.permute" and len(args) > 6:
            order = [d % len(view.args[1]) for d in view.args[1]]
            args[3] = order.index(args[3] % len(order))
    return call(graph, source.target, found, *args[1:], **named)


def is_zero(node: Any) -> bool:
    """Whether all zero points of channels are known to be 0."""
    name = family(operator_name(node.target)) if node.op == "call_function" else ""
    return name == "aten.full" and node.args[1] == 0


def with_zeros(graph: Any, inputs: Sequence[Any]) -> tuple[Any, Mapping[int, Any]]:
    """A graph of Dynamo that says of zero points of channels that they are 0, where they are; and
    those ``inputs``, by place, which that is true of while they are not written to.
    """
    places = [n for n in graph.graph.nodes if n.op == "placeholder"]
    found = {
        place: inputs[place]
        for node in graph.graph.nodes
        if (place := _zeros(node, places)) is not None and _stays_zero(inputs[place])
    }
    if not found:
        return graph, found
    settled = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    places = [n for n in settled.graph.nodes if n.op == "placeholder"]
    for node in list(settled.graph.nodes):
        place = _zeros(node, places)
        if place in found:
            value = found[place]
            of = {"dtype": value.dtype, "device": value.device}
            with settled.graph.inserting_before(node):
                zeros = settled.graph.call_function(torch.full, (list(value.shape), 0), of)
            node.update_arg(2, zeros)
    settled.recompile()
    return settled, found


def _zeros(node: Any, places: Sequence[Any]) -> int | None:
    """Which input has the zero points of a node's channels."""
    if node.op != "call_function" or family(operator_name(node.target)) != OF_CHANNELS:
        return None
    given = node.args[2] if len(node.args) > 2 else None
    return places.index(given) if given in places else None


def _stays_zero(value: Any) -> bool:
    """Whether integers are 0, and it can be told that they have been written to."""
    if not isinstance(value, torch.Tensor) or isinstance(value, torch._subclasses.FakeTensor):
        return False
    integers = not value.is_floating_point() and not value.is_complex()
    return integers and not value.is_inference() and not bool(value.any())


def while_zero(
    run: Callable[..., Any], zeros: Mapping[int, Any], otherwise: Callable[..., Any]
) -> Callable[..., Any]:
    """``run``, or ``otherwise`` where inputs that were 0 no longer are."""
    if not zeros:
        return run
    known = [(place, value, value._version) for place, value in zeros.items()]

    def checked(*inputs: Any) -> Any:
        for place, value, version in known:
            given = inputs[place]
            if given is not value or given._version != version:
                break
        else:
            return run(*inputs)
        written = any(bool(inputs[place].any()) for place, *_ in known)
        return (otherwise if written else run)(*inputs)

    return checked
