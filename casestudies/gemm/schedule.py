"""Two schedules of the matrix product.

``cuda``: stock Halide on CUDA cores, one thread keeping a part of the result in registers.
``tensor``: a block stages its part of A and B for a run of k in shared memory, several runs ahead,
and its warps hold their parts of the result in accumulators over the whole loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common.stock import fix_sizes
from casestudies.gemm.algorithm import Product
from casestudies.gemm.problem import Problem


@dataclass(frozen=True, slots=True)
class Tiles:
    """Block tile ``n`` x ``m``, its warps, one vector statement ``vector_n`` x ``vector_m`` x
    ``k``, ring of stages.
    """

    n: int = 64
    m: int = 128
    k: int = 64
    warps_n: int = 2
    warps_m: int = 2
    vector_n: int = 32
    vector_m: int = 16
    stages: int = 4

    @property
    def warp_n(self) -> int:
        return self.n // self.warps_n

    @property
    def warp_m(self) -> int:
        return self.m // self.warps_m


@dataclass(frozen=True, slots=True)
class Threads:
    """Block tile ``n`` x ``m``, the part of it that one thread computes, and its run of k.

    The 32 threads of a warp lie side by side along n, so what they load of A is the same for all.
    """

    n: int = 128
    m: int = 128
    k: int = 4
    thread_n: int = 4
    thread_m: int = 16


LARGE = Tiles(n=256, m=128, warps_n=4, warps_m=2, stages=3)
NARROW = Tiles(n=128, m=128, warps_n=2, warps_m=4, stages=2)
SHARED = 160 << 10  # bytes of a block that the tiles may take, but for narrow ones


def tiles_for(problem: Problem, *, narrow: bool = False) -> Tiles:
    """Small tiles where there would be too few blocks for a GPU, else the ones that read least;
    ``narrow``: for GPUs with less shared memory.
    """
    if narrow:
        return NARROW if problem.is_large else Tiles(stages=3)
    return LARGE if problem.is_large else Tiles()


def tensor(p: Product, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or Tiles()
    no, mo, ni, mi = (hl.Var(name) for name in ("no", "mo", "ni", "mi"))
    p.output.tile(p.n, p.m, no, mo, ni, mi, size.n, size.m).gpu_blocks(no, mo)
    tile_warps(p.output, ni, mi, size)
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    p.mm.bound_extent(p.n, size.n).bound_extent(p.m, size.m).compute_at(p.output, no)
    hb.store_in(p.mm, hb.MemoryType.WMMAAccumulator)
    tile_warps(p.mm, p.n, p.m, size)
    update = p.mm.update().split(p.k.x, ko, ki, size.k)
    order = tile_warps(update.atomic(), p.n, p.m, size, ki)
    update.reorder(ki, *order, ko)
    for operand in (p.a, p.b):
        stage(operand, p, ko, size)
    return p.output


def tile_warps(
    stage: hl.Func | hl.Stage, n: hl.Var, m: hl.Var, size: Tiles, k: hl.RVar | None = None
) -> tuple[hl.Var, ...]:
    """Give each warp its part of a block tile, as unrolled vector statements; the loops, innermost
    first.
    """
    nw, nu, nv, mw, mu, mv = (hl.Var(name) for name in ("nw", "nu", "nv", "mw", "mu", "mv"))
    order = (nv, mv, nu, mu, nw, mw)
    (
        stage.split(n, nw, nv, size.warp_n)
        .split(nv, nu, nv, size.vector_n)
        .split(m, mw, mv, size.warp_m)
        .split(mv, mu, mv, size.vector_m)
    )
    stage.reorder(*((k,) if k is not None else ()), *order)
    stage.vectorize(nv).vectorize(mv)
    if k is not None:
        stage.vectorize(k)
    stage.unroll(nu).unroll(mu).gpu_threads(nw, mw)
    return order


def stage(operand: hl.ImageParam, p: Product, ko: hl.RVar, size: Tiles) -> None:
    """Copy what a block needs of an operand for one run of k into shared memory, ``size.stages``
    runs deep.
    """
    staged = operand.in_(p.mm)
    inner, outer, *_ = staged.args()
    extents = p.box(operand.name(), size.n, size.m, size.k)
    staged.compute_at(p.mm, ko).store_in(hl.MemoryType.GPUShared)
    staged.bound_extent(inner, extents[0]).bound_extent(outer, extents[1])
    staged.vectorize(inner).vectorize(outer)
    hb.pipeline_stages(staged, size.stages)


def cuda(p: Product, problem: Problem, threads: Threads | None = None) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    Each thread keeps a part of the result in registers and loads operands as vectors. The baseline
    is compiled for the one size of ``problem``, which gives stock Halide its best chance.
    """
    size = threads or Threads()
    fix_sizes((p.a, p.b), p.output, problem)
    no, mo, ni, mi, nt, mt = (hl.Var(name) for name in ("no", "mo", "ni", "mi", "nt", "mt"))
    tail = hl.TailStrategy.ShiftInwards
    if problem.n < size.n or problem.m < size.m:
        tail = hl.TailStrategy.GuardWithIf
    (
        p.output.tile(p.n, p.m, no, mo, ni, mi, size.n, size.m, tail)
        .tile(ni, mi, nt, mt, ni, mi, size.thread_n, size.thread_m)
        .gpu_blocks(no, mo)
        .gpu_threads(nt, mt)
        .vectorize(ni, 4)
        .unroll(ni)
        .unroll(mi)
    )
    accumulate(p, nt, problem, size)
    return p.output


def accumulate(p: Product, thread: hl.Var, problem: Problem, size: Threads) -> None:
    """Schedule the sum of a thread: its part of the result and, for a run of k, both operands in
    registers.
    """
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    run = next(n for n in (size.k, 2, 1) if problem.k % n == 0)
    p.mm.compute_at(p.output, thread).unroll(p.n).unroll(p.m)
    p.mm.bound_extent(p.n, size.thread_n).bound_extent(p.m, size.thread_m)
    update = p.mm.update().split(p.k.x, ko, ki, run).reorder(p.n, p.m, ki, ko)
    update.unroll(p.n).unroll(p.m).unroll(ki)
    for operand in (p.a, p.b):
        inner, outer = p.box(operand.name(), size.thread_n, size.thread_m, run)
        staged = operand.in_(p.mm)
        x, y = staged.args()
        staged.compute_at(p.mm, ko).bound_extent(x, inner).bound_extent(y, outer)
        staged.vectorize(x).unroll(y)
