"""Threads along the third dimension, where the first two have few."""

from __future__ import annotations

from typing import Any

import halide as hl
import pytest
from plain_emulated import emulated
from plain_pipelines import F32, Plain, floats

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

x, y, n, b = (hl.Var(name) for name in "xynb")


def turned(wide: int, rows: int, count: int, batch: int = 2) -> Plain:
    """Products with a number of each plane."""
    a, own, out = hl.ImageParam(F32, 4, "a"), hl.ImageParam(F32, 1, "own"), hl.Func("out")
    out[x, y, n, b] = a[x, y, n, b] * own[n] + 1
    arrays: list[tuple[Any, Any]] = [(a, floats(batch, count, rows, wide)), (own, floats(count))]
    return Plain(out, arrays, (batch, count, rows, wide))


@pytest.mark.parametrize("size", [(16, 4, 33), (16, 4, 4), (13, 3, 21), (24, 3, 100)])
def test_planes_share_a_block(size: tuple[int, int, int]) -> None:
    wide, rows, count = size
    told = {"a": (2, count, rows, wide), "own": (count,), "out": (2, count, rows, wide)}
    schedule, _ = emulated(lambda: turned(*size), sizes=told)
    line = next(x for x in schedule.report.splitlines() if x.startswith("out:"))
    across, high, deep = (int(t) for t in line.split(" threads")[0].split(", ")[-1].split(" x "))
    assert deep > 1
    assert across * high * deep <= 256
    assert deep <= count


def test_other_sizes_than_told_are_right() -> None:
    told = {"a": (2, 64, 4, 16), "own": (64,), "out": (2, 64, 4, 16)}
    for size in ((16, 4, 3), (40, 9, 5)):
        emulated(lambda size=size: turned(*size), sizes=told)


def test_blocks_that_are_full_have_none() -> None:
    told = {"a": (2, 20, 300, 400), "own": (20,), "out": (2, 20, 300, 400)}
    schedule = hb.autoschedule(turned(40, 9, 5).outputs, target="sm_90a", sizes=told)
    assert "32 x 8 threads" in str(schedule.report)
