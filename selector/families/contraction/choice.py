"""The schedule of a contraction at a size, without a measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from selector.families.contraction.cost import estimate, least
from selector.families.contraction.limits import why_not
from selector.families.contraction.space import copies, finished, space, tiles, worth_copying
from selector.families.contraction.tiling import Shape, Tiling
from selector.families.contraction.usual import WORTH, WORTH_OF_BYTES, usual
from selector.machine.choice import machine_named
from selector.machine.record import Machine
from selector.targets import find_target


def ranked(shape: Shape, machine: Machine) -> list[tuple[float, Tiling]]:
    """The space with microseconds, best first; what is as good stands in the order of the
    space.
    """
    return _sorted(space(shape, machine), shape, machine)


def pick(shape: Shape, machine: Machine) -> Tiling:
    """The usual tiling, or the best of the space by the model where that promises enough more. Of
    bytes that lie across the sum it is the one for copies of them: the model has not been held
    against the times of warps that read them as they lie.
    """
    if shape.across and shape.batch == 1:
        lying = pick(replace(shape, along_a=True, along_b=True), machine)
        return replace(lying, copied=worth_copying(shape))
    known = usual(shape, machine)
    if why_not(known, shape, find_target(machine.target)):
        return best(shape, machine)
    worth = WORTH_OF_BYTES if shape.integers else WORTH
    below = worth * estimate(known, shape, machine).microseconds
    return _best(shape, machine.name, below) or known


def best(shape: Shape, machine: Machine) -> Tiling:
    """The best of the space by the model."""
    found = _best(shape, machine.name)
    assert found is not None
    return found


@lru_cache(maxsize=4096)
def _best(shape: Shape, name: str, below: float = math.inf) -> Tiling | None:
    """The best of those that take less than ``below`` microseconds. Tiles are looked at in the
    order of what their schedules take at least, as long as that is less than the best schedule that
    was found.
    """
    machine = machine_named(name)
    assert machine is not None
    target = find_target(machine.target)
    every = list(tiles(shape, machine))
    bounded = ((least(t, c, shape, machine), i, c) for i, t in enumerate(every)
               for c in copies(t, shape))  # fmt: skip
    time, found = below, None
    for bound, i, copied in sorted(bounded):
        if bound > time:
            break
        for tiling in finished(every[i], copied, shape, machine):
            microseconds = estimate(tiling, shape, machine).microseconds
            if microseconds < time and not why_not(tiling, shape, target):
                time, found = microseconds, tiling
    return found


def _sorted(
    tilings: Iterable[Tiling], shape: Shape, machine: Machine
) -> list[tuple[float, Tiling]]:
    found = [(estimate(t, shape, machine).microseconds, t) for t in tilings]
    return sorted(found, key=lambda pair: pair[0])
