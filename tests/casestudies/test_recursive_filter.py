"""The recursive filter: its reference and its tables against SciPy, and filters hard to compute."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.common.registry import find_case
from casestudies.recursive_filter import output_sound, sound_inputs
from casestudies.recursive_filter.design import numbers_of
from casestudies.recursive_filter.problem import Problem
from casestudies.recursive_filter.sizes import BLOCK, GROUP, TILE, place
from selector.diagnostics import UserError

pytestmark = pytest.mark.verified

pytest.importorskip("scipy")

# The default; poles close to the unit circle, real and complex; weak and alternating responses.
FILTERS = ((1.8, -0.9), (1.95, -0.96), (0.99, 0.0), (-1.2, -0.9), (0.3, 0.4), (-0.5, 0.3))


def filtered(problem: Problem, x: np.ndarray) -> np.ndarray:
    from scipy import signal  # takes seconds

    below = [1.0, -problem.a, -problem.b]
    return np.asarray(signal.lfilter([1.0], below, x.astype(np.float64), axis=1))


@pytest.mark.parametrize(("a", "b"), FILTERS)
@pytest.mark.parametrize("samples", [1, 63, 64, 65, 1000, 20001])
def test_reference_is_lfilter(a: float, b: float, samples: int) -> None:
    problem = Problem(samples, 2, a=a, b=b)
    inputs = case_inputs(find_case("recursive_filter"), problem, 5, np)
    truth = find_case("recursive_filter").reference(problem, decoded(problem, inputs, np), np)
    np.testing.assert_allclose(truth, filtered(problem, inputs["X"]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("a", "b"), FILTERS)
def test_tables_continue_an_output(a: float, b: float) -> None:
    y = filtered(Problem(4 * TILE, 1, a=a, b=b), np.eye(1, 4 * TILE, 3))[0]
    found, t = numbers_of(a, b), 40
    state = y[t - 1], y[t - 2]
    enters = found[place("E") :].reshape(2, BLOCK)
    np.testing.assert_allclose(state @ enters, y[t : t + BLOCK], rtol=1e-5, atol=1e-6)
    for table, row, span in (("S", 0, BLOCK), ("S", 1, TILE), ("M", 1, TILE)):
        first = place(table) + 4 * row
        later = found[first : first + 4].reshape(2, 2) @ state
        np.testing.assert_allclose(later, y[t + span - 1 : t + span - 3 : -1], rtol=1e-5, atol=1e-6)
    for table in ("M", "G"):
        first = place(table)
        np.testing.assert_array_equal(found[first : first + 4], [1, 0, 0, 1])


@pytest.mark.parametrize(("a", "b"), FILTERS)
@pytest.mark.parametrize("whole", [False, True])
def test_the_baseline_is_the_same_filter(a: float, b: float, whole: bool) -> None:
    """By Halide on the CPU; several groups."""
    import halide as hl

    from casestudies.recursive_filter.blocks import blocks

    samples = 3 * GROUP if whole else 2 * GROUP + 77
    p = blocks(a, b, whole=whole)
    parts = [x for b in (p.first, p.second) for x in (b.frames, b.sums, b.ends)]
    chains = [x for kept in (p.tile_ends, p.carry.parts) for x in (kept.steps, kept.kept)]
    carry = [p.carry.inclusive, p.carry.prefix, p.carry.total, p.carry.before]
    for func in (*parts, *chains, *carry, p.response, p.states, p.filtered):
        func.compute_root()
    x = np.random.default_rng(4).standard_normal((2, samples)).astype(np.float16)
    p.x.set(hl.Buffer(x))
    result = np.asarray(p.output.realize([samples, 2]))
    assert relative_error(result, filtered(Problem(samples, 2, a=a, b=b), x), np) < 5e-3


@pytest.mark.parametrize(("a", "b"), [(1.95, -0.96), (-0.5, 0.3), (1.0 - 2.0**-14, 0.0)])
def test_any_length_from_one_kernel(a: float, b: float) -> None:
    import halide_bridge as hb

    case = find_case("recursive_filter")
    output = case.scheduled(Problem(2**20, 1, a, b), "tensor", "sm_90a")
    kernel = hb.compile(output, target="sm_90a")
    for samples in (3, 9000):
        problem = Problem(samples, 1, a, b)
        inputs = case_inputs(case, problem, 7, np)
        result = kernel.interpret(**inputs, sizes=problem.output.shape)
        assert relative_error(result, filtered(problem, inputs["X"]), np) < 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": 2.0}, "is not stable"),
        ({"b": -1.0}, "is not stable"),
        ({"a": 0.9, "b": 0.2}, "is not stable"),
        ({"samples": 0}, "0 samples"),
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
