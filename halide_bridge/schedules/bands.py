"""Sums over taps that begin where data say, on tensor units: ``hb.grouped``, then tiles.

A block has a group of results that begin together along the resampled dimension, and goes through
the runs of pixels that any of them reads; threads make the run's band of weights from the tables.
``down``: along a dimension that is not innermost in memory; the band is times rows of pixels, whose
channels may lie next to each other. ``across``: along rows, each channel of which is then a row of
its own; so the results of a first pass are stored.
"""

from __future__ import annotations

from typing import Any

from halide_bridge.groups import Taps
from halide_bridge.memory import MemoryType
from halide_bridge.schedules.asked import interleaved, pipeline_stages, store_in
from halide_bridge.schedules.kernels import Grid, fused
from halide_bridge.schedules.recognise.facts import SMALL, Placement
from halide_bridge.schedules.recognise.program import Member
from halide_bridge.schedules.recognise.resampling import Resampling
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import Guess
from halide_bridge.stock import GPU_SHARED
from selector.dataclass import dataclass
from selector.families.bands import Tiling, tiling_of
from selector.machine import Machine
from selector.targets import VECTOR_BYTES

PAD = 8  # elements, pixels of a tile: rows that warps store at once begin in other banks
LONGEST = 128  # taps of a result whose weights a block brings to shared memory


@dataclass(frozen=True, slots=True)
class Bands:
    """The Funcs of ``grouped``, and ``stored``, which has their results. ``x`` and ``along`` are
    dimensions of it, ``channels`` the extent of the one before ``x``, or 1. ``planar``: of the
    pixels, each channel is a row; ``output``: whether it is the pipeline's, whose pixels lie as
    they do; ``staged``: whether the pixels are a copy of their own; ``taps`` of a result, if they
    are a number.
    """

    stored: Recorded
    tile: Recorded
    total: Recorded
    pixels: Recorded
    band: Recorded
    starts: Recorded
    table: Recorded
    x: int
    along: int
    channels: int
    planar: bool
    output: bool
    staged: bool
    taps: int | None


@dataclass(frozen=True, slots=True)
class Pass:
    """A resampling: the sum ``member``, whose Func is ``func``, and its ``reader``, which has its
    ``stored`` results.
    """

    taps: Resampling
    member: Member
    reader: Member
    func: Recorded
    stored: Recorded


def banded(script: Script, p: Pass, placement: Placement, known: Guess, machine: Machine) -> Grid:
    """The kernel of one, in groups."""
    program, taps, dims = placement.program, p.taps, range(len(p.reader.args))
    extents = [placement.extent(p.reader.name, d) for d in dims]
    x = next(d for d, e in enumerate(extents) if e is None or e > SMALL)
    channels = extents[0] or 1 if x else 1
    beside = x if taps.along != x else x + 1
    about = tuple(known.extent(p.reader, d) for d in dims)
    size = tiling_of(about, taps.along, beside, channels, machine)
    source, weights = (program.members[name] for name in (taps.source, taps.weights))
    read = script.func(source.label, source.handle)
    script.func(weights.label, weights.handle)
    said = Taps(taps.along, taps.source, taps.weights, size.group, size.run)
    outputs = [program.members[name].handle for name in program.outputs]
    tile, total, pixels, band, starts, table = script.grouped(outputs, p.func, p.stored, said)
    output, alone = p.reader.name in program.outputs, pixels.name() == taps.source
    found = Bands(
        p.stored, tile, total, read.stored() if alone else pixels, band, starts, table,
        x, taps.along, channels,
        planar=alone, output=output, staged=not alone, taps=taps.count,
    )  # fmt: skip
    return by_bands(script, found, size)


def by_bands(script: Script, p: Bands, size: Tiling) -> Grid:
    """The directives."""
    if p.along == p.x:
        _across(script, p, size)
    else:
        _down(script, p, size)
    for variable, extent in zip(p.band.args(), (size.run, size.group), strict=True):
        p.band.bound_extent(variable, extent).vectorize(variable)
    (_, runs) = p.total.rvars(0)
    p.band.compute_at(p.total, runs).store_in(GPU_SHARED)
    (xo,) = script.variables("xo")
    p.starts.compute_at(p.stored, xo).store_in(GPU_SHARED)
    p.starts.bound_extent(p.starts.args()[0], size.group).vectorize(p.starts.args()[0])
    if p.taps is not None and p.taps <= LONGEST:
        p.table.compute_at(p.stored, xo).store_in(GPU_SHARED)
        for variable, extent in zip(p.table.args(), (p.taps, size.group), strict=True):
            p.table.bound_extent(variable, extent).vectorize(variable)
    text = f"{size.warps} warps, groups of {size.group} results by runs of {size.run} pixels"
    return Grid(text=text)


def _down(script: Script, p: Bands, size: Tiling) -> None:
    args = p.stored.args()
    x, y, c = args[p.x], args[p.along], args[: p.x]
    xw, xi = script.variables("xw", "xi")
    _store(script, p, (x, size.block), (y, size.group))
    _sums(script, p, {x.name(): size.block, y.name(): size.group})
    line = (xi, *c) if p.planar else (*c, xi)
    for stage, inner, outer in _stages(p):
        stage.split(x, xw, xi, size.warp).reorder(*inner, *line, y, xw, *outer)
        for loop in (*inner, *line, y):
            stage.vectorize(loop)
        stage.gpu_threads(xw)
    _stage(script, p, size, {x.name(): size.block, y.name(): size.run}, p.planar)
    if c:
        interleaved(p.stored, p.channels, p.output)


def _across(script: Script, p: Bands, size: Tiling) -> None:
    args = p.stored.args()
    x, y, c = args[p.x], args[p.x + 1], args[: p.x]
    yw, yi = script.variables("yw", "yi")
    _store(script, p, (x, size.group), (y, size.block))
    _sums(script, p, {x.name(): size.group, y.name(): size.block})
    for stage, inner, outer in _stages(p):
        stage.split(y, yw, yi, size.warp).reorder(*inner, x, yi, *c, yw, *outer)
        for loop in (*inner, x, yi):
            stage.vectorize(loop)
        for loop in c:
            stage.unroll(loop)
        stage.gpu_threads(yw)
    _stage(script, p, size, {x.name(): size.run, y.name(): size.block}, planar=True)
    if c:
        interleaved(p.stored, p.channels, p.output)


def _stages(p: Bands) -> list[tuple[Recorded, tuple[Any, ...], tuple[Any, ...]]]:
    """What a warp does in loops of its own, with its innermost and outermost ones."""
    pixel, runs = p.total.rvars(0)
    update = p.total.update().atomic()
    return [(p.tile, (), ()), (p.total, (), ()), (update, (pixel,), (runs,))]


def _store(script: Script, p: Bands, *split: tuple[Any, int]) -> None:
    """Blocks of tiles, which are stored in whole rows."""
    args = p.stored.args()
    c, x = args[: p.x], args[p.x]
    p.stored.compute_root()
    (x, wide), (y, high) = split
    others = [a for a in args[p.x :] if a.name() not in (x.name(), y.name())]
    xo, xi, yo, yi, cx = script.variables("xo", "xi", "yo", "yi", "cx")
    p.stored.split(x, xo, xi, wide).split(y, yo, yi, high)
    line: tuple[Any, ...] = (xi, *c)
    if c and p.output:
        p.stored.fuse(c[0], xi, cx)
        line = (cx,)
    elif c:
        p.stored.reorder_storage(x, *c, *args[p.x + 1 :]).align_storage(x, 64)
    blocks = (xo, yo, *fused(script, p.stored, others))
    p.stored.reorder(*line, yi, *blocks)
    for loop in (*line, yi):
        p.stored.vectorize(loop)
    p.stored.gpu_blocks(*blocks)


def _sums(script: Script, p: Bands, extents: dict[str, int]) -> None:
    (xo,) = script.variables("xo")
    own = [a.name() for a in p.stored.args()]
    store_in(p.total, MemoryType.WMMAAccumulator)
    p.tile.store_in(GPU_SHARED)
    for part in (p.tile, p.total):
        part.compute_at(p.stored, xo)
        _bounded(part, p, extents)
        if p.x and (p.planar if p.along != p.x else not p.output):
            part.reorder_storage(part.args()[p.x], *part.args()[: p.x], *part.args()[p.x + 1 :])
        elif p.x:
            part.align_storage(part.args()[0], p.channels)
            x = part.args()[p.x]
            part.align_storage(x, extents[own[p.x]] + (PAD if part is p.tile else 0))


def _stage(script: Script, p: Bands, size: Tiling, extents: dict[str, int], planar: bool) -> None:
    """Copies of the pixels of a run, in shared memory."""
    (cx,) = script.variables("cx")
    copy = p.pixels if p.staged else p.pixels.in_(p.total)
    (_, runs) = p.total.rvars(0)
    args = copy.args()
    c, x = args[: p.x], args[p.x]
    copy.compute_at(p.total, runs).store_in(GPU_SHARED)
    _bounded(copy, p, extents)
    if c and planar:
        order = (x, *c, *args[p.x + 1 :])
        copy.reorder_storage(*order).reorder(*order)
    elif c:
        pad = VECTOR_BYTES // (copy.type().bits() // 8)
        copy.align_storage(c[0], p.channels).align_storage(x, size.block + pad)
        copy.fuse(c[0], x, cx)
        x, c = cx, ()
    for loop in (x, *c, *(a for a in args[p.x + 1 :] if a.name() in extents)):
        copy.vectorize(loop)
    pipeline_stages(copy, size.stages)


def _bounded(func: Recorded, p: Bands, extents: dict[str, int]) -> None:
    """``extents`` of the dimensions by their names in what is stored, all channels, else 1."""
    own = [a.name() for a in p.stored.args()]
    for d, arg in enumerate(func.args()):
        func.bound_extent(arg, p.channels if d < p.x else extents.get(own[d], 1))
