"""What notebooks show of kernels, reports, schedules and arrays."""

from __future__ import annotations

from html.parser import HTMLParser
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from selector import notebook
from selector.diagnostics import ArgumentError, Where
from selector.notebook import Picture
from selector.report import Block, Report, StatementReport


class Read(HTMLParser):
    """The text of HTML, and whether each tag that is opened is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "br":
            self.open.append(tag)
        if tag in ("td", "pre"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "pre"} & set(self.open):
            self.cells[-1] += data


BLOCK = Block("mma.m16n8k16.f16.f32", (16, 8, 16), 16, 8, 14, 3, 7, 16)


def test_a_report_has_a_row_for_each_statement() -> None:
    hit = StatementReport(
        Where("sums", "update(0)", "a.py:3", ""), "update", BLOCK, copies=2,
        explain=lambda: ("product", "tile<16>"),
    )  # fmt: skip
    miss = StatementReport(
        Where("<odd>", "init", "", ""), "init", None, miss="a < b", hint="use <this>"
    )
    html = Report((hit, miss), {"select": 0.25})._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert Read(html).cells == [
        "sums", "update", "mma.m16n8k16.f16.f32", "6", "43.8 %", "2 rulesproduct tile<16>",
        "<odd>", "init", "not selected: a < bhint: use <this>", "1", "", "",
    ]  # fmt: skip
    assert html.endswith("compiled in: select 250.0 ms")


def test_a_report_of_nothing_says_so() -> None:
    assert Report().html() == "no statement is placed on a tensor unit"


def test_a_kernel_shows_its_arrays_and_its_source() -> None:
    from pathlib import Path

    import selector
    from selector.workbench.programs import read_program

    program = Path(__file__).parent / "golden" / "conv1d-k64.vir"
    kernel = selector.compile(read_program(str(program)), target="sm_80")
    found = Read(kernel._repr_html_()).cells  # pyright: ignore[reportPrivateUsage]
    assert found[:4] == [kernel.plan.buffers[0].name, "float16", found[2], "input"]
    assert "x" in found[2]
    assert found[-1] == kernel.source
    assert any("multiply-add" in cell for cell in found)


def test_a_schedule_shows_what_each_func_became() -> None:
    from halide_bridge.schedules.trials import Schedule

    schedule = Schedule("a = 1 < 2", "sums: on tensor units\nout: a < b: c")
    html = schedule._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert Read(html).cells == ["sums", "on tensor units", "out", "a < b: c", "a = 1 < 2"]


def levels(picture: Picture) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(picture._repr_png_())))  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (np.array([[0, 1], [2, -1]], np.float32), [[0, 255], [255, 0]]),
        (np.array([[0.5, np.nan]], np.float16), [[128, 0]]),
        (np.array([[0, 7, 255]], np.uint8), [[0, 7, 255]]),
        (np.array([[-32768, 32767]], np.int16), [[0, 255]]),
    ],
)
def test_the_range_of_a_picture(values: np.ndarray, shown: list[list[int]]) -> None:
    np.testing.assert_array_equal(levels(Picture(values)), shown)


def test_a_given_range_and_colours() -> None:
    np.testing.assert_array_equal(
        levels(Picture(np.array([[2, 3, 4]], np.float32), 2, 4)), [[0, 128, 255]]
    )
    assert levels(Picture(np.zeros((4, 5, 3), np.uint8))).shape == (4, 5, 3)


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (0, 5), (1, 2, 3, 3)])
def test_what_is_no_picture(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError) as caught:
        Picture(np.zeros(shape))
    assert caught.value.what == f"an array of shape {shape} is no picture"


def test_text_is_escaped() -> None:
    assert notebook.table(["<"], [[notebook.paragraphs("&", "", "<")]]).count("&lt;") == 2
    assert notebook.folded("a<b", notebook.code("c<d")).count("&lt;") == 2
