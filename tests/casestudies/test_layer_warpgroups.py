"""The convolution layer on warpgroups: right in the interpreter for any number of channels, one
wgmma for each tap in the machine code, images and results by the copy engine.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from verified import MACHINE_CODE, Verified, nvrtc_inputs

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.common.data import decoded, random_inputs, relative_error
from casestudies.conv_layer import CASE
from casestudies.conv_layer.algorithm import layer
from casestudies.conv_layer.problem import SMALL, Problem
from casestudies.conv_layer.tiles import Extents, Groups, group_tiles, groups_for, shared_bytes
from casestudies.conv_layer.warpgroups import warpgroups
from selector.diagnostics import SelectionError
from selector.runtime.plan import MapArgument


def compiled(channels: int, filters: int, **size: Any) -> Any:
    groups = Groups(**size) if size else groups_for(channels, filters)
    assert groups is not None
    return hb.compile(warpgroups(layer(channels, filters), groups), target="sm_90a")


@pytest.mark.parametrize("problem", SMALL[1:], ids=lambda p: p.name)
def test_the_selected_program_is_right(problem: Problem) -> None:
    kernel = hb.compile(CASE.scheduled(problem, "tensor", "sm_90a"), target="sm_90a")
    assert not kernel.report.misses
    assert "wgmma" in kernel.source
    inputs = random_inputs(problem, 3, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) < 1e-6


def machine_code(kernel: Any) -> str:
    from selector.runtime.nvrtc import resource_usage, sass

    (usage,) = resource_usage(kernel.cubin()).values()
    assert not usage.local_accesses
    (text,) = sass(kernel.cubin()).values()
    return text


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("channels", "filters", "rows", "instructions", "stores"),
    [(16, 16, 2, 18, 2), (32, 32, 2, 36, 2), (8, 64, 1, 9, 2), (48, 24, 1, 27, 1)],
)
def test_machine_code(
    channels: int, filters: int, rows: int, instructions: int, stores: int
) -> None:
    """An instruction for each row, tap and run of 16 channels; the image by one box, asked for
    ahead of the loop and in it; a box of results for each warp, row and 32 filters."""
    text = machine_code(compiled(channels, filters, rows=rows))
    for name, count in (("HGMMA", instructions), ("UTMALDG", 2), ("UTMASTG", stores)):
        assert len(re.findall(rf"\b{name}\b", text)) == count, name
    assert f"HGMMA.64x{-(-filters // 16) * 16}x16" in text
    assert text.count("WARPGROUP.DEPBAR") == 1


def test_slots_are_free_before_results_are_stored() -> None:
    source = compiled(32, 32).source
    use, free = source.index("wgmma_m64n32k16_f16_f32_nt(conv"), source.rindex("barrier_arrive(")
    assert use < free < source.index("tensor_store4(shared_address(box0)")
    assert source.index("const float filling") < source.index("barrier_await(full")


def test_other_targets_say_what_is_missing() -> None:
    with pytest.raises(SelectionError, match="target sm_80 has no wgmma or tcgen05 instructions"):
        hb.compile(warpgroups(layer(16, 16), Groups()), target="sm_80")


def test_weights_are_copied_once_by_a_persistent_block() -> None:
    source = compiled(16, 16).source
    turns = source.index("for (int turn = (int)blockIdx.x; turn <")
    assert source.index("copy16_cached(") < turns
    assert "K + (" not in source[turns:]


@pytest.mark.slow
@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize(
    ("channels", "filters"),
    [(3, 8), (48, 24), (64, 64), (16, 64), (16, 128), (16, 160), (16, 256), (3, 1000)],
)
def test_tiles_fit_a_block(channels: int, filters: int, verified: Verified) -> None:
    """What was reckoned, but for results, which take what they need of the rest; no spills."""
    size = groups_for(channels, filters)
    assert size is not None
    kernel = compiled(channels, filters)
    if not verified(*nvrtc_inputs(kernel)):
        machine_code(kernel)
    (launch,) = kernel.plan.launches
    reckoned = shared_bytes(channels, size.filters or filters, size) - size.groups * (8 << 10)
    assert 0 <= launch.shared_bytes - reckoned <= size.groups * (64 << 10) + 4096


@pytest.mark.parametrize(
    ("batch", "height", "width", "channels", "filters"), [(3, 5, 9, 16, 256), (9, 3, 4, 3, 300)]
)
def test_many_filters_of_few_channels(
    batch: int, height: int, width: int, channels: int, filters: int
) -> None:
    """Blocks beside each other have some of the filters each, and the next pixels on their way."""
    problem = Problem(batch, height, width, channels, filters)
    size = group_tiles(problem.extents)
    assert isinstance(size, Groups)
    assert size.filters < filters <= size.filters * -(-filters // size.filters)
    assert f"-f{size.filters}" in problem.program
    kernel = hb.compile(CASE.scheduled(problem, "tensor", "sm_90a"), target="sm_90a")
    assert "barrier_await(full" in kernel.source
    inputs = random_inputs(problem, 3, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) < 1e-6


def test_all_filters_stay_together_where_they_fit() -> None:
    for channels, filters in ((16, 16), (32, 32), (16, 160), (48, 24)):
        size = groups_for(channels, filters)
        assert size is not None
        assert not size.filters


@pytest.mark.parametrize(
    ("images", "channels", "filters"), [(1, 20, 20), (1, 3, 64), (8, 5, 16), (1, 30, 300)]
)
def test_pixels_that_no_map_describes_are_copied_before(
    images: int, channels: int, filters: int
) -> None:
    """The copy's rows of constant length are dimensions to the copy engine; right at any size."""
    size = groups_for(channels, filters, images)
    assert size is not None
    groups = replace(size, copied=True)
    kernel = hb.compile(warpgroups(layer(channels, filters), groups), target="sm_90a")
    _, launch = kernel.plan.launches
    maps = {a.name: a.box for a in launch.arguments if isinstance(a, MapArgument)}
    assert maps.keys() <= {"I_im_in_conv", "K", "output"}
    assert maps["I_im_in_conv"][0] in (16, 32)
    assert len(maps["I_im_in_conv"]) == 4
    for batch, height, width in ((1, 1, 1), (3, 9, 66), (17, 3, 5)):
        problem = Problem(batch, height, width, channels, filters)
        inputs = random_inputs(problem, 3, np)
        result = kernel.interpret(**inputs, sizes=problem.output.shape)
        truth = CASE.reference(problem, decoded(problem, inputs, np), np)
        assert relative_error(result, truth, np) < 1e-6


def test_copies_where_there_is_much_to_do() -> None:
    for batch, size, channels, copied in (
        (32, 224, 3, True),
        (512, 64, 20, True),
        (32, 224, 8, False),
        (1, 64, 20, False),
    ):
        tile = group_tiles(Extents(batch, size, size, channels, 20))
        assert isinstance(tile, Groups)
        assert tile.copied == copied
    assert Problem(32, 224, 224, 3, 64).program == "conv_layer-c3-64-copied"
