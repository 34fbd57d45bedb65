"""Microseconds of a schedule of a filter on a GPU, foretold.

A tile is read from the L2 cache into shared memory, its windows from there into registers, and
multiplied with bands; each of these keeps the multiprocessor busy for a while. Blocks on one
multiprocessor overlap their waiting; blocks beyond those that fit wait for a second wave. What is
no property of a GPU was fitted to 1,900 times of an H200 (17 filters at 1920 x 1080 and 3840 x
2160; the pick is 2 % behind the best of them in the median, 18 % at most).
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.families.windows.limits import (
    band_bytes,
    depth,
    registers,
    shared_bytes,
    staged_bytes,
)
from selector.families.windows.tiling import BAND, Shape, Tiling, per_window
from selector.machine.record import Machine
from selector.targets import find_target


@dataclass(frozen=True, slots=True)
class Fitted:
    """Of a multiprocessor, times what the arithmetic says: ``products`` of the tensor units' rate,
    ``shared`` of shared memory's for windows, ``staged`` for what is staged; clocks ``output`` of a
    thousand outputs. Of a block, clocks: ``start``, ``copy`` of a thread's byte of what is staged,
    ``turn`` of a unit's instruction's worth of windows, ``store`` of an output of a thread,
    ``band`` of a thousand bytes of bands. ``edge``: times what is staged, where the image is no
    argument, ``rows`` where it is copied row by row besides. ``dram`` of the copy rate; ``norm``:
    how well all these overlap (exponent). ``launch``: microseconds.
    """

    products: float = 0.83
    shared: float = 0.32
    staged: float = 0.69
    output: float = 1.4
    start: float = 149.0
    copy: float = 19.3
    turn: float = 37.0
    store: float = 3.6
    band: float = 22.3
    edge: float = 1.81
    rows: float = 1.75
    dram: float = 0.95
    norm: float = 1.38
    launch: float = 2.95


WARPS = Fitted()
GROUPS = Fitted(
    0.40, 0.89, 1.48, 209.0, 2390.0, 7.7, 15.2, 65.0, 18.0, 5.3, 3.7, 1.09, 5.4, 3.0
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
    width, height = t.tile(shape)
    across, down = -(-shape.width // width), -(-shape.height // (height * t.segments))
    blocks = across * down * shape.planes
    resident = _resident(t, shape, machine)
    segments = min(t.segments, -(-shape.height // height))
    busiest = -(-blocks // machine.multiprocessors)
    waves = -(-busiest // resident)
    clocks = busiest * segments * _throughput(t, shape, machine, f)
    alone = waves * (f.start + f.band * band_bytes(t, shape) / 1e3 + segments * _alone(t, shape, f))
    memory = f.dram * _bytes(shape) / machine.copy / 1e6
    parts = (memory, clocks / machine.megahertz, alone / machine.megahertz)
    total = sum(part**f.norm for part in parts) ** (1 / f.norm)
    return Estimate(f.launch + total, *parts, blocks, resident)


def _throughput(t: Tiling, shape: Shape, machine: Machine, f: Fitted) -> float:
    """Clocks that one tile keeps a multiprocessor busy."""
    outputs = t.width * t.height
    rate = machine.rates.get("wgmma.f16" if t.unit == "group" else "mma.f16", 1.0)
    rate *= 2 if shape.bytes == 1 else 1
    rows = 1 if shape.down else shape.y.taps
    return (
        f.products * outputs * rows * depth(t, shape) / rate
        + f.shared * _windows(t, shape) / machine.shared
        + f.staged * _staged(t, shape, f) / machine.shared
        + f.output * outputs / 1e3
    )


def _alone(t: Tiling, shape: Shape, f: Fitted) -> float:
    """Clocks from the start of a tile to its end, of a block that nothing else keeps waiting."""
    return (
        f.copy * _staged(t, shape, f) / t.threads
        + f.turn * _windows(t, shape) / t.units / 1024
        + f.store * t.width * t.height / t.threads
    )


def _staged(t: Tiling, shape: Shape, f: Fitted) -> float:
    """Bytes of a tile's part of the image, more where they take longer."""
    more = 1.0 if shape.declared else f.edge if t.boxes else f.edge * f.rows
    return more * staged_bytes(t, shape)


def _windows(t: Tiling, shape: Shape) -> float:
    """Bytes that the units of a block read of the staged rows."""
    window = shape.bytes * depth(t, shape)
    if shape.down:
        return window * t.width * t.height / BAND
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


def _resident(t: Tiling, shape: Shape, machine: Machine) -> int:
    """Blocks that run on a multiprocessor at once."""
    room = find_target(machine.target).multiprocessor
    assert room is not None
    warps = t.threads // 32 + (4 if t.unit == "group" else 0)
    return max(
        1,
        min(
            room.blocks,
            room.warps // warps,
            room.registers // (32 * warps * registers(t)),
            room.shared_memory // (shared_bytes(t, shape) + room.reserved_shared),
        ),
    )
