"""The convolution layer for any numbers of channels and filters: right in the interpreter and on
tensor instructions for warps and for warpgroups; typical layers without spills.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from verified import MACHINE_CODE, Verified, nvrtc_inputs, text_of

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.common.data import decoded, random_inputs, relative_error
from casestudies.conv_layer import CASE
from casestudies.conv_layer.problem import Problem
from casestudies.conv_layer.schedule import fits
from casestudies.conv_layer.tiles import (
    SHARED,
    Extents,
    GroupChunks,
    Groups,
    filters_of_block,
    group_tiles,
    slot_bytes,
)
from selector.runtime.plan import MapArgument

CHANNELS = (1, 3, 12, 16, 24, 48, 64, 100, 128, 256, 512)


def compiled(problem: Problem, target: str) -> Any:
    return hb.compile(CASE.scheduled(problem, "tensor", target), target=target)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("batch", "width", "channels", "filters"),
    [
        (1, 70, 128, 128),
        (9, 9, 100, 96),
        (17, 3, 12, 100),
        (1, 3, 512, 1),
        (2, 5, 1, 512),
        (1, 2, 256, 200),
        (33, 2, 72, 40),
    ],
)
def test_many_channels_are_right(
    batch: int, width: int, channels: int, filters: int, target: str
) -> None:
    problem = Problem(batch, 3, width, channels, filters)
    kernel = compiled(problem, target)
    assert not kernel.report.misses
    inputs = random_inputs(problem, 3, np)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    assert relative_error(result, truth, np) < 1e-6
    assert ("wgmma" in kernel.source) == (target == "sm_90a")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_any_channels_have_a_kernel(target: str) -> None:
    """Each number of channels, and each of filters, among them all."""
    for channels, filters in zip(CHANNELS, CHANNELS[5:] + CHANNELS[:5], strict=True):
        kernel = compiled(Problem(32, 28, 28, channels, filters), target)
        assert not kernel.report.misses
        assert kernel.report.updates


@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize(("channels", "size"), [(64, 56), (128, 28), (256, 14), (512, 14)])
def test_machine_code_of_typical_layers(channels: int, size: int, verified: Verified) -> None:
    """Images side by side; every operand and the results by the copy engine, no spills."""
    from selector.runtime.nvrtc import resource_usage, sass

    problem = Problem(32, size, size, channels, channels)
    tile = group_tiles(problem.extents)
    assert isinstance(tile, GroupChunks)
    assert tile.images in (8, 16, 32)
    kernel = compiled(problem, "sm_90a")
    if verified(*nvrtc_inputs(kernel), text_of(kernel)):
        return
    (usage,) = resource_usage(kernel.cubin()).values()
    assert not usage.local_accesses
    (text,) = sass(kernel.cubin()).values()
    assert len(re.findall(r"\bHGMMA\b", text)) == 9 * tile.rows
    assert f"HGMMA.64x{tile.filters}x16" in text
    (launch,) = kernel.plan.launches
    boxes = {a.name: a.box for a in launch.arguments if isinstance(a, MapArgument)}
    assert boxes["I"] == (16, tile.images, tile.width + 2, tile.height + 2)
    inner = min(tile.images, 16)
    assert boxes["output"] == (32, inner, 1, 16 // inner)
    assert f"store_runs<128, {inner}>(" in kernel.source


def test_blocks_of_filters_are_alike() -> None:
    for filters in range(1, 600):
        one = filters_of_block(filters, 128)
        assert one % 8 == 0
        assert filters <= one * -(-filters // 128)


def test_tiles_follow_the_size() -> None:
    """Images side by side where columns would be left over; small tiles where blocks are few, and
    persistent blocks where they are many.
    """
    found = {
        size: group_tiles(Extents(32, size[1], size[1], size[0], size[0]))
        for size in ((64, 56), (128, 28), (512, 7), (512, 14))
    }
    assert found == {
        (64, 56): GroupChunks(64, 8, 2, 2, stages=6, blocks=1),
        (128, 28): GroupChunks(64, 8, 1, 7, stages=5),
        (512, 7): GroupChunks(64, 8, 1, 2, stages=6),
        (512, 14): GroupChunks(64, 8, 1, 7, stages=5),
    }
    assert group_tiles(Extents(1, 14, 14, 256, 256)) == GroupChunks(64, 1, 1, 1, stages=6)
    assert group_tiles(Extents(4096, 64, 64, 16, 16)) == Groups()
    assert group_tiles(Extents(32, 14, 14, 32, 32)).images == 8
    assert group_tiles(Extents(1, 64, 64, 128, 128)).images == 1


def test_kernels_of_different_tiles_have_different_names() -> None:
    layers = [Problem(32, s, s, 128, 128).program for s in (14, 28, 64)]
    assert len(set(layers)) == 3
    assert Problem(4096, 64, 64, 16, 16).program == "conv_layer-c16-16"


@pytest.mark.parametrize("channels", [1, 16, 17, 32, 64, 200, 512])
@pytest.mark.parametrize("filters", [1, 40, 64, 128, 500])
def test_slots_fit_shared_memory(channels: int, filters: int) -> None:
    for batch, size in ((1, 3), (8, 30), (32, 14), (32, 56), (64, 112)):
        tile = group_tiles(Extents(batch, size, size, channels, filters))
        if isinstance(tile, GroupChunks):
            assert tile.stages >= 1
            results = tile.groups * (8 << 10) * tile.blocks
            assert slot_bytes(tile) * tile.stages + results <= SHARED
            assert not tile.blocks or tile.stages > 1


def test_weights_of_few_channels_stay_in_shared_memory() -> None:
    assert fits(64, 64)
    assert not fits(128, 64)
    assert not fits(16, 512)
