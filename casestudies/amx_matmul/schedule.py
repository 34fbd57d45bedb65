"""The schedules of the paper's table I (after Intel's optimization reference manual, chapter on
AMX), each for both layouts of B.

``reference``: tiles of C row by row; the tile stays in registers over the whole sum.
``reordered``: column by column, so that a part of B stays in the cache.
``preload_a``, ``preload_b``: a panel of the operand is copied before it is used.
``pipelined``: reference, software-pipelined: tiles of the next step of the sum are loaded among the
products of this one (``hb.pipeline_stages`` of the sums).
``parallel``: reference, with the rows of tiles on all cores.
``blocked``: for speed, on one core: the columns of B that one block needs stay in its second-level
cache while all rows of A pass.
``blocked_parallel``: for speed, on all cores: each takes square blocks of C, and swizzles or copies
the columns of B that it needs for itself.
``blocked_pipelined``, ``blocked_parallel_pipelined``: the same, software-pipelined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import halide as hl

import halide_bridge as hb
from casestudies.amx_matmul.algorithm import Product
from casestudies.amx_matmul.problem import SCHEDULES
from casestudies.common.case import check_schedule

BLOCKS = hl.Var("nb"), hl.Var("mb")  # loops over blocks of C: columns, rows
LANES_LIMIT = 65535  # Halide counts lanes in 16 bits


@dataclass(frozen=True, slots=True)
class Tiles:
    """Rows ``m`` and columns ``n`` of C that stay in registers together, 16 x 16 a register.

    One statement multiplies ``vector_n`` columns (0: as many as its lanes allow); its depth is one
    instruction's, 64 bytes. ``block`` rows and columns are one block of the schedules for speed.
    """

    n: int = 32
    m: int = 32
    vector_n: int = 0
    block: int = 256


def parallel(p: Any, tiles: Tiles) -> hl.Func:
    """The output of any product of two matrices by the schedule of that name."""
    bytes_ = p.a.type().bytes()
    own = Product(p.a, p.b, p.mm, p.output, p.n, p.m, p.k, 1, bytes_)
    return schedule(own, "parallel", tiles)


def schedule(p: Product, name: str = "reference", tiles: Tiles = Tiles()) -> hl.Func:
    """The output, scheduled as one of ``SCHEDULES``."""
    check_schedule(name, *SCHEDULES)
    if name.endswith("pipelined"):
        hb.pipeline_stages(p.mm, 2)
        name = name.removesuffix("pipelined").rstrip("_")
    if not tiles.vector_n:
        columns = LANES_LIMIT // (tiles.m * depth(p))
        tiles = replace(tiles, vector_n=next(n for n in (32, 16) if n <= min(columns, tiles.n)))
    no, mo, ni, mi = (hl.Var(v) for v in ("no", "mo", "ni", "mi"))
    nu = hl.Var("nu")
    p.output.tile(p.n, p.m, no, mo, ni, mi, tiles.n, tiles.m).split(ni, nu, ni, tiles.vector_n)
    p.output.reorder(ni, mi, nu, no, mo).vectorize(ni).vectorize(mi).unroll(nu)
    if name in ("reordered", "preload_b"):
        p.output.reorder(mo, no)
    by_columns = name in ("reordered", "preload_b", "blocked_parallel")
    inner, outer = (mo, no) if by_columns else (no, mo)
    accumulate(p, inner, tiles)
    if name == "preload_a":
        preload(p, p.a, outer)
    if name == "preload_b":
        preload(p, p.b, outer)
    if name == "parallel":
        p.output.parallel(outer)
    if name == "blocked":
        block(p, tiles, 2 * tiles.block, tiles.block).reorder(ni, mi, nu, no, mo, *BLOCKS[::-1])
    if name == "blocked_parallel":
        blocks = hl.Var("blocks")
        columns = tiles.block * p.element_bytes // 2  # the same bytes of B for all types
        block(p, tiles, columns, tiles.block**2 // columns).reorder(ni, mi, nu, mo, no, *BLOCKS)
        p.output.fuse(*BLOCKS, blocks).parallel(blocks)
        if p.group > 1:  # else the swizzle puts the columns side by side
            preload(p, p.b, no)
    return p.output


def block(p: Product, tiles: Tiles, columns: int, rows: int) -> hl.Func:
    """Tiles in blocks of C."""
    no, mo = hl.Var("no"), hl.Var("mo")
    p.output.split(no, BLOCKS[0], no, columns // tiles.n)
    return p.output.split(mo, BLOCKS[1], mo, rows // tiles.m)


def depth(p: Product) -> int:
    """k of one instruction."""
    return 64 // p.element_bytes


def accumulate(p: Product, at: hl.Var, tiles: Tiles) -> None:
    """The sum in tile registers: one instruction's depth a step."""
    hb.store_in(p.mm, hb.MemoryType.AMXTile)
    nu, nv, ko, ki = hl.Var("nu"), hl.Var("nv"), hl.RVar("ko"), hl.RVar("ki")
    p.mm.bound_extent(p.n, tiles.n).bound_extent(p.m, tiles.m).compute_at(p.output, at)
    p.mm.split(p.n, nu, nv, tiles.vector_n).reorder(nv, p.m, nu)
    p.mm.vectorize(nv).vectorize(p.m).unroll(nu)
    update = p.mm.update().atomic()
    update.split(p.n, nu, nv, tiles.vector_n)
    if p.group == 1:
        update.split(p.k.x, ko, ki, depth(p)).reorder(ki, nv, p.m, nu, ko)
        update.vectorize(ki)
    else:
        update.split(p.k.y, ko, ki, depth(p) // p.group).reorder(p.k.x, ki, nv, p.m, nu, ko)
        update.vectorize(p.k.x).vectorize(ki)
    update.vectorize(nv).vectorize(p.m).unroll(nu)


def preload(p: Product, operand: hl.ImageParam, at: hl.Var) -> None:
    """Copy the part of an operand that one iteration of a loop reads."""
    staged = operand.in_(p.mm)
    staged.compute_at(p.output, at)
    inner = staged.args()[0]
    if operand.dimensions() == 3:
        staged.vectorize(inner)
        inner = staged.args()[1]
    staged.vectorize(inner, 16)
