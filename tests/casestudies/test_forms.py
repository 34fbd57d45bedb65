"""Forms of the machine-learning cases that the public sweep has: right in the interpreter, in both
schedules, and references that are what their names say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.attention import CASE as ATTENTION
from casestudies.attention.problem import Problem as Attention
from casestudies.common.data import case_inputs, decoded, poisoned, relative_error
from casestudies.common.registry import NAMES, find_case
from casestudies.conv_layer import CASE as CONV_LAYER
from casestudies.conv_layer.problem import Problem as Layer
from casestudies.gemm import CASE as GEMM
from casestudies.gemm.problem import Problem as Gemm
from selector.diagnostics import UserError

pytestmark = pytest.mark.verified

DEEP = Attention(1, 100, 256, types="f16-f16")  # groups have no shared memory for it: tensor is mma
FORMS = [
    (GEMM, Gemm(70, 72, 40, "f16-f16", "nt", batch=3)),
    (GEMM, Gemm(33, 65, 129, "bf16-f32", "tn", batch=2)),
    (GEMM, Gemm(129, 64, 257, "s8-s8", "nn", "scale")),
    (GEMM, Gemm(65, 72, 40, "u8s8-s8", "nt", "scale")),
    (GEMM, Gemm(65, 72, 40, "u8s8-s32", "nn")),
    (GEMM, Gemm(65, 72, 40, "u8s8-s32", "nt", batch=2)),
    (ATTENTION, Attention(4, 70, 64, types="f16-f16", sharing=2)),
    (ATTENTION, Attention(2, 1, 128, types="bf16-bf16", keys=300, sharing=2)),
    (ATTENTION, Attention(1, 300, 64, True, types="f16-f16", window=40)),
    (ATTENTION, Attention(2, 140, 64, True, "bias", types="bf16-bf16")),
    (ATTENTION, Attention(2, 70, 48, types="f16-f16")),
    (ATTENTION, Attention(1, 130, 80, types="bf16-bf16")),
    (CONV_LAYER, Layer(2, 9, 13, 16, 24, padded=True, residual=True, result="f16")),
    (CONV_LAYER, Layer(2, 9, 13, 64, 64, 2, padded=True, result="f16")),
    (CONV_LAYER, Layer(1, 9, 70, 128, 64, padded=True, result="f16")),
    (CONV_LAYER, Layer(3, 5, 9, 20, 12, padded=True)),
    (CONV_LAYER, Layer(17, 3, 5, 100, 72, residual=True, result="f16")),
    (CONV_LAYER, Layer(1, 20, 33, 3, 64, 2, taps=7, padded=True, result="f16")),
    (CONV_LAYER, Layer(2, 12, 70, 48, 48, taps=5, padded=True, result="f16")),
    (CONV_LAYER, Layer(2, 9, 9, 256, 96, 2, taps=1, padded=True, result="f16")),
    (CONV_LAYER, Layer(1, 15, 17, 96, 64, dilation=2, padded=True, result="f16")),
    (CONV_LAYER, Layer(2, 9, 13, 16, 24, 2, taps=5, dilation=2)),
]


RUNS = [
    (case, problem, schedule)
    for case, problem in (*FORMS, (ATTENTION, DEEP))
    for schedule in ("tensor", "mma")
    if schedule == "tensor" or case is not ATTENTION or problem.depth in (64, 128)
]


@pytest.mark.parametrize(("case", "problem", "schedule"), RUNS, ids=lambda x: getattr(x, "name", x))
def test_a_form_is_right(case: Any, problem: Any, schedule: str) -> None:
    output = case.scheduled(problem, schedule, "sm_90a")
    kernel = hb.compile(output, target="sm_90a")
    inputs = case_inputs(case, problem, 3, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) <= case.tolerance[problem.output.element]


def test_results_in_bytes_are_rounded_and_saturated() -> None:
    problem = Gemm(2, 3, 1, "s8-s8", "nn", "scale")
    inputs = {
        "A": np.array([[100.0], [-3]]),
        "B": np.array([[9.0, -9, 5]]),
        "scale": np.full(3, 0.5),
    }
    truth = GEMM.reference(problem, inputs, np)
    np.testing.assert_array_equal(truth, [[127, -128, 127], [-14, 14, -8]])


def test_scales_leave_most_results_of_bytes_within_their_type() -> None:
    problem = Gemm(64, 64, 500, "s8-s8", "nn", "scale")
    inputs = decoded(problem, case_inputs(GEMM, problem, 1, np), np)
    truth = GEMM.reference(problem, inputs, np)
    assert np.mean(np.abs(truth) >= 127) < 0.05
    assert np.std(truth) > 10
    assert (poisoned(problem.output, np) == 0x55).all()


def test_a_window_is_the_last_keys_of_those_before() -> None:
    problem = Attention(4, 6, 16, True, sharing=2, window=3)
    inputs = decoded(problem, case_inputs(ATTENTION, problem, 6, np), np)
    truth = ATTENTION.reference(problem, inputs, np)
    for h, m in np.ndindex(4, 6):
        keys = [n for n in range(6) if m - 3 < n <= m]
        scores = np.array([inputs["Q"][h, m] @ inputs["K"][h // 2, n] / 4 for n in keys])
        weights = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(truth[h, m], weights @ inputs["V"][h // 2][keys], rtol=1e-11)
    seen = sum(len([n for n in range(6) if m - 3 < n <= m]) for m in range(6))
    assert problem.multiply_adds == 2 * 4 * seen * 16


def test_a_padded_layer_has_zeros_around() -> None:
    padded = Layer(2, 5, 6, 3, 4, taps=5, dilation=2, padded=True, residual=True)
    inputs = decoded(padded, case_inputs(CONV_LAYER, padded, 5, np), np)
    assert inputs["I"].shape == (2, 5, 6, 3)
    around = np.pad(inputs["I"], ((0, 0), (4, 4), (4, 4), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (9, 9), axis=(1, 2))
    expected = np.einsum("nyxcst,stcf->nyxf", windows[..., ::2, ::2], inputs["K"])
    expected = np.maximum(expected + inputs["bias"] + inputs["residual"], 0)
    truth = CONV_LAYER.reference(padded, inputs, np)
    np.testing.assert_allclose(truth, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gemm(8, 8, 8, "s8-s8"), "scales its sums"),
        (lambda: Gemm(8, 8, 8, "s8-s32", epilogue="scale"), "no scale goes with"),
        (lambda: Gemm(8, 8, 8, batch=0), "not a size"),
        (lambda: Attention(3, 8, 16, sharing=2), "do not divide"),
        (lambda: Attention(2, 8, 16, True, keys=9), "as many keys as queries"),
        (lambda: Attention(2, 8, 16, window=4), "window is causal"),
        (lambda: Layer(1, 8, 8, 8, 8, result="s8"), "no result 's8'"),
        (lambda: Layer(1, 8, 8, 8, 8, taps=4), "4 x 4 taps of dilation 1 have no middle"),
    ],
)
def test_what_is_no_problem_is_said(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("case", "problem", "schedule"),
    [
        (GEMM, Gemm(8, 8, 8, batch=2), "cuda"),
        (GEMM, Gemm(8, 8, 8, "bf16-f32", batch=2), "amx"),
        (ATTENTION, Attention(2, 8, 64, sharing=2), "cuda"),
    ],
)
def test_what_a_schedule_does_not_know_is_refused(case: Any, problem: Any, schedule: str) -> None:
    with pytest.raises(UserError):
        case.build(problem, schedule)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_no_schedule_is_refused_with_those_there_are(name: str) -> None:
    case = find_case(name)
    with pytest.raises(UserError, match="no schedule 'nothing'") as error:
        case.build(case.small[0], "nothing")
    assert all(word in error.value.hint for word in case.schedules if word.startswith("cuda"))
