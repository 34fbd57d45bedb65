"""Pixels of a few channels side by side, which threads have some of: right at widths that no
thread's share divides, where rows begin at multiples and where only pixels do.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from emulation import check
from test_plain_pipelines import PIPELINES
from verified import EMULATED

import halide_bridge as hb

pytestmark = EMULATED

LARGE = (2160, 3840)


@cache
def compiled(name: str, channels: int, *arrays: str) -> Any:
    shape = (*LARGE, channels)
    outputs, sizes = PIPELINES[name]().outputs, dict.fromkeys(arrays, shape)
    return hb.compile(outputs, target="sm_90a", schedule="auto", sizes=sizes)


def drawn(channels: int, width: int, beside: int, seed: int) -> np.ndarray:
    """A part of a picture that is wider by some pixels."""
    rng = np.random.default_rng(seed)
    return rng.integers(1, 255, (9, width + beside, channels)).astype(np.uint8)[:, :width]


def over(top: np.ndarray, ground: np.ndarray) -> np.ndarray:
    alpha = top[..., 3:].astype(np.int64)
    own = np.concatenate((top[..., :3], np.full_like(top[..., 3:], 255)), 2).astype(np.int64)
    scaled = own * alpha + ground.astype(np.int64) * (255 - alpha) + 128
    return ((scaled + (scaled >> 8)) >> 8).astype(np.uint8)


@pytest.mark.parametrize(("width", "beside"), [(128, 0), (200, 0), (131, 0), (41, 0), (130, 3)])
def test_four_channels_of_bytes(width: int, beside: int) -> None:
    """Four pixels of a thread are a vector."""
    kernel = compiled("blended", 4, "top", "ground", "over")
    assert "uint4*)(over" in kernel.source
    assert "u32*)(over" in kernel.source
    top, ground = drawn(4, width, beside, 1), drawn(4, width, beside, 2)
    found = check(kernel, sizes=(9, width, 4), top=top, ground=ground)
    np.testing.assert_array_equal(found, over(top, ground))


@pytest.mark.parametrize(("width", "beside"), [(512, 0), (752, 0), (741, 0), (48, 5)])
def test_three_channels_of_bytes(width: int, beside: int) -> None:
    kernel = compiled("swap_channels_interleaved", 3, "rgb", "bgr")
    assert "uint4*)(bgr" in kernel.source
    picture = drawn(3, width, beside, 3)
    found = check(kernel, sizes=(9, width, 3), rgb=picture)
    np.testing.assert_array_equal(found, picture[:, :, ::-1])
