"""The schedule of such sums at a size, without a measurement."""

from __future__ import annotations

from functools import lru_cache
from math import inf

from selector.families.channels.cost import Gpu, costs, gpu_of, least
from selector.families.channels.space import Grid, Part, grids, parts
from selector.families.channels.tiling import Shape, Tile
from selector.machine.record import Machine


def ranked(shape: Shape, machine: Machine) -> list[tuple[float, Tile]]:
    """Tiles with the cycles that they take, the best first; none where no thread can hold one."""
    gpu = gpu_of(machine)
    found = [
        (cycles, _tile(p, grid, resident))
        for p in parts(shape)
        for cycles, resident, grid in costs(p, grids(p.each, shape), shape, gpu)
    ]
    return sorted(found, key=lambda pair: pair[0])


def best(shape: Shape, machine: Machine) -> tuple[float, Tile] | None:
    """The first of these."""
    return _best(shape, gpu_of(machine))


@lru_cache(maxsize=1024)
def _best(shape: Shape, gpu: Gpu) -> tuple[float, Tile] | None:
    """What threads have is looked at in the order of the cycles that it takes at least, as long as
    these are no more than the best tile's that was found.
    """
    every, known = [*parts(shape)], dict[tuple[int, ...], list[Grid]]()
    first, tile = (inf, 0), None
    for bound, i in sorted((least(p, shape, gpu), i) for i, p in enumerate(every)):
        if bound > first[0]:
            break
        p = every[i]
        if p.each not in known:
            known[p.each] = [*grids(p.each, shape)]
        for cycles, resident, grid in costs(p, known[p.each], shape, gpu):
            if (cycles, i) < first:
                first, tile = (cycles, i), _tile(p, grid, resident)
    return tile and (first[0], tile)


def _tile(p: Part, grid: Grid, resident: int) -> Tile:
    return Tile(p.each, grid.threads, p.lanes, p.rolled, resident, p.staged)
