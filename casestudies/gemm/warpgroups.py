"""The schedule for warpgroups (wgmma, sm_90a): operands staged by the copy engine, several runs of
k ahead; each group of four warps holds its part of a block tile in its accumulators.

Blocks that run at the same time share operands through the L2 cache: they are numbered down
``band`` block rows first, then along n. Neighbours down a band are a cluster and bring each other
their B; a block goes on to the next tile while its results leave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import halide as hl

import halide_bridge as hb
from casestudies.gemm.algorithm import Product
from casestudies.gemm.problem import Problem


@dataclass(frozen=True, slots=True)
class Groups:
    """Block tile ``n`` x ``m``, run of ``k``, groups along n and m, ring of ``stages``.

    A vector statement is ``vector_n`` x 64 x ``vector_k``: Halide's vectors have at most 65535
    lanes. Neighbours along n become one instruction. ``copied``: operands (any of "AB") that a
    kernel of their own copies before, into rows that begin at multiples of 16 bytes; bytes also
    into rows along the sum.
    """

    n: int = 256
    m: int = 128
    k: int = 64
    groups_n: int = 1
    groups_m: int = 2
    stages: int = 4
    band: int = 8
    persistent: int = 0
    teams: int = 1
    cluster: int = 1
    vector_n: int = 32
    vector_m: int = 64
    vector_k: int = 16
    copied: str = ""
    self_fed: bool = False

    @property
    def group_n(self) -> int:
        return self.n // self.groups_n

    @property
    def group_m(self) -> int:
        return self.m // self.groups_m


SMALL = Groups(n=128, m=64, groups_m=1, stages=8)
LARGE = Groups(persistent=1, cluster=2)
TALL = Groups(n=128, m=256, persistent=1)


def groups_for(problem: Problem) -> Groups:
    """Small tiles where there would be too few blocks for a GPU, else large ones, lying or upright,
    whichever take fewer rounds; a run of k is 128 bytes.
    """
    size = TALL if problem.is_tall else LARGE if problem.is_large else SMALL
    size = replace(size, copied=problem.copied)
    if problem.operand == "s8":
        return replace(size, k=128, vector_k=32, vector_n=16, persistent=0, cluster=1)
    return size


def tensor_groups_for(problem: Problem) -> Groups:
    """Tiles of 128 rows for each group, the most that an instruction of tcgen05 has: nothing else
    was measured, since there was no such GPU.
    """
    size = Groups(groups_n=2, groups_m=1, persistent=1, vector_m=128, vector_n=16)
    if not problem.is_large:
        size = replace(size, n=128, stages=6)
    size = replace(size, copied=problem.copied)
    bytes_ = problem.operand == "s8"  # statements of 128 rows would be longer than Halide allows
    return replace(size, k=128, vector_k=32, vector_m=64) if bytes_ else size


def warpgroups(p: Product, groups: Groups | None = None) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    size = groups or Groups()
    no, mo, ni, mi = (hl.Var(name) for name in ("no", "mo", "ni", "mi"))
    mb, mr, block = (hl.Var(name) for name in ("mb", "mr", "block"))
    p.output.tile(p.n, p.m, no, mo, ni, mi, size.n, size.m)
    p.output.split(mo, mb, mr, size.band, hl.TailStrategy.GuardWithIf)
    p.output.reorder(ni, mi, mr, no, mb).fuse(mr, no, block).gpu_blocks(block, mb)
    if size.persistent:
        hb.persistent(p.output, size.persistent)
    hb.teams(p.output, size.teams)
    hb.cluster(p.output, size.cluster)
    if size.self_fed:
        hb.self_fed(p.output)
    tile_groups(p.output, ni, mi, size)
    ko, ki, ku, kv = (hl.RVar(name) for name in ("ko", "ki", "ku", "kv"))
    p.mm.bound_extent(p.n, size.n).bound_extent(p.m, size.m).compute_at(p.output, block)
    hb.store_in(p.mm, hb.MemoryType.WGMMAAccumulator)
    tile_groups(p.mm, p.n, p.m, size)
    update = p.mm.update().split(p.k.x, ko, ki, size.k).split(ki, ku, kv, size.vector_k)
    vectors, parts = tile_groups(update.atomic(), p.n, p.m, size)
    update.reorder(kv, *vectors, ku, *parts, ko).vectorize(kv).unroll(ku)
    for operand in (p.a, p.b):
        name = operand.name()
        extents = p.box(name, size.n, size.m, size.k)
        staged = copied(p, operand).in_(p.mm) if name in size.copied else operand.in_(p.mm)
        inner, outer = staged.args()
        if name in size.copied and turned(p, name):
            staged.reorder_storage(outer, inner)
        staged.compute_at(p.mm, ko).store_in(hl.MemoryType.GPUShared)
        staged.bound_extent(inner, extents[0]).bound_extent(outer, extents[1])
        staged.vectorize(inner).vectorize(outer)
        hb.pipeline_stages(staged, size.stages)
    return p.output


def turned(p: Product, name: str) -> bool:
    """Whether a copy of an operand is a transposed one: wgmma reads bytes along the sum only."""
    return p.a.type().bytes() == 1 and not p.along(name)


def copied(p: Product, operand: hl.ImageParam) -> hl.Func:
    """An operand as a Func that a kernel of its own computes, 16 bytes of a row a thread."""
    copy, run = operand.in_(p.mm), 16 // operand.type().bytes()
    x, y = copy.args()
    xo, yo, xi, yi, xv, yv, yu = map(hl.Var, ("xo", "yo", "xi", "yi", "xv", "yv", "yu"))
    copy.compute_root()
    if turned(p, operand.name()):
        copy.reorder_storage(y, x).align_storage(y, run)
        copy.tile(x, y, xo, yo, xi, yi, 32, 8 * run).split(yi, yi, yv, run)
        copy.reorder(yv, xi, yi, xo, yo).vectorize(yv).gpu_threads(xi, yi).gpu_blocks(xo, yo)
        return copy
    copy.align_storage(x, run)
    copy.tile(x, y, xo, yo, xi, yi, 32 * run, 16).split(xi, xi, xv, run).split(yi, yu, yi, 8)
    copy.reorder(xv, yu, xi, yi, xo, yo).vectorize(xv).unroll(yu)
    copy.gpu_threads(xi, yi).gpu_blocks(xo, yo)
    return copy


def tile_groups(
    stage: hl.Func | hl.Stage, n: hl.Var, m: hl.Var, size: Groups
) -> tuple[tuple[hl.Var, ...], tuple[hl.Var, ...]]:
    """Give each group its part of a block tile; the loops of its vector statements, and those of
    the groups.
    """
    ng, nu, nv, mg, mu, mv = (hl.Var(name) for name in ("ng", "nu", "nv", "mg", "mu", "mv"))
    stage.split(n, ng, nv, size.group_n).split(nv, nu, nv, size.vector_n)
    stage.split(m, mg, mv, size.group_m).split(mv, mu, mv, size.vector_m)
    stage.reorder(nv, mv, nu, mu, ng, mg)
    stage.vectorize(nv).vectorize(mv).unroll(nu).unroll(mu).gpu_threads(ng, mg)
    return (nv, mv, nu, mu), (ng, mg)
