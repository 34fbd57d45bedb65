"""What the 2-D convolution is measured against: cuDNN through torch, in both layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.boundary import VALID
from casestudies.common.case import Arrays, Peer
from casestudies.conv2d.problem import Problem


def cudnn(channels_last: bool) -> Callable[[Problem, Arrays, Any], Callable[[], object] | None]:
    """torch's convolution in f16 of one image with one channel, cuDNN's fastest algorithm."""

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
        import torch

        if problem.boundary != VALID or problem.element != "f16":
            return None
        torch.backends.cudnn.benchmark = True
        image = torch.from_dlpack(inputs["I"])[None, None]
        weights = torch.from_dlpack(inputs["K"])[None, None]
        if channels_last:
            image = image.to(memory_format=torch.channels_last)
            weights = weights.to(memory_format=torch.channels_last)
        return lambda: torch.nn.functional.conv2d(image, weights)

    return prepare


PEERS = (
    Peer("cuDNN NCHW", "torch conv2d, f16 out, benchmark mode", cudnn(False)),
    Peer("cuDNN NHWC", "torch conv2d, channels last, f16 out, benchmark mode", cudnn(True)),
)
