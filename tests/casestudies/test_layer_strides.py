"""The convolution layer with a stride: the family's schedule on warpgroups; for few channels, and
on warps, pixels are dealt out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verified import MACHINE_CODE, Verified, nvrtc_inputs, text_of

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.common.data import decoded, random_inputs, relative_error
from casestudies.common.stock import compile_shared
from casestudies.conv_layer import CASE
from casestudies.conv_layer.problem import Problem
from casestudies.conv_layer.tiles import (
    DEPTH,
    SHARED,
    WARP_SHARED,
    Extents,
    GroupChunks,
    Groups,
    group_tiles,
    pixels_read,
    shared_bytes,
    slot_bytes,
    warp_chunks,
    warp_slot_bytes,
)
from selector.families.layers import Tiling
from selector.runtime.plan import MapArgument

LAYERS = [(64, 28), (128, 28), (256, 14), (512, 7)]  # channels, outputs of a row


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("stride", "batch", "width", "channels", "filters"),
    [
        (2, 1, 67, 128, 128),
        (2, 9, 7, 64, 200),
        (2, 3, 13, 20, 24),
        (2, 17, 3, 5, 100),
        (2, 1, 5, 512, 16),
        (3, 2, 31, 64, 64),
        (4, 5, 11, 48, 32),
        (7, 2, 3, 100, 72),
    ],
)
def test_any_layer_is_right(
    stride: int, batch: int, width: int, channels: int, filters: int, target: str
) -> None:
    problem = Problem(batch, 5, width, channels, filters, stride)
    kernel = hb.compile(CASE.scheduled(problem, "tensor", target), target=target)
    assert not kernel.report.misses
    assert ("wgmma" in kernel.source) == (target == "sm_90a")
    inputs = random_inputs(problem, 3, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) < 1e-6


def test_the_reference_is_every_second_of_all() -> None:
    problem, apart = Problem(2, 6, 10, 3, 4), Problem(2, 3, 5, 3, 4, 2)
    inputs = decoded(problem, random_inputs(problem, 3, np), np)
    dense = CASE.reference(problem, inputs, np)
    assert np.array_equal(CASE.reference(apart, inputs, np), dense[:, ::2, ::2])


@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize(("channels", "size"), LAYERS)
def test_machine_code_of_typical_layers(channels: int, size: int, verified: Verified) -> None:
    """Every operand and the results by the copy engine, pixels between those that a tap reads left
    out; no spills."""
    from selector.runtime.nvrtc import resource_usage, sass

    problem = Problem(32, size, size, channels, channels, 2)
    tile = group_tiles(problem.extents)
    assert isinstance(tile, Tiling)
    assert tile.label in problem.program
    kernel = hb.compile(CASE.scheduled(problem, "tensor", "sm_90a"), target="sm_90a")
    (launch,) = kernel.plan.launches
    maps = {a.name: a for a in launch.arguments if isinstance(a, MapArgument)}
    assert maps.keys() == {"I", "K", "output"}
    assert max(maps["I"].steps) == 2
    if verified(*nvrtc_inputs(kernel), text_of(kernel)):
        return
    (usage,) = resource_usage(kernel.cubin()).values()
    assert not usage.local_accesses
    (text,) = sass(kernel.cubin()).values()
    assert len(re.findall(r"\bHGMMA\b", text)) == tile.k // tile.depth


@pytest.mark.parametrize("stride", range(1, 9))
@pytest.mark.parametrize("channels", [3, 16, 64, 200, 512])
def test_tiles_fit_shared_memory(channels: int, stride: int) -> None:
    for batch, size, filters in ((1, 3, 1), (8, 30, 40), (32, 14, 128), (32, 56, 500)):
        tile = group_tiles(Extents(batch, size, size, channels, filters, stride))
        assert isinstance(tile, Tiling) == (stride > 1 and channels > DEPTH)
        match tile:
            case Tiling():
                assert tile.shared_bytes <= SHARED
            case Groups():
                assert shared_bytes(channels, tile.filters or filters, tile, stride) <= SHARED
            case GroupChunks():
                results = tile.groups * (8 << 10) * tile.blocks
                assert slot_bytes(tile, stride) * tile.stages + results <= SHARED
        warps = warp_chunks(filters, stride)
        assert warps.stages * warp_slot_bytes(warps, stride) <= WARP_SHARED


def test_few_channels_of_many_taps_are_dealt_out() -> None:
    """Where their weights do not stay: 7 x 7 taps of a picture, tap by tap, are mostly overhead."""
    problem = Problem(8, 112, 112, 3, 64, 2, taps=7, padded=True, result="f16")
    assert isinstance(group_tiles(problem.extents), GroupChunks)


@pytest.mark.parametrize("stride", range(1, 6))
def test_what_a_tile_reads(stride: int) -> None:
    """Each pixel that a tap meets lies in a plane, and planes of images are whole swizzles."""
    for width in (1, 2, 8, 16, 64):
        for images in (1, 4, 8):
            columns, rows, _, *planes = pixels_read(width, 5, stride, images, 8)
            met = {stride * x + t for x in range(width) for t in range(3)}
            count = planes[0] if planes else 1
            held = {stride * x + p for x in range(columns) for p in range(count)}
            assert met <= held
            assert rows == stride * 4 + 3
            assert stride == 1 or columns * images % 8 == 0


def test_a_dilation_is_the_familys_as_well() -> None:
    problem = Problem(2, 5, 9, 24, 40, dilation=2, padded=True)
    assert isinstance(group_tiles(problem.extents), Tiling)
    kernel = hb.compile(CASE.scheduled(problem, "tensor", "sm_90a"), target="sm_90a")
    inputs = random_inputs(problem, 3, np)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    assert relative_error(result, truth, np) < 1e-6


def test_the_baseline_takes_a_stride(tmp_path: Path) -> None:
    output: Any = CASE.build(Problem(32, 28, 28, 64, 64, 2), "cuda")
    path = tmp_path / "stock.so"
    compile_shared(output, path)
    text = path.read_bytes()
    assert b"ld.local" not in text
    assert b"ld.global.nc.v" in text
