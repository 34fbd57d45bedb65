"""Schedules of the denoiser for stock Halide.

``cuda``: all stages in one kernel on CUDA cores: a thread does one tile's 16 bins or eight pixels
at a time, and shared memory lies between the stages.
"""

from __future__ import annotations

import halide as hl

from casestudies.common.stock import fix_sizes
from casestudies.dct_denoise.algorithm import Denoising
from casestudies.dct_denoise.problem import STRIDE, TILE, Problem

SHARED = hl.MemoryType.GPUShared


WIDTH, HEIGHT = 56, 16  # of a block: 48 KiB of shared memory are the most that there is


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
    xo, xi, xb, yo, yi = (hl.Var(n) for n in ("xo", "xi", "xb", "yo", "yi"))
    tail = hl.TailStrategy.GuardWithIf
    (
        p.output.split(p.x, xo, xi, WIDTH, tail)
        .split(xi, xb, xi, STRIDE)
        .split(p.y, yo, yi, HEIGHT, tail)
        .reorder(xi, yi, xb, xo, yo, p.c)
        .unroll(xi)
        .gpu_blocks(xo, yo, p.c)
        .gpu_threads(yi)
    )
    in_thread(p.pixels, p.output, yi, p.x, p.z)
    groups = (
        (p.columns16, p.columns, p.y, STRIDE, p.k, HEIGHT),
        (p.cored, p.bins, p.r, TILE, p.j, 2 * HEIGHT + TILE),
        (p.rows16, p.rows, p.q, TILE, p.i, HEIGHT + TILE),
    )
    for kept, product, axis, extent, k, tall in groups:
        outer, inner = hl.Var("outer"), hl.Var("inner")
        other = next(v for v in kept.args()[:2] if v.name() != axis.name())
        kept.bound_extent(p.q, TILE * (WIDTH // STRIDE + 1)).bound_extent(kept.args()[1], tall)
        kept.compute_at(p.output, xo).store_in(SHARED).split(axis, outer, inner, extent)
        kept.reorder(inner, other, outer).unroll(inner).gpu_threads(other)
        in_thread(product, kept, other, axis, k)
    across, down = hl.Var("across"), hl.Var("down")
    p.padded.compute_at(p.output, xo).store_in(SHARED)
    p.padded.bound_extent(p.x, WIDTH + TILE).bound_extent(p.y, HEIGHT + TILE)
    p.padded.tile(p.x, p.y, across, down, 72, 8).gpu_threads(across)
    for staged in (p.forward.in_([p.rows, p.bins]), p.inverse.in_([p.columns, p.pixels])):
        staged.compute_at(p.output, xo).store_in(SHARED).vectorize(staged.args()[0], 8)
        staged.gpu_threads(staged.args()[1])
    return p.output


def in_thread(product: hl.Func, kept: hl.Func, thread: hl.Var, axis: hl.Var, k: hl.RDom) -> None:
    """The sums of one thread in registers: each number that it reads goes into all of them."""
    product.compute_at(kept, thread).unroll(axis)
    product.update().reorder(axis, k.x).unroll(axis).unroll(k.x)
