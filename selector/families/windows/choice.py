"""The schedule of a filter at a size, without a measurement."""

from __future__ import annotations

from selector.families.windows.tiling import Shape, Tiling
from selector.families.windows.usual import usual
from selector.machine.record import Machine


def candidates(shape: Shape, machine: Machine) -> list[Tiling]:
    return [usual(shape)]
