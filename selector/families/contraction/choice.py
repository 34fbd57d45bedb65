"""The schedule of a contraction at a size, without a measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from heapq import nsmallest

from selector.families.contraction.cost import estimate, least
from selector.families.contraction.space import copies, finished, plain, space, tiles
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
    best, found = math.inf, None
    for tile in _promising(shape, machine):
        for copied in copies(tile, shape):
            if least(tile, copied, shape, machine) > best:
                continue
            for tiling in finished(tile, copied, shape, machine):
                microseconds = estimate(tiling, shape, machine).microseconds
                if microseconds < best:
                    best, found = microseconds, tiling
    assert found is not None
    return found


def _promising(shape: Shape, machine: Machine) -> list[Tiling]:
    """Tiles whose plainest schedules are the best, best first. No schedule is looked at of what
    cannot be among them.
    """
    every = list(tiles(shape, machine))
    bounded = ((least(t, c, shape, machine), i, c) for i, t in enumerate(every)
               for c in copies(t, shape))  # fmt: skip
    found: dict[int, float] = {}
    last = math.inf  # of those that are promising
    for bound, i, copied in sorted(bounded):
        if bound > last:
            break
        tiling = plain(every[i], copied, shape, machine)
        if tiling is not None:
            microseconds = estimate(tiling, shape, machine).microseconds
            if microseconds < found.get(i, math.inf):
                found[i] = microseconds
                if len(found) >= PROMISING:
                    last = nsmallest(PROMISING, found.values())[-1]
    return [every[i] for i in sorted(found, key=lambda i: (found[i], i))[:PROMISING]]


def _sorted(
    tilings: Iterable[Tiling], shape: Shape, machine: Machine
) -> list[tuple[float, Tiling]]:
    found = [(estimate(t, shape, machine).microseconds, t) for t in tilings]
    return sorted(found, key=lambda pair: pair[0])
