"""Downsampling, upsampling and boundary modes: references by their definitions, staged copies."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from casestudies.common.boundary import MODES, before, extended
from casestudies.common.data import decoded, random_inputs
from casestudies.common.registry import find_case
from casestudies.conv1d.problem import Problem as Conv1d
from casestudies.conv2d.problem import Problem as Conv2d
from casestudies.downsample.problem import Problem as Downsample
from casestudies.upsample.problem import Problem as Upsample
from selector.diagnostics import UserError

Image = np.ndarray[Any, np.dtype[np.float64]]


def pixel(image: Image, y: int, x: int, boundary: str) -> float:
    height, width = image.shape
    if boundary == "zero" and not (0 <= y < height and 0 <= x < width):
        return 0.0
    return float(image[min(max(y, 0), height - 1), min(max(x, 0), width - 1)])


def checked(case: str, problem: Any) -> tuple[Image, Image, Image]:
    """Image, taps and result of a case's reference."""
    inputs = decoded(problem, random_inputs(problem, 4, np), np)
    return inputs["I"], inputs["K"], find_case(case).reference(problem, inputs, np)


@pytest.mark.parametrize("boundary", MODES)
@pytest.mark.parametrize(("taps", "factor"), [(4, 2), (5, 2), (3, 3), (1, 2)])
def test_downsampling_by_its_definition(taps: int, factor: int, boundary: str) -> None:
    p = Downsample(5, 4, taps, factor, boundary)
    image, weights, found = checked("downsample", p)
    back = before(boundary, taps, factor)
    for y, x in product(range(4), range(5)):
        total = sum(
            weights[s, t] * pixel(image, factor * y + s - back, factor * x + t - back, boundary)
            for s, t in product(range(taps), repeat=2)
        )
        assert found[y, x] == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("boundary", MODES)
@pytest.mark.parametrize(("taps", "factor"), [(4, 2), (6, 2), (9, 3)])
def test_upsampling_by_its_definition(taps: int, factor: int, boundary: str) -> None:
    p = Upsample(7, 5, taps, factor, boundary)
    image, weights, found = checked("upsample", p)
    back = before(boundary, p.phase_taps)
    for y, x in product(range(5), range(7)):
        total = sum(
            weights[factor * s + y % factor, factor * t + x % factor]
            * pixel(image, y // factor + s - back, x // factor + t - back, boundary)
            for s, t in product(range(p.phase_taps), repeat=2)
        )
        assert found[y, x] == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(("boundary", "mode"), [("clamp", "edge"), ("zero", "constant")])
def test_images_go_on_as_numpy_pads_them(boundary: str, mode: Any) -> None:
    image = np.arange(12.0).reshape(3, 4)
    found = extended(image, range(-5, 9), range(-2, 5), boundary, np)
    padded = np.pad(image, ((5, 6), (2, 1)), mode=mode)
    np.testing.assert_array_equal(found, padded)


@pytest.mark.parametrize("boundary", ["clamp", "zero"])
def test_a_continued_image_gives_as_many_pixels(boundary: str) -> None:
    for problem in (Conv1d.of_image(40, 9, 16, boundary), Conv2d.of_image(40, 9, 16, boundary)):
        assert problem.inputs[0].shape == problem.output.shape == (9, 40)
    assert Downsample.of_image(41, 9, 16, 2, boundary).output.shape == (5, 21)
    assert Upsample.of_image(41, 9, 16, 2, boundary).output.shape == (18, 82)


def test_a_window_is_centred_on_what_its_output_stands_for() -> None:
    assert before("valid", 16) == 0
    assert before("clamp", 7) == 3
    assert before("clamp", 16, 2) == 7  # pixels -7 ... 8 around 0 and 1
    assert before("zero", 1, 2) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Downsample.of_image(40, 10, 32), "leave 4 x -11 pixels"),
        (lambda: Downsample(4, 4, 16, 0), "by a factor of 0"),
        (lambda: Upsample(4, 4, 5), "5 taps in 2 phases"),
        (lambda: Upsample.of_image(4, 40, 16), "8 taps of a phase leave -6 x 66"),
        (lambda: Conv2d(4, 4, 3, 0, "mirror"), "no boundary mode 'mirror'"),
        (lambda: Conv1d(4, 4, 3, element="f8"), "conv1d of 'f8'"),
    ],
)
def test_impossible_problems_say_so(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_interpolating_taps_keep_a_constant() -> None:
    from casestudies.upsample.pictures import inputs

    for taps, factor in ((16, 2), (2, 2), (12, 3), (8, 4)):
        problem = Upsample(24, 12, taps, factor, "clamp")
        arrays = inputs(problem, np.full((40, 40), 0.5, np.float32))
        values = decoded(problem, arrays, np)
        result = find_case("upsample").reference(problem, values, np)
        np.testing.assert_allclose(result, 0.5, atol=2e-3)


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ("conv1d", Conv1d(515, 5, 16)),
        ("conv2d", Conv2d(257, 33, 16)),
        ("downsample", Downsample(131, 35, 16)),
    ],
    ids=lambda x: str(x) if isinstance(x, str) else "",
)
def test_a_boundary_costs_no_instructions(case: str, problem: Any) -> None:
    """The windows of a continued image are read as those of one that ends: as many matrices."""
    pytest.importorskip("halide")
    from dataclasses import replace

    import halide_bridge as hb

    def source(boundary: str) -> str:
        p = replace(problem, boundary=boundary)
        return hb.compile(find_case(case).build(p, "mma"), target="sm_90a").source

    valid = source("valid")
    assert "max(min(" not in valid.split("__global__")[1]
    for boundary in ("clamp", "zero"):
        text = source(boundary)
        for instruction in ("ldmatrix4(", "mma_m16n8k16", "copy16("):
            assert text.count(instruction) == valid.count(instruction), (boundary, instruction)
