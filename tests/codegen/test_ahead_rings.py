"""Scores of the next keys are issued ahead of the product with values: where, and what that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulation import check
from verified import EMULATED, MACHINE_CODE, Verified, nvrtc_inputs

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.attention import CASE
from casestudies.attention.algorithm import attend
from casestudies.attention.problem import Problem
from casestudies.attention.schedule import tensor
from casestudies.attention.scores import variant
from casestudies.common.data import case_inputs, decoded, relative_error
from selector.families.attention import Tiling
from selector.gpu.codegen.program import emit_kernels
from selector.simulate import simulate
from selector.targets import find_target

TWO = Tiling(2, 64, 64, 2, 64, groups=True)
AHEAD = "const int now = slot, times = round;"


def compiled(p: Problem, tiling: Tiling) -> Any:
    found = attend(
        p.depth, causal=p.causal, run=tiling.keys, types=p.types, variant=variant(p.score),
        sharing=p.sharing, part=tiling.part, window=p.window,
    )  # fmt: skip
    return hb.compile(tensor(found, tiling), target="sm_90a")


CASES = {
    "one query": (Problem(1, 1, 128), TWO),
    "two groups, less than a run": (Problem(2, 130, 128, keys=40), TWO),
    "two runs": (Problem(2, 130, 128, keys=128), TWO),
    "more": (Problem(1, 70, 128, keys=333), TWO),
    "three slots": (Problem(1, 70, 128, keys=333), replace(TWO, stages=3)),
    "blocks that stay": (Problem(3, 300, 128), replace(TWO, persistent=1)),
    "causal ones": (
        Problem(2, 300, 128, causal=True),
        replace(TWO, persistent=1, heads_first=True),
    ),
    "a window": (Problem(1, 300, 128, causal=True, window=70), replace(TWO, stages=3)),
    "a soft cap": (Problem(1, 130, 128, score="soft_cap"), TWO),
    "parts": (Problem(1, 3, 128, types="f16-f16", keys=700), replace(TWO, part=256)),
    "many channels": (Problem(1, 70, 256, types="bf16-bf16"), replace(TWO, keys=80)),
}


@EMULATED
@pytest.mark.parametrize("name", CASES)
def test_it_is_right_with_tensor_maps_and_without(name: str) -> None:
    """Every fault that the simulator knows is reported."""
    p, tiling = CASES[name]
    kernel = compiled(p, tiling)
    assert AHEAD in kernel.source
    assert tiling.ahead(p.shape)
    inputs = case_inputs(CASE, p, 3, np)
    truth = CASE.reference(p, decoded(p, inputs, np), np)
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    found = [check(kernel, **inputs, sizes=p.output.shape)]
    for flags in (True, False):
        run = simulate(kernels, plan, dict(inputs), p.output.shape, flags=flags)
        assert run.faults == ()
        found += run.outputs.values()
    for result in found:
        assert relative_error(result, truth, np) < (5e-3 if "bf16" in p.types else 5e-4)


@pytest.mark.parametrize(
    ("p", "tiling"),
    [
        (Problem(64, 4096, 128), replace(TWO, units=3)),  # one of three groups multiplies
        (Problem(64, 4096, 128), replace(TWO, units=1)),
        (Problem(64, 4096, 128), replace(TWO, keys=160)),  # more keys than channels
        (Problem(64, 4096, 96), TWO),  # few channels
        (Problem(64, 4096, 128, score="bias"), TWO),  # a matrix that is staged with keys
    ],
)
def test_other_loops_are_not(p: Problem, tiling: Tiling) -> None:
    assert AHEAD not in compiled(p, tiling).source
    assert not tiling.ahead(p.shape)


def test_keys_and_values_come_and_go_by_themselves() -> None:
    feeding, groups = compiled(Problem(64, 4096, 128), TWO).source.split("return;  // so that")
    engine = feeding.split("else if ((threadIdx.x & 127) == 0)")[1]
    assert engine.index("&map_K") < engine.index("free_ + 8 * (slot + 2)") < engine.index("&map_V")
    first, loop = groups.split(AHEAD)
    assert first.count("group_wait") == 1
    scores, values = loop.index("scores_peak: "), loop.index("mixed: ")
    assert scores < values < loop.index("group_wait<1>") < loop.index("group_wait<0>")
    weights = loop.index("weight[0] =")
    assert loop.index("total[0] = total[0] + ") < loop.index("group_wait<0>") < weights


@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize("keys", [64, 80])
def test_the_assembler_waits_for_runs_and_not_for_instructions(
    keys: int, verified: Verified
) -> None:
    from selector.runtime.nvrtc import resource_usage, sass

    kernel = compiled(Problem(16, 4096, 256), replace(TWO, keys=keys))
    if verified(*nvrtc_inputs(kernel)):
        return
    (usage,), (text,) = resource_usage(kernel.cubin()).values(), sass(kernel.cubin()).values()
    assert not usage.local_accesses
    assert text.count("WARPGROUP.DEPBAR") == 4
