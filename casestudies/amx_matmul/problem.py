"""The matrix product's layouts, schedules and types; needs neither Halide nor AMX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LAYOUTS = ("standard", "vnni")
SCHEDULES = (
    "reference", "reordered", "preload_a", "preload_b", "parallel", "blocked", "blocked_parallel",
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

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}.kernel"


def cells() -> Iterator[Cell]:
    """All of table I, and the schedules for speed."""
    for types in TYPES:
        for layout in LAYOUTS:
            for schedule in SCHEDULES:
                yield Cell(types, layout, schedule)
