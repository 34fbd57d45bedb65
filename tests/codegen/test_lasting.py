"""Blocks that do the work of several: what is asked for, what is written, and what cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from verified import MACHINE_CODE, Verified, nvrtc_inputs

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb
from casestudies.attention import build as attention
from casestudies.attention.problem import Problem
from casestudies.gemm.algorithm import multiply
from casestudies.gemm.schedule import tensor
from selector.diagnostics import ScheduleError
from selector.families.contraction import Tiling
from selector.families.contraction.usual import SMALL
from selector.ir.nodes import Expr, IntImm
from selector.runtime import nvrtc
from selector.runtime.driver import Grid
from selector.runtime.plan import Launch
from selector.runtime.prepare import grid_of

LARGE = Tiling(persistent=1)


def compiled(groups: Tiling, types: str = "f16-f16") -> hb.Kernel:
    return hb.compile(tensor(multiply(types), groups), target="sm_90a")


def test_the_ring_is_fed_in_a_loop_of_its_own() -> None:
    kernel = compiled(LARGE)
    (launch,) = kernel.plan.launches
    assert launch.persistent == 1
    source = kernel.source
    heads = re.findall(r"for \(int turn = \(int\)blockIdx.x; turn < (\w+); turn \+=", source)
    assert len(heads) == 3  # by threads, by the copy engine; and the groups
    assert len(set(heads)) == 1
    assert "blockIdx.y" not in source
    producing, consuming = source.split("return;  // so that")
    assert "group_sync(1" not in consuming  # results have their own memory
    assert producing.count("barrier_init(f") == 2
    assert "barrier_arrive(last)" in consuming.split("group_wait<0>")[1]


def test_the_next_tile_waits_for_those_that_read_the_last_one() -> None:
    """Queries are no part of the ring: every turn has its own over those of the turn before."""
    output = hb.persistent(attention(Problem(64, 4096, 64), "wgmma"), 1)
    feeding, consuming = hb.compile(output, target="sm_90a").source.split("return;  // so that")
    assert feeding.count("barrier_await(tile_free, (tiles - 1) & 1);") == 2  # by threads, by boxes
    assert consuming.count("barrier_await(tile_full, tiles & 1);") == 1
    assert consuming.count("barrier_arrive(tile_free);") == 2  # in the last iteration, or in none
    assert "group_sync(1, 384);" not in consuming


TEAMS = replace(LARGE, m=64, parts_m=1, stages=5, teams=2)


def test_teams_wait_for_each_other_once_a_turn() -> None:
    source = compiled(TEAMS).source
    producing, consuming = source.split("return;  // so that")
    assert "if (group == 2) {" in producing
    assert "__launch_bounds__(384, 1)" in source
    assert "const int team = group / 1, member = group % 1;" in consuming
    assert "turn += 2 * (int)gridDim.x" in consuming
    waits, signals = "barrier_await(order + 8 * team, (turns - !team) & 1)", "barrier_arrive(order"
    assert consuming.count(waits) == consuming.count(signals) == 1
    assert consuming.index(waits) < consuming.index("barrier_await(full") < consuming.index(signals)
    assert consuming.index(signals) < consuming.index("group_wait<0>")
    assert consuming.count("slot %= 5;") == 1


def test_teams_need_turns() -> None:
    with pytest.raises(ScheduleError, match="nothing that they could do in turn") as caught:
        compiled(replace(TEAMS, persistent=0))
    assert "persistent" in caught.value.hint


def test_neighbours_share_what_is_the_same_for_them() -> None:
    """The band of 8 block rows comes first: neighbours along it have one B."""
    kernel = compiled(replace(LARGE, cluster=2))
    (launch,) = kernel.plan.launches
    assert (launch.persistent, launch.cluster) == (1, 2)
    source = kernel.source
    assert source.count("__cluster_dims__(2, 1, 1)") == 1
    producing, consuming = source.split("return;  // so that")
    early, rest = producing.split("cluster_sync();\n")[-2:]
    assert "tensor_share2(shared" not in early  # the others' barriers may not be there
    shared = re.findall(r"tensor_share2\(.*&(\w+),.*, 3\);", rest)
    assert shared == ["map_B", "map_B"]  # two of four panels each
    assert "maps_ready ? 4 : 2" in early  # groups that free a slot
    assert "barrier_arrive_at(last, maps_ready ? threadIdx.x & 127 : rank)" in consuming
    assert "last && round * 4 + slot - 1 < refilled && " in consuming


def test_rows_are_dealt_out_where_panels_cannot_be() -> None:
    product = multiply("f16-f32")
    size = replace(LARGE, band=1, cluster=2)  # neighbours along n: one A, of one panel
    source = hb.compile(tensor(product, size), target="sm_90a").source
    assert re.findall(r"tensor_share2\(.*&(\w+),.*, 3\);", source) == ["map_A"]
    assert "(rank * 8192), &map_A" in source


def test_what_differs_is_not_shared() -> None:
    with pytest.raises(ScheduleError, match="nothing to share") as caught:
        compiled(replace(LARGE, band=3, cluster=2))
    assert "the same for 2 neighbours" in caught.value.why


@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize("groups", [replace(LARGE, cluster=2), replace(SMALL, cluster=2)])
def test_clusters_in_machine_code(groups: Tiling, verified: Verified) -> None:
    kernel = compiled(groups)
    if verified(*nvrtc_inputs(kernel)):
        return
    cubin = kernel.cubin()
    (usage,) = nvrtc.resource_usage(cubin).values()
    assert usage.local_accesses == usage.stack_bytes == 0
    code = "\n".join(nvrtc.sass(cubin).values())
    assert re.search(r"UTMALDG\S*MULTICAST", code)
    assert "HGMMA" in code


@pytest.mark.slow
@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize("types", ["f16-f16", "f16-f32", "bf16-f32"])
@pytest.mark.parametrize("groups", [LARGE, replace(SMALL, persistent=2), TEAMS])
def test_nothing_spills(groups: Tiling, types: str, verified: Verified) -> None:
    kernel = compiled(groups, types)
    if verified(*nvrtc_inputs(kernel)):
        return
    cubin = kernel.cubin()
    (usage,) = nvrtc.resource_usage(cubin).values()
    assert usage.local_accesses == usage.stack_bytes == 0
    code = "\n".join(nvrtc.sass(cubin).values())
    assert all(nvrtc.count_instructions(code, ("HGMMA", "UTMALDG", "UTMASTG")).values())


def grid(x: int, y: int, z: int) -> tuple[Expr, Expr, Expr]:
    return IntImm(x), IntImm(y), IntImm(z)


@pytest.mark.parametrize(
    ("blocks", "persistent", "cluster", "expected"),
    [
        ((10, 3, 2), 1, 1, 4),
        ((10, 3, 2), 2, 1, 8),
        ((1, 3, 1), 1, 1, 3),
        ((5, 3, 1), 0, 2, (6, 3, 1)),
        ((5, 3, 1), 1, 2, 4),
        ((1, 1, 1), 1, 2, 2),
        ((7, 1, 1), 1, 8, 8),
    ],
)
def test_blocks_that_are_launched(
    blocks: tuple[int, int, int], persistent: int, cluster: int, expected: int | Grid
) -> None:
    launch = Launch("k", grid(*blocks), 128, 0, (), persistent=persistent, cluster=cluster)
    expected = (expected, 1, 1) if isinstance(expected, int) else expected
    assert grid_of(blocks, launch, lambda: 4) == expected


def plain() -> hl.Func:
    x, xi = hl.Var("x"), hl.Var("xi")
    out = hl.Func("out")
    out[x] = hl.cast(hl.Float(32), x)
    return hb.persistent(out.gpu_tile(x, xi, 64))


def unstaged() -> hl.Func:
    return tensor(multiply("f16-f32"), replace(LARGE, stages=1))


@pytest.mark.parametrize("build", [plain, unstaged])
def test_there_has_to_be_a_ring(build: Callable[[], hl.Func]) -> None:
    with pytest.raises(ScheduleError, match="cannot be persistent") as caught:
        hb.compile(build(), target="sm_90a")
    assert "there are 0" in caught.value.why
    assert "pipeline_stages" in caught.value.hint
