"""Schedules of the recursive filter by blocks.

``tensor``: two kernels. The first multiplies blocks with the end of the impulse response, from
which it gets the state that every tile leaves behind; the second finds the state before each of its
blocks, multiplies them with the whole response, and adds what the state contributes where the
product is read from the accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common.stock import fix_sizes
from casestudies.recursive_filter.algorithm import (
    ENDS,
    TOGETHER,
    Blocks,
    Carry,
    Filter,
    Tables,
    blocks,
    c,
    g,
    i,
    j,
    k,
    m,
    n,
    t,
    u,
)
from casestudies.recursive_filter.problem import Problem
from casestudies.recursive_filter.sizes import LANES, Sizes

SHARED = hl.MemoryType.GPUShared
ROWS = 16  # blocks of a tile: one row of tensor instructions


@dataclass(frozen=True, slots=True)
class Tiles:
    """Warps of the first kernel's blocks, each of which covers a group; warps of the second
    kernel's, tiles of each of those, and outputs of a block that one statement makes at most.
    """

    first_warps: int = 8
    warps: int = 8
    rounds: int = 2
    columns: int = 32


def scheduled(problem: Problem, name: str) -> hl.Func:
    """The output, scheduled as ``tensor``, ``cuda`` or ``plain``."""
    pipeline = blocks(problem.sizes, whole=is_whole(problem, name))
    if name == "cuda":
        return cuda(pipeline, problem)
    return plain(pipeline) if name == "plain" else tensor(pipeline)


def is_whole(problem: Problem, name: str) -> bool:
    """Whether the schedule may rely on a whole number of groups: only ``cuda`` is compiled for one
    size.
    """
    return name == "cuda" and problem.samples % problem.sizes.group == 0


def tensor(p: Filter, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size, z = tiles or Tiles(), p.sizes
    columns = min(size.columns, z.block)
    to, tw, tu, tr, tv, ti = (hl.Var(name) for name in ("to", "tw", "tu", "tr", "tv", "ti"))
    first_kernel(p, size)
    run = z.tile * size.rounds
    (
        p.output.split(t, to, t, run * size.warps)
        .split(t, tw, t, run)
        .split(t, tu, t, z.tile)
        .split(t, tr, ti, z.block)
        .split(ti, tv, ti, columns)
        .reorder(ti, tr, tv, tu, tw, to, c)
        .vectorize(ti)
        .vectorize(tr)
        .unroll(tv)
        .gpu_blocks(to, c)
        .gpu_threads(tw)
    )
    carry_states(p.carry, p.states, p.output, to, run * size.warps // z.tile, z.blocks)
    p.states.gpu_threads(m, n)
    p.states.update().gpu_threads(n).unroll(hl.RVar("states_r$x"))
    filter_blocks(p.second, p.output, to, size.warps, size.rounds, z)
    stage_response(p.response.in_([p.second.sums, p.filtered]), p.output, to, z.block)
    stage_tables(p.tables, [p.carry.before, p.states, p.output], p.output, to)
    accumulate(p, tu, columns)
    return p.output


def accumulate(p: Filter, at: hl.Var, columns: int) -> None:
    """The outputs of a tile from a state of zero, in the accumulators of a warp."""
    iv = hl.Var("iv")
    p.filtered.compute_at(p.output, at).bound(i, 0, p.sizes.block).bound_extent(n, ROWS)
    p.filtered.split(i, iv, i, columns).reorder(i, n, iv)
    p.filtered.vectorize(i).vectorize(n).unroll(iv)
    update = p.filtered.update().split(i, iv, i, columns).reorder(p.i.x, i, n, iv)
    update.atomic().vectorize(p.i.x).vectorize(i).vectorize(n).unroll(iv)
    hb.store_in(p.filtered, hb.MemoryType.WMMAAccumulator)


def first_kernel(p: Filter, size: Tiles) -> None:
    """A block of threads for each group of tiles."""
    z, prefix = p.sizes, p.carry.prefix
    carry_tiles(p.carry, z.tiles)
    rounds = z.tiles * z.blocks // (ROWS * size.first_warps)
    filter_blocks(p.first, prefix, g, size.first_warps, rounds, z)
    stage_response(p.response.in_(p.first.sums), prefix, g, ENDS)
    p.tile_ends.kept.compute_at(prefix, g).store_in(SHARED).gpu_threads(n)
    in_thread(p.tile_ends.steps, p.tile_ends.kept, n)
    stage_tables(p.tables, [p.tile_ends.steps, p.carry.inclusive], prefix, g)


def carry_tiles(p: Carry, tiles: int) -> None:
    """A block of threads for each group, a thread for each tile."""
    p.prefix.compute_root().bound(m, 0, tiles).gpu_blocks(g, c).gpu_threads(m)
    in_thread(p.inclusive, p.prefix, m)


def carry_states(
    p: Carry, states: hl.Func, output: hl.Func, block: hl.Var, tiles: int, blocks: int
) -> None:
    """The states before all blocks of samples that a block of threads covers."""
    parts = p.parts.kept
    parts.compute_at(output, block).store_in(SHARED).bound(u, 0, LANES).bound_extent(g, 1)
    parts.gpu_threads(u)
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    in_thread(p.parts.steps, parts, u)
    p.parts.steps.update().split(hl.RVar("part_steps_r$x"), ro, ri, TOGETHER).unroll(ri)
    p.before.compute_at(output, block).store_in(SHARED).bound_extent(n, tiles).gpu_threads(n)
    in_thread(p.total, p.before, n)
    states.compute_at(output, block).store_in(SHARED).bound_extent(n, tiles)
    states.bound(m, 0, blocks).align_storage(m, blocks + 1)


def in_thread(f: hl.Func, consumer: hl.Func, thread: hl.Var) -> None:
    """A recursion in the registers of the thread that needs its result."""
    f.compute_at(consumer, thread)
    f.update().unscheduled()


def filter_blocks(
    p: Blocks, consumer: hl.Func, at: hl.Var, warps: int, rounds: int, z: Sizes
) -> None:
    """Blocks of samples staged in shared memory, and their last outputs."""
    nw, ni = hl.Var("nw"), hl.Var("ni")
    run = ROWS * rounds
    p.frames.compute_at(consumer, at).store_in(SHARED)
    p.frames.bound_extent(j, z.block).bound_extent(n, run * warps).vectorize(j).vectorize(n)
    tiles = warps * rounds  # a tile is 16 blocks: one row of tensor instructions
    p.ends.compute_at(consumer, at).store_in(SHARED).bound(k, 0, ENDS).bound(m, 0, ROWS)
    p.ends.bound_extent(n, tiles).reorder_storage(k, n, m, c).align_storage(n, tiles + 1)
    p.ends.split(n, nw, ni, rounds).reorder(k, m, ni, nw)
    p.ends.vectorize(k).vectorize(m).gpu_threads(nw)
    p.sums.compute_at(p.ends, ni).bound(k, 0, ENDS).bound_extent(n, ROWS).vectorize(k).vectorize(n)
    update = p.sums.update().reorder(p.j.x, k, n).atomic()
    update.vectorize(p.j.x).vectorize(k).vectorize(n)
    hb.store_in(p.sums, hb.MemoryType.WMMAAccumulator)


def stage_response(staged: hl.Func, consumer: hl.Func, at: hl.Var, rows: int) -> None:
    x, y = staged.args()
    staged.compute_at(consumer, at).store_in(SHARED).bound_extent(y, rows)
    staged.vectorize(x).vectorize(y)


def stage_tables(p: Tables, readers: list[hl.Func], consumer: hl.Func, at: hl.Var) -> None:
    """Copied with the samples: loads where the numbers are needed would wait for memory again."""
    staged = p.numbers.in_(readers)
    staged.compute_at(consumer, at).store_in(SHARED).vectorize(staged.args()[0])


def plain(p: Filter) -> hl.Func:
    """Halide's default, for the CPU: every Func whole."""
    for b in (p.first, p.second):
        for f in (b.frames, b.sums, b.ends):
            f.compute_root()
    for f in (p.tile_ends.steps, p.tile_ends.kept, p.filtered):
        f.compute_root()
    whole_carry(p.carry, p.states)
    return p.output


def whole_carry(p: Carry, *more: hl.Func) -> None:
    for f in (p.inclusive, p.prefix, p.parts.steps, p.parts.kept, p.total):
        f.compute_root()
    for f in (p.before, *more):
        f.compute_root()


def cuda(p: Filter, problem: Problem) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    The same two kernels. A thread of the second one has the outputs of a block in registers. The
    baseline is compiled for the one size of ``problem``, which gives stock Halide its best chance.
    """
    z, prefix = p.sizes, p.carry.prefix
    fix_sizes((p.x,), p.output, problem)
    carry_tiles(p.carry, z.tiles)
    stock_blocks(p.first, prefix, g)
    p.tile_ends.kept.compute_at(prefix, g).gpu_threads(n)
    in_thread(p.tile_ends.steps, p.tile_ends.kept, n)
    to, tn, ti, tv = (hl.Var(name) for name in ("to", "tn", "ti", "tv"))
    covered = 8
    (
        p.output.split(t, to, t, z.tile * covered)
        .split(t, tn, ti, z.block)
        .split(ti, ti, tv, 8)
        .reorder(tv, ti, tn, to, c)
        .vectorize(tv)
        .unroll(ti)
        .gpu_blocks(to, c)
        .gpu_threads(tn)
    )
    carry_states(p.carry, p.states, p.output, to, covered, z.blocks)
    p.states.gpu_threads(n)
    p.states.update().gpu_threads(n)
    stock_blocks(p.second, p.output, to)
    staged = p.response.in_(p.filtered)
    x, y = staged.args()
    staged.compute_at(p.output, to).bound(x, 0, z.block).bound(y, 0, z.block).gpu_threads(y)
    p.filtered.compute_at(p.output, tn).bound_extent(n, 1).unroll(i)
    jo, ji = hl.RVar("jo"), hl.RVar("ji")
    p.filtered.update().split(p.i.x, jo, ji, 8).reorder(i, ji, n, jo).unroll(i).unroll(ji)
    run = p.second.frames.in_(p.filtered)
    run.compute_at(p.filtered, jo).vectorize(run.args()[0], 8)
    return p.output


def stock_blocks(p: Blocks, consumer: hl.Func, at: hl.Var) -> None:
    """The last outputs of blocks, each by one thread, from vectors of samples."""
    block = hl.Var("block")  # one axis, not two: a kernel has the longest of all its stages' axes
    p.ends.compute_at(consumer, at).bound_extent(k, 2).reorder(k, m, n).unroll(k)
    p.ends.fuse(m, n, block).gpu_threads(block)
    p.sums.compute_at(p.ends, block).unroll(k)
    jo, ji = hl.RVar("jo"), hl.RVar("ji")
    p.sums.update().split(p.j.x, jo, ji, 8).reorder(k, ji, jo).unroll(k).unroll(ji)
    run = p.frames.in_(p.sums)
    run.compute_at(p.sums, jo).vectorize(run.args()[0], 8)
