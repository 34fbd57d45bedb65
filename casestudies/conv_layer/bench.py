"""What the convolution layer is measured against: cuDNN through torch, in both layouts, with bias
and ReLU fused and as torch.compile puts them together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.case import Arrays, Peer
from casestudies.conv_layer.problem import Problem


def operands(inputs: Arrays, channels_last: bool) -> tuple[Any, Any, Any]:
    """Images, weights and bias as torch wants them: NCHW and OIHW, in memory as asked for."""
    from casestudies.common.gpu_torch import torch

    torch.backends.cudnn.benchmark = True
    image = torch.from_dlpack(inputs["I"]).permute(0, 3, 1, 2)
    weights = torch.from_dlpack(inputs["K"]).permute(3, 2, 0, 1)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return (
        image.contiguous(memory_format=layout),
        weights.contiguous(memory_format=layout),
        torch.from_dlpack(inputs["bias"]),
    )


def cudnn(channels_last: bool) -> Callable[[Problem, Arrays, Any], Callable[[], object]]:
    """cuDNN's fused convolution, bias and ReLU, in f16."""

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
        from casestudies.common.gpu_torch import torch

        image, weights, bias = operands(inputs, channels_last)
        apart, steps = (problem.dilation,) * 2, (problem.stride,) * 2
        around = (problem.border,) * 2
        if not problem.residual:
            return lambda: torch.cudnn_convolution_relu(
                image, weights, bias, steps, around, apart, 1
            )
        added = torch.from_dlpack(inputs["residual"]).permute(0, 3, 1, 2)
        if not channels_last:
            added = added.contiguous()
        return lambda: torch.cudnn_convolution_add_relu(
            image, weights, added, 1.0, bias, steps, around, apart, 1
        )

    return prepare


def compiled(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """torch.compile of the convolution and the ReLU."""
    from casestudies.common.gpu_torch import torch

    arrays = operands(inputs, True)
    if problem.residual:
        arrays += (torch.from_dlpack(inputs["residual"]).permute(0, 3, 1, 2),)

    def layer(i: Any, k: Any, b: Any, added: Any = 0) -> Any:
        out = torch.nn.functional.conv2d(i, k, b, problem.stride, problem.border, problem.dilation)
        return (out + added).relu()

    call: Any = torch.compile(layer)
    call(*arrays)
    return lambda: call(*arrays)


PEERS = (
    Peer("cuDNN NHWC", "torch.cudnn_convolution_relu, channels last, f16 out", cudnn(True)),
    Peer("cuDNN NCHW", "torch.cudnn_convolution_relu, f16 out", cudnn(False)),
    Peer("torch.compile", "torch.compile(conv2d, relu), channels last, f16 out", compiled),
)
