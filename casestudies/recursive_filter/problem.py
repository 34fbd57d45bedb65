"""Sizes of the recursive filter: ``Y_t = X_t + a Y_(t-1) + b Y_(t-2)`` for each channel, f16 in and
out.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import ArraySpec
from casestudies.recursive_filter.sizes import BLOCKS, LOOKAHEAD, TAPS, Sizes, sizes_for
from selector.diagnostics import UserError

METHODS = {"blocks": BLOCKS, "lookahead": LOOKAHEAD}


@dataclass(frozen=True, slots=True)
class Problem:
    """Samples of each channel, channels, and the coefficients, which are given at run time.

    ``block``: samples that the method filters together, 0 for its own choice.
    """

    samples: int
    channels: int = 2
    method: str = "blocks"
    a: float = 1.8
    b: float = -0.9
    block: int = 0

    def __post_init__(self) -> None:
        if min(self.samples, self.channels) < 1:
            raise UserError(
                f"recursive_filter: {self.samples} samples of {self.channels} channels",
                hint="there has to be one of each at least",
            )
        if self.method not in METHODS:
            raise UserError(
                f"recursive_filter: no method {self.method!r}",
                hint=f"methods: {', '.join(METHODS)}",
            )
        if self.block not in (0, 16, 32, 64):
            raise UserError(
                f"recursive_filter: blocks of {self.block} samples",
                hint="16, 32 and 64 are possible",
            )
        if abs(self.b) >= 1 or abs(self.a) >= 1 - self.b:
            raise UserError(
                f"recursive_filter: a = {self.a}, b = {self.b} is not stable",
                "its poles have to lie inside the unit circle: |b| < 1 and |a| < 1 - b",
                "choose smaller coefficients",
            )

    @property
    def name(self) -> str:
        default = (self.a, self.b) == (1.8, -0.9)
        suffix = "" if default else f"-a{self.a}-b{self.b}"
        return f"{self.program}-{self.channels}x{self.samples}{suffix}"

    @property
    def program(self) -> str:
        return f"recursive_filter-{self.method}" + (f"{self.block}" if self.block else "")

    @property
    def sizes(self) -> Sizes:
        return METHODS[self.method] if self.block == 0 else sizes_for(self.block)

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        block = self.sizes.block
        tables = [ArraySpec("F", (self.sizes.place("end"),), "f32")]
        if self.method == "lookahead":
            tables.append(ArraySpec("B", (self.sizes.blocks, 4), "f32"))
            tables += [ArraySpec("D", (2,), "f32"), ArraySpec("K", (TAPS,), "f16")]
        else:
            tables.append(ArraySpec("T", (block, block), "f16"))
        return (ArraySpec("X", (self.channels, self.samples), "f16"), *tables)

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.channels, self.samples), "f16")

    @property
    def multiply_adds(self) -> int:
        return 2 * self.samples * self.channels


BENCHMARK = tuple(Problem(2**21, 2, method) for method in METHODS)
# A single sample, one more and less than a tile, several groups, other coefficients.
SMALL = tuple(
    Problem(samples, channels, method, a, b)
    for method in METHODS
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
