"""Schedules of layers with many channels: a ring of runs of channels.

Where the weights of all channels do not fit beside the image, a block stages what a run of channels
needs of both, the next runs ahead, and computes some of the filters. As elsewhere, every tap reads
the staged pixels in place. ``groups`` is for warpgroups (wgmma, sm_90a), ``warps`` for warps (mma).
"""

from __future__ import annotations

import halide as hl

import halide_bridge as hb
from casestudies.conv_layer.algorithm import Layer
from casestudies.conv_layer.tiles import DEPTH, GroupChunks, WarpChunks, boxed, pixels_read
from casestudies.conv_layer.warpgroups import copy, vectorize


def groups(p: Layer, size: GroupChunks) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    xo, xi, yo, yb, yi, yw = (hl.Var(n) for n in ("xo", "xi", "yo", "yb", "yi", "yw"))
    no, ni, cb, cg, co, ci = (hl.Var(n) for n in ("no", "ni", "cb", "cg", "co", "ci"))
    block = hl.Var("block")
    (
        p.output.bound(p.c, 0, p.outputs)
        .split(p.c, cb, cg, size.filters)
        .split(cg, co, ci, boxed(size.filters))
        .split(p.n, no, ni, size.images)
        .split(p.x, xo, xi, size.width)
        .split(p.y, yo, yb, size.height)
        .split(yb, yw, yi, size.rows)
        .reorder(ci, ni, xi, co, yi, yw, xo, yo, cb, no)
        .fuse(xo, yo, block)
        .unroll(co)
        .unroll(yi)
        .gpu_threads(yw)
        .gpu_blocks(block, cb, no)
    )
    vectorize(p.output, ci, ni, xi)
    if size.blocks:
        hb.persistent(p.output, size.blocks)
    hb.cluster(p.output, size.cluster)
    p.conv.compute_at(p.output, block).reorder_storage(p.c, p.n, p.x, p.y)
    hb.store_in(p.conv, hb.MemoryType.WGMMAAccumulator)
    p.conv.bound_extent(p.c, size.filters).bound_extent(p.n, size.images)
    p.conv.bound_extent(p.x, size.width).bound_extent(p.y, size.height)
    rows_of_groups(p.conv, p, size)
    ro, ri, ru, rv = (hl.RVar(n) for n in ("ro", "ri", "ru", "rv"))
    update = p.conv.update().split(p.r.x, ro, ri, size.run).split(ri, ru, rv, DEPTH)
    rows_of_groups(update.atomic(), p, size)
    update.reorder(rv, ci, p.n, p.x, co, yi, ru, p.r.y, p.r.z, yw, ro)
    update.vectorize(rv).unroll(ru).unroll(p.r.y).unroll(p.r.z)
    image = p.staged(p.image)
    c, x, y, n, *planes = image.args()
    image.reorder_storage(c, n, x, y, *planes).reorder(c, n, x, y, *planes)
    stage(p, ro, size, size.read(p.stride, p.window), (c, n))
    return p.output


def rows_of_groups(stage: hl.Func | hl.Stage, p: Layer, size: GroupChunks) -> None:
    """Give each group its rows of a block."""
    co, ci, yw, yi = (hl.Var(n) for n in ("co", "ci", "yw", "yi"))
    stage.split(p.c, co, ci, boxed(size.filters)).split(p.y, yw, yi, size.rows)
    stage.reorder(ci, p.n, p.x, co, yi, yw)
    vectorize(stage, ci, p.n, p.x).unroll(co).unroll(yi).gpu_threads(yw)


def warps(p: Layer, size: WarpChunks) -> hl.Func:
    """Schedule for warps; returns the output."""
    xo, xi, xw, yo, yb, yi, yw = (hl.Var(n) for n in ("xo", "xi", "xw", "yo", "yb", "yi", "yw"))
    cb, ci, block = (hl.Var(n) for n in ("cb", "ci", "block"))
    (
        p.output.bound(p.c, 0, p.outputs)
        .split(p.c, cb, ci, size.filters)
        .split(p.x, xo, xi, size.width)
        .split(xi, xw, xi, 16)
        .split(p.y, yo, yb, size.height)
        .split(yb, yw, yi, size.rows)
        .reorder(ci, xi, yi, xw, yw, xo, yo, cb, p.n)
        .fuse(xo, yo, block)
        .vectorize(ci)
        .vectorize(xi)
        .unroll(yi)
        .gpu_threads(xw, yw)
        .gpu_blocks(block, cb, p.n)
    )
    p.conv.compute_at(p.output, block)
    hb.store_in(p.conv, hb.MemoryType.WMMAAccumulator)
    p.conv.bound_extent(p.c, size.filters)
    p.conv.bound_extent(p.x, size.width).bound_extent(p.y, size.height)
    rows_of_warps(p.conv, p, size)
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    update = p.conv.update().split(p.r.x, ro, ri, size.run).atomic()
    rows_of_warps(update, p, size)
    update.reorder(ri, p.c, xi, yi, p.r.y, p.r.z, xw, yw, ro)
    update.vectorize(ri).unroll(p.r.y).unroll(p.r.z)
    pixels = pixels_read(size.width, size.height, p.stride, window=p.window)
    stage(p, ro, size, pixels, p.staged(p.image).args()[:2])
    return p.output


def rows_of_warps(stage: hl.Func | hl.Stage, p: Layer, size: WarpChunks) -> None:
    """Give each warp its pixels of a block."""
    xi, xw, yi, yw = (hl.Var(n) for n in ("xi", "xw", "yi", "yw"))
    stage.split(p.x, xw, xi, 16).split(p.y, yw, yi, size.rows).reorder(p.c, xi, yi, xw, yw)
    stage.vectorize(p.c).vectorize(xi).unroll(yi).gpu_threads(xw, yw)


def stage(
    p: Layer,
    run: hl.RVar,
    size: GroupChunks | WarpChunks,
    pixels: tuple[int, ...],
    row: tuple[hl.Var, ...],
) -> None:
    """Stage what a run of channels needs, ahead; a ``row`` of the image is one vector statement."""
    image, weights = p.staged(p.image), p.weights.in_(p.conv)
    copy(image.compute_at(p.conv, run), (size.run, *pixels), row)
    extents = (size.filters, size.run, *p.taps)
    copy(weights.compute_at(p.conv, run), extents, weights.args()[:2])
    if size.stages > 1:
        hb.pipeline_stages(image, size.stages)
        hb.pipeline_stages(weights, size.stages)
