"""The schedule for warpgroups (wgmma, sm_90a): an implicit matrix product.

For each tap, 64 pixels of a row times the weights of the tap are one product of pixels x channels
with channels x filters, read in place from the staged part of the image. The weights stay in shared
memory, the copy engine brings the image, strip by strip.
"""

from __future__ import annotations

import halide as hl

import halide_bridge as hb
from casestudies.common.multiples import rounded
from casestudies.conv_layer.algorithm import Layer
from casestudies.conv_layer.tiles import ALIGNED, DEPTH, ROW, Groups, boxed


def warpgroups(p: Layer, size: Groups) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    xo, xi, yo, yb, ys, yi, yw = (hl.Var(n) for n in ("xo", "xi", "yo", "yb", "ys", "yi", "yw"))
    cb, co, ci, ni = (hl.Var(n) for n in ("cb", "co", "ci", "ni"))
    filters, channels = size.filters or rounded(p.outputs, ROW), rounded(p.inputs, DEPTH)
    wide, several = boxed(filters), size.images > 1
    if several:
        p.output.split(p.n, p.n, ni, size.images)
    pixels, images = ((ni, xi), (p.n,)) if several else ((xi,), ())
    p.output.bound(p.c, 0, p.outputs)
    blocks = (cb, xo) if size.filters else (xo,)
    if size.filters:
        p.output.split(p.c, cb, p.c, filters)
    (
        p.output.split(p.c, co, ci, wide)
        .split(p.x, xo, xi, size.width)
        .split(p.y, yo, yb, size.height * size.strips)
        .split(yb, ys, yi, size.height)
        .split(yi, yw, yi, size.rows)
        .reorder(ci, *pixels, co, yi, yw, ys, *blocks, yo, p.n)
        .unroll(co)
        .unroll(yi)
        .gpu_threads(yw)
    )
    if size.filters:  # neighbours read the same pixels
        p.output.fuse(cb, xo, xo)
    p.output.gpu_blocks(xo, yo, p.n)
    vectorize(p.output, ci, *pixels)
    p.conv.compute_at(p.output, yw)
    hb.store_in(p.conv, hb.MemoryType.WGMMAAccumulator)
    p.conv.bound_extent(p.c, filters).bound_extent(p.x, size.width).bound_extent(p.y, size.rows)
    p.conv.split(p.c, co, ci, wide).reorder(ci, *images, p.x, co, p.y)
    vectorize(p.conv, ci, *images, p.x).unroll(co).unroll(p.y)
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    update = p.conv.update().split(p.c, co, ci, wide).split(p.r.x, ro, ri, DEPTH)
    update.reorder(ri, ci, *images, p.x, co, p.y, ro, p.r.y, p.r.z).atomic()
    vectorize(update, ri, ci, *images, p.x)
    update.unroll(co).unroll(p.y).unroll(ro).unroll(p.r.y).unroll(p.r.z)
    image, weights = p.staged(copied(p) if size.copied else p.image), p.weights.in_(p.conv)
    c, x, y, n, *planes = image.args()
    rows = (c, n, x, y, *planes) if several else (c, x, y, n, *planes)
    if several:
        p.conv.bound_extent(p.n, size.images).reorder_storage(p.c, p.n, p.x, p.y)
        image.reorder_storage(*rows).reorder(*rows)
    extents = (channels, *size.read(p.stride, p.window))
    copy(image.compute_at(p.output, ys), extents, rows[:2])
    hb.pipeline_stages(image, size.stages)
    copy(weights.compute_at(p.output, xo), (filters, channels, *p.taps), weights.args()[:2])
    hb.persistent(p.output, size.blocks)
    return hb.resident_blocks(p.output, size.blocks) if size.blocks > 1 else p.output


def copied(p: Layer) -> hl.Func:
    """The image as a kernel of its own copies it before, 16 bytes of a pixel a thread, so that
    neighbours write what lies side by side: pixels begin at multiples of 16 bytes, as the copy
    engine wants them.
    """
    pieces = rounded(p.inputs, ALIGNED) // ALIGNED
    copy = p.image.in_(p.reader)
    c, x, y, n = copy.args()
    co, ci, xo, xi, yo, yi = (hl.Var(name) for name in ("co", "ci", "xo", "xi", "yo", "yi"))
    copy.compute_root().align_storage(c, ALIGNED)
    copy.split(c, co, ci, ALIGNED)
    copy.split(x, xo, xi, 32).split(y, yo, yi, max(1, 8 // pieces))
    copy.reorder(ci, co, xi, yi, xo, yo, n).vectorize(ci)
    return copy.gpu_threads(co, xi, yi).gpu_blocks(xo, yo, n)


def vectorize(stage: hl.Func | hl.Stage, *loops: hl.Var | hl.RVar) -> hl.Func | hl.Stage:
    """Make one vector statement of loops."""
    for loop in loops:
        stage.vectorize(loop)
    return stage


def copy(staged: hl.Func, extents: tuple[int, ...], row: tuple[hl.Var, ...]) -> None:
    """Make a copy in shared memory of that size, a ``row`` of it one vector statement."""
    staged.store_in(hl.MemoryType.GPUShared)
    for arg, extent in zip(staged.args(), extents, strict=True):
        staged.bound_extent(arg, extent)
    vectorize(staged, *row)
