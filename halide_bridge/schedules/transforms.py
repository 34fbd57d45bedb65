"""The schedule of transforms of overlapping tiles, there and back, in one kernel
(``selector.families.transforms``): a warp has a column of tiles in its registers.

What a block reads of the image lies in shared memory, all channels of its pixels; so do the
matrices, what the last filter reads, of one channel at a time, and its results, which leave in
whole rows.
"""

from __future__ import annotations

from typing import Any

from halide_bridge.memory import MemoryType
from halide_bridge.schedules.asked import from_zero, interleaved, store_in
from halide_bridge.schedules.kernels import fused
from halide_bridge.schedules.made import channels_stored
from halide_bridge.schedules.plan import Plan
from halide_bridge.schedules.recognise.facts import Placement
from halide_bridge.schedules.recognise.products import starts_at_zero
from halide_bridge.schedules.recognise.program import Member
from halide_bridge.schedules.recognise.windows import Window, phases_of
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.stock import GPU_SHARED, REGISTER
from selector.dataclass import dataclass
from selector.families.transforms import ROWS, Chain, Tiling
from selector.families.windows.limits import pitch
from selector.families.windows.tiling import Shape


@dataclass(frozen=True, slots=True)
class Filter:
    """The ``total`` of one, whose ``image`` and ``taps`` it sums over its variable ``along``;
    ``zero``: it begins there.
    """

    total: Recorded
    image: Recorded
    taps: Recorded
    along: Any
    zero: bool


@dataclass(frozen=True, slots=True)
class Transforms:
    """``output`` reads the first of the ``filters``, each of which reads what the next one gives.
    ``channel``: the dimension of the elements of a pixel, if they lie next to each other;
    ``planes``: all others beside x and y.
    """

    output: Recorded
    filters: tuple[Filter, ...]
    channel: Any
    planes: tuple[Any, ...]


def transforms_of(
    script: Script, member: Member, out: Recorded, placement: Placement, plan: Plan
) -> tuple[Transforms, Chain]:
    """Those of a plan whose last filter is that of a ``member``, stored by ``out``."""
    program, tiling = placement.program, plan.tensor[member.label][1]
    filters, shapes, label = list[Filter](), list[Shape](), member.label
    while label:
        own, found = next(m for m in program if m.label == label), plan.tensor[label][0]
        assert isinstance(found, Window)
        total = script.func(label, own.handle)
        image, taps = (program.members[n] for n in (found.image, phases_of(own, found, program)))
        along = total.rvars(0)[found.domain[0]]
        read, weights = (script.func(m.label, m.handle) for m in (image, taps))
        filters.append(Filter(total, read, weights, along, starts_at_zero(own.stages[0])))
        shapes.append(found.shape)
        label = plan.made.get(label, "")
    channels, first = channels_stored(member, placement), member.args[:2]
    others = [v for v in out.args() if v.name() not in first]
    channel = others.pop(0) if channels > 1 else None
    planes = fused(script, out, others)
    assert isinstance(tiling, Tiling)
    chain = Chain(tuple(shapes), channels, tiling)
    return Transforms(out, tuple(filters), channel, planes), chain


def by_transforms(script: Script, p: Transforms, chain: Chain) -> None:
    """The directives."""
    (xo,) = script.variables("xo")
    last, first = p.filters[0], p.filters[-1]
    tile = script.narrowed(last.total, p.output)
    for each, reader in zip(p.filters, (tile, *(f.image for f in p.filters)), strict=False):
        if not each.zero:
            from_zero(each.total, reader)
    _store(script, p, chain)
    _last(script, p, tile, chain)
    loop = xo if p.channel is None else p.channel
    at = (p.output, xo) if p.channel is None else (tile, loop)
    _columns(script, p, at, chain)
    _stage_image(p, first.image.in_(first.total), chain)
    for each, shape in zip(p.filters, chain.shapes, strict=True):
        _stage_matrix(p, each, shape, xo)
    if p.channel is not None:
        interleaved(p.output, chain.channels)


def _store(script: Script, p: Transforms, chain: Chain) -> None:
    """Blocks of tiles, which leave in whole rows."""
    xo, xi, yo, yi, cx = script.variables("xo", "xi", "yo", "yi", "cx")
    x, y, *_ = p.filters[0].total.args()
    p.output.split(x, xo, xi, chain.tiling.width).split(y, yo, yi, chain.tiling.height)
    line = xi
    if p.channel is not None:
        p.output.fuse(p.channel, xi, cx)
        line = cx
    blocks = (xo, yo, *p.planes)
    p.output.reorder(line, yi, *blocks).vectorize(line).vectorize(yi).gpu_blocks(*blocks)


def _bounded(p: Transforms, func: Recorded, chain: Chain, *extents: int) -> None:
    """Of x and y, if that is not 0, a block's channels, and one of all other dimensions."""
    own = "" if p.channel is None else p.channel.name()
    rest = [chain.channels if v.name() == own else 1 for v in func.args()[2:]]
    for variable, extent in zip(func.args(), (*extents, *rest), strict=True):
        if extent:
            func.bound_extent(variable, extent)


def _last(script: Script, p: Transforms, tile: Recorded, chain: Chain) -> None:
    """Each warp has rows of neighbours, channel by channel."""
    xo, xi, xb, xw, yw, yi, w = script.variables("xo", "xi", "xb", "xw", "yw", "yi", "w")
    t, part, (last, *_) = chain.tiling, chain.parts[0], p.filters
    x, y, *rest = tile.args()
    tile.compute_at(p.output, xo).store_in(GPU_SHARED)
    _bounded(p, tile, chain, t.width, t.height)
    run = chain.shapes[-1].run
    if p.channel is None:
        tile.align_storage(x, t.width + run)
    else:
        tile.reorder_storage(p.channel, x, y).align_storage(p.channel, chain.channels)
        tile.align_storage(x, t.width + run)
    tile.split(x, xw, xi, t.across).split(xi, xb, xi, part).split(y, yw, yi, ROWS)
    tile.fuse(xw, yw, w).reorder(xi, yi, xb, w, *rest)
    tile.vectorize(xi).vectorize(yi).vectorize(xb).gpu_threads(w)
    last.total.compute_at(tile, w).bound_extent(x, t.across).bound_extent(y, ROWS)
    store_in(last.total, MemoryType.WMMAAccumulator)
    for stage, inner in ((last.total, ()), (last.total.update().atomic(), (last.along,))):
        stage.split(x, xb, xi, part).reorder(*inner, xi, y, xb)
        for loop in (*inner, xi, y):
            stage.vectorize(loop)
        stage.unroll(xb)


def _columns(script: Script, p: Transforms, at: tuple[Recorded, Any], chain: Chain) -> None:
    """The products of a warp: its bins stand one below the other, so that the rows of each are
    those of the one before.
    """
    warp, q, outer, inner = script.variables("warp", "q", "outer", "inner")
    bins, filters, run = chain.unit, p.filters, chain.shapes[-1].run
    *kept, shared = [f.image for f in filters[-2::-1]]
    x, y, *rest = shared.args()
    shared.compute_at(*at).store_in(GPU_SHARED).reorder_storage(y, x, *rest)
    shared.align_storage(y, pitch(chain.tiling.height, run))
    shared.bound_extent(x, bins * chain.columns).split(x, warp, q, bins).gpu_threads(warp)
    made = zip(
        [*kept, shared], filters[:0:-1], chain.heights[:0:-1], chain.parts[:0:-1], strict=True
    )
    for func, own, height, part in made:
        x, y, *rest = func.args()
        upright = chain.upright and own is filters[-1]
        _sums(script, own, (shared, warp), (bins, height, part), upright)
        func.bound_extent(y, height).split(y, outer, inner, part)
        if func is shared:
            func.reorder(inner, q, outer, warp).vectorize(inner).vectorize(q).unroll(outer)
            continue
        func.compute_at(shared, warp).bound_extent(x, bins)
        if upright:
            func.store_in(GPU_SHARED).align_storage(x, pitch(bins, run))
        else:
            func.store_in(REGISTER).reorder_storage(y, x, *rest)
        tile = (x, inner) if upright else (inner, x)
        func.reorder(*tile, outer).vectorize(tile[0]).vectorize(tile[1]).unroll(outer)


def _sums(
    script: Script,
    own: Filter,
    at: tuple[Recorded, Any],
    extents: tuple[int, int, int],
    upright: bool,
) -> None:
    """All sums of a warp: so many bins, rows, and rows of a product. They are one run of
    instructions, which has the matrix once.
    """
    outer, inner = script.variables("outer", "inner")
    (x, y, *rest), (bins, height, part) = own.total.args(), extents
    own.total.compute_at(*at).bound_extent(y, height).bound_extent(x, bins)
    if not upright:
        own.total.reorder_storage(y, x, *rest)
    store_in(own.total, MemoryType.WMMAAccumulator)
    tile = (x, inner) if upright else (inner, x)
    for stage, along in ((own.total, ()), (own.total.update().atomic(), (own.along,))):
        stage.split(y, outer, inner, part).reorder(*along, *tile, outer)
        for loop in (*along, *tile):
            stage.vectorize(loop)
        stage.unroll(outer)


def _stage_image(p: Transforms, copy: Recorded, chain: Chain) -> None:
    (xo,), run = p.output.script.variables("xo"), chain.shapes[-1].run
    x, y, *rest = copy.args()
    copy.compute_at(p.output, xo).store_in(GPU_SHARED)
    _bounded(p, copy, chain, 0 if chain.lead else chain.read, chain.heights[-1])
    if chain.lead:
        copy.align_bounds(x, run)
    copy.align_storage(x, pitch(chain.read, run))
    for loop in (x, y, *rest):
        copy.vectorize(loop)


def _stage_matrix(p: Transforms, own: Filter, shape: Shape, block: Any) -> None:
    axis = shape.y if shape.down else shape.x
    staged = own.taps.in_(own.total)
    staged.compute_at(p.output, block).store_in(GPU_SHARED)
    for loop, extent in zip(staged.args(), (axis.taps, axis.phases), strict=True):
        staged.bound_extent(loop, extent).vectorize(loop)
