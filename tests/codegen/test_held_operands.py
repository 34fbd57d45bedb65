"""Attention on warpgroups: what stays in registers, what is in flight, and that nothing spills."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from verified import MACHINE_CODE, Verified

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.attention.algorithm import attend
from halide_bridge.schedules import schedule_attention
from selector.families.attention import Tiling
from selector.runtime import nvrtc

SMALL = Tiling(2, 64, 64, 2, 64, groups=True)


def source(depth: int, tiles: Tiling, *, causal: bool = False) -> str:
    pipeline = schedule_attention(attend(depth, causal=causal, run=tiles.keys), tiles)
    return hb.compile(pipeline, target="sm_90a").source


def test_weights_are_the_operand_as_they_lie() -> None:
    """Registers of a step of 16 keys: rows g and g + 8 of keys 2q, then of keys 2q + 8."""
    text = source(128, SMALL)
    filled = re.findall(
        r"weight\[(\d+)\] = round_pair\(exp2_rounded\(.*?scores_peak\[(\d+)\]\[(\d)\]", text
    )
    places = {int(number): (int(piece), int(low) // 2) for number, piece, low in filled}
    assert sorted(places.values()) == [(piece, half) for piece in range(8) for half in (0, 1)]
    products = re.findall(r"_rt\w*\(mixed, (.*?), d0", text)
    assert len(products) == 2 * 4  # of the iteration before, and of the last one
    assert products[:4] == products[4:]
    for step, product in enumerate(products[:4]):
        registers = [places[int(n)] for n in re.findall(r"weight\[(\d+)\]", product)]
        assert registers == [(2 * step + right, half) for right in (0, 1) for half in (0, 1)]


def test_numbers_of_rows_need_no_memory() -> None:
    text = source(64, SMALL)
    for name in ("peak", "peak_factor", "total"):
        assert f"float {name}[2];" in text
        assert not re.search(rf"\* const {name} = ", text)
    assert "mixed[0][2] = mixed[0][2] * peak_factor[1];" in text or (
        "mixed[0][2] = peak_factor[1] * mixed[0][2];" in text
    )


def test_products_with_the_values_run_on_into_the_next_iteration() -> None:
    """One wait an iteration, after the next scores; the slot before is released then. With three
    groups and more, else the next scores are issued before.
    """
    text = source(64, replace(SMALL, units=3))
    loop = text[text.index("barrier_await(full") :]
    body = loop[: loop.index("if (++slot")]
    assert body.count("group_wait<0>();") == 1
    wait, landed = body.index("group_wait<0>();"), body.index("barrier_arrive(last)")
    assert body.index("_fresh(scores_peak") < wait < body.index("(mixed);", wait) < landed
    assert landed < body.index("(mixed, weight[0]")
    assert "group_wait<0>();" in loop[loop.index("if (++slot") :], "before results are read"


@pytest.mark.slow
@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize(("depth", "causal"), [(64, False), (64, True), (128, False)])
def test_the_fast_schedules_do_not_spill(depth: int, causal: bool, verified: Verified) -> None:
    units = 3 if depth == 64 else 2
    tiling = Tiling(units, 64, keys=128, stages=3, vector=64, groups=True)
    text = source(depth, tiling, causal=causal)
    few, more = (int(re.search(rf"{w}_registers<(\d+)>\(\);", text)[1]) for w in ("fewer", "more"))  # type: ignore[index]
    groups = 3 if depth == 64 else 2
    launched = 512 // (groups + 1) // 8 * 8 * (groups + 1)
    assert few + groups * more <= launched, "the block would wait for registers forever"
    assert few >= 24
    if verified(text, nvrtc.version()):
        return
    usage = nvrtc.resource_usage(nvrtc.compile_to_cubin(text, "sm_90a"))
    assert all(u.local_accesses == 0 for u in usage.values())


def test_threads_copy_rows_that_start_anywhere_in_one_way() -> None:
    """Rows that are aligned come by the copy engine: there is no second path for them."""
    text = source(64, SMALL)
    feeding = text[text.index("if (!maps_ready) {") :]
    feeding = feeding[: feeding.index("else if ((threadIdx.x")]
    assert feeding.count("= load_shifted(") == feeding.count("store_shifted(") == 2
    assert "copy16(" not in feeding
    assert "? from[e]" not in feeding
