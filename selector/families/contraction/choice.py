"""The schedule of a contraction at a size, without a measurement."""

from __future__ import annotations

from functools import lru_cache

from selector.families.contraction.cost import estimate
from selector.families.contraction.space import space
from selector.families.contraction.tiling import Shape, Tiling
from selector.machine.record import Machine


def ranked(shape: Shape, machine: Machine) -> list[tuple[float, Tiling]]:
    """The space with microseconds, best first; what is as good stands in the order of the
    space.
    """
    found = [(estimate(t, shape, machine).microseconds, t) for t in space(shape, machine)]
    return sorted(found, key=lambda pair: pair[0])


@lru_cache(maxsize=4096)
def _picked(shape: Shape, name: str) -> Tiling:
    from selector.machine.choice import machine_named

    machine = machine_named(name)
    assert machine is not None
    return ranked(shape, machine)[0][1]


def pick(shape: Shape, machine: Machine) -> Tiling:
    """The best by the model, the first of those that are as good."""
    return _picked(shape, machine.name)
