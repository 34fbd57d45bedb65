"""Recursive filters of signals: order 1, 2 and 4 with a numerator; a cascade of four biquads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from casestudies.common.case import Arrays, ArraySpec, Peer
from casestudies.plain.common import tensor
from casestudies.plain.job import plain_case

TAIL = 2048  # samples after which an impulse is gone, in float64 as well
POLES = ((0.7, 0.5), (0.8, 1.1), (0.6, 1.9), (0.85, 2.6))  # radius and angle of pairs


@dataclass(frozen=True, slots=True)
class Problem:
    types: str
    filter: str
    signals: int
    samples: int

    @property
    def name(self) -> str:
        return f"scan-{self.types}-{self.filter}-{self.signals}x{self.samples}".replace(" ", "-")

    @property
    def program(self) -> str:
        return self.name

    @property
    def sections(self) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]:
        """Numerator and feedback of the filters that follow each other: ``y[t] = sum_k above[k] *
        x[t - k] + sum_k below[k] * y[t - 1 - k]``.
        """
        pairs = [(2 * r * float(np.cos(a)), -r * r) for r, a in POLES]
        if self.filter == "order 1":
            return (((0.1, 0.05), (0.9,)),)
        if self.filter == "order 2":
            return (((0.2, 0.3, 0.1), pairs[0]),)
        if self.filter == "order 4":
            poly = np.polymul([1.0, -pairs[0][0], -pairs[0][1]], [1.0, -pairs[2][0], -pairs[2][1]])
            return (((0.2, 0.3, 0.1, 0.2, 0.1), tuple(float(-v) for v in poly[1:])),)
        return tuple(((0.4, 0.3, 0.2), pair) for pair in pairs)

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec("X", (self.signals, self.samples), self.types.split("-")[0]),)

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.signals, self.samples), self.types.split("-")[1])

    @property
    def multiply_adds(self) -> int:
        terms = sum(len(above) + len(below) for above, below in self.sections)
        return self.signals * self.samples * terms


def impulse_response(problem: Problem, count: int = TAIL) -> np.ndarray:
    """The first outputs for 1, 0, 0, ...; float64."""
    signal = np.zeros(count)
    signal[0] = 1.0
    for above, below in problem.sections:
        result = np.convolve(signal, above)[:count]
        for k in range(count):
            result[k] += sum(b * result[k - 1 - d] for d, b in enumerate(below) if k > d)
        signal = result
    return signal


def transform_size(problem: Problem) -> int:
    """Samples and the tail, rounded up to a size that transforms are fast at."""
    least = problem.samples + TAIL
    return min(m << (-(-least // m) - 1).bit_length() for m in (1, 3, 5, 7, 9, 11, 15, 21, 33, 35))


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """By the transform of the impulse response: a loop over samples would take minutes."""
    size = transform_size(problem)
    response = xp.fft.rfft(xp.asarray(impulse_response(problem)), size)
    rows = [
        xp.fft.irfft(xp.fft.rfft(part, size, axis=1) * response, size, axis=1)[:, : problem.samples]
        for part in xp.array_split(inputs["X"], -(-problem.signals // 64))
    ]
    return xp.concatenate(rows)


def lfilter(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """``cupyx.scipy.signal.lfilter`` in f32, one section after the other."""
    import cupy
    from cupyx.scipy import signal

    parts = [
        (cupy.asarray(above, cupy.float32), cupy.asarray([1.0, *(-v for v in below)], cupy.float32))
        for above, below in problem.sections
    ]

    def call() -> object:
        x = inputs["X"].astype(cupy.float32, copy=False)
        for above, below in parts:
            x = signal.lfilter(above, below, x, axis=1)
        return x.astype(inputs["X"].dtype, copy=False)

    return call


def transformed(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """torch.fft in f32 with the impulse response, transformed before."""
    from casestudies.common.gpu_torch import torch

    x = tensor(inputs["X"])
    size = transform_size(problem)
    response = torch.tensor(impulse_response(problem), dtype=torch.float32, device="cuda")
    response = torch.fft.rfft(response, size)

    def call() -> object:
        found = torch.fft.irfft(torch.fft.rfft(x.float(), size) * response, size)
        return found[:, : problem.samples].to(x.dtype)

    return call


PEERS = (
    Peer("cupyx", "cupyx.scipy.signal.lfilter, f32", lfilter, capturable=False),
    Peer("torch.fft", "by the impulse response in f32, its transform not timed", transformed),
)
CASE = plain_case("scan", "recursive filters of signals", Problem, reference, PEERS)
