"""Three schedules of the resampling, all in two passes: along y into an intermediate of f16, then
along x. The weights are intermediates of their own.

``tensor``: a block takes one group of output rows (columns), whose weights are a dense matrix, and
copies the pixels of a run of taps, mostly all of them, into shared memory. Where few taps are an
output's, one kernel does both passes: a warp computes what its outputs need of the intermediate in
its registers. ``cuda``: stock Halide on CUDA cores, one thread a group of outputs. ``plain``:
Halide's default on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common.stock import fix_dense
from casestudies.resample.algorithm import Axis, Resampling
from casestudies.resample.problem import GROUP, Problem

SHARED = hl.MemoryType.GPUShared
LANES_LIMIT = 65535  # Halide counts lanes in 16 bits
LANES = 16  # threads side by side along the taps, whose number is a multiple
OUTPUTS = 8  # of a block that computes their weights


@dataclass(frozen=True, slots=True)
class Pass:
    """``warps`` of a block (side by side along x), pixels of a warp along the axis that is not
    resampled, taps of a run, and how many runs are on their way; ``resident`` blocks of a
    multiprocessor bound the registers (0: the compiler's choice).
    """

    warps: int
    width: int
    taps: int
    stages: int = 1
    resident: int = 0

    @property
    def depth(self) -> int:
        """Taps of one vector statement: what Halide's count of lanes leaves room for."""
        most = LANES_LIMIT // (GROUP * self.width)
        return max(n for n in range(16, self.taps + 1, 16) if self.taps % n == 0 and n <= most)


@dataclass(frozen=True, slots=True)
class Tiles:
    """The pass along y and the pass along x; taps are multiples of those of a run."""

    tall: Pass
    wide: Pass


@dataclass(frozen=True, slots=True)
class OnePass:
    """``warps`` of a block, side by side along x, each with a group of columns and one of rows, and
    the taps of runs along both axes. Neighbours compute what both need of the intermediate twice.
    """

    warps: int
    rows: int
    columns: int

    @property
    def depth(self) -> int:
        """Rows of one vector statement of the pass along y: what Halide's count of lanes leaves
        room for.
        """
        return Pass(1, self.columns, self.rows).depth


def tiles_for(runs: tuple[int, int]) -> Tiles | OnePass:
    """Warps with as many pixels as leave several blocks for every multiprocessor: they hide each
    other's copies.
    """
    rows, columns = runs
    if rows <= 48 and columns <= 64:
        return OnePass(4, rows, columns)
    tall = Pass(4, 32, rows, resident=12) if rows <= 48 else Pass(2, 32, rows)
    wide = Pass(2, 32, columns) if columns <= 112 else Pass(1, 16, columns)
    return Tiles(tall, wide)


def tensor(p: Resampling, size: Tiles | OnePass) -> hl.Func:
    """Schedule for tensor instructions; returns the output. The taps of ``p`` are multiples of the
    runs of ``size``.
    """
    for axis in (p.rows, p.columns):
        weigh(axis)
    if isinstance(size, OnePass):
        both_passes(p, size)
    else:
        pass_along_y(p, size.tall)
        pass_along_x(p, size.wide)
    return p.output


def pass_along_y(p: Resampling, size: Pass) -> None:
    """Blocks of one group of rows and some columns: weights times image. The result is laid out in
    shared memory, so that it leaves in whole rows.
    """
    xo, xi, xw, yo, yi = (hl.Var(n) for n in ("xo", "xi", "xw", "yo", "yi"))
    ko, ku, ki = (hl.RVar(n) for n in ("ko", "ku", "ki"))
    width = size.warps * size.width
    columns = (p.columns.padded + width - 1) / width * width
    (
        p.middle.compute_root()
        .bound(p.x, 0, columns)
        .split(p.x, xo, xi, width)
        .split(p.y, yo, yi, GROUP)
        .reorder(xi, yi, xo, yo, p.c)
        .vectorize(xi)
        .vectorize(yi)
        .gpu_blocks(xo, yo, p.c)
    )
    if size.resident:
        hb.resident_blocks(p.middle, size.resident)
    warp_tiles(p, (p.tile, p.tall), (p.middle, xo), (width, GROUP), (xw, xi, size.width))
    update = p.tall.update().split(p.rows.k.x, ko, ki, size.taps).split(p.x, xw, xi, size.width)
    update.split(ki, ku, ki, size.depth).reorder(ki, xi, p.y, ku, xw, ko).atomic()
    update.vectorize(ki).vectorize(xi).vectorize(p.y).unroll(ku).gpu_threads(xw)
    stage(p.padded, p.tall, ko, (width, size.taps, 1), size.stages)
    stage(p.rows.weights.in_(p.tall), p.tall, ko, (size.taps, GROUP), size.stages)


def output_blocks(p: Resampling, width: int, height: int) -> hl.Var:
    """Blocks of ``width`` x ``height`` outputs, stored as whole tiles; the loop over them in x."""
    xo, xi, yo, yi = (hl.Var(n) for n in ("xo", "xi", "yo", "yi"))
    output = p.output.update().split(p.x, xo, xi, width).split(p.y, yo, yi, height)
    output.reorder(xi, yi, xo, yo, p.c).vectorize(xi).vectorize(yi).gpu_blocks(xo, yo, p.c)
    return xo


def pass_along_x(p: Resampling, size: Pass) -> None:
    """Blocks of one group of columns for each warp and some rows: intermediate times weights, which
    every warp copies for itself. The result leaves in whole rows as well.
    """
    xi, xw = (hl.Var(n) for n in ("xi", "xw"))
    ko, ku, ki = (hl.RVar(n) for n in ("ko", "ku", "ki"))
    width, height = size.warps * GROUP, size.width
    xo = output_blocks(p, width, height)
    warp_tiles(p, (p.result, p.wide), (p.output, xo), (width, height), (xw, xi, GROUP))
    update = p.wide.update().split(p.columns.k.x, ko, ki, size.taps).split(p.x, xw, xi, GROUP)
    update.split(ki, ku, ki, size.depth).reorder(ki, xi, p.y, ku, ko, xw).atomic()
    update.vectorize(ki).vectorize(xi).vectorize(p.y).unroll(ku).gpu_threads(xw)
    stage(p.middle.in_(p.wide), p.wide, ko, (size.taps, height, 1), size.stages)
    stage(p.columns.weights.in_(p.wide), p.wide, ko, (size.taps, GROUP), size.stages)


def both_passes(p: Resampling, size: OnePass) -> None:
    """Blocks of one group of rows and a group of columns for each warp. What a run of taps along x
    needs of the intermediate goes from product to product in registers.
    """
    xi, xw = (hl.Var(n) for n in ("xi", "xw"))
    ko, ki, lo, lu, li = (hl.RVar(n) for n in ("ko", "ki", "lo", "lu", "li"))
    width = size.warps * GROUP
    xo = output_blocks(p, width, GROUP)
    warp_tiles(p, (p.result, p.wide), (p.output, xo), (width, GROUP), (xw, xi, GROUP))
    update = p.wide.update().split(p.columns.k.x, ko, ki, size.columns).split(p.x, xw, xi, GROUP)
    update.reorder(ki, xi, p.y, ko, xw).atomic()
    update.vectorize(ki).vectorize(xi).vectorize(p.y).gpu_threads(xw)
    stage(p.columns.weights.in_(p.wide), p.wide, ko, (size.columns, GROUP))
    hb.store_in(p.tall, hb.MemoryType.WMMAAccumulator)
    for part in (p.middle.store_in(hl.MemoryType.Register), p.tall):
        part.compute_at(p.wide, ko).bound_extent(p.x, size.columns).bound_extent(p.y, GROUP)
        part.vectorize(p.x).vectorize(p.y)
    update = p.tall.update().split(p.rows.k.x, lo, li, size.rows).split(li, lu, li, size.depth)
    update.reorder(li, p.x, p.y, lu, lo).atomic()
    update.vectorize(li).vectorize(p.x).vectorize(p.y).unroll(lu)
    stage(p.padded, p.tall, lo, (size.columns, size.rows, 1))
    stage(p.rows.weights.in_(p.tall), p.tall, lo, (size.rows, GROUP))


def warp_tiles(
    p: Resampling,
    parts: tuple[hl.Func, hl.Func],
    at: tuple[hl.Func, hl.Var],
    extents: tuple[int, int],
    warp: tuple[hl.Var, hl.Var, int],
) -> None:
    """The tile of a block in shared memory, from which it is stored, and the accumulators behind
    it, each warp with its columns.
    """
    outer, inner, columns = warp
    tile, accumulators = parts
    hb.store_in(accumulators, hb.MemoryType.WMMAAccumulator)
    for part in (tile.store_in(SHARED), accumulators):
        part.compute_at(*at).bound_extent(p.x, extents[0]).bound_extent(p.y, extents[1])
        part.split(p.x, outer, inner, columns).reorder(inner, p.y, outer)
        part.vectorize(inner).vectorize(p.y).gpu_threads(outer)


def stage(
    staged: hl.Func, at: hl.Func, loop: hl.RVar, extents: tuple[int, ...], stages: int = 1
) -> None:
    """Copy what one run of taps reads into shared memory, as one vector, ``stages`` runs deep."""
    staged.compute_at(at, loop).store_in(SHARED)
    for variable, extent in zip(staged.args(), extents, strict=True):
        staged.bound_extent(variable, extent).vectorize(variable)
    if stages > 1:
        hb.pipeline_stages(staged, stages)


def weigh(axis: Axis) -> None:
    """Threads for each output, which add the kernel's values up and divide them by their sum. They
    evaluate them twice, where another launch and a way through memory would take longer.

    Nothing of this depends on the image.
    """
    lane, oo, oi, ki = (hl.Var(n) for n in ("lane", "oo", "oi", "ki"))
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    k, o = axis.weights.args()
    again = axis.kernel.clone_in(axis.weights)
    sine = axis.sine.clone_in(again)
    distance = axis.distance.clone_in([again, sine])
    axis.weights.compute_root().bound(k, 0, axis.taps)
    axis.weights.split(k, k, ki, LANES).split(o, oo, oi, OUTPUTS)
    axis.weights.reorder(k, ki, oi, oo).gpu_blocks(oo).gpu_threads(ki, oi)
    part = axis.total.update().split(axis.r.x, ro, ri, LANES).rfactor(ri, lane)
    part.compute_at(axis.weights, oo).reorder_storage(lane, o).reorder(lane, o)
    part.gpu_threads(lane, o).update().reorder(ro, lane, o).gpu_threads(lane, o)
    axis.total.compute_at(axis.weights, oo).gpu_threads(o).update().gpu_threads(o)
    for func in (distance, sine):
        func.compute_at(axis.weights, k)
    for func in (axis.distance, axis.sine):
        func.compute_at(part, ro)


def evaluate(axis: Axis) -> None:
    """The kernel's values, one thread each."""
    ko, oo, ki, oi = (hl.Var(n) for n in ("ko", "oo", "ki", "oi"))
    k, o = axis.kernel.args()
    axis.kernel.compute_root().bound(k, 0, axis.taps).gpu_tile(k, o, ko, oo, ki, oi, LANES, 4)
    for part in (axis.distance, axis.sine):
        part.compute_at(axis.kernel, ki)


def plain(p: Resampling) -> hl.Func:
    """Halide's default schedule, each stage computed once."""
    for axis in (p.rows, p.columns):
        axis.kernel.compute_root()
        axis.total.compute_root()
        axis.weights.compute_root()
    for part in (p.tall, p.middle, p.wide):
        part.compute_root()
    return p.output


def cuda(p: Resampling, problem: Problem) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    A thread computes a group of outputs (block-sparse) or one (direct) for two columns, then rows,
    so that what it loads is coalesced: the intermediate is stored with y innermost. The baseline is
    compiled for the one size of ``problem``, which gives stock Halide its best chance.
    """
    fix_dense(p.image, problem.inputs[0].shape)
    fix_dense(p.output.output_buffer(), problem.output.shape)
    for axis in (p.rows, p.columns):
        (k, o), (ko, ki, oo, oi) = (
            axis.weights.args(),
            (hl.Var(n) for n in ("ko", "ki", "oo", "oi")),
        )
        axis.total.compute_root().gpu_tile(o, oo, oi, 32)
        axis.total.update().gpu_tile(o, oo, oi, 32)
        evaluate(axis)
        axis.weights.compute_root().reorder_storage(o, k)
        axis.weights.gpu_tile(k, o, ko, oo, ki, oi, LANES, 4)  # taps are a multiple of LANES
    group, pair = p.rows.group, 2
    block, thread = (hl.Var(n) for n in ("block", "thread"))
    xo, xi, yo, yi = (hl.Var(n) for n in ("xo", "xi", "yo", "yi"))
    tall, wide = p.middle, p.output.update()
    tall.compute_root().reorder_storage(p.y, p.x, p.c)
    tall.split(p.x, xo, xi, pair).split(xo, block, thread, 64)
    tall.split(p.y, yo, yi, group, hl.TailStrategy.RoundUp)  # groups of rows share their first tap
    tall.reorder(yi, xi, thread, block, yo, p.c).unroll(xi)
    tall.gpu_blocks(block, yo, p.c).gpu_threads(thread)
    # Halide takes the definition without a value for work of the host unless it has a place too.
    p.output.gpu_tile(p.x, p.y, xo, yo, xi, yi, 32, 8)
    tail = hl.TailStrategy.GuardWithIf
    wide.split(p.y, yo, yi, pair, tail).split(yo, block, thread, 64, tail)
    wide.split(p.x, xo, xi, group, tail).reorder(xi, yi, thread, block, xo, p.c)
    wide.gpu_blocks(block, xo, p.c).gpu_threads(thread).unroll(yi)
    if group > 1:
        tall.vectorize(yi, 8).unroll(yi)
        wide.unroll(xi)
        for axis, use in ((p.rows, p.tall), (p.columns, p.wide)):
            loaded = axis.weights.in_(use).compute_at(use, axis.k.x)
            o = loaded.args()[1]
            loaded.bound_extent(o, group).vectorize(o, 8).unroll(o)
    p.tall.compute_at(tall, thread).bound_extent(p.x, pair).bound_extent(p.y, group)
    p.tall.reorder_storage(p.y, p.x, p.c).unroll(p.x).unroll(p.y)
    p.tall.update().reorder(p.x, p.y, p.rows.k.x).unroll(p.x).unroll(p.y)
    pixels = p.padded.compute_at(p.tall, p.rows.k.x)
    pixels.vectorize(pixels.args()[0])
    p.wide.compute_at(p.output, thread).bound_extent(p.y, pair).bound_extent(p.x, group)
    p.wide.unroll(p.x).unroll(p.y)
    p.wide.update().reorder(p.x, p.y, p.columns.k.x).unroll(p.x).unroll(p.y)
    pixels = tall.in_(p.wide).compute_at(p.wide, p.columns.k.x)
    pixels.vectorize(pixels.args()[1])
    return p.output
