"""Schedules of the denoiser.

``tensor``: one kernel. A warp owns a column of tiles: it transforms the rows of their pixels, then
the columns, cores, and transforms the columns back, each product taking the one before as an
operand out of its registers. The last product adds neighbouring columns of tiles, so it reads what
all warps left in shared memory.

``cuda``: the same stages on CUDA cores, compiled by stock Halide: a thread does one tile's 16 bins
or eight pixels at a time, and shared memory lies between the stages.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common.stock import fix_sizes
from casestudies.dct_denoise.algorithm import Denoising
from casestudies.dct_denoise.problem import STRIDE, TILE, Problem

SHARED = hl.MemoryType.GPUShared


@dataclass(frozen=True, slots=True)
class Tiles:
    """Pixels that a block has in work, multiples of 8 and of 16, and those of a warp in the last
    product, ``across`` x 16; whether a warp's values between products stay in registers. A block
    does ``strips`` of them one below the other, with ``ahead`` of them in shared memory: what the
    next ones need of the picture is on its way meanwhile.
    """

    width: int = 64
    height: int = 32
    across: int = 16
    registers: bool = True
    strips: int = 1
    ahead: int = 1

    @property
    def columns(self) -> int:
        """Tiles side by side; each has a warp."""
        return self.width // STRIDE + 1


def tensor(p: Denoising, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or Tiles()
    xo, xi, xb, xw = (hl.Var(n) for n in ("xo", "xi", "xb", "xw"))
    yo, yi, ys, yw = (hl.Var(n) for n in ("yo", "yi", "ys", "yw"))
    (
        p.output.split(p.x, xo, xi, size.width)
        .split(xi, xw, xi, size.across)
        .split(xi, xb, xi, STRIDE)
        .split(p.y, yo, yi, size.height * size.strips)
        .split(yi, ys, yi, size.height)
        .split(yi, yw, yi, TILE)
        .reorder(xi, yi, xb, xw, yw, ys, xo, yo, p.c)
        .vectorize(xi)
        .vectorize(yi)
        .vectorize(xb)
        .gpu_blocks(xo, yo, p.c)
        .gpu_threads(xw, yw)
    )
    p.pixels.compute_at(p.output, xw).bound_extent(p.x, size.across).bound_extent(p.y, TILE)
    hb.store_in(p.pixels, hb.MemoryType.WMMAAccumulator)
    p.pixels.split(p.x, xb, xi, STRIDE).reorder(xi, p.y, xb).vectorize(xi).vectorize(p.y).unroll(xb)
    update = p.pixels.update().split(p.x, xb, xi, STRIDE).reorder(p.z.x, xi, p.y, xb)
    update.atomic().vectorize(p.z.x).vectorize(xi).vectorize(p.y).unroll(xb)
    column_of_tiles(p, ys, size)
    stage_picture(p, ys, size)
    stage_matrices(p, xo)
    return p.output


def column_of_tiles(p: Denoising, strip: hl.Var, size: Tiles) -> None:
    """The three products of a warp: bins stand one below the other, so that each product's rows are
    those of the one before.
    """
    warp, q = hl.Var("warp"), hl.Var("q16")
    between = hl.MemoryType.Register if size.registers else SHARED
    tall = size.height + TILE
    p.columns16.compute_at(p.output, strip).store_in(SHARED).reorder_storage(p.y, p.q, p.c)
    p.columns16.bound_extent(p.q, TILE * size.columns).split(p.q, warp, q, TILE).gpu_threads(warp)
    for kept in (p.rows16, p.cored):
        kept.compute_at(p.columns16, warp).store_in(between).bound_extent(p.q, TILE)
    p.rows16.reorder_storage(p.y, p.q, p.c)
    p.cored.reorder_storage(p.r, p.q, p.c)
    piece(p.rows16, p.rows, (p.y, tall, STRIDE), p.q, p.i)
    piece(p.cored, p.bins, (p.r, 2 * size.height + TILE, TILE), p.q, p.j)
    piece(p.columns16, p.columns, (p.y, size.height, STRIDE), q, p.k, warp)


def piece(
    kept: hl.Func,
    product: hl.Func,
    along: tuple[hl.Var, int, int],
    q: hl.Var,
    k: hl.RDom,
    *around: hl.Var,
) -> None:
    """``kept`` takes one tile of ``product`` after the other, 16 bins by what ``along`` says: the
    axis, its extent, and how much of it a tile has.
    """
    (axis, extent, tile), outer, inner = along, hl.Var("outer"), hl.Var("inner")
    kept.bound_extent(axis, extent).split(axis, outer, inner, tile)
    kept.reorder(inner, q, outer, *around).vectorize(inner).vectorize(q).unroll(outer)
    bins, _, plane = product.args()
    product.compute_at(kept, outer).bound_extent(axis, tile).bound_extent(bins, TILE)
    product.reorder_storage(axis, bins, plane).reorder(axis, bins).vectorize(axis).vectorize(bins)
    update = product.update().reorder(k.x, axis, bins).atomic()
    update.vectorize(k.x).vectorize(axis).vectorize(bins)
    hb.store_in(product, hb.MemoryType.WMMAAccumulator)


def stage_picture(p: Denoising, strip: hl.Var, size: Tiles) -> None:
    """Copy what a strip needs of the picture into shared memory."""
    p.padded.compute_at(p.output, strip).store_in(SHARED)
    p.padded.bound_extent(p.x, size.width + TILE).bound_extent(p.y, size.height + TILE)
    p.padded.vectorize(p.x).vectorize(p.y)
    if size.ahead > 1:
        hb.pipeline_stages(p.padded, size.ahead)


def stage_matrices(p: Denoising, block: hl.Var) -> None:
    """Copy the matrices into shared memory."""
    forward, inverse = p.forward.in_([p.rows, p.bins]), p.inverse.in_([p.columns, p.pixels])
    for matrix, rows, columns in ((forward, TILE, TILE), (inverse, STRIDE, 2 * TILE)):
        across, down = matrix.args()
        matrix.compute_at(p.output, block).store_in(SHARED)
        matrix.bound_extent(across, columns).bound_extent(down, rows)
        matrix.vectorize(across).vectorize(down)


def plain(p: Denoising) -> hl.Func:
    """Halide's default order on the CPU, every stage once."""
    for f in (p.padded, p.rows, p.rows16, p.bins, p.cored, p.columns, p.columns16, p.pixels):
        f.compute_root()
    return p.output


def cuda(p: Denoising, problem: Problem) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide and one size; returns the
    output.
    """
    fix_sizes((p.image, p.forward, p.inverse, p.threshold), p.output, problem)
    size = Tiles(56, 16)  # 48 KiB of shared memory are the most that there is
    xo, xi, xb, yo, yi = (hl.Var(n) for n in ("xo", "xi", "xb", "yo", "yi"))
    tail = hl.TailStrategy.GuardWithIf
    (
        p.output.split(p.x, xo, xi, size.width, tail)
        .split(xi, xb, xi, STRIDE)
        .split(p.y, yo, yi, size.height, tail)
        .reorder(xi, yi, xb, xo, yo, p.c)
        .unroll(xi)
        .gpu_blocks(xo, yo, p.c)
        .gpu_threads(yi)
    )
    in_thread(p.pixels, p.output, yi, p.x, p.z)
    groups = (
        (p.columns16, p.columns, p.y, STRIDE, p.k, size.height),
        (p.cored, p.bins, p.r, TILE, p.j, 2 * size.height + TILE),
        (p.rows16, p.rows, p.q, TILE, p.i, size.height + TILE),
    )
    for kept, product, axis, extent, k, tall in groups:
        outer, inner = hl.Var("outer"), hl.Var("inner")
        other = next(v for v in kept.args()[:2] if v.name() != axis.name())
        kept.bound_extent(p.q, TILE * size.columns).bound_extent(kept.args()[1], tall)
        kept.compute_at(p.output, xo).store_in(SHARED).split(axis, outer, inner, extent)
        kept.reorder(inner, other, outer).unroll(inner).gpu_threads(other)
        in_thread(product, kept, other, axis, k)
    across, down = hl.Var("across"), hl.Var("down")
    p.padded.compute_at(p.output, xo).store_in(SHARED)
    p.padded.bound_extent(p.x, size.width + TILE).bound_extent(p.y, size.height + TILE)
    p.padded.tile(p.x, p.y, across, down, 72, 8).gpu_threads(across)
    for staged in (p.forward.in_([p.rows, p.bins]), p.inverse.in_([p.columns, p.pixels])):
        staged.compute_at(p.output, xo).store_in(SHARED).vectorize(staged.args()[0], 8)
        staged.gpu_threads(staged.args()[1])
    return p.output


def in_thread(product: hl.Func, kept: hl.Func, thread: hl.Var, axis: hl.Var, k: hl.RDom) -> None:
    """The sums of one thread in registers: each number that it reads goes into all of them."""
    product.compute_at(kept, thread).unroll(axis)
    product.update().reorder(axis, k.x).unroll(axis).unroll(k.x)
