"""Convolution layers that the case study ``conv_layer`` has no schedule for: images as NCHW,
transposed convolutions, bytes. With bias and ReLU; bytes are scaled by channel instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from casestudies.common.case import Arrays, ArraySpec, Peer
from casestudies.common.data import random_inputs
from casestudies.plain.common import Prepare, tensor
from casestudies.plain.job import plain_case


@dataclass(frozen=True, slots=True)
class Problem:
    """Height and width of the output. ``transposed``: 4 x 4 taps with the stride 2, say."""

    types: str
    batch: int
    layout: str
    taps: int
    stride: int
    channels: int
    filters: int
    height: int
    width: int
    dilation: int = 1
    residual: bool = False
    transposed: bool = False

    @property
    def name(self) -> str:
        return f"{self.program}-{self.batch}x{self.height}x{self.width}"

    @property
    def program(self) -> str:
        parts = ["layer", self.types, self.layout, f"k{self.taps}", f"s{self.stride}"]
        parts += [f"d{self.dilation}"] * (self.dilation > 1)
        parts += ["residual"] * self.residual + ["transposed"] * self.transposed
        return "-".join([*parts, f"{self.channels}x{self.filters}", f"{self.batch}x{self.height}"])

    @property
    def flat(self) -> bool:
        """Whether pixels are one axis: 1 x 1 taps at each of them."""
        return self.layout == "NCHW" and self.taps == 1 and self.stride == 1

    @property
    def bytes_(self) -> bool:
        return self.types == "s8-s8"

    @property
    def border(self) -> int:
        """Zeros on each side."""
        if self.transposed:
            return (self.taps - self.stride) // 2
        return self.dilation * (self.taps - 1) // 2

    @property
    def image(self) -> tuple[int, int]:
        """Its height and width."""
        if self.transposed:
            return self.height // self.stride, self.width // self.stride
        return self.stride * self.height, self.stride * self.width

    def shape(self, channels: int, height: int, width: int) -> tuple[int, ...]:
        if self.layout == "NHWC":
            return (self.batch, height, width, channels)
        pixels = (height * width,) if self.flat else (height, width)
        return (self.batch, channels, *pixels)

    @property
    def weights(self) -> tuple[int, ...]:
        """As (filters, taps, taps, channels), which torch has for channels last, or (filters,
        channels, taps, taps).
        """
        taps = (self.taps, self.taps)
        if self.layout == "NHWC":
            return (self.filters, *taps, self.channels)
        return (self.filters, self.channels, *taps[: 0 if self.flat else 2])

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        element = self.types.split("-")[0]
        arrays = [
            ArraySpec("I", self.shape(self.channels, *self.image), element),
            ArraySpec("K", self.weights, element),
            ArraySpec("scale" if self.bytes_ else "bias", (self.filters,), "f32"),
        ]
        if self.residual:
            arrays.append(ArraySpec("residual", self.output.shape, "f16"))
        return tuple(arrays)

    @property
    def output(self) -> ArraySpec:
        shape = self.shape(self.filters, self.height, self.width)
        return ArraySpec("output", shape, self.types.split("-")[1])

    @property
    def multiply_adds(self) -> int:
        taps = self.taps**2 // (self.stride**2 if self.transposed else 1)
        return self.batch * self.height * self.width * self.channels * self.filters * taps


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """Float64, by a product for each pair of taps."""
    image, weights = inputs["I"], inputs["K"]
    if problem.flat:
        result = xp.matmul(weights, image) + inputs["bias"][:, None]
        return xp.maximum(result, 0)
    if problem.layout == "NCHW":
        image, weights = image.transpose(0, 2, 3, 1), weights.transpose(0, 2, 3, 1)
    shape = (problem.batch, problem.height, problem.width, problem.filters)
    if problem.transposed:
        result = _transposed(problem, image, weights, xp)
    else:
        around, step, apart = (problem.border,) * 2, problem.stride, problem.dilation
        image = xp.pad(image, ((0, 0), around, around, (0, 0)))
        high, wide = step * (problem.height - 1) + 1, step * (problem.width - 1) + 1
        result = xp.zeros(shape)
        for s in range(problem.taps):
            for t in range(problem.taps):
                rows = image[:, apart * s : apart * s + high : step]
                pixels = rows[:, :, apart * t : apart * t + wide : step]
                flat = pixels.reshape(-1, problem.channels) @ weights[:, s, t].T
                result += flat.reshape(shape)
    if problem.bytes_:
        result = xp.clip(xp.rint(result * inputs["scale"]), -128, 127)
    else:
        result = result + inputs["bias"]
        if problem.residual:
            added = inputs["residual"]
            result += added if problem.layout == "NHWC" else added.transpose(0, 2, 3, 1)
        result = xp.maximum(result, 0)
    return result if problem.layout == "NHWC" else result.transpose(0, 3, 1, 2)


def _transposed(problem: Problem, image: Any, weights: Any, xp: Any) -> Any:
    """Every pixel spreads over taps x taps outputs, ``stride`` apart."""
    step, edge = problem.stride, problem.border
    high, wide = image.shape[1:3]
    spread = (step * (high - 1) + problem.taps, step * (wide - 1) + problem.taps)
    result = xp.zeros((problem.batch, *spread, problem.filters))
    flat = image.reshape(-1, problem.channels)
    for s in range(problem.taps):
        for t in range(problem.taps):
            part = (flat @ weights[:, s, t].T).reshape(problem.batch, high, wide, -1)
            result[:, s : s + step * high : step, t : t + step * wide : step] += part
    return result[:, edge : edge + problem.height, edge : edge + problem.width]


def random(problem: Problem, seed: int, xp: Any) -> Arrays:
    """Scales that keep most sums within bytes."""
    inputs = random_inputs(problem, seed, xp)
    if problem.bytes_:
        deviation = 48.0 * 48.0 * (problem.channels * problem.taps**2) ** 0.5
        inputs["scale"] = (xp.abs(inputs["scale"]) * 0.2 + 0.9) * (40.0 / deviation)
        inputs["scale"] = inputs["scale"].astype(xp.float32)
    return inputs


def cudnn(channels_last: bool) -> Prepare:
    """torch's convolution with bias and ReLU, fused where it is not transposed; None for bytes,
    which torch does not convolve on a GPU.
    """

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
        from casestudies.common.gpu_torch import torch

        if problem.bytes_:
            return None
        torch.backends.cudnn.benchmark = True
        arrays = [tensor(inputs["I"]), tensor(inputs["K"])]
        if problem.residual:
            arrays.append(tensor(inputs["residual"]))
        if problem.layout == "NHWC":
            arrays = [a.permute(0, 3, 1, 2) for a in arrays]
        if problem.flat:
            arrays[0] = arrays[0].unflatten(2, problem.image)
            arrays[1] = arrays[1][:, :, None, None]
        if problem.transposed:
            arrays[1] = arrays[1].transpose(0, 1)
        order = torch.channels_last if channels_last else torch.contiguous_format
        image, weights, *added = (a.contiguous(memory_format=order) for a in arrays)
        bias, steps = tensor(inputs["bias"]).half(), (problem.stride,) * 2
        around, apart = (problem.border,) * 2, (problem.dilation,) * 2
        if problem.transposed:
            up = torch.nn.functional.conv_transpose2d
            return lambda: up(image, weights, bias, steps, around).relu_()
        if added:
            return lambda: torch.cudnn_convolution_add_relu(
                image, weights, added[0], 1.0, bias, steps, around, apart, 1
            )
        return lambda: torch.cudnn_convolution_relu(image, weights, bias, steps, around, apart, 1)

    return prepare


def columns(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """Bytes: pixels and taps side by side (int8), ``torch._int_mm``, then scaled and rounded."""
    from casestudies.common.gpu_torch import torch

    if not problem.bytes_ or problem.stride > 1:
        return None
    image, weights = tensor(inputs["I"]), tensor(inputs["K"])
    if problem.layout == "NCHW":
        image, weights = image.permute(0, 2, 3, 1), weights.permute(0, 2, 3, 1)
    matrix = weights.reshape(problem.filters, -1).contiguous().t()
    scale, edge = tensor(inputs["scale"]), problem.border
    shape = (problem.batch, problem.height, problem.width, problem.filters)

    def call() -> object:
        padded = torch.nn.functional.pad(image, (0, 0, edge, edge, edge, edge))
        windows = padded.unfold(1, problem.taps, 1).unfold(2, problem.taps, 1)
        rows = windows.permute(0, 1, 2, 4, 5, 3).reshape(-1, matrix.shape[0])
        found = (torch._int_mm(rows, matrix) * scale).round().clamp(-128, 127)
        found = found.to(torch.int8).reshape(shape)
        return found if problem.layout == "NHWC" else found.permute(0, 3, 1, 2).contiguous()

    return call


PEERS = (
    Peer("cuDNN NHWC", "torch, bias and ReLU, channels last, f16", cudnn(True)),
    Peer("cuDNN NCHW", "torch, bias and ReLU, f16", cudnn(False)),
    Peer("cuBLAS columns", "windows copied to rows, torch._int_mm, scaled and rounded", columns),
)
CASE = plain_case(
    "layer", "convolution layers as NCHW, transposed, of bytes", Problem, reference, PEERS, random
)
