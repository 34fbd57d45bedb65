"""What the 1-D convolution is measured against: cuDNN through torch, each row an image of one
channel, and CuPy's own convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.case import Arrays, Peer
from casestudies.common.cudnn import filter_peers
from casestudies.conv1d.problem import Problem


def cupyx_convolve(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``cupyx.scipy.ndimage.convolve1d`` in f32, which computes the borders as well."""
    import cupy
    from cupyx.scipy import ndimage

    if problem.element != "f16":
        return None
    image = inputs["I"].astype(cupy.float32)
    weights = inputs["K"].astype(cupy.float32)[::-1].copy()
    result = cupy.empty_like(image)
    return lambda: ndimage.convolve1d(image, weights, axis=1, output=result, mode="constant")


PEERS = (
    *filter_peers(),
    Peer("cupyx", "convolve1d, f32, same size", cupyx_convolve, capturable=False),
)
