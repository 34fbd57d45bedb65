"""The schedule of sums over channels and windows of pixels: an implicit matrix product.

A block has some filters of a few boxes of 64 pixels, which its groups of four warps share out. For
a run of channels it stages what one tap needs of the pixels and of the weights, or what all taps
need, several runs ahead. The pixels of a box are the rows of a matrix, whatever the window: where
all taps read one copy, its rows are those of a box from another pixel on. Few weights stay there:
what comes is then the pixels of one tile after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from halide_bridge.memory import MemoryType
from halide_bridge.schedules.asked import persistent, pipeline_stages, store_in
from halide_bridge.stock import GPU_SHARED, rvars, variables
from selector.dataclass import dataclass
from selector.families.layers.tiling import Tiling

GROUP, SIDE = 128, 32  # threads of a group, and of those at most that have pixels side by side


@dataclass(frozen=True, slots=True)
class Layers:
    """The Funcs that a schedule talks about: ``output`` reads ``total`` where it is computed, at
    filters and pixels, ``places``, in whatever order it is stored; ``total`` sums what is
    ``staged`` of an image times what is of ``weights`` over ``channels`` and ``taps``, RVars.
    ``filters``: the place of these among the dimensions of ``total``; ``inner``: that of the
    channels among those of the image, behind which ``staged`` may have one for each tap;
    ``along``: those of channels and filters among those of the weights, and which of both is along
    ``row``s. ``phases``: the loops of the output over them; ``total`` has a dimension for each
    behind others.
    """

    output: Any
    places: tuple[Any, ...]
    total: Any
    staged: Any
    weights: Any
    channels: Any
    taps: tuple[Any, ...]
    filters: int
    inner: int
    along: tuple[int, int]
    row: int
    phases: tuple[Any, ...] = ()


def schedule_layer(p: Layers, size: Tiling) -> Any:
    """Schedule a layer so; returns the output."""
    block, group, strip = _blocks(p, size)
    if size.staged:
        _keep_sums(p, group, size)
    pixels = list(p.total.args()[: len(p.places)])
    c = pixels.pop(p.filters)
    along = [pixels[d] for d in size.order]
    if size.planes:
        p.total.reorder_storage(*along, c)
    elif p.filters or list(size.order) != sorted(size.order):
        p.total.reorder_storage(c, *along)
    p.total.bound_extent(c, size.n).compute_at(p.output, group if size.strips else block)
    for pixel, extent in zip(pixels, size.part_of if size.strips else size.block, strict=True):
        p.total.bound_extent(pixel, extent)
    groups = MemoryType.WGMMAAccumulator
    store_in(p.total, groups if size.unit == "group" else MemoryType.WMMAAccumulator)
    run = _sums(p, c, tuple(pixels), size)
    if size.strips:
        _stage_pixels(p, (p.output, strip), size)
        _stage_weights(p, (p.output, block), size)
    else:
        _stage_pixels(p, (p.total, run), size)
        pipeline_stages(_stage_weights(p, (p.total, run), size), size.stages)
    return p.output


def _blocks(p: Layers, size: Tiling) -> tuple[Any, Any, Any]:
    """Give each block its pixels and filters; its innermost loop over blocks, that of its groups,
    and that over strips.
    """
    c, *pixels = p.places
    no, ni, xy, nx, yz, strip = variables("no", "ni", "xy", "nx", "yz", "strip")
    outer, inner = zip(*(variables(f"p{d}o", f"p{d}i") for d in range(len(pixels))), strict=True)
    p.output.split(c, no, ni, size.n)
    for pixel, po, pi, extent in zip(pixels, outer, inner, size.block, strict=True):
        p.output.split(pixel, po, pi, extent)
    several = ()
    if size.staged:
        vectors, group, several = _side_by_side(p.output, ni, inner, size)
    else:
        vectors, group = _parts(p.output, ni, inner, size)
    strips = (strip,) if size.strips else ()
    if strips:
        p.output.split(outer[size.along], outer[size.along], strip, size.strips)
    if strips and size.unit == "warp":  # all filters, so a block more for others is not needed
        p.output.reorder(*vectors, *group, strip, no, *outer).gpu_blocks(*outer)
        return no, group[0], strip
    first, last = p.phases[:1], p.phases[1:]
    order = [(*first, no), outer[:-1]]
    inner, behind = reversed(order) if size.apart else order
    p.output.reorder(*vectors, *group, *several, *strips, *inner, *behind, *last, outer[-1])
    for phase in first:  # Halide follows two loops in one
        p.output.fuse(phase, no, nx)
        no = nx
    for phase in last:
        p.output.fuse(phase, outer[-1], yz)
        outer = (*outer[:-1], yz)
    if len(outer) > 2:
        p.output.fuse(outer[0], outer[1], xy)
        outer = (xy, *outer[2:])
    blocks = (*outer[:-1], no, *outer[-1:]) if size.apart else (no, *outer)
    p.output.gpu_blocks(*blocks)
    if size.persistent:
        persistent(p.output)
    return blocks[0], (several or group)[0], strip


def _side_by_side(
    output: Any, c: Any, pixels: Sequence[Any], size: Tiling
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Have neighbours among threads store neighbours among pixels, of some filters at a time; the
    loops of a thread, innermost first, those of threads and that of filters.
    """
    nu, nv, nw, nt, xu, xt = variables("nu", "nv", "nw", "nt", "xu", "xt")
    wide = gcd(size.block[0], SIDE)
    high = min(size.columns, GROUP * size.groups // wide)
    output.split(c, nu, nv, size.columns).split(nv, nw, nt, high).split(pixels[0], xu, xt, wide)
    output.gpu_threads(xt, nt).unroll(nw).unroll(nu)
    return (nw, xu, *pixels[1:]), (xt, nt), (nu,)


def _keep_sums(p: Layers, at: Any, size: Tiling) -> None:
    """Bring the sums of some filters to shared memory, whose rows of pixels begin in different
    banks.
    """
    kept = p.total.in_(p.output)
    pixels = list(kept.args())
    c = pixels.pop(p.filters)
    kept.compute_at(p.output, at).store_in(GPU_SHARED).reorder_storage(*pixels, c)
    kept.bound_extent(c, size.columns).align_storage(pixels[0], size.block[0] + 1)
    for pixel, extent in zip(pixels, size.block, strict=True):
        kept.bound_extent(pixel, extent)
    vectors, group = _parts(kept, c, tuple(pixels), size)
    kept.reorder(*vectors, *group)


def _sums(p: Layers, c: Any, pixels: tuple[Any, ...], size: Tiling) -> Any:
    """Give each group its sums; the loop over runs, if they are sums of several."""
    shared = not size.strips
    vectors, group = _parts(p.total, c, pixels, size, shared=shared)
    p.total.reorder(*vectors, *group)
    ko, ki, ku, kv = rvars("ko", "ki", "ku", "kv")
    update, whole, run = p.total.update(), p.taps if size.taps > 1 else (), ko
    if shared:
        update.split(p.channels, ko, ki, size.k).split(ki, ku, kv, size.depth)
    else:
        update.split(p.channels, ku, kv, size.depth)
    for number, tap in enumerate(() if whole else reversed(p.taps)):
        (both,) = rvars(f"run{number}")
        update.fuse(tap, run, both)
        run = both
    vectors, group = _parts(update.atomic(), c, pixels, size, shared=shared)
    runs = (run,) if shared else ()
    update.reorder(kv, *vectors, ku, *whole, *group, *runs).vectorize(kv).unroll(ku)
    for tap in whole:
        update.unroll(tap)
    return run


def _parts(
    stage: Any, c: Any, pixels: tuple[Any, ...], size: Tiling, *, shared: bool = True
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Give each group its pixels, as unrolled vector statements, of a stage that groups have a part
    of each (``shared``) or one has alone; the loops of these, innermost first, and that of the
    groups.
    """
    nu, nv, group, pu, pv = variables("nu", "nv", "g", "pu", "pv")
    beside, su, sv = variables("h", "su", "sv")
    stage.split(c, nu, nv, size.columns)
    inner, groups, boxes = list(pixels), list[Any](), list[Any]()
    loops = [(size.along, size.boxes, (group, pu, pv))]
    if size.unit == "warp":  # they lie side by side, too
        loops.insert(0, (0, size.sides, (beside, su, sv)))
    for d, several, (outer, middle, last) in loops:
        if shared:
            stage.split(inner[d], outer, last, size.box[d] * several)
            groups.append(outer)
            inner[d] = last
        if several > 1:
            stage.split(inner[d], middle, last, size.box[d])
            boxes.append(middle)
            inner[d] = last
    if groups:
        stage.gpu_threads(*groups)
    if size.slices > 1:
        hu, hv = variables("hu", "hv")
        d = size.sliced
        stage.split(inner[d], hu, hv, size.box[d] // size.slices)
        inner[d] = hv
        boxes.insert(0, hu)
    vectors = [inner[d] for d in size.order]
    vectors = [*vectors, nv] if size.planes else [nv, *vectors]
    for loop in vectors:
        stage.vectorize(loop)
    unrolled = [*boxes[: size.slices > 1], nu, *boxes[size.slices > 1 :]]
    for loop in unrolled:
        stage.unroll(loop)
    return (*vectors, *unrolled), tuple(groups)


def _stage_pixels(p: Layers, at: tuple[Any, Any], size: Tiling) -> None:
    """Copy the pixels that a block needs for a run into shared memory, several runs deep."""
    extents, order = list(size.read), [d + (d >= p.inner) for d in size.order]
    extents.insert(p.inner, size.k)
    several = len(p.staged.args()) - len(extents)  # of windows one tap
    order += range(len(extents), len(extents) + several)
    pipeline_stages(_stage(p.staged, at, extents + [1] * several, (p.inner, *order)), size.stages)


def _stage_weights(p: Layers, at: tuple[Any, Any], size: Tiling) -> Any:
    """Copy the weights of a run, or all of them, into shared memory; the copy."""
    extents: list[int | None] = [None if size.taps > 1 else 1] * len(p.weights.args())
    extents[p.along[0]], extents[p.along[1]] = size.k, size.n
    rest = [d for d in range(len(extents)) if d not in p.along]
    matrix = sorted(p.along, key=lambda d: d != p.row)
    return _stage(p.weights, at, extents, (*matrix, *rest))


def _stage(
    staged: Any, at: tuple[Any, Any], extents: Sequence[int | None], order: Sequence[int]
) -> Any:
    """Copy a part of an operand of those ``extents`` (None where Halide knows them) into shared
    memory, with its dimensions in an order of their own, the first along the rows there; the copy.
    """
    staged.compute_at(*at).store_in(GPU_SHARED)
    args = staged.args()
    several = [d for d in order if extents[d] != 1]
    if order[0] or several != sorted(several):
        staged.reorder_storage(*(args[d] for d in order)).reorder(*(args[d] for d in order))
    for arg, extent in zip(args, extents, strict=True):
        if extent is not None:
            staged.bound_extent(arg, extent)
            if extent > 1:
                staged.vectorize(arg)
    return staged
