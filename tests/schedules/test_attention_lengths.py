"""Attention of sequences of different lengths and behind a mask of blocks, without a schedule: one
loop over keys, right as selected, simulated and emitted; tiles behind the end of a sequence have no
run of keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

from emulation import check
from verified import EMULATED

import halide_bridge as hb
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.common.registry import find_case
from casestudies.plain.block_mask import Problem as BlockMask
from casestudies.plain.lengths import Problem as Lengths
from selector.gpu.codegen.program import emit_kernels
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = EMULATED

ONE_LOOP = "in the loop over keys that the product is in"


def compiled(name: str, problem: Any, target: str = "sm_90a") -> Any:
    """For sizes that fill a GPU: it has to be right at others."""
    case = find_case(f"plain.{name}")
    assert case.plain is not None
    sizes = {spec.name: spec.shape for spec in (*problem.inputs, problem.output)}
    schedule = hb.autoschedule(case.plain(problem), target=target, sizes=sizes)
    assert schedule.report.count(ONE_LOOP) == 3, schedule.report
    return hb.compile(case.plain(problem), target=target, schedule="auto", sizes=sizes)


def assert_right(name: str, problem: Any, kernel: Any, **changed: Any) -> None:
    case, shape = find_case(f"plain.{name}"), problem.output.shape
    arrays = case_inputs(case, problem, 3, np) | changed
    truth = case.reference(problem, decoded(problem, arrays, np), np)
    assert np.isfinite(truth).all()
    kernels, plan = emit_kernels(kernel.module, kernel.target)
    run = simulate(kernels, plan, arrays, shape)
    assert run.faults == ()
    found = [kernel.interpret(**arrays, sizes=shape), *run.outputs.values()]
    found.append(check(kernel, **arrays, sizes=shape))
    for result in found:
        assert np.isfinite(np.asarray(result)).all()
        assert relative_error(np.asarray(result), truth, np) < 1e-3
        assert not np.asarray(result)[truth == 0].any()


@pytest.mark.parametrize(("depth", "target"), [(64, "sm_90a"), (128, "sm_90a"), (64, "sm_80")])
def test_sequences_have_their_own_lengths(depth: int, target: str) -> None:
    kernel = compiled("lengths", Lengths(16, 17, 4000, 16, depth), target)
    for lengths in ((0, 1, 300, 129), (5, 64), (0,)):
        problem = Lengths(len(lengths), min(lengths), max(*lengths, 1), 2, depth)
        assert_right("lengths", problem, kernel, lengths=np.array(lengths, np.int32))


def test_no_run_of_keys_behind_the_end_of_a_sequence_is_read() -> None:
    """Values that are no numbers show where they are: nothing times them is no number either."""
    kernel = compiled("lengths", Lengths(16, 17, 4000, 16, 64))
    problem = Lengths(2, 100, 600, 1, 64)
    arrays = case_inputs(find_case("plain.lengths"), problem, 3, np)
    arrays["lengths"] = np.array([100, 600], np.int32)
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    for first, shown in ((128, False), (90, True)):
        arrays["V"][0, :, first:] = np.nan
        (result,) = simulate(kernels, plan, arrays, problem.output.shape).outputs.values()
        assert np.isnan(result[0, :, :100]).all() == np.isnan(result).any() == shown
        assert not result[0, :, 192:].any()


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_blocks_that_are_masked_do_not_count(target: str) -> None:
    kernel = compiled("block_mask", BlockMask(16, 4096, 64, 0.5), target)
    for length in (300, 5):
        problem = BlockMask(2, length, 64, 0.5)
        assert_right("block_mask", problem, kernel)
        nothing = np.eye(problem.blocks, dtype=np.uint8)
        nothing[-1] = 0  # a block of queries without keys
        assert_right("block_mask", problem, kernel, mask=nothing)


@pytest.mark.parametrize("depth", [64, 128])
def test_no_run_of_keys_that_a_block_of_queries_has_not_is_read(depth: int) -> None:
    """Whatever the blocks are that one has: none, the first, the last, or some in between."""
    kernel = compiled("block_mask", BlockMask(16, 4096, depth, 0.5))
    problem = BlockMask(1, 500, depth, 0.5)
    arrays = case_inputs(find_case("plain.block_mask"), problem, 3, np)
    arrays["mask"] = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]], np.uint8)
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    for block in (0, 3):
        changed = arrays | {"V": arrays["V"].copy()}
        changed["V"][0, block * 128 : (block + 1) * 128] = np.nan
        run = simulate(kernels, plan, changed, problem.output.shape)
        assert run.faults == ()
        (result,) = run.outputs.values()
        reads = np.isnan(result[0]).any(1)
        assert (reads == arrays["mask"][:, block].repeat(128)[:500]).all()
