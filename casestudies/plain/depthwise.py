"""Depthwise and grouped convolutions, padded so that a stride of 1 keeps the size; no bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from casestudies.common.case import Arrays, ArraySpec, Peer
from casestudies.plain.common import Prepare, tensor
from casestudies.plain.job import plain_case


@dataclass(frozen=True, slots=True)
class Problem:
    """Height and width of the output. ``channels``, one to a group, or ``groups`` of
    ``width_of_group`` channels in and out.
    """

    types: str
    batch: int
    layout: str
    taps: int
    stride: int
    height: int
    width: int
    channels: int = 0
    groups: int = 0
    width_of_group: int = 1

    @property
    def name(self) -> str:
        return f"{self.program}-{self.batch}x{self.height}x{self.width}"

    @property
    def program(self) -> str:
        layout = f"{self.layout}-k{self.taps}-s{self.stride}"
        return f"depthwise-{layout}-{self.all_channels}-g{self.width_of_group}-{self.height}"

    @property
    def all_channels(self) -> int:
        return self.channels or self.groups * self.width_of_group

    @property
    def border(self) -> int:
        return self.taps // 2

    def shape(self, height: int, width: int) -> tuple[int, ...]:
        if self.layout == "NHWC":
            return (self.batch, height, width, self.all_channels)
        return (self.batch, self.all_channels, height, width)

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        """Weights as (taps, taps, channels of a group, channels) or, of NCHW, the other way."""
        taps, group = (self.taps, self.taps), self.width_of_group
        weights = (*taps, group, self.all_channels)
        if self.layout == "NCHW":
            weights = (self.all_channels, group, *taps)
        image = self.shape(self.stride * self.height, self.stride * self.width)
        return (ArraySpec("I", image, "f16"), ArraySpec("K", weights, "f16"))

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", self.shape(self.height, self.width), "f16")

    @property
    def multiply_adds(self) -> int:
        pixels = self.batch * self.height * self.width
        return pixels * self.all_channels * self.width_of_group * self.taps**2


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    image, weights = inputs["I"], inputs["K"]
    if problem.layout == "NCHW":
        image, weights = image.transpose(0, 2, 3, 1), weights.transpose(2, 3, 1, 0)
    around, step, group = (problem.border,) * 2, problem.stride, problem.width_of_group
    image = xp.pad(image, ((0, 0), around, around, (0, 0)))
    high, wide = step * (problem.height - 1) + 1, step * (problem.width - 1) + 1
    first = xp.arange(problem.all_channels) // group * group
    result: Any = 0
    for s in range(problem.taps):
        for t in range(problem.taps):
            pixels = image[:, s : s + high : step, t : t + wide : step]
            for k in range(group):
                result = result + pixels[..., first + k] * weights[s, t, k]
    return result if problem.layout == "NHWC" else result.transpose(0, 3, 1, 2)


def cudnn(channels_last: bool) -> Prepare:
    """torch's grouped convolution; the arrays are put into that layout before."""

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
        from casestudies.common.gpu_torch import torch

        torch.backends.cudnn.benchmark = True
        image, weights = tensor(inputs["I"]), tensor(inputs["K"])
        if problem.layout == "NHWC":
            image, weights = image.permute(0, 3, 1, 2), weights.permute(3, 2, 0, 1)
        order = torch.channels_last if channels_last else torch.contiguous_format
        image, weights = (a.contiguous(memory_format=order) for a in (image, weights))
        groups = problem.all_channels // problem.width_of_group
        return lambda: torch.nn.functional.conv2d(
            image, weights, stride=problem.stride, padding=problem.border, groups=groups
        )

    return prepare


PEERS = (
    Peer("cuDNN NHWC", "torch conv2d with groups, channels last, f16", cudnn(True)),
    Peer("cuDNN NCHW", "torch conv2d with groups, f16", cudnn(False)),
)
CASE = plain_case("depthwise", "depthwise and grouped convolutions", Problem, reference, PEERS)
