"""The schedule of a contraction at a size, without a measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from selector.families.contraction.cost import estimate
from selector.families.contraction.space import finished, plain, space, tiles
from selector.families.contraction.tiling import Shape, Tiling
from selector.machine.choice import machine_named
from selector.machine.record import Machine

PROMISING = 12  # tiles whose rings and grids are looked at


def ranked(shape: Shape, machine: Machine) -> list[tuple[float, Tiling]]:
    """The space with microseconds, best first; what is as good stands in the order of the
    space.
    """
    return _sorted(space(shape, machine), shape, machine)


def pick(shape: Shape, machine: Machine) -> Tiling:
    """The best by the model, found by tiles first: of the most promising ones in their plainest
    form, the best ring and grid.
    """
    return _picked(shape, machine.name)


@lru_cache(maxsize=4096)
def _picked(shape: Shape, name: str) -> Tiling:
    machine = machine_named(name)
    assert machine is not None
    first = [(_least(plain(t, shape, machine), shape, machine), t) for t in tiles(shape, machine)]
    promising = sorted(first, key=lambda pair: pair[0])[:PROMISING]
    every = (f for _, t in promising for f in finished(t, shape, machine))
    return _sorted(every, shape, machine)[0][1]


def _least(tilings: Iterable[Tiling], shape: Shape, machine: Machine) -> float:
    times = (estimate(t, shape, machine).microseconds for t in tilings)
    return min(times, default=math.inf)


def _sorted(
    tilings: Iterable[Tiling], shape: Shape, machine: Machine
) -> list[tuple[float, Tiling]]:
    found = [(estimate(t, shape, machine).microseconds, t) for t in tilings]
    return sorted(found, key=lambda pair: pair[0])
