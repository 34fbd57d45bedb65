"""The convolution layer in the compiler's schedules: right for any numbers of channels and filters,
strides and dilations, on warpgroups and on warps; the layers of the table in their tilings.
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
from casestudies.conv_layer import CASE, tilings
from casestudies.conv_layer.problem import BENCHMARK, SMALL, TILINGS, Problem
from selector.diagnostics import UserError
from selector.families.layers import Tiling
from selector.runtime.plan import MapArgument
from selector.targets import find_target

CHANNELS = (1, 3, 12, 16, 24, 48, 64, 100, 128, 256, 512)


def compiled(problem: Problem, target: str) -> Any:
    return hb.compile(CASE.scheduled(problem, "tensor", target), target=target)


def unit(kernel: Any) -> str:
    """The instructions of a kernel's products."""
    source = kernel.source[kernel.source.index("__global__") :]
    return next((name for name in ("wgmma", "tcgen05", "mma") if f"{name}_m" in source), "")


def check(problem: Problem, kernel: Any) -> None:
    inputs = random_inputs(problem, 3, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) < 2e-6


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("batch", "width", "channels", "filters", "stride", "dilation"),
    [
        (1, 70, 128, 128, 1, 1),
        (9, 9, 100, 96, 1, 1),
        (2, 17, 16, 256, 1, 1),
        (1, 67, 128, 128, 2, 1),
        (9, 7, 64, 200, 2, 1),
        (2, 31, 64, 64, 3, 1),
        (2, 9, 24, 40, 1, 2),
    ],
)
def test_any_layer_is_right(
    batch: int,
    width: int,
    channels: int,
    filters: int,
    stride: int,
    dilation: int,
    target: str,
) -> None:
    padded = dilation > 1
    problem = Problem(
        batch, 3, width, channels, filters, stride, dilation=dilation, padded=padded
    )  # fmt: skip
    kernel = compiled(problem, target)
    assert unit(kernel) == ("wgmma" if target == "sm_90a" else "mma")
    check(problem, kernel)


@pytest.mark.parametrize("problem", SMALL[1:], ids=lambda p: p.name)
def test_small_layers_are_right(problem: Problem) -> None:
    check(problem, compiled(problem, "sm_90a"))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_any_channels_are_on_tensor_units(target: str) -> None:
    """Each number of channels, and each of filters, among them all; single channels and filters
    are too few for warps.
    """
    for channels, filters in zip(CHANNELS, CHANNELS[5:] + CHANNELS[:5], strict=True):
        kernel = compiled(Problem(32, 28, 28, channels, filters), target)
        few = target == "sm_80" and min(channels, filters) == 1
        assert bool(unit(kernel)) or few, (channels, filters)


def test_the_table_has_its_tilings() -> None:
    assert set(TILINGS) == set(BENCHMARK)
    group = find_target("sm_90a")
    assert tilings(BENCHMARK[2], group) == {"conv": TILINGS[BENCHMARK[2]]}
    assert tilings(SMALL[2], group) == tilings(BENCHMARK[0], find_target("sm_80")) == {}
    assert isinstance(tilings(SMALL[2], find_target("sm_100a"))["conv"], Tiling)


@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize("problem", BENCHMARK, ids=lambda p: p.name)
def test_machine_code_of_the_table(problem: Problem, verified: Verified) -> None:
    """An instruction for each tap, box and run of 16 channels; every operand that does not stay and
    the results by the copy engine, images side by side in their boxes; no spills.
    """
    from selector.runtime.nvrtc import resource_usage, sass

    kernel, size = compiled(problem, "sm_90a"), TILINGS[problem]
    (launch,) = kernel.plan.launches
    maps = {a.name: a.box for a in launch.arguments if isinstance(a, MapArgument)}
    assert maps.keys() == ({"I", "output"} if size.strips else {"I", "K", "output"})
    read = [size.read[d] for d in size.order if size.read[d] > 1]
    assert [n for n in maps["I"][1:] if n > 1] == read
    if verified(*nvrtc_inputs(kernel), text_of(kernel)):
        return
    (usage,) = resource_usage(kernel.cubin()).values()
    assert not usage.local_accesses
    (text,) = sass(kernel.cubin()).values()
    assert len(re.findall(r"\bHGMMA\b", text)) == size.taps * size.boxes * (size.k // 16)
    assert f"HGMMA.64x{size.n}x16" in text


def test_weights_are_copied_once_by_a_block_that_stays() -> None:
    source = compiled(BENCHMARK[0], "sm_90a").source
    turns = source.index("for (int turn = (int)blockIdx.x; turn <")
    assert source.index("copy16_cached(") < turns
    assert "K + (" not in source[turns:]


def test_slots_are_free_before_results_are_stored() -> None:
    source = compiled(BENCHMARK[1], "sm_90a").source
    use, free = source.index("wgmma_m64n32k16_f16_f32_nt(conv"), source.rindex("barrier_arrive(")
    assert use < free < source.index("tensor_store4(shared_address(box0)")
    assert source.index("const float filling") < source.index("barrier_await(full")


@pytest.mark.parametrize(("channels", "filters"), [(20, 20), (3, 64)])
def test_pixels_that_no_map_describes_are_copied_before(channels: int, filters: int) -> None:
    """Where there are many; right at any size."""
    kernel = compiled(Problem(64, 112, 112, channels, filters), "sm_90a")
    *_, launch = kernel.plan.launches
    assert len(kernel.plan.launches) > 1
    maps = [a.name for a in launch.arguments if isinstance(a, MapArgument)]
    assert "I" not in maps
    for batch, height, width in ((1, 1, 1), (3, 9, 66)):
        check(Problem(batch, height, width, channels, filters), kernel)


def test_mma_is_for_targets_with_warpgroups() -> None:
    problem = Problem(2, 9, 33, 64, 64)
    kernel = hb.compile(CASE.scheduled(problem, "mma", "sm_90a"), target="sm_90a")
    assert unit(kernel) == "mma"
    check(problem, kernel)
    with pytest.raises(UserError, match="tensor is mma already"):
        CASE.scheduled(problem, "mma", "sm_80")


def test_the_reference_is_every_second_of_all() -> None:
    problem, apart = Problem(2, 6, 10, 3, 4), Problem(2, 3, 5, 3, 4, 2)
    inputs = decoded(problem, random_inputs(problem, 3, np), np)
    dense = CASE.reference(problem, inputs, np)
    assert np.array_equal(CASE.reference(apart, inputs, np), dense[:, ::2, ::2])


def test_the_baseline_takes_a_stride(tmp_path: Path) -> None:
    output: Any = CASE.build(Problem(32, 28, 28, 64, 64, 2), "cuda")
    path = tmp_path / "stock.so"
    compile_shared(output, path)
    text = path.read_bytes()
    assert b"ld.local" not in text
    assert b"ld.global.nc.v" in text
