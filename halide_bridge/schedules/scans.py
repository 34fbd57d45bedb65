"""Recurrences along a reduction domain, which threads share as scans (``lowering.scans``).

Along rows a block has a tile of a row; else its threads lie along the rows as well, side by side.
Long ones are cut for several blocks.
"""

from __future__ import annotations

from math import prod
from typing import Any

from halide_bridge.records import ELEMENT
from halide_bridge.schedules.asked import resident_blocks
from halide_bridge.schedules.kernels import FUSED, LANES, Grid, fused, power_of_two
from halide_bridge.schedules.recognise.facts import Placement
from halide_bridge.schedules.recognise.program import Member, Stage, number
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import Guess
from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Call, Expr, Var
from selector.ir.recurrences import ORDER, Recurrence, recurrence
from selector.ir.traverse import free_vars, walk_expr
from selector.lowering.scans.memory import known_weights
from selector.machine import Machine

SHORT = 64  # steps that a thread does alone
STEPS = 16  # of a thread in a tile along rows
ROW = 256  # threads along a row
DOWN, DOWN_STEPS = 16, 16  # threads and their steps down columns
WAVES = 16  # blocks for each multiprocessor
# Where a recurrence forgets within a tile, blocks wait for no other, and have the fewest threads
# that wait for each other. There are as many as a multiprocessor has registers for, or more of so
# many tiles, beside which the one ahead of a block is little: with fewer registers filters of order
# 4 take 2 to 19 % less, with longer parts those of order 2 take 5 to 9 % more (H200).
RESIDENT_THREADS, LONG = 1024, 8
CHAIN = 2048  # blocks of a row at most: each joins all before
# Blocks of a multiprocessor that are to find registers, where recurrences of this order read each
# other and may be one kernel: four sections of a filter took a seventh more with three (H100).
RESIDENT, FEW = 4, 2


@dataclass(frozen=True, slots=True)
class Scan:
    """``along``: the dimension of a recurrence of so many ``steps``, of that ``order``; ``rows``:
    how many there are. ``linked``: it reads another Func with updates, or one reads it.
    ``memory``: after how many steps it has forgotten where it began, and all others with it, if it
    is linked; 0 where that is not known.
    """

    stage: Stage
    along: int
    steps: int
    rows: int
    order: int
    linked: bool
    memory: int


def scan_of(member: Member, stage: Stage, placement: Placement, known: Guess) -> Scan | None:
    """The scan that an update is; None if it is none, or too short to be shared."""
    if len(stage.reduced) != 1 or len(stage.values) != 1 or stage.predicate is not None:
        return None
    (r,) = stage.reduced
    along = _along(stage)
    others = [d for d, arg in enumerate(stage.free) if arg is not None]
    if r.free or len(along) != 1 or len(others) != len(stage.indices) - 1:
        return None
    if len(others) - (along[0] > 0) > FUSED:
        return None
    if any(reader == member.name for reader in placement.reader.values()):
        return None  # what is computed in a thread for it would be so for each of its runs
    found = _recurrence(stage, along[0])
    if found is None:
        return None
    if pace(stage.indices[along[0]], r.name) < 0 and not found.weights:
        return None  # where the first steps are left out, extrema begin with zero
    beside = {member.args[0]} if along[0] else set[str]()
    if any(free_vars(w) & {r.name, *beside} for w in found.weights):
        return None
    said = free_vars(r.extent) <= known.known.keys()
    steps = known.value(r.extent) if said else known.extent(member, along[0])
    if steps <= SHORT and number(r.extent) is not None:
        return None
    rows = prod(known.extent(member, d) for d in others)
    read = {a.func for a in member.accesses()}
    others = (m for m in placement.program if not m.pure and m.name != member.name)
    linked = any(m.name in read or member.name in {a.func for a in m.accesses()} for m in others)
    stages = [s for m in placement.program for s in m.stages[1:]] if linked else [stage]
    memories = [_memory(s) for s in stages]
    memory = sum(memories) if all(memories) else 0
    return Scan(stage, along[0], steps, rows, len(found.weights) or 1, linked, memory)


def _along(stage: Stage) -> list[int]:
    """The dimensions that an update walks along."""
    (r,) = stage.reduced
    return [d for d, index in enumerate(stage.indices) if pace(index, r.name)]


def _recurrence(stage: Stage, along: int) -> Recurrence | None:
    """What an update is along a dimension; None if that is no recurrence."""
    lags = _lags(stage.values[0], stage, along)
    found = recurrence(stage.values[0], lags) if lags and any(lags.values()) else ""
    return None if isinstance(found, str) else found


def _memory(stage: Stage) -> int:
    """After how many steps an update has forgotten where it began; 0 where that is not known."""
    if len(stage.reduced) != 1 or len(stage.values) != 1 or len(along := _along(stage)) != 1:
        return 0
    found = _recurrence(stage, along[0])
    numbers = None if found is None else known_weights(found.weights, stage.values[0].type)
    return 0 if numbers is None else numbers.memory


def pace(index: Expr, name: str) -> int:
    """By how much an index follows a reduction variable: 1 or, from the end, -1; 0 otherwise."""
    form = Affine.of(index)
    step = form.coefficient(Var(name)).constant
    return step if step in (1, -1) and not form.rest(Var(name)).mentions(name) else 0


def _lags(value: Expr, stage: Stage, along: int) -> dict[Expr, int] | None:
    """How far back each read of the Func itself looks; None for one that looks elsewhere."""
    found: dict[Expr, int] = {}
    step = pace(stage.indices[along], stage.reduced[0].name)
    for part in walk_expr(value):
        if not (isinstance(part, Call) and part.name.rpartition(ELEMENT)[0] == stage.func):
            continue
        back = Affine.of(stage.indices[along]) - Affine.of(part.args[along])
        lag = None if back.constant is None else back.constant * step
        rest = [i for d, i in enumerate(part.args) if d != along]
        if lag is None or not 0 <= lag <= ORDER:
            return None
        if rest != [i for d, i in enumerate(stage.indices) if d != along]:
            return None
        found[part] = lag
    return found


def by_scan(script: Script, func: Recorded, scan: Scan, machine: Machine) -> Grid:
    """The directives of an update that is a scan."""
    update = func.update(scan.stage.number - 1)
    (r,) = func.rvars(scan.stage.number - 1)
    ro, rt, rl = script.rvars("ro", "rt", "rl")
    args = [a for d, a in enumerate(func.args()) if d != scan.along]
    down = scan.along > 0
    steps = DOWN_STEPS if down else STEPS
    few = power_of_two(-(-scan.memory // STEPS))  # threads whose tile is as long as the memory
    alone = not down and scan.memory > 0 and few <= ROW
    threads = few if alone else min(DOWN if down else ROW, power_of_two(-(-scan.steps // steps)))
    threads = max(threads, 2 if down else LANES)
    tiles = -(-scan.steps // (steps * threads))
    groups = max(1, scan.rows // LANES if down else scan.rows)
    resident = RESIDENT_THREADS // threads
    if alone:
        each = min(LONG, power_of_two(-(-tiles * groups // (resident * machine.multiprocessors))))
    else:
        each = power_of_two(tiles * groups // (WAVES * machine.multiprocessors))
        each = max(each, power_of_two(tiles // CHAIN))
    blocks: list[Any] = []
    if not args or each < tiles:
        (rb,) = script.rvars("rb")
        update.allow_race_conditions().split(r, rb, ro, steps * threads * each)
        update.split(ro, ro, rl, steps)
        blocks = [rb]
    else:
        update.allow_race_conditions().split(r, ro, rl, steps)
    update.split(ro, ro, rt, threads)
    inner = [rl]
    if down:
        x, *args = args
        xo, xi = script.variables("xo", "xi")
        update.split(x, xo, xi, LANES)
        inner = [rl, xi]
        blocks.append(xo)
    blocks += fused(script, update, args)
    update.reorder(*inner, rt, ro, *blocks).gpu_blocks(*blocks)
    update.gpu_threads(*inner[1:], rt)
    if alone:
        resident_blocks(func, resident)
    elif scan.linked and not down and threads == ROW and scan.order <= FEW:
        resident_blocks(func, RESIDENT)
    return Grid(text=f"scans by {threads} threads of {steps} steps")
