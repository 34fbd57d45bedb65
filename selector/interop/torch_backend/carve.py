"""Regions out of a graph: the pass that runs on torch's graph before its own last passes.

Each part that ``grow`` finds becomes a ``RegionGraph`` with inputs and outputs as they lie in
memory; views and permutations stay outside, where they cost nothing. Where the store has a kernel
for it that is worth it, one call takes its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch as installed  # pyright: ignore
from torch._inductor.custom_graph_pass import CustomGraphPass  # pyright: ignore
from torch.fx.experimental.proxy_tensor import make_fx  # pyright: ignore

from selector.interop.torch_backend import store
from selector.interop.torch_backend.covered import FLAT, family
from selector.interop.torch_backend.graph import Node, Ref, RegionGraph, TensorType, short
from selector.interop.torch_backend.grow import Part, parts, sizes
from selector.interop.torch_backend.library import ATTENTION, REGION
from selector.interop.torch_backend.read import (
    NotARegion,
    Symbols,
    checked,
    encoded,
    hint,
    memory_order,
    operator_name,
    typed,
)
from selector.interop.torch_backend.report import GraphReport, RegionLine, named, noted
from selector.runtime.versions import versions

torch: Any = installed
aten: Any = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Options:
    """``target``: of the kernels. ``folder``: of regions, None for none. ``take``: regions whose
    product has gone to a tensor unit (``"tensor"``), or ``"all"``. ``cpu``: what regions on the
    CPU are: ``"leave"`` (torch's), ``"interpret"`` (slow, for tests), or ``"reference"``: compiled
    for the target, and run by torch.
    """

    target: str
    folder: Path | None
    take: str = "tensor"
    cpu: str = "leave"


class Carve(CustomGraphPass):  # pyright: ignore[reportUntypedBaseClass]
    """The pass. Inductor keeps what it made of a graph by ``uuid``."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, graph: Any) -> None:
        noted(carved(graph, self.options))

    def uuid(self) -> bytes:
        """A digest of what decides: the options, the compiler's version, and which regions the
        folder has.
        """
        folder = self.options.folder
        names = sorted(p.name for p in folder.glob("*.*.*")) if folder and folder.exists() else []
        return hashlib.sha256(repr((self.options, versions(), names)).encode()).digest()


def carved(graph: Any, options: Options) -> GraphReport:
    """Put regions into a graph; what became of each."""
    found = GraphReport()
    keeping = [p for p in parts(graph) if not _left(p, options, found)]
    for part in keeping:
        found.regions.append(_replaced(graph, part, options))
    graph.eliminate_dead_code()
    _attention_by_torch(graph)
    for node in graph.nodes:
        if node.op == "call_function" and node.target is not REGION:
            name = family(operator_name(node.target))
            if name != "getitem" and name not in FLAT | {"aten.permute", "aten.select"}:
                found.left[short(name)] += 1
    return found


def _left(part: Part, options: Options, report: GraphReport) -> bool:
    """Whether a region is torch's before anybody looks at it closer."""
    value = part.product.meta["val"]
    why = ""
    if value.device.type not in ("cuda", "cpu"):
        why = f"on {value.device.type}"
    elif value.device.type == "cpu" and options.cpu == "leave":
        why = "on the CPU"
    elif options.take == "tensor" and value.dtype not in (torch.float16, torch.bfloat16):
        why = f"no tensor instruction multiplies {str(value.dtype).removeprefix('torch.')}"
    elif options.take == "tensor" and part.product.target is ATTENTION and part.product.args[3]:
        why = "its loop over keys would not end where the mask does"
    if why:
        what = named([operator_name(n.target) for n in part.inside])
        report.regions.append(RegionLine(what, None, False, why))
    return bool(why)


def _replaced(graph: Any, part: Part, options: Options) -> RegionLine:
    what = named([operator_name(n.target) for n in part.inside if not _flat(n)])
    try:
        region = _Region(part)
    except NotARegion as reason:
        return RegionLine(what, None, False, str(reason))
    entry = store.entry_of(
        region.graph, region.symbols.hints, options.target, options.folder,
        options.cpu == "interpret",
    )  # fmt: skip
    why = entry.why
    if entry.kernel is not None and options.take == "tensor" and not entry.instructions:
        why = reason_of(entry.text) or "its product has not gone to a tensor unit"
    if why:
        return RegionLine(what, region.graph, False, why)
    _put(graph, part, region)
    return RegionLine(what, region.graph, True, "", entry.instructions, entry.text)


def reason_of(text: str) -> str:
    """What a schedule's report says of what is not on a tensor unit."""
    marked = "not on a tensor unit:"
    return next((t.split(marked)[1].strip() for t in text.splitlines() if marked in t), "")


def _flat(node: Any) -> bool:
    return family(operator_name(node.target)) in FLAT


class _Region:
    """A part as data. ``inputs``: nodes outside, the axes of each in memory, and the shape that it
    is given before (None: its own).
    """

    def __init__(self, part: Part) -> None:
        self.symbols = Symbols()
        self.inputs: list[tuple[Any, tuple[int, ...], str]] = []
        self._part = part
        self._numbers: dict[Any, int] = {}
        nodes = [n for n in part.nodes if not (_flat(n) and n in part.inside)]
        types = self._read_inputs(nodes)
        found: list[Node] = []
        opened = [self._opened(i, found, len(types)) for i in range(len(types))]
        self._numbers = {n: opened[i] for n, i in self._numbers.items()}
        for node in nodes:
            for view in node.all_input_nodes:
                self._through(view)
            made = encoded(node, self._numbers, self.symbols)
            if node in part.flat:
                made = Node(made.op, made.args, made.named, self._like_product(made.type))
            self._numbers[node] = len(types) + len(found)
            found.append(made)
        self._through(part.output)
        self.order = memory_order(part.product.meta["val"] if self.viewed else self.output)
        lying = self.order if self.attends else ()
        self.order = tuple(range(len(self.order))) if self.attends else self.order
        if self.order != tuple(range(len(self.order))):
            found.append(self._permuted(self._numbers[part.output], self.order, found, len(types)))
            self._numbers[part.output] = len(types) + len(found) - 1
        self.graph = checked(
            RegionGraph(tuple(types), tuple(found), (self._numbers[part.output],), lying)
        )

    @property
    def attends(self) -> bool:
        """Attention has its axes in the order of its operands, wherever heads lie in memory."""
        return self._part.product.target is ATTENTION

    @property
    def output(self) -> Any:
        return self._part.output.meta["val"]

    @property
    def viewed(self) -> bool:
        """Whether what leaves has other axes around the last one than the product."""
        return sizes(self._part.output) != sizes(self._part.product)

    def _through(self, node: Any) -> None:
        """A view of a value of the part is that value."""
        if node not in self._numbers and node in self._part.inside and _flat(node):
            (source,) = [n for n in node.all_input_nodes if isinstance(_value(n), torch.Tensor)]
            self._through(source)
            self._numbers[node] = self._numbers[source]

    def _read_inputs(self, nodes: Sequence[Any]) -> list[TensorType]:
        inside, types = {*self._part.nodes}, list[TensorType]()
        product = self._part.product.meta["val"]
        for node in nodes:
            for source in node.all_input_nodes:
                value = _value(source)
                if source in inside or source in self._numbers:
                    continue
                if not isinstance(value, torch.Tensor):
                    continue
                if value.device != product.device:
                    raise NotARegion(f"{source.name} is on {value.device}")
                self._numbers[source] = len(types)
                types.append(self._input(source, node, value))
        return types

    def _input(self, source: Any, node: Any, value: Any) -> TensorType:
        if node in self._part.flat:
            full = sizes(source) == sizes(node)
            shape = self._part.product.meta["val"].shape if full else value.shape[-1:]
            self.inputs.append((source, (), "product" if full else "last"))
            return TensorType(
                typed(value, self.symbols).dtype, tuple(map(self.symbols.size, shape))
            )
        if value.dim() == 0:
            self.inputs.append((source, (), "one"))
            return TensorType(typed(value, self.symbols).dtype, (1,))
        order = tuple(range(value.dim())) if self.attends else memory_order(value)
        strides = [hint(value.stride(d)) for d in order if hint(value.shape[d]) != 1]
        if 0 in strides:
            raise NotARegion(f"{source.name} is expanded")
        if strides and strides[-1] != 1:
            raise NotARegion(f"no axis of {source.name} lies side by side")
        self.inputs.append((source, order, ""))
        return typed(value, self.symbols, order)

    def _opened(self, number: int, found: list[Node], inputs: int) -> int:
        """An input with the axes that the part knows."""
        source, order, how = self.inputs[number]
        if how or order == tuple(range(len(order))):
            return number
        back = tuple(order.index(d) for d in range(len(order)))
        shape = typed(_value(source), self.symbols)
        found.append(Node("aten.permute.default", (Ref(number), back), (), shape))
        return inputs + len(found) - 1

    def _permuted(
        self, number: int, order: tuple[int, ...], found: list[Node], inputs: int
    ) -> Node:
        before = found[number - inputs].type
        assert isinstance(before, TensorType)
        shape = tuple(before.shape[d] for d in order)
        return Node(
            "aten.permute.default", (Ref(number), order), (), TensorType(before.dtype, shape)
        )

    def _like_product(self, found: TensorType | tuple[TensorType, ...]) -> TensorType:
        assert isinstance(found, TensorType)
        return TensorType(found.dtype, typed(_value(self._part.product), self.symbols).shape)


def _value(node: Any) -> Any:
    return node.meta.get("val")


def _put(graph: Any, part: Part, region: _Region) -> None:
    """The call in the place of a part, with what is done to inputs and to its output around."""
    with graph.inserting_before(part.output):
        given = [_given(graph, part, *each) for each in region.inputs]
        call = _call(graph, REGION, region.graph.key, given)
        found = _call(graph, _getitem(), call, 0)
        if region.order != tuple(range(len(region.order))):
            back = [region.order.index(d) for d in range(len(region.order))]
            found = _call(graph, aten.permute.default, found, back)
        if region.viewed:
            found = _call(graph, aten.reshape.default, found, _shape(graph, part.output))
    found.meta = {**part.output.meta, **{k: v for k, v in found.meta.items() if k == "val"}}
    part.output.replace_all_uses_with(found)


def _given(graph: Any, part: Part, source: Any, order: tuple[int, ...], how: str) -> Any:
    match how:
        case "product":
            return _call(graph, aten.reshape.default, source, _shape(graph, part.product))
        case "last":
            return _call(graph, aten.reshape.default, source, [-1])
        case "one":
            return _call(graph, aten.reshape.default, source, [1])
        case _ if order == tuple(range(len(order))):
            return source
        case _:
            return _call(graph, aten.permute.default, source, list(order))


def _getitem() -> Any:
    import operator

    return operator.getitem


def _shape(graph: Any, node: Any) -> list[Any]:
    """The shape of a node for a graph: numbers, and one extent that follows from the others."""
    found = list(node.meta["val"].shape)
    symbolic = [d for d, n in enumerate(found) if isinstance(n, torch.SymInt)]
    if len(symbolic) > 1:
        found = [
            _call(graph, aten.sym_size.int, node, d) if d in symbolic else n
            for d, n in enumerate(found)
        ]
    elif symbolic:
        found[symbolic[0]] = -1
    return found


def _call(graph: Any, target: Any, *args: Any) -> Any:
    """A new node with the value that it would have."""
    node = graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.node.map_arg(args, _value))
    return node


def _attention_by_torch(graph: Any) -> None:
    """What is still ``selector::attention`` is torch's own, which Inductor knows."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not ATTENTION:
            continue
        q, k, v, causal, scale = node.args
        made = make_fx(_attends(causal, scale))(*(n.meta["val"] for n in (q, k, v)))
        with graph.inserting_before(node):
            env = dict(
                zip([n for n in made.graph.nodes if n.op == "placeholder"], (q, k, v), strict=True)
            )
            (found,) = [graph.graph_copy(made.graph, env)]
        node.replace_all_uses_with(found)
        graph.erase_node(node)


def _attends(causal: bool, scale: float) -> Any:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale
        )

    return attend
