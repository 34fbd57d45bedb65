"""What downsampling is measured against: cuDNN's strided convolution through torch, in both
layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.boundary import VALID
from casestudies.common.case import Arrays, Peer
from casestudies.downsample.problem import Problem

Prepare = Callable[[Problem, Arrays, Any], Callable[[], object] | None]


def cudnn(channels_last: bool) -> Prepare:
    """torch's strided convolution in f16 of one image with one channel, cuDNN's fastest
    algorithm.
    """

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
        import torch

        if problem.boundary != VALID:
            return None
        torch.backends.cudnn.benchmark = True
        image = torch.from_dlpack(inputs["I"])[None, None]
        weights = torch.from_dlpack(inputs["K"])[None, None]
        if channels_last:
            image = image.to(memory_format=torch.channels_last)
            weights = weights.to(memory_format=torch.channels_last)
        stride = problem.factor
        return lambda: torch.nn.functional.conv2d(image, weights, stride=stride)

    return prepare


PEERS = (
    Peer("cuDNN NCHW", "torch conv2d with stride, f16 out, benchmark mode", cudnn(False)),
    Peer(
        "cuDNN NHWC",
        "torch conv2d with stride, channels last, f16 out, benchmark mode",
        cudnn(True),
    ),
)
