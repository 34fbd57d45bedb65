"""The matrix product's sizes, layouts, schedules and types; needs neither Halide nor AMX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from casestudies.common.case import ArraySpec, check_known
from selector.diagnostics import UserError

LAYOUTS = ("standard", "vnni")
SCHEDULES = (
    "reference", "reordered", "preload_a", "preload_b", "pipelined", "parallel", "blocked",
    "blocked_parallel", "blocked_pipelined", "blocked_parallel_pipelined",
)  # fmt: skip
TYPES = (("bf16", "bf16"), ("s8", "s8"), ("u8", "s8"), ("s8", "u8"), ("u8", "u8"))
GROUP = {"bf16": 2, "s8": 4, "u8": 4}
"""k that lie side by side in a B of VNNI order: four bytes of them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A schedule in a layout for operand types."""

    types: tuple[str, str]
    layout: str
    schedule: str

    @property
    def name(self) -> str:
        return f"amx-{'-'.join(self.types)}-{self.layout}-{self.schedule}"

    def problem(self, m: int, n: int, k: int) -> Problem:
        """Its problem of that size."""
        return Problem(m, n, k, "-".join(self.types), self.layout)

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}.kernel"


def cells() -> Iterator[Cell]:
    """All of table I, and the schedules for speed."""
    for types in TYPES:
        for layout in LAYOUTS:
            for schedule in SCHEDULES:
                yield Cell(types, layout, schedule)


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents, operand types such as ``u8-s8``, and the layout of B."""

    m: int
    n: int
    k: int
    types: str = "bf16-bf16"
    layout: str = "standard"

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise UserError(f"amx_matmul: {self.m} x {self.n} x {self.k} is not a size")
        check_known("amx_matmul", "types", self.types, PAIRS, "types:")
        check_known("amx_matmul", "layout", self.layout, LAYOUTS)
        if self.k % self.group:
            raise UserError(
                f"amx_matmul: in VNNI order k is a multiple of {self.group}, not {self.k}",
                hint="pad A and B with zeros, or take --layout standard",
            )

    @property
    def operands(self) -> tuple[str, str]:
        a, b = self.types.split("-")
        return a, b

    @property
    def group(self) -> int:
        """k that lie side by side in B; 1 in standard order."""
        return GROUP[self.operands[1]] if self.layout == "vnni" else 1

    @property
    def name(self) -> str:
        return f"{self.program}-{self.m}x{self.n}x{self.k}"

    @property
    def program(self) -> str:
        return f"amx_matmul-{self.types}-{self.layout}"

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        a, b = self.operands
        shape = (self.k, self.n)
        if self.layout == "vnni":
            shape = (self.k // self.group, self.n, self.group)
        return ArraySpec("A", (self.m, self.k), a), ArraySpec("B", shape, b)

    @property
    def output(self) -> ArraySpec:
        element = "f32" if self.operands[0] == "bf16" else "s32"
        return ArraySpec("C", (self.m, self.n), element)

    @property
    def multiply_adds(self) -> int:
        return self.m * self.n * self.k


PAIRS = tuple("-".join(pair) for pair in TYPES)
BENCHMARK = tuple(
    Problem(1024, 1024, 1024, types, layout)
    for types in ("bf16-bf16", "s8-s8")
    for layout in LAYOUTS
)
# Tiles and a half, less than a tile, a single element; every type.
SMALL = (
    *(Problem(70, 50, 132, types, layout) for types in PAIRS for layout in LAYOUTS),
    Problem(33, 17, 65),
    Problem(1, 1, 1, "s8-s8"),
    Problem(1, 1, 4, "s8-s8", "vnni"),
)
