"""What the 1-D convolution is measured against: cuDNN through torch, and CuPy's own convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.boundary import VALID
from casestudies.common.case import Arrays, Peer
from casestudies.conv1d.problem import Problem


def cudnn(channels_last: bool) -> Callable[[Problem, Arrays, Any], Callable[[], object] | None]:
    """torch's convolution in f16, each row an image of one channel, cuDNN's fastest algorithm."""

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
        import torch

        if problem.boundary != VALID or problem.element != "f16":
            return None
        torch.backends.cudnn.benchmark = True
        image = torch.from_dlpack(inputs["I"])[None, None]
        weights = torch.from_dlpack(inputs["K"])[None, None, None]
        if channels_last:
            image = image.to(memory_format=torch.channels_last)
            weights = weights.to(memory_format=torch.channels_last)
        return lambda: torch.nn.functional.conv2d(image, weights)

    return prepare


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
    Peer("cuDNN NCHW", "torch conv2d, f16 out, benchmark mode", cudnn(False)),
    Peer("cuDNN NHWC", "torch conv2d, channels last, f16 out, benchmark mode", cudnn(True)),
    Peer("cupyx", "convolve1d, f32, same size", cupyx_convolve, capturable=False),
)
