"""A part of a graph as data, and how what surrounds it gives it its inputs.

Inputs are taken as they lie in memory; leading axes become one where the part has them so, and so
do the pixels of a convolution of 1 x 1, which is a product of matrices then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch as installed  # pyright: ignore

from selector.dataclass import dataclass
from selector.interop.regions.graph import Node, Ref, RegionGraph, Symbolic, TensorType
from selector.interop.torch_backend.covered import FLAT, family
from selector.interop.torch_backend.grow import Part, sizes
from selector.interop.torch_backend.quantised import dequantises, is_zero
from selector.interop.torch_backend.read import (
    NotARegion,
    Symbols,
    checked,
    encoded,
    hint,
    lies,
    memory_order,
    operator_name,
)

torch: Any = installed
ATTENTION = "selector.attention"


@dataclass(frozen=True, slots=True)
class Input:
    """A node outside. ``order``: its axes as the region has them; then they are merged:
    ``"rows"``, all but the last one, ``"last"``, all into one, or ``""``, none. ``same``: its other
    axes, along which all elements are the same.
    """

    source: Any
    order: tuple[int, ...]
    merged: str = ""
    same: tuple[int, ...] = ()


class Region:
    """``graph`` of a part, ``inputs`` in its order. ``order``: of the axes of its result, which is
    the product's. ``shape``: of what leaves, where that is another one than the graph's; what is no
    number is a node outside and the axis of it that is as long (None: the node is the size).
    """

    def __init__(self, part: Part) -> None:
        self.symbols, self.inputs, self._part = Symbols(), list[Input](), part
        self.attends = family(operator_name(part.product.target)) == ATTENTION
        self._numbers: dict[Any, int] = {}
        self._types: list[TensorType] = []
        self._nodes: list[Node] = []
        nodes = [n for n in part.nodes if not (is_flat(n) and n in part.inside)]
        self._read_inputs(nodes)
        self.symbols.closed = True
        self._numbers = {n: self._opened(i) for n, i in self._numbers.items()}
        for node in nodes:
            for view in node.all_input_nodes:
                self._through(view)
            self._numbers[node] = self._computed(node)
        self._through(part.output)
        result = self._numbers[part.output]
        own, lying = memory_order(_value(part.product if self.viewed else part.output)), ()
        self.order = tuple(range(len(own)))
        if self.attends:
            lying = own
        elif part.pixels:
            self.order = _innermost(len(own))
        elif own != self.order:
            self.order, result = own, self._permuted(result, own)
        is_reshaped = self.viewed or part.pixels
        self.shape = [self._extent(n) for n in _value(part.output).shape] if is_reshaped else []
        self.graph = checked(RegionGraph(tuple(self._types), tuple(self._nodes), (result,), lying))

    @property
    def viewed(self) -> bool:
        """Whether what leaves has other axes around the last one than the product."""
        return sizes(self._part.output) != sizes(self._part.product)

    def _extent(self, size: Any) -> Any:
        if not isinstance(size, torch.SymInt):
            return int(size)
        inside = {*self._part.nodes}
        around = [n for node in self._part.nodes for n in node.all_input_nodes if n not in inside]
        for source in around:
            value = _value(source)
            if isinstance(value, torch.SymInt) and value.node.expr == size.node.expr:
                return source, None
            if isinstance(value, torch.Tensor) and size.node.expr in sizes(source):
                return source, sizes(source).index(size.node.expr)
        raise NotARegion(f"a size that no input has: {size}")

    def _through(self, node: Any) -> None:
        """A view of a value of the part is that value."""
        if node not in self._numbers and node in self._part.inside and is_flat(node):
            (source,) = [n for n in node.all_input_nodes if isinstance(_value(n), torch.Tensor)]
            self._through(source)
            self._numbers[node] = self._numbers[source]

    def _read_inputs(self, nodes: Sequence[Any]) -> None:
        inside, device = {*self._part.nodes}, _value(self._part.product).device
        for node in nodes:
            for source in node.all_input_nodes:
                value = _value(source)
                if source in inside or source in self._numbers:
                    continue
                if dequantises(node) and is_zero(source):
                    continue
                if not isinstance(value, torch.Tensor):
                    continue
                if value.device != device:
                    raise NotARegion(f"{source.name} is on {value.device}")
                self._numbers[source] = len(self._types)
                found = self._input(source, node, value)
                self.inputs.append(found)
                self._types.append(self._type(found, value))

    def _input(self, source: Any, node: Any, value: Any) -> Input:
        if value.dim() == 0:
            return Input(source, (), "last")
        if self._is_of_pixels(node):
            rank, product = _value(node).dim(), node is self._part.product or dequantises(node)
            if value.dim() == rank and (product or not _is_channels(value)):
                return Input(source, _innermost(rank), "rows")
            return Input(source, tuple(range(value.dim())), "last")
        if node in self._part.flat:
            full = sizes(source) == sizes(node)
            return Input(source, tuple(range(value.dim())), "rows" if full else "last")
        order = tuple(range(value.dim())) if self.attends else _order(source, node)
        same = [d for d in order if hint(value.shape[d]) > 1 and hint(value.stride(d)) == 0]
        order = tuple(d for d in order if d not in same)
        strides = [hint(value.stride(d)) for d in order if hint(value.shape[d]) != 1]
        if strides and strides[-1] != 1:
            raise NotARegion(f"no axis of {source.name} lies side by side")
        return Input(source, order, "" if order else "last", tuple(sorted(same)))

    def _type(self, found: Input, value: Any) -> TensorType:
        """Of an input as it is given."""
        dtype = str(value.dtype).removeprefix("torch.")
        shape = [value.shape[d] for d in found.order]
        if found.merged:
            last = shape[-1:] if found.merged == "rows" else []
            rows = 1
            for n in shape[: len(shape) - len(last)]:
                rows = rows * n
            shape = [rows, *last]
        return TensorType(dtype, tuple(map(self.symbols.size, shape)))

    def _opened(self, number: int) -> int:
        """An input with the axes that the part knows."""
        found, value = self.inputs[number], _value(self.inputs[number].source)
        if found.merged and found.order:
            return number
        back = tuple(found.order.index(d) for d in sorted(found.order))
        if back != tuple(range(len(back))):
            number = self._permuted(number, back)
        if found.same or not back:
            shape = [1 if d in found.same else n for d, n in enumerate(value.shape)]
            number = self._viewed("aten.reshape.default", number, shape)
        return self._viewed("aten.expand.default", number, value.shape) if found.same else number

    def _permuted(self, number: int, order: tuple[int, ...]) -> int:
        before = self._types_of(number)
        shape = tuple(before.shape[d] for d in order)
        return self._add(
            Node("aten.permute.default", (Ref(number), order), (), TensorType(before.dtype, shape))
        )

    def _viewed(self, op: str, number: int, shape: Sequence[Any]) -> int:
        """A value seen with another shape."""
        known = tuple(map(self.symbols.size, shape))
        given = tuple(n if isinstance(n, int) else Symbolic(n) for n in known)
        made = TensorType(self._types_of(number).dtype, known)
        return self._add(Node(op, (Ref(number), given), (), made))

    def _types_of(self, number: int) -> TensorType:
        count = len(self._types)
        found = self._types[number] if number < count else self._nodes[number - count].type
        assert isinstance(found, TensorType)
        return found

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._types) + len(self._nodes) - 1

    def _computed(self, node: Any) -> int:
        """A node of the part; its number."""
        if node not in self._part.flat and not self._is_of_pixels(node):
            return self._add(self._encoded(node, self._numbers))
        if node is self._part.product:
            return self._multiplied(node)
        numbers = {n: self._numbers[n] for n in node.all_input_nodes if n in self._numbers}
        if self._part.pixels:
            numbers = {n: self._by_channel(n, i) for n, i in numbers.items()}
        made = self._encoded(node, numbers)
        like = node.args[0] if dequantises(node) else self._part.product
        shape = self._types_of(self._numbers[like]).shape
        assert isinstance(made.type, TensorType)
        return self._add(Node(made.op, made.args, made.named, TensorType(made.type.dtype, shape)))

    def _is_of_pixels(self, node: Any) -> bool:
        """Whether a node of the part is one of a product of matrices of pixels."""
        return self._part.pixels and (node in self._part.inside or dequantises(node))

    def _encoded(self, node: Any, numbers: Mapping[Any, int]) -> Node:
        """A node as data, without zero points that are 0."""
        zeros = [n for n in node.all_input_nodes if dequantises(node) and is_zero(n)]
        made = encoded(node, {**numbers, **dict.fromkeys(zeros, 0)}, self.symbols)
        return replace(made, args=(*made.args[:2], None, *made.args[3:])) if zeros else made

    def _by_channel(self, source: Any, number: int) -> int:
        """An operand of a merged value: a small one that is computed has one axis of channels."""
        before = self._types_of(number)
        whole = sizes(source) == sizes(self._part.product)
        if source not in self._part.small or len(before.shape) < 2 or whole:
            return number
        return self._viewed("aten.reshape.default", number, [_value(source).numel()])

    def _multiplied(self, node: Any) -> int:
        """A convolution of 1 x 1 as a product of matrices."""
        image, filters, bias = node.args[:3]
        left, right = self._numbers[image], self._permuted(self._numbers[filters], (1, 0))
        shape = (self._types_of(left).shape[0], self._types_of(right).shape[1])
        result = TensorType(str(_value(node).dtype).removeprefix("torch."), shape)
        if bias is None:
            return self._add(Node("aten.mm.default", (Ref(left), Ref(right)), (), result))
        args = (Ref(self._numbers[bias]), Ref(left), Ref(right))
        return self._add(Node("aten.addmm.default", args, (), result))


def is_flat(node: Any) -> bool:
    return family(operator_name(node.target)) in FLAT


def _order(source: Any, node: Any) -> tuple[int, ...]:
    """The axes of what a node reads, as they lie in memory. Filters of one tap lie in many orders:
    in that which has their channels innermost, as a tensor unit reads them.
    """
    value = _value(source)
    if family(operator_name(node.target)) == "aten.convolution" and source is node.args[1]:
        inner, transposed = _innermost(value.dim()), node.args[6]
        if hint(value.shape[1]) > 1 and not transposed and lies(value, inner):
            return inner
    return memory_order(value)


def _innermost(rank: int) -> tuple[int, ...]:
    """Axes with the channels, axis 1, behind all others."""
    return (0, *range(2, rank), 1)


def _is_channels(value: Any) -> bool:
    """Whether all axes but that of the channels have one element."""
    return all(hint(n) == 1 for d, n in enumerate(value.shape) if d != 1)


def _value(node: Any) -> Any:
    return node.meta.get("val")
