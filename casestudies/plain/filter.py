"""Filters of a picture: square windows, or rows and then columns, with what lies around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from casestudies.common.case import Arrays, ArraySpec, Peer
from casestudies.common.data import random_inputs
from casestudies.plain.common import SHIFT, Prepare, continued, correlated, tensor
from casestudies.plain.job import plain_case

PLANES = ("one", "three planar", "three interleaved")


@dataclass(frozen=True, slots=True)
class Problem:
    """``kernel``: ``5 square`` or ``31 separable``. ``types``: of the picture and of the result;
    taps are f16, of bytes to bytes s8 with ``SHIFT`` binary places.
    """

    types: str
    boundary: str
    planes: str
    width: int
    height: int
    kernel: str

    @property
    def name(self) -> str:
        return f"{self.program}-{self.width}x{self.height}"

    @property
    def program(self) -> str:
        parts = ("filter", self.types, self.boundary, self.planes, self.kernel)
        return "-".join(parts).replace(" ", "-")

    @property
    def taps(self) -> int:
        return int(self.kernel.split()[0])

    @property
    def separable(self) -> bool:
        return self.kernel.endswith("separable")

    @property
    def elements(self) -> tuple[str, str]:
        image, result = self.types.split("-")
        return image, result

    @property
    def weights(self) -> str:
        return "s8" if self.types == "u8-u8" else "f16"

    @property
    def shape(self) -> tuple[int, ...]:
        size = (self.height, self.width)
        return {"one": size, "three planar": (3, *size)}.get(self.planes, (*size, 3))

    @property
    def axes(self) -> tuple[int, int]:
        """Rows and columns of ``shape``."""
        return {"one": (0, 1), "three planar": (1, 2)}.get(self.planes, (0, 1))

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        taps = (self.taps,) if self.separable else (self.taps, self.taps)
        return (ArraySpec("I", self.shape, self.elements[0]), ArraySpec("K", taps, self.weights))

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", self.shape, self.elements[1])

    @property
    def multiply_adds(self) -> int:
        taps = 2 * self.taps if self.separable else self.taps**2
        return self.width * self.height * (1 if self.planes == "one" else 3) * taps


def edged(problem: Problem, image: Any, xp: Any) -> Any:
    """The picture with what its windows read beyond its edges."""
    back = problem.taps // 2
    for axis in problem.axes:
        image = continued(image, axis, back, problem.taps - 1 - back, problem.boundary, xp)
    return image


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    image, weights = edged(problem, inputs["I"], xp), inputs["K"]
    down, across = problem.axes
    if problem.separable:
        result = correlated(correlated(image, weights, across), weights, down)
    else:
        result: Any = 0
        for s in range(problem.taps):
            part = [slice(None)] * image.ndim
            part[down] = slice(s, s + problem.height)
            result = result + correlated(image[tuple(part)], weights[s], across)
    if problem.types == "u8-u8":
        result = xp.floor((result + (1 << SHIFT - 1)) / (1 << SHIFT))
    return xp.clip(xp.rint(result), 0, 255) if problem.elements[1] == "u8" else result


def random(problem: Problem, seed: int, xp: Any) -> Arrays:
    """Taps with the sum 1; pixels of 0 to 255 where bytes come or go."""
    inputs = random_inputs(problem, seed, xp)
    taps = xp.abs(inputs["K"].astype(xp.float32)) + 1e-3
    scale = (1 << SHIFT) if problem.weights == "s8" else 1.0
    taps = taps * (scale / taps.sum())
    inputs["K"] = (xp.rint(taps) if problem.weights == "s8" else taps).astype(inputs["K"].dtype)
    if problem.types == "f16-u8":
        inputs["I"] = (inputs["I"].astype(xp.float32) * 48 + 128).astype(xp.float16)
    return inputs


def cudnn(channels_last: bool) -> Prepare:
    """torch's convolution in f16, a group for each plane; the picture has its edges before, which
    is not timed, and is converted from bytes and to the result's type, which is.
    """

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
        import cupy

        from casestudies.common.gpu_torch import torch

        torch.backends.cudnn.benchmark = True
        functional = torch.nn.functional
        image = tensor(edged(problem, inputs["I"], cupy))
        planes = 3 if problem.planes == "three interleaved" else 1
        image = image.permute(2, 0, 1)[None] if planes == 3 else image.reshape(
            -1, 1, *image.shape[-2:]
        )  # fmt: skip
        order = torch.channels_last if channels_last else torch.contiguous_format
        image = image.contiguous(memory_format=order)
        scale = 1 / (1 << SHIFT) if problem.weights == "s8" else 1.0
        weights = (tensor(inputs["K"]).half() * scale).reshape(1, 1, -1, problem.taps)
        weights = weights.repeat(planes, 1, 1, 1)
        result = {"f16": torch.float16, "f32": torch.float32, "u8": torch.uint8}[
            problem.elements[1]
        ]

        def call() -> object:
            found = image.half()
            if problem.separable:
                found = functional.conv2d(found, weights, groups=planes)
                found = functional.conv2d(found, weights.mT, groups=planes)
            else:
                found = functional.conv2d(found, weights, groups=planes)
            if result == torch.uint8:
                found = found.round().clamp(0, 255)
            return found.to(result)

        return call

    return prepare


PEERS = (
    Peer("cuDNN NCHW", "torch conv2d, f16, converted, edges not timed", cudnn(False)),
    Peer("cuDNN NHWC", "torch conv2d, channels last, f16, converted, edges not timed", cudnn(True)),
)
CASE = plain_case(
    "filter", "filters of a picture with its boundary", Problem, reference, PEERS, random
)
