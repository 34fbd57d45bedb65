"""Cycles of a schedule on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from math import prod
from typing import NamedTuple

from selector.families.channels.space import (
    LONG,
    REGISTERS,
    WARP,
    Grid,
    Part,
    least_row,
    times,
)
from selector.families.channels.tiling import Shape
from selector.machine.record import Machine

# Fitted to 247 kernels for 52 layers on an H200 (13 % off in the median; of those that were timed
# for a layer the choice is the best in the median, 24 % off at most): instructions of an element
# that a block brings to shared memory; cycles of a launch, of a block, of a warp for one of its
# instructions, of an instruction until its text is there, and until what a block brings to shared
# memory is there and all have met.
BROUGHT = 40
LAUNCH, START, WAIT, TEXT, ARRIVING = 3800, 60, 2, 2, 1800
# Of channels side by side, each with a filter of its own, to 506 kernels for 25 layers, none of
# whose data was in the L2 cache (11 % off; the choice loses 5.5 % in the mean): cycles of a launch,
# of a warp for one of its instructions alone and as one of many, until what a thread loads is
# there, and of an instruction's text; bytes from memory for which one counts that is read again;
# the power with which arithmetic, waiting and bytes add up; of the registers of all values, how
# many nvcc takes, and how few do.
LAUNCH_ALONE, PACE, ISSUE, LATENCY, TEXT_ALONE = 2760, 1.0, 0.22, 915, 1.1
REREAD, POWER, TAKEN, FEWEST = 4, 1.3, 0.78, 0.66
RUN = 8  # elements of a row that a thread brings at once, also if there are fewer
ROOM = 96 << 10  # bytes of shared memory for all blocks of a multiprocessor


class Gpu(NamedTuple):
    """``speed``: bytes a cycle from memory."""

    multiprocessors: int
    speed: float


def gpu_of(machine: Machine) -> Gpu:
    return Gpu(machine.multiprocessors, machine.copy * 1e6 / machine.megahertz)


def costs(
    p: Part, grids: Iterable[Grid], shape: Shape, gpu: Gpu
) -> Iterator[tuple[float, int, Grid]]:
    """The cycles and the blocks that find registers, of each that there is room for."""
    cost = partial(_cost_alone, moved=_moved(shape, gpu)) if shape.alone else _cost
    for grid in grids:
        known = cost(p, grid, shape, gpu)
        if known is not None:
            yield *known, grid


def least(p: Part, shape: Shape, gpu: Gpu) -> float:
    """Cycles that a thread's part takes at least, whatever blocks threads are in."""
    turns = times(p.rolled, shape)
    threads = prod(-(-e // n) for e, n in zip(shape.extents, p.each, strict=True))
    warps = threads / (WARP * gpu.multiprocessors)
    if not shape.alone:
        issue = warps * max((p.instructions + p.again) / 4, p.lines)
        text = TEXT * (p.instructions + p.again) / turns
        return max(issue, p.instructions * WAIT + START) + text + LAUNCH
    waiting = p.instructions * PACE + LATENCY * turns**0.5
    bytes_ = _moved(shape, gpu) + shape.bytes * _least_read(p, shape) / REREAD / gpu.speed
    body = _together(warps * p.instructions * ISSUE, waiting, bytes_)
    return body + TEXT_ALONE * p.instructions / turns + LAUNCH_ALONE


def _least_read(p: Part, shape: Shape) -> float:
    """Pixels that blocks read at least. Along a dimension a block reads ``step`` a result, and
    some beside: the product of such sums is the least where these are as ``LONG`` threads allow
    and in the same proportion everywhere (Hoelder's inequality).
    """
    steps, beside, k = 1.0, -(-least_row(shape) // p.each[0]) / LONG, 0
    for n, w in zip(p.each, shape.windows, strict=True):
        if more := max(0, w.reach(n) - w.step * n):
            steps, beside, k = steps * w.step, beside * more / n, k + 1
    each = (steps ** (1 / k) + beside ** (1 / k)) ** k if k else 1.0
    return prod(shape.extents) * each


def _cost(p: Part, grid: Grid, shape: Shape, gpu: Gpu) -> tuple[float, int] | None:
    """The cycles of all blocks, and how many are resident; None where there is no room for one, or
    it has parts of groups.
    """
    resident = max(1, min(REGISTERS // (grid.count * -(-p.registers // 8) * 8), 16))
    share = -(-grid.blocks // gpu.multiprocessors)
    instructions = float(p.instructions)
    if p.staged:
        row, *rows = (w.reach(n) for n, w in zip(grid.spans, shape.windows, strict=True))
        brought = -(-row // RUN) * RUN * prod(rows)
        brought += shape.terms * grid.spans[shape.channel]
        resident = min(resident, ROOM // (brought * shape.bytes))
        if not resident or grid.spans[shape.channel] % shape.group:
            return None
        instructions += BROUGHT * brought / grid.count
    issue = share * -(-grid.count // WARP) * max((instructions + p.again) / 4, p.lines)
    waiting = -(-share // resident) * (instructions * WAIT + START)
    text = TEXT * (p.instructions + p.again) / times(p.rolled, shape)
    arriving = ARRIVING if p.staged else 0
    return max(issue, waiting) + text + arriving + LAUNCH, resident


def _cost_alone(p: Part, grid: Grid, shape: Shape, gpu: Gpu, *, moved: float) -> tuple[float, int]:
    """The same of channels side by side, each alone, whose bytes take so many cycles if they are
    ``moved`` once.
    """
    warps = -(-grid.count // WARP)
    room, few = REGISTERS // (warps * WARP), int(FEWEST * p.registers)
    resident = max(1, min(room // (-(-few // 8) * 8), 16))
    held = min(REGISTERS // (grid.count * resident) // 8 * 8, TAKEN * p.registers)
    there = max(1, min(room // held, 64 // warps))
    even = grid.blocks / gpu.multiprocessors
    share = min(-(-grid.blocks // gpu.multiprocessors), even + 0.5)
    turns = times(p.rolled, shape)
    waiting = max(1.0, share / there) * (p.instructions * PACE + LATENCY * turns**0.5)
    bytes_ = moved + shape.bytes * grid.read / REREAD / gpu.speed
    body = _together(share * warps * p.instructions * ISSUE, waiting, bytes_)
    return body + TEXT_ALONE * p.instructions / turns + LAUNCH_ALONE, resident


def _moved(shape: Shape, gpu: Gpu) -> float:
    """Cycles for the bytes of all results, and of pixels once."""
    once = prod(shape.extents) * (1 + prod(w.step for w in shape.windows))
    return shape.bytes * once / gpu.speed


def _together(issue: float, waiting: float, bytes_: float) -> float:
    return (issue**POWER + waiting**POWER + bytes_**POWER) ** (1 / POWER)
