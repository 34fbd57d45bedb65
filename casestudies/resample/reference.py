"""Lanczos-3 resampling in float64, as dense matrices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np


@cache
def weights(size: int, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Weights of ``size`` pixels (columns) for each of ``count`` outputs (rows), which sum to one.

    Output o lies at (o + 1/2) * size / count. The kernel is sinc(x) * sinc(x / 3) for |x| < 3, x
    being the distance to a pixel's centre in pixels, or in outputs where those are fewer (the
    filter then removes what the outputs cannot hold). Pixels beyond the image do not exist.
    """
    centres = (np.arange(count) + 0.5) * size / count
    distance = (np.arange(size) + 0.5 - centres[:, None]) / max(size / count, 1)
    kernel = np.where(np.abs(distance) < 3, np.sinc(distance) * np.sinc(distance / 3), 0)
    return kernel / kernel.sum(axis=1, keepdims=True)


def reference(problem: Any, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``R @ I[c] @ C.T`` for each plane; float64, shape (3, to_height, to_width)."""
    rows = xp.asarray(weights(problem.height, problem.to_height))
    columns = xp.asarray(weights(problem.width, problem.to_width))
    return rows @ inputs["I"] @ columns.T
