"""Banks of filters, and the discrete transform as a product with its matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from casestudies.common.case import Arrays, ArraySpec, Peer
from casestudies.common.data import random_inputs
from casestudies.plain.common import tensor
from casestudies.plain.job import plain_case


@dataclass(frozen=True, slots=True)
class Problem:
    """``filters`` of ``taps`` each over ``samples``; or the transform of ``rows`` of ``points``
    real numbers, real and imaginary parts side by side.
    """

    types: str
    filters: int = 0
    taps: int = 0
    samples: int = 0
    points: int = 0
    rows: int = 0

    @property
    def name(self) -> str:
        if self.points:
            return f"bank-dft-{self.points}x{self.rows}"
        return f"bank-fir-{self.filters}x{self.taps}x{self.samples}"

    @property
    def program(self) -> str:
        return self.name

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        element = self.types.split("-")[0]
        if self.points:
            matrix = (self.points, 2 * self.points)
            return (
                ArraySpec("X", (self.rows, self.points), element),
                ArraySpec("W", matrix, element),
            )
        return (
            ArraySpec("X", (self.samples + self.taps - 1,), element),
            ArraySpec("W", (self.filters, self.taps), element),
        )

    @property
    def output(self) -> ArraySpec:
        shape = (self.rows, 2 * self.points) if self.points else (self.filters, self.samples)
        return ArraySpec("output", shape, self.types.split("-")[1])

    @property
    def multiply_adds(self) -> int:
        return self.rows * self.points * 2 * self.points + self.filters * self.taps * self.samples


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    x, w = inputs["X"], inputs["W"]
    if problem.points:
        return x @ w
    result = xp.zeros(problem.output.shape)
    for k in range(problem.taps):
        result += w[:, k : k + 1] * x[k : k + problem.samples]
    return result


def random(problem: Problem, seed: int, xp: Any) -> Arrays:
    """With the transform's matrix, in f16."""
    inputs = random_inputs(problem, seed, xp)
    if problem.points:
        k = xp.arange(problem.points)
        angle = (2 * xp.pi / problem.points) * (k[:, None] * k[None, :] % problem.points)
        matrix = xp.stack([xp.cos(angle), -xp.sin(angle)], axis=-1)
        inputs["W"] = matrix.reshape(problem.points, -1).astype(xp.float16)
    return inputs


def product(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """cuBLAS with the matrix, f32 out."""
    from casestudies.common.gpu_torch import torch

    if not problem.points:
        return None
    x, w = tensor(inputs["X"]), tensor(inputs["W"])
    return lambda: torch.mm(x, w, out_dtype=torch.float32)


def fourier(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``torch.fft.fft`` in f32."""
    from casestudies.common.gpu_torch import torch

    x = tensor(inputs["X"])
    return (lambda: torch.fft.fft(x.float(), dim=1)) if problem.points else None


def conv1d(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """torch's conv1d in f16, then f32."""
    from casestudies.common.gpu_torch import torch

    if problem.points:
        return None
    torch.backends.cudnn.benchmark = True
    x, w = tensor(inputs["X"])[None, None], tensor(inputs["W"])[:, None]
    return lambda: torch.nn.functional.conv1d(x, w).float()


def windows(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """cuBLAS over a view of the windows, f32 out."""
    from casestudies.common.gpu_torch import torch

    if problem.points:
        return None
    view, w = tensor(inputs["X"]).unfold(0, problem.taps, 1).t(), tensor(inputs["W"])
    return lambda: torch.mm(w, view, out_dtype=torch.float32)


PEERS = (
    Peer("cuBLAS", "torch.mm with the transform's matrix, f32 out", product),
    Peer("torch.fft", "fft in f32", fourier),
    Peer("cuDNN", "torch conv1d in f16, then f32", conv1d),
    Peer("cuBLAS windows", "torch.mm of a view of the windows, f32 out", windows),
)
CASE = plain_case("bank", "banks of filters", Problem, reference, PEERS, random)
