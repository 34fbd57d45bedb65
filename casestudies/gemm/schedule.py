"""Two schedules of the matrix product.

``cuda``: stock Halide on CUDA cores, one thread keeping a part of the result in registers.
``tensor``: that of the family, for warpgroups and for warps.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from casestudies.common.stock import fix_sizes
from casestudies.gemm.algorithm import Product
from casestudies.gemm.problem import Problem
from halide_bridge.schedules import Contraction, Operand, contract
from selector.families.contraction import Tiling


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


def tensor(p: Product, tiling: Tiling) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    return contract(contraction(p), tiling)


def contraction(p: Product) -> Contraction:
    """The product as its family knows it."""
    a, b = (Operand(x, x.name(), p.along(x.name())) for x in (p.a, p.b))
    return Contraction(p.output, p.mm, a, b, p.n, p.m, p.k.x, () if p.batch is None else (p.batch,))


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
