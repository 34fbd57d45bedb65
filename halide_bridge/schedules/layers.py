"""The schedule of sums over channels and windows of pixels: an implicit matrix product.

A block has a box of pixels with some filters, its groups of four warps have 64 pixels each. For a
run of channels and a tap it stages what it needs of the pixels and of the weights, several runs
ahead; the pixels of a box are the rows of a matrix, whatever the window.
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
    if p.filters:
        p.total.reorder_storage(c, *pixels)
    p.total.bound_extent(c, size.n).compute_at(p.output, no)
    for pixel, extent in zip(pixels, size.block, strict=True):
        p.total.bound_extent(pixel, extent)
    store_in(p.total, MemoryType.WGMMAAccumulator)
    vectors, group = _parts(p.total, c, tuple(pixels), size)
    p.total.reorder(*vectors, *group)
    ko, ki, ku, kv = rvars("ko", "ki", "ku", "kv")
    update = p.total.update().split(p.channels, ko, ki, size.k).split(ki, ku, kv, size.depth)
    run = ko
    for number, tap in enumerate(reversed(p.taps)):
        (both,) = rvars(f"run{number}")
        update.fuse(tap, run, both)
        run = both
    vectors, group = _parts(update.atomic(), c, tuple(pixels), size)
    update.reorder(kv, *vectors, ku, *group, run).vectorize(kv).unroll(ku)
    extents = list(size.block)
    extents.insert(p.inner, size.k)
    extents += [1] * (len(p.staged.args()) - len(extents))  # of windows one tap
    _stage(p.total, p.staged, run, extents, p.inner, size)
    extents = [1] * len(p.weights.args())
    extents[p.along[0]], extents[p.along[1]] = size.k, size.n
    _stage(p.total, p.weights.in_(p.total), run, extents, p.row, size)
    return p.output


def _parts(
    stage: Any, c: Any, pixels: tuple[Any, ...], size: Tiling
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Give each group its pixels, as unrolled vector statements; the loops of these, innermost
    first, and that of the groups.
    """
    nu, nv, group, pv = variables("nu", "nv", "g", "pv")
    stage.split(c, nu, nv, size.columns)
    stage.split(pixels[size.along], group, pv, size.box[size.along])
    inner = [pv if d == size.along else pixel for d, pixel in enumerate(pixels)]
    for loop in (nv, *inner):
        stage.vectorize(loop)
    stage.unroll(nu).gpu_threads(group)
    return (nv, *inner, nu), (group,)


def _stage(
    total: Any, staged: Any, run: Any, extents: Sequence[int], inner: int, size: Tiling
) -> None:
    """Copy what a block needs of an operand for a run into shared memory, several runs deep, with
    one of its dimensions along the rows there.
    """
    staged.compute_at(total, run).store_in(GPU_SHARED)
    args = staged.args()
    if inner:
        staged.reorder_storage(args[inner], *args[:inner], *args[inner + 1 :])
    for arg, extent in zip(args, extents, strict=True):
        staged.bound_extent(arg, extent)
        if extent > 1:
            staged.vectorize(arg)
    pipeline_stages(staged, size.stages)
