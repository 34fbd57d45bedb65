"""Schedules of the recursive filter with scattered look-ahead.

``tensor``: three kernels. In the first a warp puts the convolution of a tile into shared memory,
and a thread runs through each of its phases; the second sums up what the tiles of a group leave
behind; the third adds what the state before each tile contributes.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common.stock import fix_sizes
from casestudies.recursive_filter.algorithm import c, i, j, m, n, t
from casestudies.recursive_filter.lookahead import Lookahead, lookahead, p, s
from casestudies.recursive_filter.problem import Problem
from casestudies.recursive_filter.schedule import (
    SHARED,
    carry_states,
    carry_tiles,
    is_whole,
    stage_tables,
    whole_carry,
)
from casestudies.recursive_filter.sizes import DILATION, TAPS

VECTOR = 256  # outputs of the convolution in one tensor statement


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles (and warps) of the first kernel's blocks, steps of a phase that are unrolled, tiles of
    the third kernel's blocks, and its threads.
    """

    first: int = 8
    unroll: int = 14
    last: int = 4
    threads: int = 512


def scheduled(problem: Problem, name: str) -> hl.Func:
    """The output, scheduled as ``tensor``, ``cuda`` or ``plain``."""
    pipeline = lookahead(problem.sizes, whole=is_whole(problem, name))
    if name == "cuda":
        return cuda(pipeline, problem)
    return plain(pipeline) if name == "plain" else tensor(pipeline)


def tensor(f: Lookahead, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size, z = tiles or Tiles(), f.sizes
    filter_tiles(f, size)
    carry_tiles(f.carry, z.tiles)
    to, ti, tv = hl.Var("to"), hl.Var("ti"), hl.Var("tv")
    run = z.tile * size.last
    f.output.split(t, to, ti, run).split(ti, tv, ti, size.threads)
    f.output.reorder(tv, ti, to, c).gpu_blocks(to, c).gpu_threads(ti)
    carry_states(f.carry, f.states, f.output, to, size.last, z.blocks)
    f.states.gpu_threads(m, n)
    stage_tables(f.tables, [f.carry.before, f.output], f.output, to)
    return f.output


def filter_tiles(f: Lookahead, size: Tiles) -> None:
    """The first kernel."""
    z = f.sizes
    no, ni, so, si = (hl.Var(name) for name in ("no", "ni", "so", "si"))
    f.tiles.compute_root().bound(j, 0, z.tile).split(n, no, ni, size.first)
    f.tiles.vectorize(j).gpu_blocks(no, c)
    f.frames.compute_at(f.tiles, no).store_in(SHARED).bound_extent(n, size.first)
    f.frames.bound(j, -TAPS, z.tile + TAPS).vectorize(j).vectorize(n)
    f.phases.compute_at(f.tiles, no).store_in(SHARED).bound(p, 0, DILATION)
    f.phases.bound(s, 0, z.tile // DILATION).bound_extent(n, size.first)
    f.phases.align_storage(s, z.tile // DILATION + 1)  # tiles begin in different banks
    f.phases.split(s, so, si, VECTOR // DILATION).reorder(p, si, so, n)
    f.phases.vectorize(p).vectorize(si).gpu_threads(n)
    run_phases(f, size)
    f.fir.compute_at(f.phases, so).bound_extent(i, VECTOR).vectorize(i)
    update = f.fir.update().reorder(f.r.x, i).atomic()
    update.vectorize(f.r.x).vectorize(i)
    hb.store_in(f.fir, hb.MemoryType.WMMAAccumulator)


def run_phases(f: Lookahead, size: Tiles) -> None:
    """A thread for each phase of each tile."""
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    f.phases.update(0).gpu_threads(p, n)
    steps = f.phases.update(1).split(f.steps.x, ro, ri, size.unroll)
    steps.reorder(ri, ro, p, n).unroll(ri).gpu_threads(p, n)


def plain(f: Lookahead) -> hl.Func:
    """Halide's default, for the CPU: every Func whole."""
    for stage in (f.frames, f.fir, f.phases, f.tiles):
        stage.compute_root()
    whole_carry(f.carry, f.states)
    return f.output


def cuda(f: Lookahead, problem: Problem, tiles: Tiles | None = None) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    The same three kernels; a thread of the first one convolves vectors of a tile. The baseline is
    compiled for the one size of ``problem``, which gives stock Halide its best chance.
    """
    size, z = tiles or Tiles(first=4), f.sizes  # shared memory is short: 4 tiles are 25 KB
    fix_sizes((f.x,), f.output, problem)
    stock_tiles(f, size)
    carry_tiles(f.carry, z.tiles)
    to, ti, tv = hl.Var("to"), hl.Var("ti"), hl.Var("tv")
    f.output.split(t, to, ti, z.tile * size.last).split(ti, ti, tv, 8)
    f.output.reorder(tv, ti, to, c).vectorize(tv).gpu_blocks(to, c).gpu_threads(ti)
    carry_states(f.carry, f.states, f.output, to, size.last, z.blocks)
    block = hl.Var("block")
    f.states.fuse(m, n, block).gpu_threads(block)
    return f.output


def stock_tiles(f: Lookahead, size: Tiles) -> None:
    z = f.sizes
    no, ni, jo, jt, ji = (hl.Var(name) for name in ("no", "ni", "jo", "jt", "ji"))
    f.tiles.compute_root().bound(j, 0, z.tile).split(n, no, ni, size.first).split(j, jo, ji, 8)
    f.tiles.vectorize(ji).gpu_blocks(no, c).gpu_threads(jo, ni)
    f.frames.compute_at(f.tiles, no).store_in(SHARED).bound_extent(n, size.first)
    f.frames.bound(j, -TAPS, z.tile + TAPS).split(j, jo, ji, 8).vectorize(ji)
    f.frames.split(jo, jo, jt, (z.tile + TAPS) // 16).reorder(ji, jo, jt, n).gpu_threads(jt, n)
    f.phases.compute_at(f.tiles, no).store_in(SHARED).bound(p, 0, DILATION)
    f.phases.bound(s, 0, z.tile // DILATION).bound_extent(n, size.first)
    f.phases.align_storage(s, z.tile // DILATION + 1).unroll(p).gpu_threads(s, n)
    run_phases(f, size)
    f.fir.compute_at(f.phases, s).unroll(i)
    f.fir.update().reorder(i, f.r.x).unroll(i).unroll(f.r.x)
