"""The schedule for AMX: 32 x 32 results in tile registers over the whole sum, rows of tiles on all
cores. B is swizzled into the order of the instruction by the program that the selector finds.
"""

from __future__ import annotations

import halide as hl

import halide_bridge as hb
from casestudies.gemm.algorithm import Product

TILE = 32
VECTOR_N = 16  # columns of one vector statement
DEPTH_BYTES = 64  # of one instruction


def amx(p: Product) -> hl.Func:
    """Schedule for AMX; returns the output. Operands are bf16 or s8."""
    depth = DEPTH_BYTES // p.a.type().bytes()
    no, mo, ni, mi, nu = (hl.Var(v) for v in ("no", "mo", "ni", "mi", "nu"))
    p.output.tile(p.n, p.m, no, mo, ni, mi, TILE, TILE).split(ni, nu, ni, VECTOR_N)
    p.output.reorder(ni, mi, nu, no, mo).vectorize(ni).vectorize(mi).unroll(nu).parallel(mo)
    hb.store_in(p.mm, hb.MemoryType.AMXTile)
    p.mm.bound_extent(p.n, TILE).bound_extent(p.m, TILE).compute_at(p.output, no)
    p.mm.split(p.n, nu, ni, VECTOR_N).reorder(ni, p.m, nu).vectorize(ni).vectorize(p.m).unroll(nu)
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    update = p.mm.update().atomic().split(p.k.x, ko, ki, depth).split(p.n, nu, ni, VECTOR_N)
    update.reorder(ki, ni, p.m, nu, ko).vectorize(ki).vectorize(ni).vectorize(p.m).unroll(nu)
    return p.output
