"""cuDNN through torch, as what the filters of an image are measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.boundary import VALID, extended
from casestudies.common.case import Arrays, Peer


def filtering(
    channels_last: bool, stride: Callable[[Any], int]
) -> Callable[[Any, Arrays, Any], Callable[[], object] | None]:
    """torch's convolution in f16 of one image ``I`` with one channel and the taps ``K`` (a row of
    them, or a matrix), ``stride(problem)`` pixels apart, cuDNN's fastest algorithm. Where the image
    continues beyond its edges it gets one with them, made before and not timed. None for other
    types.
    """

    def prepare(problem: Any, inputs: Arrays, output: Any) -> Callable[[], object] | None:
        from casestudies.common.gpu_torch import torch

        if problem.inputs[0].element != "f16":
            return None
        torch.backends.cudnn.benchmark = True
        image = torch.from_dlpack(with_edges(problem, inputs["I"]))[None, None]
        weights = torch.from_dlpack(inputs["K"])
        weights = weights.reshape(1, 1, -1, weights.shape[-1])
        if channels_last:
            image = image.to(memory_format=torch.channels_last)
            weights = weights.to(memory_format=torch.channels_last)
        return lambda: torch.nn.functional.conv2d(image, weights, stride=stride(problem))

    return prepare


def with_edges(problem: Any, image: Any) -> Any:
    """What the problem reads of an image."""
    import cupy

    if problem.boundary == VALID:
        return image
    rows, columns = (
        range(axis.first, axis.first + axis.reach(outputs))
        for axis, outputs in zip(
            (problem.shape.y, problem.shape.x), problem.output.shape, strict=True
        )
    )
    return extended(image, rows, columns, problem.boundary, cupy).astype(image.dtype)


def filter_peers(
    stride: Callable[[Any], int] = lambda problem: 1, what: str = ""
) -> tuple[Peer, Peer]:
    """Both layouts; ``what`` says more of the call."""
    call = f"torch conv2d{what}"
    return (
        Peer("cuDNN NCHW", f"{call}, f16 out, benchmark mode", filtering(False, stride)),
        Peer(
            "cuDNN NHWC", f"{call}, channels last, f16 out, benchmark mode", filtering(True, stride)
        ),
    )
