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
from pathlib import Path
from typing import Any

import torch as installed  # pyright: ignore
from torch._inductor.custom_graph_pass import CustomGraphPass  # pyright: ignore

from selector.dataclass import dataclass
from selector.interop.regions import store
from selector.interop.regions.graph import RegionGraph, short
from selector.interop.torch_backend.attention import find_attention
from selector.interop.torch_backend.calls import call
from selector.interop.torch_backend.choice import times_of
from selector.interop.torch_backend.covered import FLAT, POINTWISE, REDUCTIONS, VIEWS, family
from selector.interop.torch_backend.grow import Part, parts
from selector.interop.torch_backend.layouts import turn_images, turn_last
from selector.interop.torch_backend.library import REGION
from selector.interop.torch_backend.patches import as_products
from selector.interop.torch_backend.quantised import dequantise_last, of_bytes, unsigned
from selector.interop.torch_backend.read import NotARegion, operator_name
from selector.interop.torch_backend.region import Input, Region, is_flat
from selector.interop.torch_backend.report import GraphReport, RegionLine, named, noted
from selector.interop.torch_backend.whole import taken_apart
from selector.runtime.versions import versions

torch: Any = installed
aten: Any = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Options:
    """``target``: of the kernels. ``folder``: of regions, None for none. ``take``: regions of types
    that tensor units multiply, whose product has gone to one, or that are faster for being timed
    (``"tensor"``), or ``"all"``. ``cpu``: what regions on the
    CPU are: ``"leave"`` (torch's), ``"interpret"`` (slow, for tests), or ``"reference"``: compiled
    for the target, and run by torch. ``choose``: on a GPU, regions that are faster than torch's
    own there (``"timed"``), or ``"always"``.
    """

    target: str
    folder: Path | None
    take: str = "tensor"
    cpu: str = "leave"
    choose: str = "timed"


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
    for what, why in find_attention(graph):
        found.regions.append(RegionLine(short(what), None, False, why))
    _forget_biases(graph)
    as_products(graph)
    turn_images(graph)
    turn_last(graph)
    unsigned(graph)
    dequantise_last(graph)
    keeping = [p for p in parts(graph) if not _left(p, options, found)]
    store.prepare(filter(None, map(_read, keeping)), options.target, options.folder)
    for part in keeping:
        found.regions.append(_replaced(graph, part, options))
    graph.eliminate_dead_code()
    taken_apart(graph)
    for node in graph.nodes:
        if node.op == "call_function" and node.target is not REGION:
            name = family(operator_name(node.target))
            if "." in name and name not in FLAT | {"aten.permute", "aten.select"}:
                found.left[short(name)] += 1
    return found


def _forget_biases(graph: Any) -> None:
    """A bias that is multiplied by 0 is not read: put one 0 in its place."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.kwargs.get("beta", 1) != 0:
            continue
        if family(operator_name(node.target)) in ("aten.addmm", "aten.baddbmm"):
            value = node.meta["val"]
            with graph.inserting_before(node):
                zero = call(
                    graph, aten.full.default, [1], 0, dtype=value.dtype, device=value.device
                )
            node.update_arg(0, zero)


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
    elif options.take == "tensor" and not _multiplies(part.product):
        why = f"no tensor instruction multiplies {str(value.dtype).removeprefix('torch.')}"
    if why:
        what = named([operator_name(n.target) for n in part.inside])
        report.regions.append(RegionLine(what, None, False, why))
    return bool(why)


def _multiplies(product: Any) -> bool:
    """Whether there are tensor instructions for the types of a product."""
    return product.meta["val"].dtype in (torch.float16, torch.bfloat16) or of_bytes(product)


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
    why, times = entry.why, ""
    is_timed = options.choose == "timed" and part.product.meta["val"].device.type == "cuda"
    if entry.kernel is not None and options.take == "tensor" and not is_timed:
        why = _not_taken(what, entry)
    if not why and is_timed:
        why, times = _slower(part, region, options)
    if why:
        return RegionLine(what, region.graph, False, why)
    _put(graph, part, region)
    return RegionLine(what, region.graph, True, times, entry.instructions, entry.text)


def _slower(part: Part, region: Region, options: Options) -> tuple[str, str]:
    """Why its kernel is not worth it on the GPU at hand, if it is not; and what was measured."""
    try:
        found = times_of(region.graph, region.symbols.hints, options.target, options.folder)
    except Exception as error:  # a kernel that does not run is none
        return f"could not be timed: {type(error).__name__}: {error}", ""
    other = found.torch(_goes_on(part.output))
    said = f"{found.ours} us, by torch {other:.2f}"
    return ("", said) if found.ours <= other else (f"slower: {said}", "")


def _goes_on(node: Any) -> bool:
    """Whether a value is read by what Inductor puts into one kernel with what made it."""
    for user in node.users:
        if user.op != "call_function":
            continue
        name = family(operator_name(user.target))
        if name in POINTWISE | REDUCTIONS or (name in VIEWS and _goes_on(user)):
            return True
    return False


def _not_taken(what: str, entry: store.Entry) -> str:
    """Why a region is not one for tensor units."""
    if not entry.instructions:
        return reason_of(entry.text) or "its product has not gone to a tensor unit"
    if _stores_scores(what, entry.text):
        return "its scores would be stored: no schedule has them in one loop over the keys"
    return ""


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
        results = call(graph, REGION, region.graph.key, given)
        found = call(graph, operator.getitem, results, 0)
        if part.pixels:
            shape = _shape(graph, region, region.order)
            found = call(graph, aten.reshape.default, found, shape)
        found = _turned(graph, found, [region.order.index(d) for d in range(len(region.order))])
        if region.viewed:
            shape = _shape(graph, region, range(len(region.shape)))
            found = call(graph, aten.reshape.default, found, shape)
    found.meta = {**part.output.meta, "val": found.meta["val"]}
    part.output.replace_all_uses_with(found)


def _given(graph: Any, found: Input) -> Any:
    """An input as the region takes it."""
    source, kept = found.source, sorted(found.order)
    for d in reversed(found.same):
        source = call(graph, aten.select.int, source, d, 0)
    turned = _turned(graph, source, [kept.index(d) for d in found.order])
    match found.merged:
        case "rows":
            last = found.source.meta["val"].shape[found.order[-1]]
            last = last if isinstance(last, int) else _size(graph, turned, -1)
            return call(graph, aten.reshape.default, turned, [-1, last])
        case "last":
            return call(graph, aten.reshape.default, turned, [-1])
        case _:
            return turned


def _turned(graph: Any, node: Any, order: Sequence[int]) -> Any:
    if list(order) == [*range(len(order))]:
        return node
    return call(graph, aten.permute.default, node, list(order))


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
    return call(graph, aten.sym_size.int, node, d)
