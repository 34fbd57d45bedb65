"""Graphs of Funcs that nobody schedules compute what Halide computes, in every oracle."""

from __future__ import annotations

import numpy as np
import pytest

from fuzzing.graph_runs import close, run
from fuzzing.graphs import STEPS, Graph

pytestmark = [pytest.mark.verified, pytest.mark.gcc]


FOUND = (42091, 42162)  # were refused: a place with a name, sums up to where a condition says


@pytest.mark.parametrize("number", [*range(40), *FOUND])
def test_a_graph_computes_what_halide_does(number: int) -> None:
    outcome = run(number)
    assert outcome.kind == "ok" or outcome.detail.startswith("Halide: "), outcome.text


def test_a_number_is_a_program() -> None:
    assert Graph(5).text == Graph(5).text
    assert len({Graph(n).text for n in range(100)}) == 100
    first, second = Graph(5).arrays(), Graph(5).arrays()
    assert all((second[name] == array).all() for name, array in first.items())


def test_all_that_a_func_may_be_is_drawn() -> None:
    texts = "".join(Graph(n).text for n in range(200))
    for part in (
        ".where(", "hl.select(", "+= 1", "hl.Expr(", "[()] +=", ", y, c]", "set_stride(3)",
        *(f"BoundaryConditions.{edge}(" for edge in ("mirror_image", "repeat_image")),
    ):  # fmt: skip
        assert part in texts, part
    assert len(STEPS) == 14


def test_what_is_off_is_seen() -> None:
    wanted = np.arange(100, dtype=np.int32)
    off = wanted.copy()
    off[7] += 1
    assert close(wanted, wanted, True)
    assert not close(off, wanted, True)
    assert not close(wanted + 2, wanted, False)
    rounded = wanted.astype(np.float32)
    assert close(rounded * np.float32(1.001), rounded, False)
    assert not close(rounded * np.float32(1.1), rounded, False)
