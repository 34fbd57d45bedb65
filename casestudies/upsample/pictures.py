"""Pictures to upsample, and taps that interpolate them."""

from __future__ import annotations

import numpy as np

from casestudies.common.boundary import VALID, before
from casestudies.common.case import Arrays, Pictures
from casestudies.common.images import fit
from casestudies.common.pictures import as_it_is
from casestudies.upsample.problem import Problem


def interpolation(problem: Problem) -> np.ndarray:
    """Taps of each phase along one axis, interleaved as the algorithm has them: a windowed sinc
    around the place of the output between the pixels; each phase sums to one.
    """
    taps, factor = problem.phase_taps, problem.factor
    # In `valid` the window starts at the output's own pixel; its middle is what the output shows.
    back = (taps - 1) // 2 if problem.boundary == VALID else before(problem.boundary, taps)
    t, phase = np.arange(taps)[:, None], np.arange(factor)
    distance = t - back - ((phase + 0.5) / factor - 0.5)
    reach = taps / 2 + 0.5
    weights = np.sinc(distance) * np.clip(np.cos(np.pi / 2 * distance / reach), 0, None)
    weights = weights if taps > 1 else np.ones_like(distance)
    return (weights / weights.sum(0)).reshape(-1).astype(np.float32)


def inputs(problem: Problem, picture: np.ndarray) -> Arrays:
    """A picture, mirrored as far as the image of the problem reaches, and interpolating taps."""
    image, taps = problem.inputs
    weights = interpolation(problem)
    return {
        image.name: fit(picture, *image.shape).astype(np.float16),
        taps.name: np.outer(weights, weights).astype(np.float16),
    }


PICTURES = Pictures(1, inputs, as_it_is)
