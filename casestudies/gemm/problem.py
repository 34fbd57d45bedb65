"""Sizes and types of the matrix product: ``C[m, n] = sum_k A[m, k] * B[k, n]``, all row-major."""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import ArraySpec
from selector.diagnostics import UserError

TYPES = ("f16-f32", "f16-f16", "bf16-f32", "s8-s32")


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents, and the types of the operands and the result, such as ``f16-f32``."""

    m: int
    n: int
    k: int
    types: str = "f16-f32"

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise UserError(f"gemm: {self.m} x {self.n} x {self.k} is not a size")
        if self.types not in TYPES:
            raise UserError(
                f"gemm has no variant {self.types!r}", hint=f"variants: {', '.join(TYPES)}"
            )

    @property
    def name(self) -> str:
        return f"gemm-{self.types}-{self.m}x{self.n}x{self.k}"

    @property
    def is_large(self) -> bool:
        """Whether blocks of 128 x 256 keep a large GPU busy."""
        return self.m * self.n >= 1 << 21

    @property
    def program(self) -> str:
        return f"gemm-{self.types}{'-large' if self.is_large else ''}"

    @property
    def operand(self) -> str:
        return self.types.split("-")[0]

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        return (
            ArraySpec("A", (self.m, self.k), self.operand),
            ArraySpec("B", (self.k, self.n), self.operand),
        )

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("C", (self.m, self.n), self.types.split("-")[1])

    @property
    def multiply_adds(self) -> int:
        return self.m * self.n * self.k


BENCHMARK = (
    *(Problem(n, n, n, "f16-f32") for n in (1024, 2048, 4096, 8192)),
    *(Problem(n, n, n, "f16-f16") for n in (1024, 2048, 4096, 8192)),
    Problem(4095, 4097, 4093, "f16-f32"),
    *(Problem(n, n, n, types) for types in ("bf16-f32", "s8-s32") for n in (1024, 4096)),
)
# Multiples of a tile, one more and one less in every extent, primes, a single element; and more
# runs of k than a ring of staged tiles has slots.
_SMALL_SIZES = (
    (128, 128, 64),
    (129, 127, 65),
    (127, 129, 31),
    (256, 128, 96),
    (61, 67, 71),
    (1, 1, 1),
)
SMALL = (
    *(Problem(m, n, k, types) for types in TYPES for m, n, k in _SMALL_SIZES),
    Problem(129, 127, 700),
)
