"""The schedule of a filter at a size, without a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from selector.families.windows.cost import estimate, estimate_made
from selector.families.windows.limits import boxes_of, why_not_made
from selector.families.windows.space import space
from selector.families.windows.tiling import Shape, Tiling
from selector.machine.choice import machine_named
from selector.machine.record import Machine
from selector.targets import find_target


def ranked(shape: Shape, machine: Machine) -> list[tuple[float, Tiling]]:
    """The space with microseconds, best first; what is as good stands in the order of the space."""
    target = find_target(machine.target)
    found = [(estimate(t, shape, machine).microseconds, t) for t in space(shape, target)]
    return sorted(found, key=lambda pair: pair[0])


def candidates(shape: Shape, machine: Machine) -> list[Tiling]:
    """The best by the model; should it be refused, the best two for warps."""
    return list(_candidates(shape, machine.name))


def pick(shape: Shape, machine: Machine) -> Tiling:
    """The best by the model."""
    return _candidates(shape, machine.name)[0]


def ranked_made(
    shape: Shape, before: Sequence[Shape], machine: Machine
) -> list[tuple[float, Tiling, tuple[Tiling, ...]]]:
    """Schedules of columns whose blocks make what they read, with the boxes of that and the
    microseconds of all filters, best first. ``before``: the filters that make it, the last one of
    which reads the image.
    """
    target = find_target(machine.target)
    found = list[tuple[float, Tiling, tuple[Tiling, ...]]]()
    for t in space(shape, target):
        if not why_not_made(t, shape, before, target):
            boxes = boxes_of(t, shape, before)
            cost = estimate_made(t, shape, boxes, before, machine)
            found.append((cost.microseconds, t, boxes))
    return sorted(found, key=lambda each: each[0])


@lru_cache(maxsize=4096)
def _candidates(shape: Shape, name: str) -> tuple[Tiling, ...]:
    machine = machine_named(name)
    assert machine is not None
    found = [t for _, t in ranked(shape, machine)]
    by_warps = [t for t in found if t.unit == "warp"]
    return tuple(dict.fromkeys((*found[:1], *by_warps[:2])))
