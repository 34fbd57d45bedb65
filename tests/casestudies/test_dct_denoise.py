"""The denoiser: it takes noise away, and its variants agree.

How close two runs can be is a matter of coring. A bin within rounding of the threshold is kept by
one and dropped by the other, an error as large as the threshold in one bin of 256. The f32 sums of
two runs differ by some 1e-7 of a bin, so that hardly a bin flips, and runs that round to f16 at the
same places agree to the rounding of the result, 2e-4. Where the places differ, by f16's 5e-4 of a
bin, about one bin of a thousand flips; each then costs a threshold, a tenth of what a bin holds
elsewhere, and the whole stays below 5e-3.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.common.data import decoded, poisoned, relative_error
from casestudies.common.images import fit, load
from casestudies.common.runner import run
from casestudies.common.stock import CPU_TARGET, argument_order, compile_shared
from casestudies.common.stock_call import StockLibrary
from casestudies.dct_denoise import CASE, butterflies, fast, matrices
from casestudies.dct_denoise.pictures import picture_inputs, random_inputs
from casestudies.dct_denoise.problem import BENCHMARK, SMALL, Problem
from casestudies.dct_denoise.reference import exact, reference
from selector.api import Kernel
from selector.diagnostics import UserError

pytestmark = pytest.mark.verified

SAME_ROUNDINGS, OTHER_ROUNDINGS = 4e-4, 5e-3


@cache
def kernel() -> Kernel:
    return hb.compile(CASE.scheduled(BENCHMARK[0], "tensor", "sm_90a"), target="sm_90a")


def psnr(picture: np.ndarray, truth: np.ndarray) -> float:
    """Peak signal to noise in dB, the peak being 1."""
    return float(-10 * np.log10(np.mean((picture.astype(np.float64) - truth) ** 2)))


def test_the_matrices_give_back_what_they_take() -> None:
    """Without coring a line of pixels comes back: the window sums to one over the tiles."""
    tiles = 5
    pixels = np.random.default_rng(3).standard_normal(8 * (tiles + 1))
    bins = np.concatenate([matrices.forward() @ pixels[8 * t : 8 * t + 16] for t in range(tiles)])
    back = [matrices.inverse() @ bins[16 * t : 16 * t + 32] for t in range(tiles - 1)]
    assert np.allclose(np.concatenate(back), pixels[8:-8], atol=1e-12)
    assert np.allclose(matrices.transform() @ matrices.transform().T, np.eye(16), atol=1e-12)


def test_the_threshold_is_of_the_noise_in_a_bin() -> None:
    noise = np.random.default_rng(5).standard_normal((4000, 16, 16))
    bins = matrices.forward() @ noise @ matrices.forward().T
    kept = np.mean(np.abs(bins) > matrices.threshold(1.0))
    assert 0.001 < kept < 0.01  # 3 standard deviations: 0.0027


def test_a_noisy_photograph_gets_better() -> None:
    truth = fit(load(), 192, 256)
    noise = 0.1 * np.random.default_rng(11).standard_normal(truth.shape)
    noisy = (truth + noise).astype(np.float32)
    problem = Problem(256, 192, 1, strength=0.1)
    result = kernel().interpret(**picture_inputs(problem, noisy), sizes=problem.output.shape)
    before, after = psnr(noisy, truth), psnr(result[0], truth)
    assert before < 20.5
    assert after > before + 6.5


def test_without_coring_the_picture_comes_back() -> None:
    problem = Problem(75, 50, 3, strength=0.0)
    inputs = random_inputs(problem, 4, np)
    inputs["I"] = np.random.default_rng(4).random(problem.output.shape).astype(np.float16)
    result = kernel().interpret(**inputs, sizes=problem.output.shape)
    assert relative_error(result, inputs["I"].astype(np.float64), np) < 1e-3


@pytest.mark.parametrize("problem", SMALL, ids=lambda p: p.name)
def test_against_float64(problem: Problem) -> None:
    inputs = random_inputs(problem, 9, np)
    values = decoded(problem, inputs, np)
    result = kernel().interpret(**inputs, sizes=problem.output.shape)
    assert relative_error(result, reference(problem, values, np), np) < SAME_ROUNDINGS
    assert relative_error(result, exact(problem, values), np) < OTHER_ROUNDINGS


def test_tensor_equals_the_direct_variant() -> None:
    """The same algorithm without tensor instructions: stock Halide on the CPU."""
    problem = SMALL[2]
    inputs = random_inputs(problem, 12, np)
    direct = run(CASE, problem, inputs, "plain", "cpu", None)
    assert direct.error < SAME_ROUNDINGS
    result = kernel().interpret(**inputs, sizes=problem.output.shape)
    assert relative_error(result, direct.output.astype(np.float64), np) < SAME_ROUNDINGS


def test_four_products_in_one_kernel() -> None:
    blocks = [u.block for u in kernel().report.updates]
    assert all(block is not None for block in blocks)
    assert kernel().source.count("__global__") == 1
    cored = [line for line in kernel().source.splitlines() if "cored" in line]
    assert cored
    assert not any("smem" in line for line in cored)


def test_mistakes() -> None:
    with pytest.raises(UserError, match="is no picture"):
        Problem(0, 5)
    with pytest.raises(UserError, match="a strength of -1"):
        Problem(5, 5, strength=-1.0)


def test_the_fast_transform_is_the_transform() -> None:
    unit = list(np.eye(16))
    assert np.allclose(butterflies.forward(unit), matrices.transform(), atol=1e-13)
    assert np.allclose(butterflies.inverse(unit), matrices.transform().T, atol=1e-13)


def test_the_fast_variant(tmp_path: Path) -> None:
    output = fast.plain(fast.denoise())
    compile_shared(output, tmp_path / "fast.so", CPU_TARGET)
    library, order = StockLibrary(tmp_path / "fast.so"), argument_order(output)[:-1]
    problem = Problem(259, 130, 2)
    inputs, result = random_inputs(problem, 8, np), poisoned(problem.output, np)
    library.bind(order, problem, inputs, result)()
    assert (
        relative_error(result, exact(problem, decoded(problem, inputs, np)), np) < OTHER_ROUNDINGS
    )


def test_a_flat_area_stays_flat() -> None:
    """It has one bin: coring leaves no trace of the tiles."""
    problem = Problem(70, 41, 1, strength=0.1)
    flat = np.full((41, 70), 0.5, np.float32)
    result = kernel().interpret(**picture_inputs(problem, flat), sizes=problem.output.shape)
    assert np.ptp(result.astype(np.float32)) < 2e-3


def test_what_all_blocks_copy_comes_through_l1() -> None:
    """The matrices, once for each filter; each block's part of the picture goes past it."""
    source = kernel().source
    parts = re.split(r"f16\* const (\w+) = \(f16\*\)\(smem", source)[1:]
    copies = {
        name: set(re.findall(r"copy16\w*\(", text))
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }
    matrices_of = {name: found for name, found in copies.items() if name.startswith(("F", "G"))}
    assert len(matrices_of) == 4
    assert all(found == {"copy16_cached("} for found in matrices_of.values())
    assert copies["padded_in_rows"] == {"copy16("}
