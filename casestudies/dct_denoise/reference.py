"""The denoiser in float64, with f16 where the pipeline has f16: its inputs, what one product hands
to the next, and nothing else.

Coring is not continuous: a bin at the threshold is kept or dropped by the last bit of what came
before, and each such bin is an error as large as the threshold. Against a reference that rounds
nothing, those few bins would be most of the error. With the same roundings only bins within the
error of an f32 sum of the threshold can differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from casestudies.dct_denoise.problem import STRIDE, TILE, Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """The denoised planes; float64, shape (planes, height, width)."""
    return denoised(
        problem, inputs, xp, lambda values: values.astype(xp.float16).astype(xp.float64)
    )


def exact(problem: Problem, inputs: Mapping[str, Any]) -> np.ndarray:
    """The same without a rounding in between."""
    result: np.ndarray = denoised(problem, inputs, np, lambda values: values)
    return result


def denoised(problem: Problem, inputs: Mapping[str, Any], xp: Any, rounded: Any) -> Any:
    """Both transforms, coring and both transforms back; ``rounded`` is what products hand on."""
    down, across = problem.tiles
    rows = rounded(_forward(inputs["I"], inputs["F"], across, xp))
    bins = rounded(_forward(rows.swapaxes(1, 2), inputs["F"], down, xp))
    cored = xp.where(abs(bins) > inputs["T"][0], bins, 0.0)
    columns = rounded(_inverse(cored, inputs["G"], down, xp))
    pixels = _inverse(columns.swapaxes(1, 2), inputs["G"], across, xp)
    return pixels[:, : problem.height, : problem.width]


def _forward(values: Any, matrix: Any, tiles: int, xp: Any) -> Any:
    """16 bins of each tile along the last axis; outside, the border repeats."""
    at = STRIDE * xp.arange(tiles)[:, None] - STRIDE + xp.arange(TILE)[None, :]
    return _joined(values[..., xp.clip(at, 0, values.shape[-1] - 1)] @ matrix.T)


def _inverse(values: Any, matrix: Any, tiles: int, xp: Any) -> Any:
    """Eight pixels from the bins of every two neighbouring tiles."""
    at = TILE * xp.arange(tiles - 1)[:, None] + xp.arange(2 * TILE)[None, :]
    return _joined(values[..., at] @ matrix.T)


def _joined(values: Any) -> Any:
    return values.reshape(*values.shape[:-2], -1)
