"""Two schedules of attention.

``cuda``: stock Halide on CUDA cores. ``tensor``: in the first and the third stage a block goes over
the keys of a head, runs of which lie in shared memory ahead of their use, for a tile of queries.
Scores stay in the registers of a warp: the first stage reduces their rows there, in the third they
become weights, and with that the operand of the second product.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.attention.algorithm import RUN, Attention
from casestudies.attention.problem import Problem
from casestudies.common.stock import fix_dense

DEPTH = 32  # of one vector statement
COLUMNS = 32  # of one vector statement, keys or channels
ROWS = 16  # of one vector statement


@dataclass(frozen=True, slots=True)
class Tiles:
    """Queries of a warp and warps of a block in the first (``part``), third (``mix``) stage, keys
    of a step, and how many steps are in shared memory; the first stage steps by ``RUN``.
    """

    part_rows: int = 32
    part_warps: int = 4
    part_stages: int = 3
    mix_rows: int = 32
    mix_warps: int = 4
    mix_keys: int = 32
    mix_stages: int = 2
    mix_blocks: int = 1  # on a multiprocessor, at least


def tiles_for(depth: int) -> Tiles:
    """Two blocks of eight warps where their sums leave room in the registers."""
    return Tiles(mix_warps=8, mix_stages=3, mix_blocks=2) if depth <= 64 else Tiles()


def tensor(p: Attention, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or tiles_for(p.depth)
    schedule_parts(p, size)
    schedule_sums(p)
    schedule_mix(p, size)
    return p.output


def schedule_parts(p: Attention, size: Tiles) -> None:
    """The first stage: for each tile of queries a loop over the runs of keys."""
    mo, mi, mw = hl.Var("mo"), hl.Var("mi"), hl.Var("mw")
    block = size.part_rows * size.part_warps
    (
        p.part.compute_root()
        .split(p.m, mo, mi, block)
        .split(mi, mw, mi, size.part_rows)
        .reorder(mi, mw, p.t, mo, p.h)
        .vectorize(mi)
        .gpu_blocks(mo, p.h)
        .gpu_threads(mw)
    )
    for sums in (p.peak, p.mass):
        mu, mv = hl.Var("mu"), hl.Var("mv")
        sums.compute_at(p.part, mw).bound_extent(p.m, size.part_rows).vectorize(p.m)
        update = sums.update().split(p.m, mu, mv, ROWS).reorder(p.c.x, mv, mu)
        update.atomic().vectorize(p.c.x).vectorize(mv).unroll(mu)
    score(p.scores, p, p.part, mw, (RUN, size.part_rows))
    stage(p.query.in_(p.scores), p.part, mo, (p.depth, block))
    stage(p.keys.in_(p.scores), p.part, p.t, (p.depth, RUN), size.part_stages)


def schedule_sums(p: Attention) -> None:
    """The second stage: a thread for each query."""
    mo, mi = hl.Var("mo"), hl.Var("mi")
    p.shift.compute_root().split(p.m, mo, mi, 128).gpu_blocks(mo, p.h).gpu_threads(mi)
    p.top.compute_at(p.shift, mi)
    p.total.compute_at(p.shift, mi)


def schedule_mix(p: Attention, size: Tiles) -> None:
    """The third stage: scores become weights in registers, and these the operand of the product
    with the values.
    """
    mo, mi = hl.Var("mo"), hl.Var("mi")
    block = size.mix_rows * size.mix_warps
    hb.resident_blocks(p.output, size.mix_blocks)
    p.output.bound(p.d, 0, p.depth).split(p.m, mo, mi, block)
    p.output.reorder(p.d, mi, mo, p.h).gpu_blocks(mo, p.h)
    warp_tiles(p.output, p.d, mi, size)
    p.mixed.bound_extent(p.d, p.depth).bound_extent(p.m, block).compute_at(p.output, mo)
    hb.store_in(p.mixed, hb.MemoryType.WMMAAccumulator)
    warp_tiles(p.mixed, p.d, p.m, size)
    ro, ri, ru = hl.RVar("ro"), hl.RVar("ri"), hl.RVar("ru")
    update = p.mixed.update().split(p.r.x, ro, ri, size.mix_keys).split(ri, ru, ri, DEPTH).atomic()
    dv, mv, du, mu, mw = warp_tiles(update, p.d, p.m, size, ri)
    update.reorder(ri, dv, mv, du, mu, ru, mw, ro).unroll(ru)

    p.weight.compute_at(p.mixed, mw).store_in(hl.MemoryType.Register)
    p.weight.bound_extent(p.n, size.mix_keys).bound_extent(p.m, size.mix_rows)
    by_rows(p.weight, p)
    score(p.again, p, p.mixed, mw, (size.mix_keys, size.mix_rows))
    stage(p.query.in_(p.again), p.output, mo, (p.depth, block))
    p.shift.in_(p.weight).compute_at(p.output, mo).store_in(hl.MemoryType.GPUShared)
    p.shift.in_(p.weight).bound_extent(p.m, block).vectorize(p.m)
    for operand in (p.keys.in_(p.again), p.values.in_(p.mixed)):
        stage(operand, p.mixed, ro, (p.depth, size.mix_keys), size.mix_stages)


def warp_tiles(
    stage: hl.Func | hl.Stage, d: hl.Var, m: hl.Var, size: Tiles, depth: hl.RVar | None = None
) -> tuple[hl.Var, ...]:
    """Give each warp its queries, as unrolled vector statements; the loops, innermost first."""
    dv, mv, du, mu, mw = order = tuple(hl.Var(n) for n in ("dv", "mv", "du", "mu", "mw"))
    stage.split(d, du, dv, COLUMNS).split(m, mw, mv, size.mix_rows).split(mv, mu, mv, ROWS)
    if depth is None:
        stage.reorder(*order)
    else:
        stage.reorder(depth, *order).vectorize(depth)
    stage.vectorize(dv).vectorize(mv).unroll(du).unroll(mu).gpu_threads(mw)
    return order


def by_rows(stage: hl.Func, p: Attention) -> None:
    """One vector statement for every few rows of a run of keys."""
    mu, mv = hl.Var("mu"), hl.Var("mv")
    stage.split(p.m, mu, mv, ROWS).reorder(p.n, mv, mu).vectorize(p.n).vectorize(mv).unroll(mu)


def score(
    scores: hl.Func, p: Attention, consumer: hl.Func, warp: hl.Var, size: tuple[int, int]
) -> None:
    """The scores of some keys and a warp's queries, in its registers."""
    scores.compute_at(consumer, warp).bound_extent(p.n, size[0]).bound_extent(p.m, size[1])
    hb.store_in(scores, hb.MemoryType.WMMAAccumulator)
    by_rows(scores, p)
    mu, mv = hl.Var("mu"), hl.Var("mv")
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    update = scores.update()
    (channel,) = scores.rvars(0)
    update.split(channel, ko, ki, next(n for n in (DEPTH, 16) if p.depth % n == 0))
    update.split(p.m, mu, mv, ROWS).reorder(ki, p.n, mv, mu, ko).atomic()
    update.vectorize(ki).vectorize(p.n).vectorize(mv).unroll(mu).unroll(ko)


def stage(
    staged: hl.Func, consumer: hl.Func, loop: hl.Var, extents: tuple[int, int], stages: int = 1
) -> None:
    """A copy of rows of channels in shared memory, ``stages`` iterations of the loop deep."""
    inner, outer = staged.args()[:2]
    staged.compute_at(consumer, loop).store_in(hl.MemoryType.GPUShared)
    staged.bound_extent(inner, extents[0]).bound_extent(outer, extents[1])
    staged.vectorize(inner).vectorize(outer)
    if stages > 1:
        hb.pipeline_stages(staged, stages)


def plain(p: Attention) -> hl.Func:
    """Every sum of the definition computed before its use."""
    for f in (p.scores, p.peak, p.mass, p.part, p.top, p.total, p.shift, p.again, p.weight):
        f.compute_root()
    p.mixed.compute_root()
    return p.output


def cuda(p: Attention, problem: Problem) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    A thread has one query: its scores of some keys, or its sums of all channels, in registers. Keys
    and values are the same for all threads of a block and come as vectors. The baseline is compiled
    for the one size of ``problem``, which gives stock Halide its best chance.
    """
    for parameter, spec in zip((p.query, p.key, p.value), problem.inputs, strict=True):
        fix_dense(parameter, spec.shape)
    fix_dense(p.output.output_buffer(), problem.output.shape)
    mo, mi = hl.Var("mo"), hl.Var("mi")
    guard = hl.TailStrategy.GuardWithIf
    p.part.compute_root().split(p.m, mo, mi, 128, guard).reorder(mi, mo, p.t, p.h)
    p.part.gpu_blocks(mo, p.t, p.h).gpu_threads(mi)
    for sums in (p.peak, p.mass):
        sums.compute_at(p.part, mi)
        sums.update().unroll(p.c.x)
    thread_scores(p, p.scores, p.part, mi, RUN)

    p.shift.compute_root().split(p.m, mo, mi, 128, guard).gpu_blocks(mo, p.h).gpu_threads(mi)
    p.top.compute_at(p.shift, mi)
    p.total.compute_at(p.shift, mi)

    p.output.bound(p.d, 0, p.depth).split(p.m, mo, mi, 128, guard).reorder(p.d, mi, mo, p.h)
    p.output.gpu_blocks(mo, p.h).gpu_threads(mi).vectorize(p.d, 4).unroll(p.d)
    p.mixed.compute_at(p.output, mi).unroll(p.d)
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    update = p.mixed.update().split(p.r.x, ro, ri, 8).reorder(p.d, ri, ro)
    update.unroll(p.d).unroll(ri)
    p.weight.compute_at(p.mixed, ro).unroll(p.n)
    thread_scores(p, p.again, p.mixed, ro, 8)
    values = p.values.in_(p.mixed)
    values.compute_at(p.mixed, ri).vectorize(values.args()[0], 8).unroll(values.args()[0])
    return p.output


def thread_scores(
    p: Attention, scores: hl.Func, consumer: hl.Func, loop: hl.Var | hl.RVar, keys: int
) -> None:
    """A thread's scores of some keys, eight channels at a time."""
    scores.compute_at(consumer, loop).bound_extent(p.n, keys).unroll(p.n)
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    (channel,) = scores.rvars(0)
    scores.update().split(channel, ko, ki, 8).reorder(ki, p.n, ko).unroll(ki).unroll(p.n)
    query, key = p.query.in_(scores), p.keys.in_(scores)
    query.compute_at(scores, ko).bound_extent(query.args()[0], 8).vectorize(query.args()[0])
    key.compute_at(scores, p.n).bound_extent(p.d, 8).vectorize(p.d)
