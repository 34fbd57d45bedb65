"""Updates that go on step by step, each of which reads what others have stored: rows of a table
that each follow from the one before, a field at each moment of time.

    f[r.x, r.y] = a[r.x, r.y] + min(f[r.x - 1, r.y - 1], f[r.x, r.y - 1], f[r.x + 1, r.y - 1])

The threads of a block share a step, and wait for each other at its end (``lowering.scans.turns``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from halide_bridge.names import plain
from halide_bridge.schedules.kernels import LANES, Grid, fused, power_of_two
from halide_bridge.schedules.recognise.program import Member, Reduced, Stage, accesses
from halide_bridge.schedules.recorder import Script
from halide_bridge.schedules.scans import pace
from halide_bridge.schedules.sizes import Guess
from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Expr
from selector.ir.traverse import free_vars
from selector.machine import Machine

MOST = 1024  # threads of a block


@dataclass(frozen=True, slots=True)
class Steps:
    """The places of variables in the domain: ``along`` which steps follow each other, those
    ``within`` a step, in the order of memory and about so long (``extents``), and one ``around``
    all steps that has steps of its own at each value, if there is one.
    """

    along: int
    within: tuple[int, ...]
    extents: tuple[int, ...]
    around: tuple[int, ...]


def steps_of(member: Member, stage: Stage, known: Guess, machine: Machine) -> Steps | None:
    """The steps of an update; None where there are none, or enough to do without sharing them."""
    if not stage.reduced:
        return None
    dims = [_dimension(stage, r) for r in stage.reduced]
    lines = prod(known.extent(member, d) for d, (arg, _) in enumerate(_indices(stage)) if arg)
    if any(arg is None and not _of_domain(e, stage) for arg, e in _indices(stage)):
        return None
    last = next((n for n, r in reversed([*enumerate(stage.reduced)]) if not r.free), 0)
    d = dims[last]
    if d is None or len(dims) - last > 2 or lines >= LANES * machine.multiprocessors:
        return None
    own = [a.indices for e in stage.expressions for a in accesses(e) if a.func == stage.func]
    if not all(i == stage.indices or _apart(stage.indices[d], i[d]) for i in own):
        return None
    stored = {d: m for m, d in enumerate(dims[:last]) if d is not None}
    within = tuple(stored[d] for d in sorted(stored))
    extents = tuple(max(1, known.value(stage.reduced[m].extent)) for m in within)
    if prod(extents) < LANES:
        return None
    return Steps(last, within, extents, tuple(range(last + 1, len(dims))))


def _indices(stage: Stage) -> Sequence[tuple[str | None, Expr]]:
    return [*zip(stage.free, stage.indices, strict=True)]


def _of_domain(index: Expr, stage: Stage) -> bool:
    """Whether an index is a variable of the domain and nothing else of it."""
    names = {r.name for r in stage.reduced} & free_vars(index)
    return len(names) == 1 and pace(index, *names) != 0


def _dimension(stage: Stage, r: Reduced) -> int | None:
    """The only one that is stored along a variable."""
    found = [d for d, index in enumerate(stage.indices) if pace(index, r.name)]
    return found[0] if len(found) == 1 else None


def _apart(stored: Expr, read: Expr) -> bool:
    """Whether what is read is of another step, by a number of them."""
    return bool((Affine.of(stored) - Affine.of(read)).constant)


def by_steps(script: Script, member: Member, stage: Stage, steps: Steps) -> Grid:
    """A block for each element along the other dimensions, if there are any. The order of loops
    stays: Halide does not know that those of a step may run in any (``lowering.scans.turns``).
    """
    func = script.func(member.label, member.handle)
    update, loops = func.update(stage.number - 1), func.rvars(stage.number - 1)
    free = [a for a, arg in zip(func.args(), stage.free, strict=True) if arg is not None]
    update.allow_race_conditions()
    threads, along = 1, list[Any]()
    for n, extent, letter in zip(steps.within, steps.extents, "xy", strict=False):
        many = min(MOST // threads, power_of_two(extent))
        if many > 1:
            ro, ri = script.rvars(f"r{letter}o", f"r{letter}i")
            update.split(loops[n], ro, ri, many)
            threads, along = threads * many, [*along, ri]
    blocks = (*(loops[n] for n in steps.around), *fused(script, update, free))
    if not blocks:
        outermost, blocks = script.outermost(), script.variables("b")
        update.split(outermost, outermost, *blocks, 1)
    update.gpu_blocks(*blocks).gpu_threads(*along)
    name = plain(stage.reduced[steps.along].name)
    return Grid(text=f"{threads} threads a block, which share each step along {name}")
