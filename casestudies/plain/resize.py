"""Pictures of other sizes, interleaved RGB: rows and then columns, with weights from a table for
each axis, as image libraries have them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from casestudies.common.case import Arrays, ArraySpec, Peer
from casestudies.common.data import random_inputs
from casestudies.plain.common import Prepare, tensor
from casestudies.plain.job import plain_case

LANCZOS, CUBIC, AREA = "Lanczos-3", "bicubic", "area"
REACH = {LANCZOS: 3.0, CUBIC: 2.0, AREA: 0.5}


@dataclass(frozen=True, slots=True)
class Problem:
    types: str
    planes: str
    filter: str
    width: int
    height: int
    to_width: int
    to_height: int

    @property
    def name(self) -> str:
        sizes = f"{self.width}x{self.height}-{self.to_width}x{self.to_height}"
        return f"resize-{self.types}-{self.filter}-{sizes}"

    @property
    def program(self) -> str:
        return self.name

    @property
    def across(self) -> tuple[np.ndarray, np.ndarray]:
        return table(self.width, self.to_width, self.filter)

    @property
    def down(self) -> tuple[np.ndarray, np.ndarray]:
        return table(self.height, self.to_height, self.filter)

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        """The picture, and for both axes the first pixel and the weights of every output."""
        element = self.types.split("-")[0]
        tables = (("SY", "WY", self.down), ("SX", "WX", self.across))
        arrays = [ArraySpec("I", (self.height, self.width, 3), element)]
        for first, weights, (_, values) in tables:
            arrays.append(ArraySpec(first, (values.shape[0],), "s32"))
            arrays.append(ArraySpec(weights, values.shape, "f16"))
        return tuple(arrays)

    @property
    def output(self) -> ArraySpec:
        shape = (self.to_height, self.to_width, 3)
        return ArraySpec("output", shape, self.types.split("-")[1])

    @property
    def multiply_adds(self) -> int:
        rows = int((self.down[1] != 0).sum()) * self.width
        return 3 * (rows + int((self.across[1] != 0).sum()) * self.to_height)


def _kernel(name: str, d: np.ndarray) -> np.ndarray:
    d = np.abs(d)
    if name == LANCZOS:
        return np.where(d < 3, np.sinc(d) * np.sinc(d / 3), 0.0)
    if name == CUBIC:
        near, far = (1.5 * d - 2.5) * d * d + 1, ((-0.5 * d + 2.5) * d - 4) * d + 2
        return np.where(d < 1, near, np.where(d < 2, far, 0.0))
    return np.where(d <= 0.5, 1.0, 0.0)


@cache
def table(size: int, count: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The first pixel of every output, and its weights, which have the sum 1 and are 0 beyond the
    picture; all starts let the taps lie within the picture where it is as large.
    """
    scale = max(1.0, size / count)
    centre = (np.arange(count) + 0.5) * size / count
    taps = min(size, math.ceil(2 * REACH[name] * scale) + 1)
    first = np.floor(centre - REACH[name] * scale + 0.5).astype(np.int64)
    first = np.clip(first, 0, size - taps)
    pixels = first[:, None] + np.arange(taps)[None, :]
    apart = (pixels + 0.5 - centre[:, None]) / scale
    if name == AREA:  # what of a pixel lies within the output
        low, high = centre[:, None] - scale / 2, centre[:, None] + scale / 2
        weights = np.clip(np.minimum(pixels + 1, high) - np.maximum(pixels, low), 0, None)
    else:
        weights = _kernel(name, apart)
    weights = weights / weights.sum(1, keepdims=True)
    return first.astype(np.int32), weights.astype(np.float16)


def dense(first: Any, weights: Any, size: int, xp: Any) -> Any:
    """The weights of an axis as a matrix of (outputs, pixels)."""
    matrix = xp.zeros((weights.shape[0], size), weights.dtype)
    at = first.astype(xp.int64)[:, None] + xp.arange(weights.shape[1])[None, :]
    matrix[xp.arange(weights.shape[0])[:, None], at] = weights
    return matrix


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    rows = dense(inputs["SY"], inputs["WY"], problem.height, xp)
    columns = dense(inputs["SX"], inputs["WX"], problem.width, xp)
    middle = (rows @ inputs["I"].reshape(problem.height, -1)).reshape(-1, problem.width, 3)
    result = xp.matmul(columns, middle)
    if problem.output.element == "u8":
        result = xp.clip(xp.rint(result), 0, 255)
    return result


def random(problem: Problem, seed: int, xp: Any) -> Arrays:
    inputs = random_inputs(problem, seed, xp)
    for axis, (first, weights) in (("Y", problem.down), ("X", problem.across)):
        inputs[f"S{axis}"], inputs[f"W{axis}"] = xp.asarray(first), xp.asarray(weights)
    return inputs


def products(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """cuBLAS twice with dense f16 weights; of bytes the conversions are timed."""
    import cupy

    from casestudies.common.gpu_torch import torch

    image = tensor(inputs["I"])
    rows = tensor(dense(inputs["SY"], inputs["WY"], problem.height, cupy))
    columns = tensor(dense(inputs["SX"], inputs["WX"], problem.width, cupy))

    def call() -> object:
        flat = image.half().reshape(problem.height, -1)
        planes = torch.mm(rows, flat).reshape(-1, problem.width, 3).permute(0, 2, 1)
        found = torch.mm(planes.reshape(-1, problem.width), columns.t())
        found = found.reshape(-1, 3, problem.to_width).permute(0, 2, 1).contiguous()
        if problem.output.element == "u8":
            found = found.round().clamp(0, 255).to(torch.uint8)
        return found

    return call


def interpolate(channels_last: bool) -> Prepare:
    """torch's: bicubic with antialias (in the place of Lanczos-3 as well); area, which takes whole
    pixels.
    """

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
        from casestudies.common.gpu_torch import torch

        image = tensor(inputs["I"]).permute(2, 0, 1)[None]
        if not channels_last:
            image = image.contiguous()
        size, resize = (problem.to_height, problem.to_width), torch.nn.functional.interpolate
        area = {"mode": "area"} if problem.filter == AREA else {"mode": "bicubic"}
        more: dict[str, Any] = area if problem.filter == AREA else area | {"antialias": True}

        def call() -> object:
            found = resize(image.half() if image.dtype == torch.uint8 else image, size, **more)
            if problem.output.element == "u8":
                found = found.round().clamp(0, 255).to(torch.uint8)
            return found

        return call

    return prepare


PEERS = (
    Peer("cuBLAS", "torch.matmul twice, dense f16 weights, which are not timed", products),
    Peer(
        "torch NHWC", "interpolate, bicubic antialias (Lanczos-3: too) or area", interpolate(True)
    ),
    Peer("torch NCHW", "the same of planes", interpolate(False)),
)
CASE = plain_case("resize", "pictures of other sizes", Problem, reference, PEERS, random)
