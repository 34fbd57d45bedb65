"""The schedules of filters of an image: windows of its rows times a band of the taps.

``warps``: a vector statement is a row of outputs over all taps along x; a warp has several rows of
outputs in its registers and goes through the rows of taps. ``columns``, where there are taps along
y only: a vector statement is a band times a tile of the image. ``groups``: a vector statement is 64
windows, which wgmma reads in the raw row, times a band. They begin 8 elements apart, so that one
makes 8 outputs, of several phases each where these lie between elements, or 4 or 2 where outputs
lie 2 or 4 elements apart: then 2 or 4 rows of outputs share an instruction's 8 columns. A group of
four warps has several rows of outputs in its registers, so that one instruction takes all bands
that meet an image row.

Units lie below each other in a block and share the staged rows. A block may go down a column of the
image, and rows arrive as long as others are used.
"""

from __future__ import annotations

from typing import Any

from halide_bridge.memory import MemoryType
from halide_bridge.schedules.asked import interleaved, pipeline_stages, resident_blocks, store_in
from halide_bridge.stock import GPU_SHARED, GUARD, rvars, variables
from selector.dataclass import dataclass
from selector.families.windows.limits import pitch, staged_width, turns
from selector.families.windows.tiling import (
    LONGEST_BAND,
    Shape,
    Tiling,
    alignment,
    group_outputs,
    reached,
    rounded,
)


@dataclass(frozen=True, slots=True)
class Windows:
    """The Funcs that a schedule talks about: ``output`` reads ``total`` where it is computed, at
    ``x`` and ``y`` and ``planes``; ``total`` sums ``source``, the image with what lies around it,
    over ``taps``: RVars along a row of them, and over rows if there are several. A signal has no
    ``y``. ``first``: the dimension of ``x``, before which lie the channels of a pixel;
    ``channels``: how many these are, where rows of pixels are filtered as rows of elements.
    ``made``: what blocks make of the source; ``pixels``: it is read from channels next to each
    other.
    """

    output: Any
    total: Any
    source: Any
    x: Any
    y: Any
    taps: tuple[Any, ...]
    planes: tuple[Any, ...] = ()
    first: int = 0
    channels: int = 1
    made: Made | None = None
    pixels: bool = False

    def blocks(self, xo: Any, yo: Any) -> tuple[Any, ...]:
        """Loops over blocks, innermost first. Those of the channels of a pixel follow each other:
        together they load and store whole sectors.
        """
        planar = not self.pixels and self.output.args()[0].name() == self.x.name()
        return (xo, yo, *self.planes) if planar else (*self.planes, xo, yo)


@dataclass(frozen=True, slots=True)
class Made:
    """What blocks make of what they read, in place of copying it: a ``box`` of another filter."""

    windows: Windows
    shape: Shape
    box: Tiling


def schedule_windows(p: Windows, shape: Shape, size: Tiling) -> Any:
    """Schedule a filter so; returns the output."""
    if size.resident:
        resident_blocks(p.output, size.resident)
    if shape.signal:
        return _signal(p, shape, size)
    if p.channels > 1:
        return _pixels(p, shape, size)
    if shape.down:
        return _columns(p, shape, size)
    return _groups(p, shape, size) if size.unit == "group" else _warps(p, shape, size)


def _warps(p: Windows, shape: Shape, size: Tiling) -> Any:
    xo, xi, xv, yo, ys, yw, yi = variables("xo", "xi", "xv", "yo", "ys", "yw", "yi")
    segments = (ys,) if size.segments > 1 else ()
    p.output.split(p.x, xo, xi, size.width).split(xi, xv, xi, size.outputs)
    p.output.split(p.y, yo, yi, size.height * size.segments)
    for segment in segments:
        p.output.split(yi, segment, yi, size.height)
    rows: tuple[Any, ...] = ()
    if size.rows > 1:
        p.output.split(yi, yw, yi, size.rows)
        rows = (yi,)
    unit = yw if rows else yi
    blocks = p.blocks(xo, yo)
    p.output.reorder(xi, xv, *rows, unit, *segments, *blocks).vectorize(xi).unroll(xv)
    for row in rows:
        p.output.unroll(row)
    p.output.gpu_blocks(*blocks).gpu_threads(unit)
    p.total.bound_extent(p.x, size.width)
    if rows:
        p.total.bound_extent(p.y, size.rows)
    p.total.compute_at(p.output, unit)
    store_in(p.total, MemoryType.WMMAAccumulator)
    p.total.split(p.x, xv, xi, size.outputs).vectorize(xi).unroll(xv)
    if rows:
        p.total.unroll(p.y)
    longest = _sum_by_warps(p, shape, size)
    _stage_for_warps(p, shape, size, segments[0] if segments else blocks[0], longest)
    return p.output


def _pixels(p: Windows, shape: Shape, size: Tiling) -> Any:
    """Rows of pixels as rows of elements: what is next to an element in a filter is one pixel, so
    many elements, away.
    """
    xo, xi, cx, yo, yi, yw = variables("xo", "xi", "cx", "yo", "yi", "yw")
    to, ti = rvars("to", "ti")
    (c, *planes), pixels = p.planes, size.width // p.channels
    p.output.split(p.x, xo, xi, pixels).fuse(c, xi, cx)
    p.output.split(p.y, yo, yi, size.height).split(yi, yw, yi, size.rows)
    p.output.reorder(cx, yi, yw, xo, yo, *planes).vectorize(cx).unroll(yi)
    p.output.gpu_blocks(xo, yo, *planes).gpu_threads(yw)
    p.total.bound_extent(c, p.channels).bound_extent(p.x, pixels).bound_extent(p.y, size.rows)
    p.total.compute_at(p.output, yw)
    store_in(p.total, MemoryType.WMMAAccumulator)
    p.total.fuse(c, p.x, cx).vectorize(cx).unroll(p.y)
    update, (taps, *over) = p.total.update().fuse(c, p.x, cx), p.taps
    around: tuple[Any, ...] = ()
    unrolled: tuple[Any, ...] = (p.y,)
    for row in over:
        update.split(row, to, ti, size.tap_rows)
        unrolled, around = (p.y, ti), (to,)
    update.reorder(taps, cx, *unrolled, *around).atomic().vectorize(cx).vectorize(taps)
    for loop in unrolled:
        update.unroll(loop)
    _stage_pixels(p, shape, size, xo)
    interleaved(p.output, p.channels)
    return p.output


def _stage_pixels(p: Windows, shape: Shape, size: Tiling, block: Any) -> None:
    """Copy what a tile reads into shared memory, pixels of a row next to each other and rows at odd
    multiples of 16 bytes: those that read several do not meet in a bank.
    """
    (cx,) = variables("cx")
    copy = p.source.in_(p.total)
    c, x, y, *_ = copy.args()
    pitch = staged_width(size, shape) // p.channels
    pitch += shape.run if pitch // shape.run % 2 == 0 else 0
    copy.compute_at(p.output, block).store_in(GPU_SHARED).bound_extent(c, p.channels)
    copy.align_bounds(x, shape.run).align_storage(c, p.channels).align_storage(x, pitch)
    copy.bound_extent(y, shape.y.reach(size.height))
    copy.fuse(c, x, cx).vectorize(cx).vectorize(y)


def _sum_by_warps(p: Windows, shape: Shape, size: Tiling) -> int:
    """The update, band by band where the taps along x are many; taps of all bands."""
    xi, xv = variables("xi", "xv")
    to, ti, bands, band = rvars("to", "ti", "bands", "taps")
    update = p.total.update().split(p.x, xv, xi, size.outputs)
    taps, *over = p.taps
    unrolled: tuple[Any, ...] = (p.y,) if size.rows > 1 else ()
    around: tuple[Any, ...] = ()
    for row in over:
        update.split(row, to, ti, size.tap_rows)
        unrolled, around = (*unrolled, ti), (to,)
    along = shape.x.taps
    if along > LONGEST_BAND:
        update.split(taps, bands, band, LONGEST_BAND)
        taps, unrolled = band, (*unrolled, bands)
        along = rounded(along, LONGEST_BAND)
    update.reorder(taps, xi, xv, *unrolled, *around).atomic()
    update.vectorize(xi).vectorize(taps).unroll(xv)
    for loop in unrolled:
        update.unroll(loop)
    return along


def _stage_for_warps(
    p: Windows, shape: Shape, size: Tiling, block: Any, along: int, at: Any = None
) -> None:
    """Copy what a tile reads of the image into shared memory, from a multiple of 16 bytes to
    another: as one vector, or row by row. ``at``: whose block it is, if not the output's.
    """
    copy = p.source.in_(p.total)
    x, *y = copy.args()[p.first : p.first + 2]
    if p.first:
        order = (x, *y, *copy.args()[: p.first])
        copy.reorder_storage(*order).reorder(*order)
    copy.compute_at(at or p.output, block).store_in(GPU_SHARED)
    pipeline_stages(copy, size.stages)
    if size.boxes and shape.declared and shape.x.first % shape.run == 0:
        more = shape.x.dilation * (along - shape.x.taps)
        copy.bound_extent(x, rounded(shape.x.reach(size.tile(shape)[0]) + more, shape.run))
    else:
        copy.align_bounds(x, shape.run)
    copy.vectorize(x)
    if size.boxes:
        for row in y:
            copy.bound_extent(row, shape.y.reach(size.height)).vectorize(row)


def _signal(p: Windows, shape: Shape, size: Tiling) -> Any:
    xo, xi, xw, xv = variables("xo", "xi", "xw", "xv")
    p.output.split(p.x, xo, xi, size.width * size.units).split(xi, xw, xi, size.width)
    p.output.split(xi, xv, xi, size.outputs).reorder(xi, xv, xw, xo).vectorize(xi).unroll(xv)
    p.output.gpu_blocks(xo).gpu_threads(xw)
    p.total.bound_extent(p.x, size.width).compute_at(p.output, xw)
    store_in(p.total, MemoryType.WMMAAccumulator)
    p.total.split(p.x, xv, xi, size.outputs).vectorize(xi).unroll(xv)
    _stage_for_warps(p, shape, size, xo, _sum_by_warps(p, shape, size))
    return p.output


def _columns(p: Windows, shape: Shape, size: Tiling) -> Any:
    xo, xi, xv, yo, yi, yw, yv = variables("xo", "xi", "xv", "yo", "yi", "yw", "yv")
    p.output.split(p.x, xo, xi, size.width).split(xi, xv, xi, size.outputs)
    p.output.split(p.y, yo, yi, size.height).split(yi, yw, yi, size.rows)
    p.output.split(yi, yv, yi, shape.band)
    blocks, tile = p.blocks(xo, yo), _in_order(shape, xi, yi)
    p.output.reorder(*tile, xv, yv, yw, *blocks).vectorize(tile[0]).vectorize(tile[1])
    p.output.unroll(xv).unroll(yv).gpu_blocks(*blocks).gpu_threads(yw)
    p.total.bound_extent(p.x, size.width).bound_extent(p.y, size.rows).compute_at(p.output, yw)
    store_in(p.total, MemoryType.WMMAAccumulator)
    _sum_of_columns(p, shape, size)
    if p.made is None:
        _stage_for_warps(p, shape, size, blocks[0], 1)
    else:
        _make(p.made, p.output, blocks[0], size.units, shape.run)
    return p.output


def _sum_of_columns(p: Windows, shape: Shape, size: Tiling) -> None:
    xi, xv, yi, yv = variables("xi", "xv", "yi", "yv")
    (taps,), tile = p.taps, _in_order(shape, xi, yi)
    if tile[0] is yi:
        x, y, *rest = p.total.args()
        p.total.reorder_storage(y, x, *rest)
    for stage, inner in ((p.total, ()), (p.total.update().atomic(), (taps,))):
        stage.split(p.x, xv, xi, size.outputs).split(p.y, yv, yi, shape.band)
        stage.reorder(*inner, *tile, xv, yv)
        for loop in (*inner, *tile):
            stage.vectorize(loop)
        stage.unroll(xv).unroll(yv)


def _in_order(shape: Shape, x: Any, y: Any) -> tuple[Any, Any]:
    """Of a vector statement of columns, innermost first: of few phases, rows of several windows are
    the columns of a product.
    """
    return (y, x) if 1 < shape.y.phases < shape.band else (x, y)


def _make(made: Made, reader: Any, block: Any, units: int, run: int) -> None:
    """Have a block compute what it reads into shared memory: each unit a statement's rows of it,
    turn by turn.
    """
    xi, xv, yi, yr, yt, yu = variables("xi", "xv", "yi", "yr", "yt", "yu")
    p, shape, box = made.windows, made.shape, made.box
    kept, total = p.output, p.total
    kept.compute_at(reader, block).store_in(GPU_SHARED)
    kept.bound_extent(p.x, box.width).bound_extent(p.y, box.height)
    for plane in p.planes:
        kept.bound_extent(plane, 1)
    kept.align_storage(p.x, pitch(box.width, run))
    kept.split(p.x, xv, xi, box.outputs)
    tile = _in_order(shape, xi, yi) if shape.down else (xi,)
    if shape.down:
        kept.split(p.y, yr, yi, box.rows)
    else:
        yr = p.y
    each = turns(box, units)
    kept.split(yr, yt, yu, -(-box.units // each), *([] if shape.down else [GUARD])).reorder(
        *tile, xv, yu, yt
    )
    for loop in tile:
        kept.vectorize(loop)
    kept.unroll(xv).gpu_threads(yu)
    total.bound_extent(p.x, box.width).bound_extent(p.y, box.rows).compute_at(kept, yu)
    store_in(total, MemoryType.WMMAAccumulator)
    longest = 1
    if shape.down:
        _sum_of_columns(p, shape, box)
    else:
        total.split(p.x, xv, xi, box.outputs).vectorize(xi).unroll(xv)
        longest = _sum_by_warps(p, shape, box)
    if p.made is None:
        _stage_for_warps(p, shape, box, block, longest, reader)
    else:
        _make(p.made, reader, block, units, shape.run)


def _groups(p: Windows, shape: Shape, size: Tiling) -> Any:
    xo, xi, yo, yi, yt, yg = variables("xo", "xi", "yo", "yi", "yt", "yg")
    outputs = group_outputs(shape.x)
    p.output.split(p.x, xo, xi, outputs).split(p.y, yo, yi, size.height * size.segments)
    p.output.split(yi, yt, yi, size.height).split(yi, yg, yi, size.rows)
    blocks = p.blocks(xo, yo)
    p.output.reorder(xi, yi, yg, yt, *blocks).vectorize(xi).unroll(yi)
    p.output.gpu_blocks(*blocks).gpu_threads(yg)
    p.total.bound_extent(p.x, outputs).bound_extent(p.y, size.rows).compute_at(p.output, yg)
    store_in(p.total, MemoryType.WGMMAAccumulator)
    p.total.vectorize(p.x).unroll(p.y)
    taps, *over = p.taps
    update = p.total.update().reorder(taps, p.x, p.y, *over).atomic()
    update.vectorize(p.x).vectorize(taps)
    if shape.x.phases > 1:  # the phase of a row is a constant
        update.unroll(p.y)
    staged = p.source.in_(p.total)
    x, y, *_ = staged.args()
    staged.compute_at(p.output, yt).store_in(GPU_SHARED).vectorize(x)
    staged.bound_extent(y, shape.y.reach(size.height))
    pipeline_stages(staged, size.stages)
    if shape.declared and shape.x.first == 0:
        staged.bound_extent(x, rounded(reached(shape.x, 0), shape.run))
    else:
        staged.align_bounds(x, alignment(shape.x))
    return p.output
