"""The schedule of sums over channels and windows of pixels: an implicit matrix product.

A block has some filters of a few boxes of 64 pixels, which its groups of four warps share out. For
a run of channels it stages what one tap needs of the pixels and of the weights, or what all taps
need, several runs ahead. The pixels of a box are the rows of a matrix, whatever the window: where
all taps read one copy, its rows are those of a box from another pixel on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from halide_bridge.memory import MemoryType
from halide_bridge.schedules.asked import persistent, pipeline_stages, store_in
from halide_bridge.stock import GPU_SHARED, rvars, variables
from selector.families.layers.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Layers:
    """The Funcs that a schedule talks about: ``output`` reads ``total`` where it is computed, at
    filters and pixels, ``places``, in whatever order it is stored; ``total`` sums what is
    ``staged`` of an image times ``weights`` over ``channels`` and ``taps``, RVars. ``filters``: the
    place of these among the dimensions of ``total``; ``inner``: that of the channels among those of
    the image, behind which ``staged`` may have one for each tap; ``along``: those of channels and
    filters among those of the weights, and which of both is along ``row``s. ``phases``: the loops
    of the output over them; ``total`` has a dimension for each behind others.
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
    c, *pixels = p.places
    no, ni, xy, nx, yz = variables("no", "ni", "xy", "nx", "yz")
    outer, inner = zip(*(variables(f"p{d}o", f"p{d}i") for d in range(len(pixels))), strict=True)
    p.output.split(c, no, ni, size.n)
    for pixel, po, pi, extent in zip(pixels, outer, inner, size.block, strict=True):
        p.output.split(pixel, po, pi, extent)
    vectors, group = _parts(p.output, ni, inner, size)
    first, last = p.phases[:1], p.phases[1:]
    p.output.reorder(*vectors, *group, *first, no, *outer[:-1], *last, outer[-1])
    for phase in first:  # Halide follows two loops in one
        p.output.fuse(phase, no, nx)
        no = nx
    for phase in last:
        p.output.fuse(phase, outer[-1], yz)
        outer = (*outer[:-1], yz)
    if len(outer) > 2:
        p.output.fuse(outer[0], outer[1], xy)
        outer = (xy, *outer[2:])
    p.output.gpu_blocks(no, *outer)
    if size.persistent:
        persistent(p.output)
    pixels = list(p.total.args()[: len(p.places)])
    c = pixels.pop(p.filters)
    if p.filters or list(size.order) != sorted(size.order):
        p.total.reorder_storage(c, *(pixels[d] for d in size.order))
    p.total.bound_extent(c, size.n).compute_at(p.output, no)
    for pixel, extent in zip(pixels, size.block, strict=True):
        p.total.bound_extent(pixel, extent)
    store_in(p.total, MemoryType.WGMMAAccumulator)
    vectors, group = _parts(p.total, c, tuple(pixels), size)
    p.total.reorder(*vectors, *group)
    ko, ki, ku, kv = rvars("ko", "ki", "ku", "kv")
    update = p.total.update().split(p.channels, ko, ki, size.k).split(ki, ku, kv, size.depth)
    run, whole = ko, p.taps if size.taps > 1 else ()
    for number, tap in enumerate(() if whole else reversed(p.taps)):
        (both,) = rvars(f"run{number}")
        update.fuse(tap, run, both)
        run = both
    vectors, group = _parts(update.atomic(), c, tuple(pixels), size)
    update.reorder(kv, *vectors, ku, *whole, *group, run).vectorize(kv).unroll(ku)
    for tap in whole:
        update.unroll(tap)
    extents, order = list(size.read), [d + (d >= p.inner) for d in size.order]
    extents.insert(p.inner, size.k)
    order += range(len(order) + 1, len(p.staged.args()))
    extents += [1] * (len(p.staged.args()) - len(extents))  # of windows one tap
    _stage(p.total, p.staged, run, extents, (p.inner, *order), size)
    extents = [None if whole else 1] * len(p.weights.args())  # taps have constant extents
    extents[p.along[0]], extents[p.along[1]] = size.k, size.n
    rest = [d for d in range(len(extents)) if d not in p.along]
    matrix = sorted(p.along, key=lambda d: d != p.row)
    _stage(p.total, p.weights.in_(p.total), run, extents, (*matrix, *rest), size)
    return p.output


def _parts(
    stage: Any, c: Any, pixels: tuple[Any, ...], size: Tiling
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Give each group its pixels, as unrolled vector statements; the loops of these, innermost
    first, and that of the groups.
    """
    nu, nv, group, pu, pv = variables("nu", "nv", "g", "pu", "pv")
    along, box = pixels[size.along], size.box[size.along]
    stage.split(c, nu, nv, size.columns).split(along, group, pv, box * size.boxes)
    boxes = (pu,) if size.boxes > 1 else ()
    if boxes:
        stage.split(pv, pu, pv, box)
    inner = [pv if d == size.along else pixels[d] for d in size.order]
    for loop in (nv, *inner):
        stage.vectorize(loop)
    for loop in (nu, *boxes):
        stage.unroll(loop)
    stage.gpu_threads(group)
    return (nv, *inner, nu, *boxes), (group,)


def _stage(
    total: Any,
    staged: Any,
    run: Any,
    extents: Sequence[int | None],
    order: Sequence[int],
    size: Tiling,
) -> None:
    """Copy what a block needs of an operand for a run into shared memory, several runs deep, with
    its dimensions in an order of their own, the first along the rows there. ``extents``: None
    where Halide knows them.
    """
    staged.compute_at(total, run).store_in(GPU_SHARED)
    args = staged.args()
    several = [d for d in order if extents[d] != 1]
    if order[0] or several != sorted(several):
        staged.reorder_storage(*(args[d] for d in order))
    for arg, extent in zip(args, extents, strict=True):
        if extent is not None:
            staged.bound_extent(arg, extent)
            if extent > 1:
                staged.vectorize(arg)
    pipeline_stages(staged, size.stages)
