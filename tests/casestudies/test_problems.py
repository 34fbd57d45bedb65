"""Problems, data, references and errors of the case studies; no Halide needed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from casestudies.amx_matmul.problem import Problem as Amx
from casestudies.common.case import ArraySpec
from casestudies.common.data import decode, decoded, encode, poisoned, random_inputs, relative_error
from casestudies.common.registry import NAMES, all_cases, find_case
from casestudies.conv1d.problem import TAPS
from casestudies.conv1d.problem import Problem as Conv1d
from casestudies.conv2d.problem import Problem as Conv2d
from casestudies.gemm.problem import Problem as Gemm
from casestudies.measuring import artifacts
from selector.diagnostics import ArtifactError, UserError

PROBLEMS = [p for case in all_cases() for p in (*case.small, *case.benchmark)]


def test_names_of_problems_are_unique() -> None:
    names = [p.name for p in PROBLEMS]
    assert len(set(names)) == len(names)


def test_all_tap_counts_are_measured() -> None:
    assert tuple(p.taps for p in find_case("conv1d").benchmark) == TAPS
    assert len(TAPS) == 16
    assert {p.taps for p in find_case("conv2d").benchmark} == {16, 32}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_a_problem_travels_as_data(problem: Any) -> None:
    case = problem.name.split("-")[0]
    assert artifacts.problem_of(artifacts.job(case, "small", problem)) == problem


def test_of_image_reads_the_whole_image() -> None:
    assert Conv1d.of_image(4096, 4096, 64).inputs[0].shape == (4096, 4096)
    assert Conv2d.of_image(4096, 2048, 16).inputs[0].shape == (2048, 4096)
    assert Conv2d.of_image(4096, 2048, 16).output.shape == (2032, 4080)


def test_conv1d_reference_is_numpy_correlate() -> None:
    problem = Conv1d(40, 3, 8)
    inputs = decoded(problem, random_inputs(problem, 5, np), np)
    expected = [np.correlate(row, inputs["K"], "valid") for row in inputs["I"]]
    truth = find_case("conv1d").reference(problem, inputs, np)
    np.testing.assert_allclose(truth, expected, rtol=1e-12)


def test_conv2d_reference_is_a_sum_over_windows() -> None:
    problem = Conv2d(9, 7, 3)
    inputs = decoded(problem, random_inputs(problem, 6, np), np)
    windows = np.lib.stride_tricks.sliding_window_view(inputs["I"], (3, 3))
    expected = np.einsum("yxst,st->yx", windows, inputs["K"])
    truth = find_case("conv2d").reference(problem, inputs, np)
    np.testing.assert_allclose(truth, expected, rtol=1e-12)


def test_vnni_holds_the_same_product() -> None:
    standard, vnni = (Amx(5, 6, 8, "s8-s8", layout) for layout in ("standard", "vnni"))
    inputs = random_inputs(standard, 7, np)
    truth = find_case("amx_matmul").reference(standard, decoded(standard, inputs, np), np)
    b = np.ascontiguousarray(inputs["B"].reshape(2, 4, 6).swapaxes(1, 2))
    assert b.shape == vnni.inputs[1].shape
    again = decoded(vnni, {"A": inputs["A"], "B": b}, np)
    assert (find_case("amx_matmul").reference(vnni, again, np) == truth).all()


def test_s8_products_are_exact() -> None:
    problem = Gemm(5, 6, 70, "s8-s32")
    inputs = random_inputs(problem, 7, np)
    truth = find_case("gemm").reference(problem, decoded(problem, inputs, np), np)
    wide = inputs["A"].astype(np.int64) @ inputs["B"].astype(np.int64)
    assert (truth == wide).all()


def test_bfloat16_rounds_to_nearest_even() -> None:
    # 1 + 2^-8 lies between two bfloat16 numbers, the even one is 1; 1 + 3 * 2^-8 goes up.
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -2.5, 1e30], np.float32)
    bits = encode(values, "bf16", np)
    assert bits.dtype == np.uint16
    exact = decode(bits, "bf16", np)
    np.testing.assert_array_equal(exact[:4], [1.0, 1.0, 1 + 2**-6, -2.5])
    assert abs(exact[4] / 1e30 - 1) < 2**-8


def test_random_inputs_depend_on_the_seed_alone() -> None:
    problem = Gemm(4, 5, 6, "f16-f32")
    first, again, other = (random_inputs(problem, seed, np) for seed in (1, 1, 2))
    assert all((first[name] == again[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)


def test_an_unwritten_element_never_passes() -> None:
    truth = np.ones((4, 4))
    half_written = poisoned(ArraySpec("output", (4, 4), "f32"), np)
    half_written[:2] = 1
    assert relative_error(half_written, truth, np) == float("inf")
    integers = poisoned(ArraySpec("C", (4, 4), "s32"), np)
    integers[1:] = 1
    assert relative_error(integers, truth, np) > 1
    assert relative_error(truth, truth, np) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Conv1d.of_image(16, 4, 16), "taps leave an output of 0 x 4"),
        (lambda: Conv2d.of_image(40, 10, 32), "leave 8 x -22 pixels"),
        (lambda: Gemm(0, 4, 4), "is not a size"),
        (lambda: Gemm(4, 4, 4, "f64-f64"), "no variant 'f64-f64'"),
        (lambda: Amx(4, 4, 3, layout="vnni"), "k is a multiple of 2, not 3"),
        (lambda: Amx(4, 4, 4, "f16-f16"), "no types 'f16-f16'"),
        (lambda: find_case("conv3d"), "no case study 'conv3d'"),
    ],
)
def test_impossible_problems_say_so(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_manifest_round_trip(tmp_path: Any) -> None:
    jobs = tuple(artifacts.job(n, "small", find_case(n).small[0]) for n in NAMES)
    manifest = artifacts.Manifest(
        (artifacts.SavedKernel("conv1d", "conv1d-k8", "sm_90a", "a.kernel"),),
        (artifacts.SavedStock("conv1d", "x", "x.so", ("I", "K")),),
        jobs,
    )
    artifacts.write(tmp_path, manifest)
    assert artifacts.read(tmp_path) == manifest
    assert [artifacts.problem_of(j) for j in jobs] == [find_case(n).small[0] for n in NAMES]
    with pytest.raises(ArtifactError, match=r"no manifest\.json"):
        artifacts.read(tmp_path / "elsewhere")


def test_problems_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Conv1d(1, 1, 1).taps = 2  # type: ignore[misc]
