"""Microseconds of a schedule of a filter on a GPU, foretold.

A tile is read from the L2 cache into shared memory, its windows from there into registers, and
multiplied with bands; each of these keeps the multiprocessor busy for a while. Blocks on one
multiprocessor overlap their waiting; blocks beyond those that fit wait for a second wave.
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
    """Times what the arithmetic says: ``products`` of the tensor units' rate, ``shared`` and
    ``staged`` of shared memory's; ``edge`` times that where the image is no argument, ``rows``
    where it is copied row by row besides. Clocks: ``output`` of a thousand outputs, ``band`` of a
    thousand bytes of bands, ``start`` of a block, ``wave`` of what blocks do not overlap.
    ``dram`` of the copy rate; ``norm``: how well memory overlaps the rest (exponent).
    """

    products: float = 1.0
    shared: float = 1.0
    staged: float = 2.0
    edge: float = 1.5
    rows: float = 6.0
    output: float = 100.0
    band: float = 50.0
    start: float = 500.0
    wave: float = 2500.0
    dram: float = 1.05
    norm: float = 3.0
    launch: float = 1.5


WARPS, GROUPS = Fitted(), Fitted()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Microseconds in all, and those in which memory and the multiprocessors are busy. ``blocks``
    of the grid, ``resident`` of a multiprocessor.
    """

    microseconds: float
    memory: float
    work: float
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
    clocks = segments * _tile(t, shape, machine, f) + f.start
    clocks += f.band * band_bytes(t, shape) / 1e3
    busiest = -(-blocks // machine.multiprocessors)
    waves = -(-busiest // resident)
    work = (busiest * clocks + waves * f.wave) / machine.megahertz
    memory = f.dram * _bytes(shape) / machine.copy / 1e6
    total = (memory**f.norm + work**f.norm) ** (1 / f.norm)
    return Estimate(f.launch + total, memory, work, blocks, resident)


def _tile(t: Tiling, shape: Shape, machine: Machine, f: Fitted) -> float:
    """Clocks that one tile keeps a multiprocessor busy."""
    outputs = t.width * t.height
    unit = "wgmma" if t.unit == "group" else "mma"
    rate = machine.rates.get("wgmma.f16" if unit == "wgmma" else "mma.f16", 1.0)
    rate *= 2 if shape.bytes == 1 else 1
    rows = 1 if shape.down else shape.y.taps
    products = outputs * rows * depth(t, shape) / rate
    staged = staged_bytes(t, shape)
    if not shape.declared:
        staged *= f.edge if t.boxes else f.rows
    return (
        f.products * products
        + f.shared * _windows(t, shape) / machine.shared
        + f.staged * staged / machine.shared
        + f.output * outputs / 1e3
    )


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
