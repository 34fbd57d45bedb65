"""Gray pictures as the input ``I`` of a filter whose taps ``K`` are a blur."""

from __future__ import annotations

import numpy as np

from casestudies.common.case import Arrays, Option, Pictures, Problem, positive
from casestudies.common.data import encode
from casestudies.common.images import fit, gaussian

TAPS = Option("taps", "of the filter", positive)


def blur_inputs(problem: Problem, picture: np.ndarray) -> Arrays:
    """A picture, mirrored as far as the image of the problem reaches, and a blur."""
    image, taps = problem.inputs
    blur = gaussian(taps.shape[-1])
    weights = np.outer(blur, blur) if len(taps.shape) == 2 else blur
    return {
        image.name: encode(fit(picture, *image.shape), image.element, np),
        taps.name: encode(weights, taps.element, np),
    }


def as_it_is(problem: Problem, output: np.ndarray) -> np.ndarray:
    """An output that is a picture already."""
    return output.astype(np.float32)


PICTURES = Pictures(1, blur_inputs, as_it_is)
