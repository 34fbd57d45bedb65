"""Tilings of layers by warps: they fit, and read a part of what a product for each tap would."""

from __future__ import annotations

import pytest

from selector.families.layers import Shape, candidates
from selector.machine import machine_for
from selector.targets import find_target


def shape(channels: int, filters: int, size: int = 28, stride: int = 1, taps: int = 3) -> Shape:
    reach = taps - 1
    return Shape(
        (size, size, 8), filters, channels, taps**2, steps=(stride, stride, 1),
        reach=(reach, reach, 0), rows=1, fixed=True,
    )  # fmt: skip


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_120"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("channels", [16, 24, 64, 200, 512])
def test_tiles_fit_a_block(channels: int, stride: int, target: str) -> None:
    room = find_target(target).shared_memory
    for filters in (8, 40, 64, 100, 500):
        found = candidates(shape(channels, filters, stride=stride), machine_for(target))
        assert found
        for t in found:
            assert t.unit == "warp"
            assert t.shared_bytes <= room
            assert t.threads <= 1024
            assert t.sums <= 128
            assert t.n % 8 == 0


def test_weights_stay_where_they_fit() -> None:
    few, many = (candidates(shape(n, n), machine_for("sm_80"))[0] for n in (32, 128))
    assert few.strips == 8
    assert (few.n, few.k, few.stages) == (32, 32, 2)
    assert many.strips == 0
    assert (many.n, many.k, many.stages) == (64, 32, 2)


@pytest.mark.parametrize(
    "other",
    [
        shape(64, 64, taps=1),  # no pixel is shared
        shape(64, 64, stride=4),  # nor here, and most are between windows
        shape(64, 64, size=3),
        shape(1, 64),
        shape(64, 1),
    ],
)
def test_no_tiles_that_would_be_mostly_empty(other: Shape) -> None:
    assert candidates(other, machine_for("sm_80")) == []
