"""What became of a model, region by region, as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from selector.dataclass import dataclass
from selector.interop.regions.graph import RegionGraph, TensorType, short


@dataclass(frozen=True, slots=True)
class RegionLine:
    """``taken``: it is a kernel of ours, else ``why`` not; of one that is, its times.
    ``instructions``: of tensor units.
    """

    what: str
    graph: RegionGraph | None
    taken: bool
    why: str = ""
    instructions: tuple[str, ...] = ()
    funcs: str = ""

    def __str__(self) -> str:
        shapes = "" if self.graph is None else f" {_shapes(self.graph)}"
        head = f"{self.what}{shapes}"
        if not self.taken:
            return f"{head}: left to torch: {self.why}"
        unit = f"tensor units by {', '.join(self.instructions)}" if self.instructions else "threads"
        times = f", {self.why}" if self.why else ""
        lines = [f"{head}: {unit} ({self.graph.key[:8]}){times}" if self.graph else head]
        return "\n    ".join([*lines, *self.funcs.splitlines()])


@dataclass(slots=True)
class GraphReport:
    """Of one graph: its regions, in order, and how often each operator is left to torch."""

    regions: list[RegionLine] = field(default_factory=list[RegionLine])
    left: Counter[str] = field(default_factory=Counter[str])
    note: str = ""

    @property
    def taken(self) -> list[RegionLine]:
        return [r for r in self.regions if r.taken]

    def __str__(self) -> str:
        lines = [self.note] if self.note else []
        lines += [f"region {i}: {r}" for i, r in enumerate(self.regions)]
        if self.left:
            names = (f"{name} x{n}" if n > 1 else name for name, n in sorted(self.left.items()))
            lines.append(f"left to torch beside: {', '.join(names)}")
        return "\n".join(lines) or "nothing to do"


_reports: list[GraphReport] = []


def noted(found: GraphReport) -> None:
    _reports.append(found)


def reports() -> tuple[GraphReport, ...]:
    """Those of all graphs since the last ``report(clear=True)``."""
    return tuple(_reports)


def report(clear: bool = False) -> str:
    """What became of the graphs that were compiled in this process: each region, its operators and
    sizes, the tensor instructions of its kernel and where each of its Funcs went, or why it was
    left to torch; then what else was. ``clear``: begin anew after that.
    """
    text = "\n\n".join(f"graph {i}\n{r}" for i, r in enumerate(_reports))
    if clear:
        _reports.clear()
    return text


def named(nodes: list[str]) -> str:
    """Operators of a region in one word: the product, and how many follow."""
    counted = Counter(short(n) for n in nodes if n != "getitem")
    return " + ".join(f"{name} x{n}" if n > 1 else name for name, n in counted.items())


def _shapes(graph: RegionGraph) -> str:
    def one(t: TensorType) -> str:
        return f"{t.dtype}[{', '.join(map(str, t.shape))}]"

    inputs = " ".join(one(t) for t in graph.inputs[:3])
    more = " ..." if len(graph.inputs) > 3 else ""
    return f"({inputs}{more} -> {' '.join(map(one, graph.result_types))})"
