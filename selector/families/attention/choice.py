"""The schedule of attention at a size, without a measurement."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from selector.families.attention.cost import estimate
from selector.families.attention.space import in_rows, space, usual
from selector.families.attention.tiling import Shape, Tiling
from selector.machine.choice import machine_named
from selector.machine.record import Machine

WORTH = 0.95  # of the usual schedule's time, for a program of its own


def ranked(shape: Shape, machine: Machine) -> list[tuple[float, Tiling]]:
    """The space with microseconds, best first; what is as good stands in the order of the space.
    Empty where the machine has no warpgroups, or no registers for so many channels.
    """
    found = [(estimate(t, shape, machine).microseconds, t) for t in space(shape, machine)]
    return sorted(found, key=lambda pair: pair[0])


def pick(shape: Shape, machine: Machine, *, parts: bool = True) -> Tiling | None:
    """The best by the model, or the usual one if that is nearly as good; None without a space.
    ``parts``: whether the algorithm has parts of the keys, if that is best.
    """
    return _picked(shape, machine.name, parts)


def together(shape: Shape, sharing: int, machine: Machine) -> list[Tiling]:
    """The best of those in which ``sharing`` heads with the same keys are rows of one, if it is
    better than each head by itself.
    """
    rows = replace(shape, heads=-(-shape.heads // sharing), queries=shape.queries * sharing)
    found = [(estimate(t, rows, machine).microseconds, t) for t in in_rows(rows, sharing, machine)]
    alone = ranked(shape, machine)
    best = min(found, key=lambda pair: pair[0], default=None)
    return [best[1]] if best is not None and alone and best[0] < WORTH * alone[0][0] else []


@lru_cache(maxsize=4096)
def _picked(shape: Shape, name: str, parts: bool) -> Tiling | None:
    machine = machine_named(name)
    assert machine is not None
    found = [pair for pair in ranked(shape, machine) if parts or not pair[1].part]
    if not found:
        return None
    (time, best), plain = found[0], usual(shape)
    known = next((other for other, tiling in found if tiling == plain), None)
    return plain if known is not None and time > WORTH * known else best
