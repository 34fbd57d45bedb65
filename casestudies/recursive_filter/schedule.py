"""The schedule of the recursive filter for stock Halide: two kernels. The first has the state that
every tile leaves behind, the second finds the state before each of its blocks, filters them and
adds what the state contributes.
"""

from __future__ import annotations

import halide as hl

from casestudies.common.stock import fix_sizes
from casestudies.recursive_filter.blocks import TOGETHER, Blocks, blocks, c, g, i, k, m, n, t, u
from casestudies.recursive_filter.problem import Problem
from casestudies.recursive_filter.sizes import BLOCK, BLOCKS, GROUP, LANES, TILE, TILES

SHARED = hl.MemoryType.GPUShared
COVERED = 8  # tiles of a block of the second kernel
VECTOR = 8


def cuda(problem: Problem) -> hl.Func:
    """Best effort for stock Halide; returns the output. A thread of the second kernel has the
    outputs of a block in registers. Compiled for the one size of ``problem``, which gives stock
    Halide its best chance.
    """
    p = blocks(problem.a, problem.b, whole=problem.samples % GROUP == 0)
    carry, prefix = p.carry, p.carry.prefix
    fix_sizes((p.x,), p.output, problem)
    prefix.compute_root().bound(m, 0, TILES).gpu_blocks(g, c).gpu_threads(m)
    in_thread(carry.inclusive, prefix, m)
    ends_of_blocks(p.first, prefix, g)
    p.tile_ends.kept.compute_at(prefix, g).gpu_threads(n)
    in_thread(p.tile_ends.steps, p.tile_ends.kept, n)
    to, tn, ti, tv = (hl.Var(name) for name in ("to", "tn", "ti", "tv"))
    (
        p.output.split(t, to, t, TILE * COVERED)
        .split(t, tn, ti, BLOCK)
        .split(ti, ti, tv, VECTOR)
        .reorder(tv, ti, tn, to, c)
        .vectorize(tv)
        .unroll(ti)
        .gpu_blocks(to, c)
        .gpu_threads(tn)
    )
    parts, ro, ri = carry.parts, hl.RVar("ro"), hl.RVar("ri")
    parts.kept.compute_at(p.output, to).store_in(SHARED).bound(u, 0, LANES).bound_extent(g, 1)
    parts.kept.gpu_threads(u)
    in_thread(parts.steps, parts.kept, u)
    parts.steps.update().split(hl.RVar("part_steps_r$x"), ro, ri, TOGETHER).unroll(ri)
    carry.before.compute_at(p.output, to).store_in(SHARED).bound_extent(n, COVERED).gpu_threads(n)
    in_thread(carry.total, carry.before, n)
    p.states.compute_at(p.output, to).store_in(SHARED).bound_extent(n, COVERED)
    p.states.bound(m, 0, BLOCKS).align_storage(m, BLOCKS + 1).gpu_threads(n)
    p.states.update().gpu_threads(n)
    ends_of_blocks(p.second, p.output, to)
    staged = p.response.in_(p.filtered)
    x, y = staged.args()
    staged.compute_at(p.output, to).bound(x, 0, BLOCK).bound(y, 0, BLOCK).gpu_threads(y)
    p.filtered.compute_at(p.output, tn).bound_extent(n, 1).unroll(i)
    sum_vectors(p.filtered, p.i, p.second.frames, i, n)
    return p.output


def in_thread(f: hl.Func, consumer: hl.Func, thread: hl.Var) -> None:
    """A recursion in the registers of the thread that needs its result."""
    f.compute_at(consumer, thread)
    f.update().unscheduled()


def ends_of_blocks(p: Blocks, consumer: hl.Func, at: hl.Var) -> None:
    """The last outputs of blocks, each by one thread, from vectors of samples."""
    block = hl.Var("block")  # one axis, not two: a kernel has the longest of all its stages' axes
    p.ends.compute_at(consumer, at).bound_extent(k, 2).reorder(k, m, n).unroll(k)
    p.ends.fuse(m, n, block).gpu_threads(block)
    p.sums.compute_at(p.ends, block).unroll(k)
    sum_vectors(p.sums, p.j, p.frames, k)


def sum_vectors(total: hl.Func, terms: hl.RDom, frames: hl.Func, *inner: hl.Var) -> None:
    """Sums of a thread over vectors of samples; the first of its loops is that of the sums."""
    jo, ji = hl.RVar("jo"), hl.RVar("ji")
    first, *others = inner
    update = total.update().split(terms.x, jo, ji, VECTOR).reorder(first, ji, *others, jo)
    update.unroll(first).unroll(ji)
    run = frames.in_(total)
    run.compute_at(total, jo).vectorize(run.args()[0], VECTOR)
