"""The schedules of attention that are worth a thought at a size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from selector.families.attention.tiling import COLUMNS, DEPTH, GROUP_ROWS, Shape, Tiling, padded
from selector.machine.record import Machine
from selector.targets import MOST_GIVEN, Target, find_target, given_registers

UNITS = (1, 2, 3, 4)
KEYS = (64, 80, 96, 128, 160)
FEWEST_KEYS = 16  # of a turn
FEW_KEYS = (32, FEWEST_KEYS)  # where there are so few that a loop has no other
STAGES = (2, 3)
LEAST_RUNS = 2  # of keys, of a part
REGISTERS = 512  # of a thread in each group of a multiprocessor
OTHERS = 25  # registers of a thread beside sums, scores and weights
BESIDE = 2048  # bytes of shared memory for alignment and barriers


def usual(shape: Shape) -> Tiling:
    """One that fits whatever the lengths are: as many groups as leave room for the sums in their
    registers, and as many runs of keys as do for matrices in shared memory. Blocks of two groups
    stay where all have as much to do.
    """
    units = 3 if shape.depth <= 64 else 2
    keys = 128 if shape.depth <= 128 else 64 if shape.matrices else 80
    stages = 3 if shape.depth <= 128 and not shape.matrices else 2
    stays = units == 2 and not (shape.causal or shape.matrices)
    return _tiling(shape, units, keys, stages, int(stays))


def space(shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """All for warpgroups that compile for the machine's target, each once, with parts of the keys
    where there are few tiles; none where it has none.
    """
    for tiling in _best_masked([*_whole(shape, find_target(machine.target))], shape):
        yield tiling
        if not (tiling.persistent or shape.causal or shape.matrices):
            yield from _parted(tiling, shape, machine)


def _best_masked(tilings: Sequence[Tiling], shape: Shape) -> Sequence[Tiling]:
    """Those that leave out the blocks that a mask does, if there are any."""
    return [t for t in tilings if t.leaves_out(shape)] or tilings


def in_rows(shape: Shape, sharing: int, machine: Machine) -> Iterator[Tiling]:
    """Those of heads that are rows, in parts of the keys or in one."""
    for t in _whole(shape, find_target(machine.target)):
        if not t.persistent:
            every = replace(t, part=-(-shape.keys // t.keys) * t.keys)
            for found in (*_parted(t, shape, machine), every):
                yield replace(found, sharing=sharing)


def _parted(t: Tiling, shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """With as many parts as there are multiprocessors for, and with half of them, of some runs."""
    tiles = shape.heads * -(-shape.queries // t.block)
    most = machine.multiprocessors // tiles
    parts = {-(-shape.keys // (count * t.keys)) for count in (most, most // 2) if count > 1}
    for runs in sorted({max(LEAST_RUNS, runs) for runs in parts}):
        if runs * t.keys < shape.keys:
            yield replace(t, part=runs * t.keys)


def _whole(shape: Shape, target: Target) -> Iterator[Tiling]:
    if not target.has("wgmma"):
        return
    for units in UNITS:
        for keys in _runs(shape, KEYS):
            if registers_needed(shape.depth, keys) > registers_left(units):
                continue
            for stages in STAGES:
                # Feeding matrices by threads takes more registers than blocks that stay leave.
                for persistent in (0,) if shape.matrices else (0, 1):
                    found = _tiling(shape, units, keys, stages, persistent)
                    room = target.shared_memory - BESIDE
                    if found.shared_bytes(shape.depth, shape.matrices) <= room:
                        yield found


def for_warps(shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """Those for warps, longer runs of keys first: for targets without warpgroups. None where
    registers or shared memory hold none.
    """
    room = find_target(machine.target).shared_memory - BESIDE
    for keys in _runs(shape, (2 * COLUMNS, COLUMNS)):
        found = Tiling(keys=keys, channels=_channels(shape), heads_first=shape.causal)
        fits = registers_needed(shape.depth, keys) <= MOST_GIVEN
        if fits and found.shared_bytes(shape.depth, shape.matrices) <= room:
            yield found


def _runs(shape: Shape, usual: Sequence[int]) -> Sequence[int]:
    """How many keys a turn of the loop has."""
    if not shape.fixed:
        return usual
    found = [n for n in usual if n < shape.keys]
    return found or [n for n in FEW_KEYS if n < shape.keys]


def _channels(shape: Shape) -> int:
    """Of one vector statement."""
    return COLUMNS if padded(shape.depth) % COLUMNS == 0 else DEPTH


def _tiling(shape: Shape, units: int, keys: int, stages: int, persistent: int) -> Tiling:
    return Tiling(
        units, GROUP_ROWS, keys, stages, GROUP_ROWS, groups=True, channels=_channels(shape),
        persistent=persistent, heads_first=shape.causal,
    )  # fmt: skip


def registers_needed(depth: int, keys: int) -> int:
    """Of a thread, about: the sums of its row's values, the scores of a run, and these as weights
    of 16 bits.
    """
    return padded(depth) // 2 + keys * 3 // 4 + OTHERS


def registers_left(units: int) -> int:
    """Of a thread of one of the groups that multiply."""
    equal = REGISTERS // (units + 1) // 8 * 8
    return given_registers(equal, units)
