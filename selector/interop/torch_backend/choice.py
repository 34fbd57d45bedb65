"""Whether a region is faster than what torch would run in its place: both are timed once on the GPU
at hand, and what was found is kept beside the kernel.

Torch's is its own operator for the product, timed, and for what follows it one more kernel that
reads and writes as much, timed as well. Where the region's result goes on to what Inductor would
have put into that same kernel (a norm, another sum), only a part of that kernel is saved: writing
the product, and reading it back, less what the region's reader reads itself.
"""

from __future__ import annotations

import fcntl
import json
import statistics
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch as installed  # pyright: ignore
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore

from selector.dataclass import dataclass
from selector.interop.regions import store
from selector.interop.regions.graph import RegionGraph, TensorType, evaluated
from selector.interop.torch_backend.covered import PRODUCTS, family
from selector.interop.torch_backend.library import run_of, steps_of

torch: Any = installed
REPLAYS, ROUNDS, COPIES = 5, 5, 8
BEYOND = 64 << 20  # bytes of operands that calls go through, so that weights come from memory
FUSED = 0.35  # of the kernel behind a product is saved where Inductor's would have more to do


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds: the region's kernel, torch's operator for its product, and a kernel that does
    what follows (0: nothing does).
    """

    ours: float
    product: float
    rest: float

    def torch(self, fused: bool) -> float:
        """What the region takes by torch."""
        return self.product + self.rest * (FUSED if fused else 1)


@contextmanager
def alone() -> Generator[None]:
    """One process of this machine at a time measures."""
    with (Path(tempfile.gettempdir()) / "tensor-selector-timing.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


_known: dict[str, Times] = {}


def times_of(
    graph: RegionGraph, hints: Mapping[str, int], target: str, folder: Path | None
) -> Times:
    """What has been measured on such a GPU, here or as the folder says; else it is measured now."""
    gpu = str(torch.cuda.get_device_name())
    name = f"{graph.key}.{target}.times"
    key = f"{gpu} {name}"
    if key in _known:
        return _known[key]
    path = None if folder is None else folder / name
    kept = _kept(path)
    if gpu in kept:
        found = Times(*kept[gpu])
    else:
        found = timed(graph, hints)
        if path is not None:
            store.write(path.parent, name, json.dumps(kept | {gpu: list(astuple(found))}))
    return _known.setdefault(key, found)


def _kept(path: Path | None) -> dict[str, list[float]]:
    """Times by GPU; nothing from a file that is none."""
    try:
        found = json.loads(path.read_text()) if path is not None and path.exists() else {}
        return {str(k): [float(t) for t in v] for k, v in found.items() if len(v) == 3}
    except (ValueError, TypeError, AttributeError, OSError):
        return {}


def timed(graph: RegionGraph, hints: Mapping[str, int]) -> Times:
    """Measured on the current GPU, at those sizes."""
    with _disable_current_modes(), torch.no_grad(), alone():
        sets = _inputs(graph, hints)
        ours = [_bound(run_of(graph.key), x) for x in sets]
        theirs = [stages(graph, x) for x in sets]
        graphs = [_captured(ours), _captured([p for p, _ in theirs])]
        if theirs[0][1] is not None:
            graphs.append(_captured([r for _, r in theirs if r is not None]))
        times: list[list[float]] = [[] for _ in graphs]
        for _ in range(ROUNDS):
            for each, found in zip(graphs, times, strict=True):
                found.append(_replayed(each) / len(sets))
        found = [round(statistics.median(t), 2) for t in times]
    return Times(found[0], found[1], found[2] if len(found) > 2 else 0.0)


def _inputs(graph: RegionGraph, hints: Mapping[str, int]) -> list[list[Any]]:
    """Several sets, which lie apart."""

    def one(t: TensorType) -> Any:
        shape = [evaluated(n, hints) for n in t.shape]
        dtype = getattr(torch, t.dtype)
        if dtype.is_floating_point:
            return torch.rand(shape, device="cuda", dtype=torch.float32).sub_(0.5).to(dtype)
        return torch.ones(shape, device="cuda", dtype=dtype)

    first = [one(t) for t in graph.inputs]
    size = sum(x.numel() * x.element_size() for x in first)
    count = min(max(-(-BEYOND // max(size, 1)), 1), COPIES)
    return [first, *([x.clone() for x in first] for _ in range(count - 1))]


def stages(
    graph: RegionGraph, inputs: Sequence[Any]
) -> tuple[Callable[[], Any], Callable[[], Any] | None]:
    """The product by torch, and the kernel behind it, if there is one."""
    whole = None
    found: Callable[[], Any] | None = None
    others: list[Any] = []
    values = list(inputs)
    for node, call, operands in steps_of(graph, values):
        values.append(call())
        if found is None and family(node.op) in PRODUCTS:
            found, whole = call, values[-1]
        elif found is not None and whole is not None and _is_work(node.op):
            others += [x for x in operands if x.numel() * 2 > whole.numel()]
    assert found is not None
    assert whole is not None
    if not others:
        return found, None
    made = {id(x) for x in inputs}
    beside = [x for x in others if id(x) in made and x.numel() == whole.numel()]
    read = beside[0].reshape(-1) if beside else None
    flat = torch.empty(whole.numel(), dtype=whole.dtype, device=whole.device)
    into = torch.empty_like(flat)
    if read is None:
        return found, lambda: torch.neg(flat, out=into)
    return found, lambda: torch.add(flat, read, out=into)


def _is_work(op: str) -> bool:
    return family(op) not in ("aten.permute", "aten.view", "aten.reshape", "getitem")


def _bound(run: Callable[[Sequence[Any]], Any], inputs: Sequence[Any]) -> Callable[[], Any]:
    return lambda: run(inputs)


def _captured(calls: Sequence[Callable[[], Any]]) -> Any:
    """A CUDA graph of these, one after the other."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        kept = [call() for call in calls]
    return graph, kept


def _replayed(captured: Any) -> float:
    """Microseconds of a replay."""
    graph, _ = captured
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1000 / REPLAYS
