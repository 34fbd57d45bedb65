"""Sizes of the recursive filter: ``Y_t = X_t + a Y_(t-1) + b Y_(t-2)`` for each channel, f16 in and
out.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import ArraySpec
from selector.diagnostics import UserError


@dataclass(frozen=True, slots=True)
class Problem:
    """Samples of each channel, channels, and the coefficients, constants of the kernel."""

    samples: int
    channels: int = 2
    a: float = 1.8
    b: float = -0.9

    def __post_init__(self) -> None:
        if min(self.samples, self.channels) < 1:
            raise UserError(
                f"recursive_filter: {self.samples} samples of {self.channels} channels",
                hint="there has to be one of each at least",
            )
        if abs(self.b) >= 1 or abs(self.a) >= 1 - self.b:
            raise UserError(
                f"recursive_filter: a = {self.a}, b = {self.b} is not stable",
                "its poles have to lie inside the unit circle: |b| < 1 and |a| < 1 - b",
                "choose smaller coefficients",
            )

    @property
    def name(self) -> str:
        return f"{self.program}-{self.channels}x{self.samples}"

    @property
    def program(self) -> str:
        default = (self.a, self.b) == (1.8, -0.9)
        return "recursive_filter" + ("" if default else f"-a{self.a:g}-b{self.b:g}")

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec("X", (self.channels, self.samples), "f16"),)

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.channels, self.samples), "f16")

    @property
    def multiply_adds(self) -> int:
        return 2 * self.samples * self.channels


BENCHMARK = (Problem(2**21, 2),)
# A single sample, one more and less than a round number, several blocks, other coefficients.
SMALL = tuple(
    Problem(samples, channels, a, b)
    for samples, channels, a, b in (
        (1, 1, 1.8, -0.9),
        (1023, 1, 1.8, -0.9),
        (1025, 2, 1.8, -0.9),
        (5000, 2, -0.5, 0.3),
        (40001, 1, 1.9, -0.95),
        (70000, 3, 1.8, -0.9),
        (16384, 2, 0.0, 0.0),
    )
)
