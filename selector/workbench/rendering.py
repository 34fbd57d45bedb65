"""A picture of an e-graph as SVG or in the language of Graphviz.

The layout is ours and small: a class stands in the layer below the lowest class that refers to it
(edges that close a circle aside), and the layers are ordered by where their edges come from.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from selector.dataclass import dataclass
from selector.diagnostics import UserError
from selector.workbench.picture import Box, Picture
from selector.workbench.terms import cut

CHARACTER, ROW, PAD = 6.7, 16, 8
"""Width of a character and height of a line at 11 px, and the space around them."""
GAP_X, GAP_Y = 28, 46
LONGEST = 64
"""Characters of a line that are drawn."""

_STYLE = """
text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #1d2433 }
.title { fill: #68718a }
.head { font-weight: bold; font-size: 13px }
.box { fill: #ffffff; stroke: #9aa3b8; rx: 4 }
.on { stroke: #1a7f37; stroke-width: 2 }
.selected { fill: #d6f5dd }
.written { fill: #dbe8ff }
.edge { fill: none; stroke: #c3c9d6 }
.edge.selected { stroke: #1a7f37; stroke-width: 1.8; fill: none }
.edge.written { stroke: #3467c9; stroke-dasharray: 4 3; fill: none }
"""


def may_write(path: str, force: bool) -> None:
    """``UserError`` if a picture cannot go there: the ending, or a file that is there."""
    if Path(path).suffix not in (".svg", ".dot"):
        raise UserError(f"cannot draw {path}", "a picture is an .svg or a .dot file")
    if Path(path).exists() and not force:
        raise UserError(f"{path} is there already", hint="--force overwrites it")


def write(picture: Picture, path: str) -> None:
    """Write an .svg or .dot file; ``UserError`` if it cannot be written."""
    shown = svg(picture) if Path(path).suffix == ".svg" else dot(picture)
    try:
        Path(path).write_text(shown, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}", str(error)) from None


def dot(picture: Picture) -> str:
    """The picture in the language of Graphviz."""
    lines = [
        "digraph egraph {",
        f"  label={_quoted(picture.title)}; labelloc=t;",
        '  node [shape=box, fontname="monospace", fontsize=10]; edge [color="#9aa3b8"];',
    ]
    for box in picture.boxes:
        rows = [box.title, *(("* " if line.selected else "  ") + line.text for line in box.lines)]
        label = "".join(f"{_inside(row)}\\l" for row in rows)
        bold = ", penwidth=2, color=darkgreen" if any(n.selected for n in box.lines) else ""
        lines.append(f'  c{box.number} [label="{label}"{bold}];')
    for box in picture.boxes:
        for to, kind in _targets(box).items():
            style = " [color=darkgreen, penwidth=2]" if kind == "selected" else ""
            lines.append(f"  c{box.number} -> c{to}{style};")
    return "\n".join((*lines, "}", ""))


def _inside(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quoted(text: str) -> str:
    return f'"{_inside(text)}"'


@dataclass(frozen=True, slots=True)
class Place:
    """Where a box stands."""

    x: float
    y: float
    width: float
    height: float


def svg(picture: Picture) -> str:
    """The picture as SVG."""
    places = layout(picture)
    width = max(p.x + p.width for p in places.values()) + 20
    height = max(p.y + p.height for p in places.values()) + 20
    legend = "green: the selected program, blue: the statement as written, *: a class left out"
    width = max(width, 40 + CHARACTER * len(legend))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#f6f7fa"/>',
        f'<text class="head" x="20" y="24">{escape(picture.title)}</text>',
        f'<text class="title" x="20" y="42">{legend}</text>',
    ]
    edges: list[tuple[int, str]] = []
    for box in picture.boxes:
        edges += _edges(box, places)
    parts += [shown for _, shown in sorted(edges, key=lambda e: e[0])]
    for box in picture.boxes:
        parts += _drawn(box, places[box.number])
    return "\n".join((*parts, "</svg>", ""))


def _drawn(box: Box, place: Place) -> list[str]:
    on = " on" if any(line.selected for line in box.lines) else ""
    parts = [
        f'<rect class="box{on}" x="{place.x:.1f}" y="{place.y:.1f}" '
        f'width="{place.width:.1f}" height="{place.height:.1f}"/>',
        f'<text class="title" x="{place.x + PAD:.1f}" y="{place.y + ROW - 3:.1f}">'
        f"{escape(box.title)}</text>",
    ]
    for i, line in enumerate(box.lines, 1):
        top = place.y + i * ROW
        kind = "selected" if line.selected else "written" if line.written else ""
        if kind:
            parts.append(
                f'<rect class="{kind}" x="{place.x + 2:.1f}" y="{top + 1:.1f}" '
                f'width="{place.width - 4:.1f}" height="{ROW}"/>'
            )
        full = f"<title>{escape(line.text)}</title>" if len(line.text) > LONGEST else ""
        parts.append(
            f'<text x="{place.x + PAD:.1f}" y="{top + ROW - 4:.1f}">'
            f"{escape(cut(line.text, LONGEST))}{full}</text>"
        )
    return parts


def _targets(box: Box) -> dict[int, str]:
    """The boxes that a box refers to, with what uses the reference: "selected", "written" or ""."""
    kinds: dict[int, str] = {}
    for line in box.lines:
        for to in (t for t in line.refers if t != box.number):
            kind = "selected" if line.selected else "written" if line.written else ""
            if to not in kinds or kind == "selected" or (kind and not kinds[to]):
                kinds[to] = kind
    return kinds


def _edges(box: Box, places: dict[int, Place]) -> list[tuple[int, str]]:
    """Curves from the bottom of a box to the tops of those that its lines refer to."""
    found: list[tuple[int, str]] = []
    here = places[box.number]
    kinds = _targets(box)
    for i, (to, kind) in enumerate(kinds.items()):
        there = places[to]
        x = here.x + here.width * (i + 1) / (len(kinds) + 1)
        y, u, v = here.y + here.height, there.x + there.width / 2, there.y
        bend = max(24.0, abs(v - y) / 2)
        rank = ("", "written", "selected").index(kind)
        found.append(
            (
                rank,
                f'<path class="edge {kind}" d="M{x:.1f},{y:.1f} C{x:.1f},{y + bend:.1f} '
                f'{u:.1f},{v - bend:.1f} {u:.1f},{v:.1f}"/>',
            )
        )
    return found


def layout(picture: Picture) -> dict[int, Place]:
    """The place of every box."""
    below = {b.number: _below(b) for b in picture.boxes}
    layers = _ordered(_layers(below), below)
    size = {b.number: _size(b) for b in picture.boxes}
    widest = max(sum(size[n][0] + GAP_X for n in layer) for layer in layers)
    places: dict[int, Place] = {}
    y = 60.0
    for layer in layers:
        x = 20 + (widest - sum(size[n][0] + GAP_X for n in layer)) / 2
        for n in layer:
            places[n] = Place(x, y, *size[n])
            x += size[n][0] + GAP_X
        y += max(size[n][1] for n in layer) + GAP_Y
    return places


def _below(box: Box) -> tuple[int, ...]:
    return tuple(dict.fromkeys(to for line in box.lines for to in line.refers if to != box.number))


def _size(box: Box) -> tuple[float, float]:
    longest = max(len(cut(t, LONGEST)) for t in (box.title, *(line.text for line in box.lines)))
    return (longest * CHARACTER + 2 * PAD, ROW * (len(box.lines) + 1) + 6)


def _layers(below: dict[int, tuple[int, ...]]) -> list[list[int]]:
    """Boxes by the longest way from the first, edges that close a circle left out."""
    order: list[int] = []
    state: dict[int, int] = {}
    forward: dict[int, list[int]] = {n: [] for n in below}

    def visit(n: int) -> None:
        state[n] = 1
        for to in below[n]:
            if state.get(to) != 1:
                forward[n].append(to)
                if to not in state:
                    visit(to)
        state[n] = 2
        order.append(n)

    for n in below:
        if n not in state:
            visit(n)
    depth = dict.fromkeys(below, 0)
    for n in reversed(order):
        for to in forward[n]:
            depth[to] = max(depth[to], depth[n] + 1)
    layers: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
    for n in below:
        layers[depth[n]].append(n)
    return layers


def _ordered(layers: list[list[int]], below: dict[int, tuple[int, ...]]) -> list[list[int]]:
    """Each layer in the order of the middles of its edges, down and up a few times."""
    above: dict[int, list[int]] = {n: [] for n in below}
    for n, lower in below.items():
        for to in lower:
            above[to].append(n)
    position = {n: i / max(1, len(layer)) for layer in layers for i, n in enumerate(layer)}
    for sweep in range(8):
        near = above if sweep % 2 == 0 else below
        for layer in layers if sweep % 2 == 0 else reversed(layers):

            def middle(n: int, near: object = near) -> float:
                others = near[n]  # type: ignore[index]
                return sum(position[o] for o in others) / len(others) if others else position[n]

            layer.sort(key=middle)
            for i, n in enumerate(layer):
                position[n] = (i + 0.5) / len(layer)
    return layers
