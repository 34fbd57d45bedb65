"""The tables of numbers that the pipeline takes in the place of a and b, computed in float64.

They follow from the filter's impulse response h, as the taps of other filters do from their design:
n samples without input turn a state ``(Y_(t-1), Y_(t-2))`` = (p, q) into
``(h(n) p + b h(n-1) q, h(n-1) p + b h(n-2) q)``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from casestudies.recursive_filter.sizes import DILATION, LANES, TAPS, Sizes


def impulse_response(a: float, b: float, count: int) -> np.ndarray:
    """The first ``count`` outputs for an input of 1, 0, 0, ..."""
    response = [1.0, a]
    while len(response) < count:
        response.append(a * response[-1] + b * response[-2])
    return np.array(response[:count])


def transition(a: float, b: float, samples: int) -> np.ndarray:
    """What a state becomes over ``samples``, 2 x 2."""
    return np.linalg.matrix_power(np.array([[a, b], [1.0, 0.0]]), samples)


def tables(a: float, b: float, sizes: Sizes) -> dict[str, np.ndarray]:
    """``F``: the tables of numbers that ``Sizes.place`` lists, f32. ``T`` (block, block), f16: what
    sample j of a block contributes to output i, at [i, j].
    """
    response = impulse_response(a, b, sizes.block + 1)
    later = np.subtract.outer(np.arange(sizes.block), np.arange(sizes.block))
    spans = (
        *(sizes.block, sizes.tile, sizes.group * LANES),
        *(sizes.tile * count for count in range(sizes.tiles)),
        *(sizes.group * count for count in range(LANES)),
    )
    numbers = (*transitions(a, b, spans), response[1:], b * response[:-1])
    return {
        "F": np.concatenate(numbers).astype(np.float32),
        "T": np.where(later >= 0, response[np.maximum(later, 0)], 0.0).astype(np.float16),
    }


def transitions(a: float, b: float, spans: Iterable[int]) -> list[np.ndarray]:
    """Four numbers for each span of samples, row by row."""
    return [transition(a, b, span).ravel() for span in spans]


def lookahead_tables(a: float, b: float, sizes: Sizes) -> dict[str, np.ndarray]:
    """``F`` as above. ``B``: transitions over 0, 1, ... blocks, f32. ``D`` (2,), f32: the
    coefficients of the dilated recursion; with the poles x and y they are ``x**d + y**d`` and
    ``-(x y)**d``. ``K`` (2 d,), f16: the taps of the convolution ahead of it.
    """
    far, further = a, -b
    for _ in range(DILATION.bit_length() - 1):
        far, further = far * far - 2 * further, further * further
    taps = impulse_response(a, b, TAPS)
    taps[DILATION:] -= far * taps[:DILATION]
    starts = (sizes.block * count for count in range(sizes.blocks))
    return {
        "F": tables(a, b, sizes)["F"],
        "B": np.array(transitions(a, b, starts), np.float32),
        "D": np.array([far, -further], np.float32),
        "K": taps.astype(np.float16),
    }
