"""Microseconds of a schedule of a filter on a GPU, foretold.

A tile is read from the L2 cache into shared memory, its windows from there into registers, and
multiplied with bands; each of these keeps the multiprocessor busy for a while. Blocks on one
multiprocessor overlap their waiting; blocks beyond those that fit wait for a second wave. What is
no property of a GPU was fitted to times of 43 filters on an H200 (``casestudies/measuring/model``);
some of the best schedules of each had more weight than the rest. Of warps it was fitted again to
328 times of 52 filters on an H200 (2026-11-28), 36 of rows of 8 to 256 taps, while what it had
foretold for 44 others counted a fifth: of filters that were held out, a third in turn, the choice
lost 1.5 % in the mean before and 0.7 % after. What blocks take that make what they read was fitted
to 12 separable filters on an H100 (``tests/gpu/build_separable.py``): the choice between two
kernels and one loses 0.1 % there, and 1.6 % at eight that were held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from selector.dataclass import dataclass
from selector.families.overlap import overlapped
from selector.families.windows.limits import (
    LONG,
    band_bytes,
    beside,
    depth,
    made_bytes,
    shared_bytes,
    staged_bytes,
    turns,
)
from selector.families.windows.tiling import Shape, Tiling, per_window
from selector.machine.record import Machine
from selector.targets import find_target

CHUNK = 16  # bytes that a thread copies at once
CONVERTED = 8  # bytes of f16 that would come as fast as one byte that is converted

CORES = 0.4  # of their rate: what filters of single floats reach on CUDA cores, measured


@dataclass(frozen=True, slots=True)
class Fitted:
    """Of a multiprocessor, times what the arithmetic says: ``products`` of the tensor units' rate,
    ``shared`` of shared memory's for windows, ``staged`` for what is staged, ``bands`` for what a
    block builds of them; clocks ``output`` of a thousand outputs. Of a block, clocks: ``start``,
    ``copy`` of a thread's byte of what is staged, ``turn`` of a unit's instruction's worth of
    windows, ``store`` of an output of a thread, ``band`` of a thousand bytes of bands, ``wait`` of
    each unit; ``drain``: the part of one that overlaps with no other. ``tail``: of a last round of
    blocks that is not full, what it takes of a full one beyond its part. ``edge``: times what is
    staged, where the image is no argument, ``rows`` where it is copied row by row besides. ``dram``
    of the copy rate; ``norm``: how well all these overlap (exponent). ``launch``: microseconds.
    """

    products: float = 0.584
    shared: float = 0.662
    staged: float = 1.93
    output: float = 1.2
    start: float = 248.0
    copy: float = 21.1
    turn: float = 9.01
    store: float = 33.1
    band: float = 37.0
    edge: float = 1.77
    rows: float = 1.67
    dram: float = 0.996
    norm: float = 2.91
    launch: float = 1.6
    bands: float = 1.92
    wait: float = 126.0
    drain: float = 0.429
    tail: float = 0.166


WARPS = Fitted()
GROUPS = Fitted(
    0.703, 0.412, 0.58, 52.3, 4520.0, 9.12, 1.18, 15.2, 0.884,
    5.3, 2.0, 0.886, 2.1, 1.29, 20.4, 2.25, 0.242, 0.0333,
)  # fmt: skip
MADE = Fitted(
    1.47, 0.311, 4.24, 0.0583, 204.0, 22.2, 5.22, 20.0, 8.8,
    2.11, 1.67, 0.909, 2.27, 2.18, 0.963, 223.0, 0.608, 0.027,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimate:
    """Microseconds in all, and those in which ``memory`` is busy, the ``work`` of multiprocessors,
    and what blocks take ``alone``, one wave after the other. ``blocks`` of the grid, ``resident``
    of a multiprocessor.
    """

    microseconds: float
    memory: float
    work: float
    alone: float
    blocks: int
    resident: int


def estimate(t: Tiling, shape: Shape, machine: Machine, fitted: Fitted | None = None) -> Estimate:
    """Of a schedule that its target takes (``limits.why_not``)."""
    f = fitted or (GROUPS if t.unit == "group" else WARPS)
    segments = min(t.segments, -(-shape.height // t.tile(shape)[1]))
    clocks = f.bands * band_bytes(t, shape) / machine.shared
    clocks += segments * (_throughput(t, shape, machine, f) + _copied(t, shape, machine, f))
    one = _begun(t, shape, f) + _alone(t, shape, f, segments)
    memory = f.dram * _bytes(shape) / machine.copy / 1e6
    return _together(t, shape, machine, f, (memory, clocks, one), shared_bytes(t, shape))


def estimate_made(
    t: Tiling, shape: Shape, boxes: Sequence[Tiling], before: Sequence[Shape], machine: Machine
) -> Estimate:
    """Of a schedule whose blocks make what they stage of the image, in place of copying it: boxes
    of other filters (``before``), each of what the one ahead of it reads, and the first image's
    part is copied.
    """
    f = MADE
    spread = [
        replace(box, rows=box.rows * each, units=-(-box.units // each))
        for box in boxes
        for each in (turns(box, t.units),)
    ]
    filters = [(t, shape), *zip(spread, before, strict=True)]
    last, image = filters[-1]
    bands = sum(map(band_bytes, (t, *boxes), (shape, *before)))
    clocks = f.bands * bands / machine.shared
    clocks += sum(_throughput(each, own, machine, f) for each, own in filters)
    clocks += _copied(last, image, machine, f)
    one = _begun(t, shape, f) + sum(_used(each, own, f) for each, own in filters[:-1])
    one += _alone(last, image, f, 1)
    results = shape.planes * shape.width * shape.height * shape.result_bytes
    memory = f.dram * (_bytes(replace(image, result_bytes=0)) + results) / machine.copy / 1e6
    room = made_bytes(t, shape, boxes, before)
    return _together(t, shape, machine, f, (memory, clocks, one), room)


def _together(
    t: Tiling,
    shape: Shape,
    machine: Machine,
    f: Fitted,
    parts: tuple[float, float, float],
    shared: int,
) -> Estimate:
    """Of microseconds of memory, and clocks that a block keeps a multiprocessor busy, and that it
    takes alone."""
    memory, clocks, one = parts
    width, height = t.tile(shape)
    across, down = -(-shape.width // width), -(-shape.height // (height * t.segments))
    blocks = across * down * shape.planes
    resident = _resident(t, shape, machine, shared)
    busiest = -(-blocks // machine.multiprocessors)
    rounds = busiest / resident
    waves = max(1.0, rounds + f.tail * (ceil(rounds) - rounds))
    all_ = (memory, busiest * clocks / machine.megahertz, waves * one / machine.megahertz)
    total = overlapped(f.norm, *all_)
    total += f.drain * one / machine.megahertz
    return Estimate(f.launch + total, *all_, blocks, resident)


def _throughput(t: Tiling, shape: Shape, machine: Machine, f: Fitted) -> float:
    """Clocks that one tile keeps a multiprocessor busy, its copy apart."""
    outputs = t.width * t.height
    rate = machine.rates.get("wgmma.f16" if t.unit == "group" else "mma.f16", 1.0)
    rate *= 2 if shape.operand_bytes == 1 else 1
    rows = 1 if shape.down else shape.y.taps
    return (
        f.products * outputs * rows * depth(t, shape) / rate
        + f.shared * read_bytes(t, shape) / machine.shared
        + f.output * outputs / 1e3
    )


def _copied(t: Tiling, shape: Shape, machine: Machine, f: Fitted) -> float:
    """Clocks that the copy of one tile's part of the image keeps a multiprocessor busy."""
    return f.staged * _staged(t, shape, f) / machine.shared


def _begun(t: Tiling, shape: Shape, f: Fitted) -> float:
    """Clocks until a block has its bands."""
    return f.start + f.wait * t.units + f.band * band_bytes(t, shape) / 1e3


def _alone(t: Tiling, shape: Shape, f: Fitted, segments: int) -> float:
    """Clocks from the start of a block's tiles to their end, where nothing else keeps it waiting: a
    part of the image comes as long as the one before is used, if there is room for both.
    """
    rounds = -(-_staged(t, shape, f) // (CHUNK * t.threads))
    copied = f.copy * CHUNK * rounds
    used = _used(t, shape, f)
    tile = max(copied, used) if t.stages > 1 else copied + used
    return copied + used + (segments - 1) * tile


def _used(t: Tiling, shape: Shape, f: Fitted) -> float:
    """Clocks in which units multiply one tile's windows and store its outputs."""
    used = f.turn * _windows(t, shape) / t.units / 1024
    return used + f.store * t.width * t.height / t.threads


def _staged(t: Tiling, shape: Shape, f: Fitted) -> float:
    """Bytes of a tile's part of the image, more where they take longer."""
    plain = shape.declared and shape.aligned
    more = 1.0 if plain else f.edge if t.boxes else f.edge * f.rows
    return more * staged_bytes(t, shape)


def read_bytes(t: Tiling, shape: Shape) -> float:
    """Bytes that the units of a block read of the staged rows. Windows of a long band meet: what
    is read for one is in registers for the next.
    """
    windows, long = _windows(t, shape), LONG * shape.x.step
    beyond = depth(t, shape) - long
    if t.unit == "group" or shape.y.taps > 1 or beyond <= 0:
        return windows
    reach = shape.x.step * t.width / shape.x.phases
    return windows * (1 + beyond / reach) * long / (long + beyond)


def _windows(t: Tiling, shape: Shape) -> float:
    """Bytes that the units of a block multiply, a window for each of its outputs of a phase."""
    window = CONVERTED * depth(t, shape) if shape.converted else shape.bytes * depth(t, shape)
    if shape.down:
        return window * t.width * t.height / shape.band
    if t.unit == "group":  # an instruction has all bands that meet a row
        rows = t.units * (shape.y.step * (t.rows // shape.y.phases - 1) + shape.y.taps)
        return rows * window * t.width / (per_window(shape.x) * shape.x.phases)
    rows = shape.y.step * (t.rows // shape.y.phases - 1) + t.tap_rows
    turns = shape.y.taps // t.tap_rows
    return t.units * turns * rows * window * t.width / (8 * shape.x.phases)


def _bytes(shape: Shape) -> float:
    """That a filter has to read and write."""
    x, y = shape.x, shape.y
    pixels = (shape.width * x.step / x.phases) * (shape.height * y.step / y.phases)
    outputs = shape.width * shape.height
    return shape.planes * (pixels * shape.bytes + outputs * shape.result_bytes)


def _resident(t: Tiling, shape: Shape, machine: Machine, shared: int) -> int:
    """Blocks that run on a multiprocessor at once."""
    target = find_target(machine.target)
    room = target.multiprocessor
    assert room is not None
    by_memory = room.shared_memory // (shared + room.reserved_shared)
    return max(1, min(beside(t, shape, target), by_memory))


def worth_rounding(shape: Shape, machine: Machine) -> bool:
    """Whether a filter takes CUDA cores longer than its bytes take: else tensor units gain nothing
    where they round its elements, or where each is read once.
    """
    taps = shape.x.taps * shape.y.taps
    moved = shape.result_bytes + shape.bytes * shape.x.step * shape.y.step
    cores = taps / (CORES * machine.tera_macs("fma.f32"))
    return cores > moved / machine.copy
