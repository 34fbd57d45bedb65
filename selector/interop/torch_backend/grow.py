"""Which operators go together: a product and what is done with its result, element by element, as
long as one tensor leaves; and small operands of that, such as the scale of a norm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch as installed  # pyright: ignore

from selector.dataclass import dataclass
from selector.interop.torch_backend.covered import FLAT, POINTWISE, PRODUCTS, THIN, family
from selector.interop.torch_backend.quantised import (
    dequantises,
    multiplied,
    of_bytes,
    quantises,
    widens,
)
from selector.interop.torch_backend.read import (
    dense,
    hint,
    lies,
    memory_order,
    operator_name,
    sized,
)

torch: Any = installed
SMALL = 16  # times as many elements has a result as an operand that is computed with it


@dataclass(frozen=True, slots=True)
class Part:
    """``product`` and what follows, up to ``output``. ``small``: what is computed of it beside,
    which floats of bytes are as well;
    ``flat``: values that have the shape of the product, with other axes around the last one.
    ``pixels``: it is a convolution of 1 x 1 whose channels lie innermost, a product of matrices of
    all pixels.
    """

    product: Any
    inside: tuple[Any, ...]
    small: tuple[Any, ...]
    output: Any
    flat: frozenset[Any]
    pixels: bool

    @property
    def nodes(self) -> tuple[Any, ...]:
        """All of them, each behind its operands, in an order that follows from what they compute:
        versions of torch, and devices, put them into graphs in different ones.
        """
        members, found = {*self.small, *self.inside}, dict[Any, None]()
        waiting = [(self.output, False)]
        while waiting:
            node, done = waiting.pop()
            if done:
                found[node] = None
            elif node in members and node not in found:
                waiting.append((node, True))
                waiting += [(n, False) for n in reversed(node.all_input_nodes)]
        return tuple(found)


def parts(graph: Any) -> Iterator[Part]:
    """Those of a graph, each with a product; none has what another one has, but small operands."""
    taken: set[Any] = set()
    order = {node: i for i, node in enumerate(graph.nodes)}
    nodes = list(graph.nodes)
    for product in nodes:
        if product.op == "call_function" and product not in taken and _is_product(product):
            if all(map(_is_sized, (product, *product.all_input_nodes))):
                found = _grown(product, nodes[order[product] + 1 :], order, taken)
            else:
                found = Part(product, (product,), (), product, frozenset(), False)
            taken.update(found.inside)
            yield found


def _is_product(node: Any) -> bool:
    return family(operator_name(node.target)) in PRODUCTS


def _is_sized(node: Any) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or sized(value)


def _by_pixel(node: Any) -> bool:
    """Whether it is a convolution of single pixels that lie with their channels side by side."""
    if family(operator_name(node.target)) != "aten.convolution":
        return False
    image, filters, _, stride, padding, _, transposed, _, groups = node.args
    values = [n.meta["val"] for n in (node, image)]
    inner = (0, *range(2, values[0].dim()), 1)
    return (
        not transposed
        and groups == 1
        and all(n == 1 for n in (*sizes(filters)[2:], *stride))
        and not any(padding)
        and all(lies(v, inner) for v in values)
        and dense(filters.meta["val"])
    )


def sizes(node: Any) -> tuple[Any, ...]:
    """A shape that can be compared without a guard."""
    found = node.meta["val"].shape
    return tuple(n.node.expr if isinstance(n, torch.SymInt) else n for n in found)


def elements(node: Any) -> int:
    return prod(hint(n) for n in node.meta["val"].shape)


def _bytes(node: Any) -> int:
    return elements(node) * node.meta["val"].dtype.itemsize


def _grown(product: Any, after: Sequence[Any], order: Mapping[Any, int], taken: set[Any]) -> Part:
    inside: dict[Any, None] = {product: None}
    flat: set[Any] = set()
    small: dict[Any, None] = {}
    later: set[Any] = set()  # what needs a value of the part, and is not in it
    pixels = _by_pixel(product)
    if of_bytes(product):
        small |= dict.fromkeys(multiplied(product))
    small |= dict.fromkeys(_widened(product))
    if (bias := _bias(product)) is not None:
        small |= dict.fromkeys(_computed(bias, elements(product), later))
    best = Part(product, (product,), tuple(small), product, frozenset(), pixels)
    for node in after:
        used = [n for n in node.all_input_nodes if n in inside]
        if not used and not any(n in later for n in node.all_input_nodes):
            continue
        more = None
        if used and node not in taken and not any(n in later for n in node.all_input_nodes):
            more = _joined(node, product, inside, flat, later)
        if more is None:
            later.add(node)
            if all(u in inside or u in later for n in inside for u in n.users):
                break
            continue
        inside[node] = None
        small |= dict.fromkeys(more)
        if sizes(node) != sizes(product):
            flat |= {node, *filter(dequantises, more)}
        out = [n for n in inside if any(u not in inside for u in n.users)]
        if len(out) == 1 and _bytes(out[0]) <= _bytes(product) and dense(out[0].meta["val"]):
            kept = tuple(sorted(small, key=order.__getitem__))
            best = Part(product, tuple(inside), kept, out[0], frozenset(flat), pixels)
    return best


def _widened(product: Any) -> list[Any]:
    """The operands of a product of matrices that its kernel reads as bytes: those that are larger
    than the result, and so read by few of its tiles.
    """
    if family(operator_name(product.target)) in ("aten.convolution", "selector.attention"):
        return []
    found = [n for n in multiplied(product) if isinstance(n, torch.fx.Node) and widens(n)]
    return [n for n in found if elements(n) > elements(product)]


def _bias(product: Any) -> Any:
    match family(operator_name(product.target)):
        case "aten.addmm" | "aten.baddbmm":
            return product.args[0]
        case "aten.convolution":
            return product.args[2]
        case _:
            return None


def _joined(
    node: Any, product: Any, inside: Mapping[Any, None], flat: set[Any], later: set[Any]
) -> list[Any] | None:
    """What is computed with a node of the part, if it can be one."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor) or not sized(value):
        return None
    op, last = family(operator_name(node.target)), sizes(product)[-1]
    shape = sizes(node)
    if op in FLAT:  # other axes around the last one, or back
        same = shape[-1:] == (last,) and memory_order(value) == tuple(range(value.dim()))
        return [] if same and dense(product.meta["val"]) else None
    if op not in POINTWISE and not quantises(node):
        return None
    if not any(sizes(n) == shape for n in node.all_input_nodes):
        return None
    if shape != sizes(product) and shape[-1:] != (last,):
        return None
    return _operands(node, product, inside, later)


def _operands(
    node: Any, product: Any, inside: Mapping[Any, None], later: set[Any]
) -> list[Any] | None:
    """What is computed for a node of the part, if its operands can be those of one."""
    found: list[Any] = []
    shape, pixels = sizes(node), _by_pixel(product)
    for operand in node.all_input_nodes:
        if not _is_sized(operand):
            return None
        if pixels and operand not in inside and not _of_pixels(operand, shape):
            return None
        if operand in inside:
            if sizes(operand) != shape:
                return None
        elif not isinstance(operand.meta.get("val"), torch.Tensor):
            continue
        elif operand.meta["val"].device == product.meta["val"].device and fits(
            operand, shape, sizes(product)
        ):
            more = _computed(operand, elements(node), later)
            found += [operand] if _is_decoded(operand) else more
        else:
            return None
    if any(len(sizes(n)) > len(sizes(product)) and not dequantises(n) for n in found):
        return None
    return found


def _is_decoded(operand: Any) -> bool:
    """Whether bytes are read in the place of an operand, which are fewer: with one scale."""
    return dequantises(operand) and len(operand.all_input_nodes) == 1


def fits(operand: Any, shape: tuple[Any, ...], product: tuple[Any, ...]) -> bool:
    """Whether an operand of a value of that shape can be one of the product's."""
    own = sizes(operand)
    if shape == product:
        return True
    if own == shape:
        return dense(operand.meta["val"]) and memory_order(operand.meta["val"]) == tuple(
            range(len(own))
        )
    return all(n == 1 for n in own[:-1])


def _of_pixels(operand: Any, shape: tuple[Any, ...]) -> bool:
    """Whether an operand of a value of merged pixels has all of it, or one element a channel."""
    value = operand.meta.get("val")
    if not isinstance(value, torch.Tensor) or sizes(operand) == ():
        return True
    if sizes(operand) == shape:
        return lies(value, (0, *range(2, value.dim()), 1))
    channel = len(sizes(operand)) - (len(shape) - 1)
    return channel >= 0 and all(n == 1 for d, n in enumerate(sizes(operand)) if d != channel)


def _computed(operand: Any, count: int, later: set[Any]) -> list[Any]:
    """The operators that give a small operand, as far back as they are small."""
    if operand.op != "call_function" or operand in later or elements(operand) * SMALL > count:
        return []
    op = family(operator_name(operand.target))
    thin = op in THIN and _without_ones(operand) == _without_ones(operand.all_input_nodes[0])
    made = op == "aten.full" and elements(operand) == 1
    if not (thin or made or op in POINTWISE):
        return []
    found = [operand]
    for each in operand.all_input_nodes:
        found += _computed(each, count, later)
    return found


def _without_ones(node: Any) -> tuple[Any, ...]:
    value = node.meta.get("val")
    return tuple(n for n in sizes(node) if n != 1) if isinstance(value, torch.Tensor) else ()
