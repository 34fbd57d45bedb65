"""Schedules of the recursive filter.

``tensor``: two kernels. The first multiplies blocks with the end of the impulse response, from
which it gets the state that every tile leaves behind; the second finds the state before each of its
blocks, multiplies them with the whole response, and adds what the state contributes where the
product is read from the accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common.stock import fix_dense
from casestudies.recursive_filter.algorithm import (
    ENDS,
    LANES,
    TOGETHER,
    Blocks,
    Filter,
    c,
    g,
    i,
    j,
    k,
    m,
    n,
    u,
)
from casestudies.recursive_filter.algorithm import t as time
from casestudies.recursive_filter.problem import Problem

SHARED = hl.MemoryType.GPUShared
ROWS = 16  # blocks of one tensor statement


@dataclass(frozen=True, slots=True)
class Tiles:
    """Warps of the first kernel's blocks, each of which covers a group; warps of the second
    kernel's, and tensor statements of 16 blocks that each of those makes one after the other.
    """

    first_warps: int = 4
    warps: int = 4
    rounds: int = 1
    columns: int = 32


def tensor(p: Filter, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size, z = tiles or Tiles(), p.sizes
    first_kernel(p, size)
    to, tw, tu, tr, tv, ti = (hl.Var(name) for name in ("to", "tw", "tu", "tr", "tv", "ti"))
    run = z.block * ROWS
    rows = size.warps * size.rounds
    (
        p.output.split(time, to, time, run * rows)
        .split(time, tw, time, run * size.rounds)
        .split(time, tu, time, run)
        .split(time, tr, ti, z.block)
        .split(ti, tv, ti, size.columns)
        .reorder(ti, tr, tv, tu, tw, to, c)
        .vectorize(ti)
        .vectorize(tr)
        .unroll(tv)
        .gpu_blocks(to, c)
        .gpu_threads(tw)
    )
    covered = run * rows // z.tile
    find_states(p, to, covered)
    filter_blocks(p.second, p.output, to, size.warps, size.rounds)
    p.toeplitz.compute_at(p.output, to).store_in(SHARED).bound(j, 0, z.block).bound(i, 0, z.block)
    p.toeplitz.vectorize(j).vectorize(i)
    accumulate(p, tu, size)
    return p.output


def accumulate(p: Filter, at: hl.Var, size: Tiles) -> None:
    """The outputs of 16 blocks from a state of zero, in the accumulators of a warp."""
    iv = hl.Var("iv")
    p.filtered.compute_at(p.output, at).bound(i, 0, p.sizes.block).bound_extent(n, ROWS)
    p.filtered.split(i, iv, i, size.columns).reorder(i, n, iv)
    p.filtered.vectorize(i).vectorize(n).unroll(iv)
    update = p.filtered.update().split(i, iv, i, size.columns).reorder(p.i.x, i, n, iv)
    update.atomic().vectorize(p.i.x).vectorize(i).vectorize(n).unroll(iv)
    hb.store_in(p.filtered, hb.MemoryType.WMMAAccumulator)


def first_kernel(p: Filter, size: Tiles) -> None:
    """A block of threads for each group of tiles."""
    z = p.sizes
    p.prefix.compute_root().bound(m, 0, z.tiles).gpu_blocks(g, c).gpu_threads(m)
    rounds = z.tiles * z.blocks // (ROWS * size.first_warps)
    filter_blocks(p.first, p.prefix, g, size.first_warps, rounds)
    p.tile_ends.kept.compute_at(p.prefix, g).store_in(SHARED).gpu_threads(n)
    in_thread(p.tile_ends.steps, p.tile_ends.kept, n)
    in_thread(p.inclusive, p.prefix, m)
    in_thread(p.over_tile, p.prefix, m)


def find_states(p: Filter, block: hl.Var, tiles: int) -> None:
    """The states before all blocks of samples that a block of threads covers."""
    parts, states = p.parts.kept, p.states.kept
    parts.compute_at(p.output, block).store_in(SHARED).bound(u, 0, LANES).bound_extent(g, 1)
    parts.gpu_threads(u)
    in_thread(p.parts.steps, parts, u)
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    p.parts.steps.update().split(hl.RVar("part_steps_r$x"), ro, ri, TOGETHER).unroll(ri)
    in_thread(p.over_lanes, parts, u)
    p.carry.compute_at(p.output, block).store_in(SHARED).bound_extent(n, tiles).gpu_threads(n)
    for f in (p.over_group, p.before_group, p.over_tiles, p.before_tile):
        in_thread(f, p.carry, n)
    states.compute_at(p.output, block).store_in(SHARED).bound_extent(n, tiles)
    states.bound(m, 0, p.sizes.blocks).gpu_threads(m, n)
    in_thread(p.states.steps, states, m)


def in_thread(f: hl.Func, consumer: hl.Func, thread: hl.Var) -> None:
    """A recursion in the registers of the thread that needs its result."""
    f.compute_at(consumer, thread)
    f.update().unscheduled()


def filter_blocks(p: Blocks, consumer: hl.Func, at: hl.Var, warps: int, rounds: int) -> None:
    """Blocks of samples staged in shared memory, and their last outputs."""
    nw, nu, ni = hl.Var("nw"), hl.Var("nu"), hl.Var("ni")
    count = ROWS * warps * rounds
    p.frames.compute_at(consumer, at).store_in(SHARED)
    p.frames.bound_extent(j, p.length).bound_extent(n, count).vectorize(j).vectorize(n)
    p.weights.compute_at(consumer, at).store_in(SHARED)
    p.weights.bound(j, 0, p.length).bound(k, 0, ENDS).vectorize(j).vectorize(k)
    for f in p.response:
        f.compute_at(consumer, at).store_in(SHARED).vectorize(f.args()[0])
    p.ends.compute_at(consumer, at).store_in(SHARED).bound(k, 0, ENDS).bound_extent(n, count)
    p.ends.split(n, nw, ni, ROWS * rounds).split(ni, nu, ni, ROWS).reorder(k, ni, nu, nw)
    p.ends.vectorize(k).vectorize(ni).unroll(nu).gpu_threads(nw)
    p.sums.compute_at(p.ends, nu).bound(k, 0, ENDS).bound_extent(n, ROWS).vectorize(k).vectorize(n)
    update = p.sums.update().reorder(p.j.x, k, n).atomic()
    update.vectorize(p.j.x).vectorize(k).vectorize(n)
    hb.store_in(p.sums, hb.MemoryType.WMMAAccumulator)


def plain(p: Filter) -> hl.Func:
    """Halide's default, for the CPU: every Func whole."""
    for b in (p.first, p.second):
        for f in (b.frames, b.weights, b.sums, b.ends, *b.response):
            f.compute_root()
    for pair in (p.tile_ends, p.parts, p.states):
        pair.steps.compute_root()
        pair.kept.compute_root()
    for f in (p.over_tile, p.over_lanes, p.over_group, p.over_tiles, p.before_group):
        f.compute_root()
    for f in (p.inclusive, p.prefix, p.before_tile, p.carry, p.toeplitz, p.filtered):
        f.compute_root()
    return p.output


def cuda(p: Filter, problem: Problem) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    The same two kernels. A thread of the second one has the outputs of a block in registers. The
    baseline is compiled for the one size of ``problem``, which gives stock Halide its best chance.
    """
    z = p.sizes
    for parameter, spec in zip((p.x, p.coefficients), problem.inputs, strict=True):
        fix_dense(parameter, spec.shape)
    fix_dense(p.output.output_buffer(), problem.output.shape)
    p.prefix.compute_root().bound(m, 0, z.tiles).gpu_blocks(g, c).gpu_threads(m)
    stock_blocks(p.first, p.prefix, g)
    p.tile_ends.kept.compute_at(p.prefix, g).gpu_threads(n)
    in_thread(p.tile_ends.steps, p.tile_ends.kept, n)
    in_thread(p.inclusive, p.prefix, m)
    in_thread(p.over_tile, p.prefix, m)
    to, tn, ti, tv = (hl.Var(name) for name in ("to", "tn", "ti", "tv"))
    covered = 8
    (
        p.output.split(time, to, time, z.tile * covered)
        .split(time, tn, ti, z.block)
        .split(ti, ti, tv, 8)
        .reorder(tv, ti, tn, to, c)
        .vectorize(tv)
        .unroll(ti)
        .gpu_blocks(to, c)
        .gpu_threads(tn)
    )
    stock_states(p, to, covered)
    stock_blocks(p.second, p.output, to)
    p.toeplitz.compute_at(p.output, to).bound(j, 0, z.block).bound(i, 0, z.block)
    p.toeplitz.reorder(j, i).gpu_threads(i)
    p.filtered.compute_at(p.output, tn).bound_extent(n, 1).unroll(i)
    jo, ji = hl.RVar("jo"), hl.RVar("ji")
    p.filtered.update().split(p.i.x, jo, ji, 8).reorder(i, ji, n, jo).unroll(i).unroll(ji)
    run = p.second.frames.in_(p.filtered)
    run.compute_at(p.filtered, jo).vectorize(run.args()[0], 8)
    return p.output


def stock_blocks(p: Blocks, consumer: hl.Func, at: hl.Var) -> None:
    """The last outputs of blocks, each by one thread, from vectors of samples."""
    p.weights.compute_at(consumer, at).bound(j, 0, p.length).bound(k, 0, 2).gpu_threads(j, k)
    for f in p.response:
        f.compute_at(consumer, at).gpu_threads(f.args()[0])
    p.ends.compute_at(consumer, at).bound(k, 0, 2).reorder(k, n).unroll(k).gpu_threads(n)
    p.sums.compute_at(p.ends, n).unroll(k)
    jo, ji = hl.RVar("jo"), hl.RVar("ji")
    p.sums.update().split(p.j.x, jo, ji, 8).reorder(k, ji, jo).unroll(k).unroll(ji)
    run = p.frames.in_(p.sums)
    run.compute_at(p.sums, jo).vectorize(run.args()[0], 8)


def stock_states(p: Filter, block: hl.Var, tiles: int) -> None:
    parts, states = p.parts.kept, p.states.kept
    parts.compute_at(p.output, block).bound(u, 0, LANES).bound_extent(g, 1).gpu_threads(u)
    in_thread(p.parts.steps, parts, u)
    in_thread(p.over_lanes, parts, u)
    p.carry.compute_at(p.output, block).bound_extent(n, tiles).gpu_threads(n)
    for f in (p.over_group, p.before_group, p.over_tiles, p.before_tile):
        in_thread(f, p.carry, n)
    states.compute_at(p.output, block).bound_extent(n, tiles).bound(m, 0, p.sizes.blocks)
    states.gpu_threads(m, n)
    in_thread(p.states.steps, states, m)
