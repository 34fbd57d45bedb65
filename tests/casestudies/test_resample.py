"""Lanczos-3 resampling: what the reference is, and one kernel at many sizes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from PIL import Image

from casestudies.common.data import decoded, random_inputs, relative_error
from casestudies.common.registry import find_case
from casestudies.resample import extents, from_options
from casestudies.resample.problem import Problem
from casestudies.resample.reference import weights
from selector.diagnostics import UserError

pytestmark = pytest.mark.verified

CASE = find_case("resample")


@cache
def kernel(number: int = 0) -> Any:
    import halide_bridge as hb

    return hb.compile(CASE.build(CASE.small[number], "tensor"), target="sm_90a")


@pytest.mark.parametrize(
    ("size", "to"), [((120, 90), (37, 50)), ((20, 31), (64, 9)), ((9, 9), (9, 5))]
)
def test_the_reference_is_pillows_lanczos(size: tuple[int, int], to: tuple[int, int]) -> None:
    width, height = size
    picture = np.random.default_rng(1).random((height, width)).astype(np.float32)
    theirs = np.asarray(Image.fromarray(picture).resize(to, Image.Resampling.LANCZOS))
    ours = weights(height, to[1]) @ picture @ weights(width, to[0]).T
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_weights_sum_to_one_and_are_the_identity_where_nothing_changes() -> None:
    for size, count in ((2048, 143), (7, 300), (1, 4), (5, 1)):
        np.testing.assert_allclose(weights(size, count).sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(weights(31, 31), np.eye(31), atol=1e-15)


@pytest.mark.parametrize("number", [0, 3])
def test_one_kernel_serves_any_size(number: int) -> None:
    """Taps of one run and of many, with long runs and with short ones."""
    generator = np.random.default_rng(5 + number)
    for _ in range(12):
        width, height, to_width, to_height = (int(n) for n in generator.integers(1, 90, 4))
        problem = Problem(width, height, to_width, to_height)
        inputs = random_inputs(problem, 7, np)
        result = kernel(number).interpret(**inputs, sizes=problem.output.shape)
        truth = CASE.reference(problem, decoded(problem, inputs, np), np)
        assert relative_error(result, truth, np) < 2e-3, problem.name


def test_nothing_outside_the_image_is_read() -> None:
    problem = Problem(50, 41, 17, 23)
    inside = random_inputs(problem, 9, np)["I"]
    around = np.full((3, 80, 96), np.nan, np.float16)
    around[:, 8:49, 16:66] = inside
    result = kernel().interpret(I=around[:, 8:49, 16:66], sizes=problem.output.shape)
    truth = CASE.reference(problem, {"I": inside.astype(float)}, np)
    assert relative_error(result, truth, np) < 2e-3


def test_weights_are_computed_in_the_first_call_only() -> None:
    for number, expected in ((0, ["kernel_middle", "kernel_output"]), (3, ["kernel_output"])):
        entries = [launch.entry for launch in kernel(number).plan.launches if not launch.once]
        assert [entry.rstrip("_0123456789") for entry in entries] == expected


@pytest.mark.parametrize("group", [1, 16])
def test_sparse_and_block_sparse_weights_give_the_same(group: int) -> None:
    import halide as hl

    from casestudies.resample.algorithm import resample
    from casestudies.resample.schedule import plain

    problem = Problem(61, 45, 23, 67)
    image = random_inputs(problem, 3, np)["I"]
    pipeline = resample(group)
    output = plain(pipeline)
    pipeline.image.set(hl.Buffer(image))
    result = np.asarray(output.realize([problem.to_width, problem.to_height, 3]))
    truth = CASE.reference(problem, {"I": image.astype(float)}, np)
    assert relative_error(result, truth, np) < 2e-3


def test_sizes_of_the_command_line() -> None:
    assert from_options({"size": (640, 480), "to": (99, 77)}) == Problem(640, 480, 99, 77)
    assert from_options({}) == Problem(2048, 2048, 450, 450)
    assert extents("30x20") == (30, 20)
    assert extents("30") == (30, 30)
    for text in ("0", "1x2x3", "ax5"):
        with pytest.raises(ValueError, match=r"is not WIDTHxHEIGHT|invalid literal"):
            extents(text)
    with pytest.raises(UserError, match="no way from 5 x 5 to 0 x 5 pixels"):
        Problem(5, 5, 0, 5)
