"""The schedule of a contraction at a size, without a measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from selector.families.contraction.cost import estimate, least
from selector.families.contraction.limits import why_not
from selector.families.contraction.space import copies, finished, space, tiles
from selector.families.contraction.tiling import Shape, Tiling
from selector.machine.choice import machine_named
from selector.machine.record import Machine
from selector.targets import find_target


def ranked(shape: Shape, machine: Machine) -> list[tuple[float, Tiling]]:
    """The space with microseconds, best first; what is as good stands in the order of the
    space.
    """
    return _sorted(space(shape, machine), shape, machine)


def pick(shape: Shape, machine: Machine) -> Tiling:
    """The best of the space by the model. Tiles are looked at in the order of what their schedules
    take at least, as long as that is less than the best schedule that was found.
    """
    return _picked(shape, machine.name)


@lru_cache(maxsize=4096)
def _picked(shape: Shape, name: str) -> Tiling:
    machine = machine_named(name)
    assert machine is not None
    target = find_target(machine.target)
    every = list(tiles(shape, machine))
    bounded = ((least(t, c, shape, machine), i, c) for i, t in enumerate(every)
               for c in copies(t, shape))  # fmt: skip
    best, found = math.inf, None
    for bound, i, copied in sorted(bounded):
        if bound > best:
            break
        for tiling in finished(every[i], copied, shape, machine):
            microseconds = estimate(tiling, shape, machine).microseconds
            if microseconds < best and not why_not(tiling, shape, target):
                best, found = microseconds, tiling
    assert found is not None
    return found


def _sorted(
    tilings: Iterable[Tiling], shape: Shape, machine: Machine
) -> list[tuple[float, Tiling]]:
    found = [(estimate(t, shape, machine).microseconds, t) for t in tilings]
    return sorted(found, key=lambda pair: pair[0])
