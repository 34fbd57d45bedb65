"""The numbers that stock Halide's version is made of, computed in float64.

They follow from the filter's impulse response h, as the taps of other filters do from their design:
n samples without input turn a state ``(Y_(t-1), Y_(t-2))`` = (p, q) into
``(h(n) p + b h(n-1) q, h(n-1) p + b h(n-2) q)``.
"""

from __future__ import annotations

import numpy as np

from casestudies.recursive_filter.sizes import BLOCK, GROUP, LANES, TILE, TILES


def impulse_response(a: float, b: float, count: int) -> np.ndarray:
    """The first ``count`` outputs for an input of 1, 0, 0, ..."""
    response = [1.0, a]
    while len(response) < count:
        response.append(a * response[-1] + b * response[-2])
    return np.array(response[:count])


def transition(a: float, b: float, samples: int) -> np.ndarray:
    """What a state becomes over ``samples``, 2 x 2."""
    return np.linalg.matrix_power(np.array([[a, b], [1.0, 0.0]]), samples)


def numbers_of(a: float, b: float) -> np.ndarray:
    """The tables that ``sizes.place`` lists, f32; transitions row by row."""
    response = impulse_response(a, b, BLOCK + 1)
    spans = (
        *(BLOCK, TILE, GROUP * LANES),
        *(TILE * count for count in range(TILES)),
        *(GROUP * count for count in range(LANES)),
    )
    tables = (*(transition(a, b, span).ravel() for span in spans), response[1:], b * response[:-1])
    return np.concatenate(tables).astype(np.float32)


def response_of(a: float, b: float) -> np.ndarray:
    """What sample j of a block contributes to its output i, at [i, j]; f16."""
    response = impulse_response(a, b, BLOCK)
    later = np.subtract.outer(np.arange(BLOCK), np.arange(BLOCK))
    return np.where(later >= 0, response[np.maximum(later, 0)], 0.0).astype(np.float16)
