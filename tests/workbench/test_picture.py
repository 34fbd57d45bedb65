"""Pictures of e-graphs: what refers to what, and that all of it is inside."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from selector.workbench.picture import Box, Line, Picture
from selector.workbench.rendering import dot, layout, svg

LONG = "a name that is longer than what is drawn of a line, " * 3
PICTURE = Picture(
    "three classes",
    (
        Box(1, "one", (Line("(a b c)", (2, 3, 1), True, False), Line("(d c)", (3,), False, True))),
        Box(2, "two", (Line("(e c)", (3,), True, False), Line(LONG, (), False, False))),
        Box(3, "three", (Line("f", (), False, True), Line("(g b)", (2,), False, False))),
    ),
    3,
    6,
)


def test_what_refers_to_what() -> None:
    edges = re.findall(r"c(\d) -> c(\d)( \[color=darkgreen)?", dot(PICTURE))
    chosen = [(a, b) for a, b, on in edges if on]
    assert [(a, b) for a, b, _ in edges] == [("1", "2"), ("1", "3"), ("2", "3"), ("3", "2")]
    assert chosen == [("1", "2"), ("1", "3"), ("2", "3")]
    assert len(re.findall(r'class="edge selected"', svg(PICTURE))) == 3
    assert len(re.findall(r'class="edge ?"', svg(PICTURE))) == 1


def test_boxes_are_inside_and_apart() -> None:
    root, places = ElementTree.fromstring(svg(PICTURE)), layout(PICTURE)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for number, place in places.items():
        assert place.x >= 0, number
        assert place.x + place.width <= width, number
        assert place.y + place.height <= height, number
    assert places[1].y + places[1].height < min(places[2].y, places[3].y)
    wide = Picture("wide", tuple(Box(n, LONG, ()) for n in range(4)), 4, 0)
    assert float(ElementTree.fromstring(svg(wide)).attrib["width"]) > 4 * 60 * 6


def test_the_whole_text_of_a_long_line_is_there() -> None:
    assert f"<title>{LONG}</title>" in svg(PICTURE)
