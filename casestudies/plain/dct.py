"""Denoising by coring in overlapped tiles of the DCT, of 8 x 8 or 16 x 16 pixels, interleaved RGB.
The case study ``dct_denoise`` says what it computes; here tiles have two sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from casestudies.common.case import Arrays, ArraySpec, Peer
from casestudies.common.data import random_inputs
from casestudies.plain.common import THRESHOLD, tensor
from casestudies.plain.job import plain_case


@dataclass(frozen=True, slots=True)
class Problem:
    planes: str
    tile: int
    width: int
    height: int

    @property
    def name(self) -> str:
        return f"{self.program}-{self.width}x{self.height}"

    @property
    def program(self) -> str:
        return f"dct-{self.tile}"

    @property
    def stride(self) -> int:
        return self.tile // 2

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        return (
            ArraySpec("I", (self.height, self.width, 3), "f16"),
            ArraySpec("F", (self.tile, self.tile), "f16"),
            ArraySpec("G", (self.stride, 2 * self.tile), "f16"),
        )

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.height, self.width, 3), "f16")

    @property
    def tiles(self) -> tuple[int, int]:
        return -(-self.height // self.stride) + 1, -(-self.width // self.stride) + 1

    @property
    def multiply_adds(self) -> int:
        down, across = self.tiles
        return 3 * down * across * 4 * self.tile**3


def matrices(tile: int) -> tuple[np.ndarray, np.ndarray]:
    """The transform, and back with the window, as ``casestudies.dct_denoise.matrices`` has them."""
    k, n = np.arange(tile)[:, None], np.arange(tile)[None, :]
    forward = np.sqrt(2 / tile) * np.cos(np.pi * k * (2 * n + 1) / (2 * tile))
    forward[0] /= np.sqrt(2)
    back = (np.sin(np.pi * (np.arange(tile) + 0.5) / tile) ** 2)[:, None] * forward.T
    return forward, np.concatenate([back[tile // 2 :], back[: tile // 2]], axis=1)


def random(problem: Problem, seed: int, xp: Any) -> Arrays:
    inputs = random_inputs(problem, seed, xp)
    for name, matrix in zip("FG", matrices(problem.tile), strict=True):
        inputs[name] = xp.asarray(np.ascontiguousarray(matrix, np.float16))
    return inputs


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """Float64, with f16 where a product hands on to the next: a bin at the threshold is kept or
    dropped by its last bit.
    """
    down, across = problem.tiles
    image = inputs["I"].transpose(2, 0, 1)
    rows = _half(_forward(problem, image, inputs["F"], across, xp), xp)
    bins = _half(_forward(problem, rows.swapaxes(1, 2), inputs["F"], down, xp), xp)
    cored = xp.where(abs(bins) > float(np.float16(THRESHOLD)), bins, 0.0)
    columns = _half(_inverse(problem, cored, inputs["G"], down, xp), xp)
    pixels = _inverse(problem, columns.swapaxes(1, 2), inputs["G"], across, xp)
    return pixels[:, : problem.height, : problem.width].transpose(1, 2, 0)


def _half(values: Any, xp: Any) -> Any:
    return values.astype(xp.float16).astype(xp.float64)


def _forward(problem: Problem, values: Any, matrix: Any, tiles: int, xp: Any) -> Any:
    at = problem.stride * (xp.arange(tiles)[:, None] - 1) + xp.arange(problem.tile)[None, :]
    found = values[..., xp.clip(at, 0, values.shape[-1] - 1)] @ matrix.T
    return found.reshape(*found.shape[:-2], -1)


def _inverse(problem: Problem, values: Any, matrix: Any, tiles: int, xp: Any) -> Any:
    at = problem.tile * xp.arange(tiles - 1)[:, None] + xp.arange(2 * problem.tile)[None, :]
    found = values[..., at] @ matrix.T
    return found.reshape(*found.shape[:-2], -1)


def eager(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """torch's pad, unfold, two products, where, two products, fold; f16."""
    from casestudies.common.gpu_torch import torch

    tile, step = problem.tile, problem.stride
    image, forward = tensor(inputs["I"]), tensor(inputs["F"])
    matrix, _ = matrices(tile)
    back = (np.sin(np.pi * (np.arange(tile) + 0.5) / tile) ** 2)[:, None] * matrix.T
    back = torch.tensor(back, dtype=torch.float16, device=image.device)
    down, across = problem.tiles
    height, width = step * (down - 1), step * (across - 1)
    sizes = (height + tile, width + tile)
    border = (step, step + width - problem.width, step, step + height - problem.height)
    functional = torch.nn.functional

    def call() -> object:
        padded = functional.pad(image.permute(2, 0, 1)[:, None], border, mode="replicate")
        tiles = functional.unfold(padded, tile, stride=step).transpose(1, 2)
        bins = forward @ tiles.reshape(-1, tile, tile) @ forward.T
        cored = torch.where(bins.abs() > THRESHOLD, bins, torch.zeros_like(bins))
        tiles = (back @ cored @ back.T).reshape(3, -1, tile * tile)
        summed = functional.fold(tiles.transpose(1, 2), sizes, tile, stride=step)
        inner = summed[:, 0, step : step + problem.height, step : step + problem.width]
        return inner.permute(1, 2, 0).contiguous()

    return call


PEERS = (Peer("torch", "pad, unfold, two products, where, two products, fold; f16", eager),)
CASE = plain_case("dct", "denoising in tiles of the DCT", Problem, reference, PEERS, random)
