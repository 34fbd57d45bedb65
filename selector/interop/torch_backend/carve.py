"""Regions out of a graph: the pass that runs on torch's graph before its own last passes.

Each part that ``grow`` finds becomes a ``RegionGraph`` with inputs and outputs as they lie in
memory; views and permutations stay outside, where they cost nothing. Where the store has a kernel
for it that is worth it, one call takes its place.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch as installed  # pyright: ignore
from torch._inductor.custom_graph_pass import CustomGraphPass  # pyright: ignore
from torch.fx.experimental.proxy_tensor import make_fx  # pyright: ignore

from selector.interop.torch_backend import store
from selector.interop.torch_backend.covered import FLAT, family
from selector.interop.torch_backend.graph import RegionGraph, short
from selector.interop.torch_backend.grow import Part, parts
from selector.interop.torch_backend.library import ATTENTION, REGION
from selector.interop.torch_backend.read import NotARegion, operator_name
from selector.interop.torch_backend.region import Input, Region, is_flat
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
    store.prepare(filter(None, map(_read, keeping)), options.target, options.folder)
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


def _read(part: Part) -> tuple[RegionGraph, dict[str, int]] | None:
    """The data of a part, and sizes to be fast at; None for what is no region."""
    try:
        region = Region(part)
    except Exception:  # it is said where the region is asked for
        return None
    return region.graph, region.symbols.hints


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
    if why:
        what = named([operator_name(n.target) for n in part.inside])
        report.regions.append(RegionLine(what, None, False, why))
    return bool(why)


def _replaced(graph: Any, part: Part, options: Options) -> RegionLine:
    what = named([operator_name(n.target) for n in part.inside if not is_flat(n)])
    try:
        region = Region(part)
    except NotARegion as reason:
        return RegionLine(what, None, False, str(reason))
    except Exception as error:  # whatever it is, torch has the region
        return RegionLine(what, None, False, f"{type(error).__name__}: {error}")
    entry = store.entry_of(
        region.graph, region.symbols.hints, options.target, options.folder,
        options.cpu == "interpret",
    )  # fmt: skip
    why = entry.why
    if entry.kernel is not None and options.take == "tensor" and not entry.instructions:
        why = reason_of(entry.text) or "its product has not gone to a tensor unit"
    if not why and options.take == "tensor" and _stores_scores(what, entry.text):
        why = "its scores would be stored: no schedule has them in one loop over the keys"
    if why:
        return RegionLine(what, region.graph, False, why)
    _put(graph, part, region)
    return RegionLine(what, region.graph, True, "", entry.instructions, entry.text)


def _stores_scores(what: str, text: str) -> bool:
    """Whether there is attention whose schedule does not say how many keys it has at a time."""
    return "attention" in what and "keys at a time" not in text


def reason_of(text: str) -> str:
    """What a schedule's report says of what is not on a tensor unit."""
    marked = "not on a tensor unit:"
    return next((t.split(marked)[1].strip() for t in text.splitlines() if marked in t), "")


def _put(graph: Any, part: Part, region: Region) -> None:
    """The call in the place of a part, with what is done to inputs and to its output around."""
    with graph.inserting_before(part.output):
        given = [_given(graph, each) for each in region.inputs]
        call = _call(graph, REGION, region.graph.key, given)
        found = _call(graph, operator.getitem, call, 0)
        if part.pixels:
            shape = _shape(graph, region, region.order)
            found = _call(graph, aten.reshape.default, found, shape)
        found = _turned(graph, found, [region.order.index(d) for d in range(len(region.order))])
        if region.viewed:
            shape = _shape(graph, region, range(len(region.shape)))
            found = _call(graph, aten.reshape.default, found, shape)
    found.meta = {**part.output.meta, "val": found.meta["val"]}
    part.output.replace_all_uses_with(found)


def _given(graph: Any, found: Input) -> Any:
    """An input as the region takes it."""
    turned = _turned(graph, found.source, found.order)
    match found.merged:
        case "rows":
            last = found.source.meta["val"].shape[found.order[-1]]
            last = last if isinstance(last, int) else _size(graph, turned, -1)
            return _call(graph, aten.reshape.default, turned, [-1, last])
        case "last":
            return _call(graph, aten.reshape.default, turned, [-1])
        case _:
            return turned


def _turned(graph: Any, node: Any, order: Sequence[int]) -> Any:
    if list(order) == [*range(len(order))]:
        return node
    return _call(graph, aten.permute.default, node, list(order))


def _shape(graph: Any, region: Region, order: Sequence[int]) -> list[Any]:
    """The extents of a region's result for a graph; one that is not known follows from others."""
    count = sum(not isinstance(n, int) for n in region.shape)
    found: list[Any] = []
    for size in (region.shape[d] for d in order):
        if isinstance(size, int):
            found.append(size)
        elif count == 1:
            found.append(-1)
        else:
            source, axis = size
            found.append(source if axis is None else _size(graph, source, axis))
    return found


def _size(graph: Any, node: Any, d: int) -> Any:
    return _call(graph, aten.sym_size.int, node, d)


def _call(graph: Any, target: Any, *args: Any) -> Any:
    """A new node with the value that it would have."""
    node = graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
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
