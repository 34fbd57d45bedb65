"""Sizes of attention: heads of ``length`` queries and as many keys, ``depth`` channels; f16 in, f32
out.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import ArraySpec
from selector.diagnostics import UserError

DEPTHS = (64, 128)


@dataclass(frozen=True, slots=True)
class Problem:
    """Arrays ``Q``, ``K``, ``V`` and ``output`` of heads x length x depth."""

    heads: int
    length: int
    depth: int
    causal: bool = False

    def __post_init__(self) -> None:
        if min(self.heads, self.length) < 1 or self.depth < 16 or self.depth % 16:
            raise UserError(
                f"attention: {self.heads} heads of {self.length} x {self.depth} is not a size",
                hint="the depth is a multiple of 16",
            )

    @property
    def name(self) -> str:
        return f"{self.program}-{self.heads}x{self.length}"

    @property
    def program(self) -> str:
        return f"attention-{'causal-' * self.causal}d{self.depth}"

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        shape = (self.heads, self.length, self.depth)
        return tuple(ArraySpec(name, shape, "f16") for name in "QKV")

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.heads, self.length, self.depth), "f32")

    @property
    def multiply_adds(self) -> int:
        """Those of the two products, of the scores that count."""
        scores = self.length * (self.length + 1) // 2 if self.causal else self.length**2
        return 2 * self.heads * scores * self.depth


BENCHMARK = tuple(Problem(64, 4096, depth) for depth in DEPTHS)
# One query, fewer and more than a tile, one more and less than a run of keys; other depths.
SMALL = tuple(
    Problem(*sizes)
    for sizes in (
        (2, 128, 64),
        (1, 1, 64),
        (3, 17, 64),
        (1, 129, 64),
        (2, 257, 64),
        (1, 63, 128),
        (2, 130, 128),
        (1, 65, 32),
        (1, 70, 96),
    )
) + tuple(Problem(*sizes, causal=True) for sizes in ((2, 1, 64), (2, 300, 64), (1, 129, 128)))
