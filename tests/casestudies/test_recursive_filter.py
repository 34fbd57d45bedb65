"""The recursive filter: its reference and its tables against SciPy, and filters hard to compute."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.common.registry import find_case
from casestudies.recursive_filter import output_sound, sound_inputs
from casestudies.recursive_filter.design import lookahead_tables, tables
from casestudies.recursive_filter.problem import METHODS, Problem
from casestudies.recursive_filter.sizes import BLOCKS, DILATION, LOOKAHEAD
from selector.diagnostics import UserError

pytest.importorskip("scipy")

# The default; poles close to the unit circle, real and complex; weak and alternating responses.
FILTERS = ((1.8, -0.9), (1.95, -0.96), (0.99, 0.0), (-1.2, -0.9), (0.3, 0.4), (-0.5, 0.3))


def filtered(problem: Problem, x: np.ndarray) -> np.ndarray:
    from scipy import signal  # takes seconds

    below = [1.0, -problem.a, -problem.b]
    result: np.ndarray = signal.lfilter([1.0], below, x.astype(np.float64), axis=1)
    return result


@pytest.mark.parametrize(("a", "b"), FILTERS)
@pytest.mark.parametrize("samples", [1, 63, 64, 65, 1000, 20001])
def test_reference_is_lfilter(a: float, b: float, samples: int) -> None:
    problem = Problem(samples, 2, a=a, b=b)
    inputs = case_inputs(find_case("recursive_filter"), problem, 5, np)
    truth = find_case("recursive_filter").reference(problem, decoded(problem, inputs, np), np)
    np.testing.assert_allclose(truth, filtered(problem, inputs["X"]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("a", "b"), FILTERS)
def test_tables_continue_an_output(a: float, b: float) -> None:
    y = filtered(Problem(4 * BLOCKS.tile, 1, a=a, b=b), np.eye(1, 4 * BLOCKS.tile, 3))[0]
    numbers, t = tables(a, b, BLOCKS)["F"], 40
    state = y[t - 1], y[t - 2]
    enters = numbers[BLOCKS.place("E") :].reshape(2, BLOCKS.block)
    np.testing.assert_allclose(state @ enters, y[t : t + BLOCKS.block], rtol=1e-5, atol=1e-6)
    for table, row, span in (("S", 0, BLOCKS.block), ("S", 1, BLOCKS.tile), ("M", 1, BLOCKS.tile)):
        first = BLOCKS.place(table) + 4 * row
        later = numbers[first : first + 4].reshape(2, 2) @ state
        np.testing.assert_allclose(later, y[t + span - 1 : t + span - 3 : -1], rtol=1e-5, atol=1e-6)
    for table in ("M", "G"):
        first = BLOCKS.place(table)
        np.testing.assert_array_equal(numbers[first : first + 4], [1, 0, 0, 1])


@pytest.mark.parametrize(("a", "b"), FILTERS)
def test_lookahead_is_the_same_filter(a: float, b: float) -> None:
    from scipy import signal

    x = np.random.default_rng(1).standard_normal((1, 500))
    found = lookahead_tables(a, b, LOOKAHEAD)
    below = np.zeros(2 * DILATION + 1)
    below[[0, DILATION, 2 * DILATION]] = 1, -found["D"][0], -found["D"][1]
    two_steps = signal.lfilter(found["K"].astype(np.float64), below, x, axis=1)
    assert relative_error(two_steps, filtered(Problem(500, 1, a=a, b=b), x), np) < 2e-3


@pytest.mark.parametrize("method", METHODS)
def test_any_filter_and_length_from_one_kernel(method: str) -> None:
    import halide_bridge as hb

    case = find_case("recursive_filter")
    kernel = hb.compile(case.build(Problem(1, 1, method), "tensor"), target="sm_90a")
    for a, b in FILTERS:
        for samples in (3, 17000):
            problem = Problem(samples, 1, method, a, b)
            inputs = case_inputs(case, problem, 7, np)
            result = kernel.interpret(**inputs, sizes=problem.output.shape)
            assert relative_error(result, filtered(problem, inputs["X"]), np) < 5e-3, problem


def test_states_reach_further_than_all_lanes() -> None:
    """More groups than one round of the sum over groups takes, with a filter that remembers."""
    import halide_bridge as hb
    from casestudies.recursive_filter import algorithm, schedule
    from casestudies.recursive_filter.sizes import LANES, Sizes

    small = Sizes(block=16, tile=256, group=1024)
    output = schedule.tensor(
        algorithm.blocks(small), schedule.Tiles(first_warps=1, warps=2, columns=16)
    )
    kernel = hb.compile(output, target="sm_90a")
    samples = small.group * (algorithm.TOGETHER * LANES + 3)
    problem = Problem(samples, 1, a=1.0 - 2.0**-14, b=0.0)
    x = np.random.default_rng(3).standard_normal((1, samples)).astype(np.float16)
    numbers = tables(problem.a, problem.b, small)
    result = kernel.interpret(X=x, **numbers, sizes=x.shape)
    assert relative_error(result, filtered(problem, x), np) < 5e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": 2.0}, "is not stable"),
        ({"b": -1.0}, "is not stable"),
        ({"a": 0.9, "b": 0.2}, "is not stable"),
        ({"samples": 0}, "0 samples"),
        ({"method": "fft"}, "no method 'fft'"),
    ],
)
def test_impossible_filters_say_so(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        dataclasses.replace(Problem(100), **change)


def test_sounds_come_back_within_range() -> None:
    problem = Problem(1000, 2)
    sound = np.random.default_rng(2).uniform(-1, 1, (1000, 2)).astype(np.float32)
    inputs = sound_inputs(problem, sound)
    assert inputs["X"].shape == (2, 1000)
    back = output_sound(problem, 20 * inputs["X"])
    assert back.shape == (1000, 2)
    assert np.abs(back).max() == 1
    np.testing.assert_allclose(output_sound(problem, inputs["X"]), inputs["X"].T)
