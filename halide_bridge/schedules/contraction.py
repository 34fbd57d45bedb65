"""The schedules of a contraction, ``C[m, n] = f(sum_k A[m, k] * B[k, n])``.

A block stages what it needs of both operands for a run of k in shared memory, several runs ahead,
and its warpgroups or warps hold their parts of the block tile in accumulators over the whole sum.

Where C has too few tiles for a GPU, its sums are taken apart: a block has the sum of one part in
accumulators, and a second kernel adds the parts' sums, a thread those of one result.

Blocks that run at the same time share operands through the L2 cache: where they are numbered in
bands, they go down so many block rows first, then along n, or along so many block columns, then
down m. Neighbours in a band are a cluster and bring each other their B, or A; a block that stays
goes on to the next tile while its results leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from halide_bridge.memory import MemoryType
from halide_bridge.schedules.asked import (
    cluster,
    persistent,
    pipeline_stages,
    self_fed,
    store_in,
    teams,
)
from halide_bridge.stock import GPU_SHARED, GUARD, rvars, variables
from selector.dataclass import dataclass
from selector.families.contraction.tiling import AT_ONCE, COPY_BYTES, LINE, Tiling

ADDING = 32, 8  # neighbours, and warps, of a block that adds parts


@dataclass(frozen=True, slots=True)
class Operand:
    """An ImageParam or Func whose dimensions 0 and ``outer`` are m and k, or k and n. ``along``: k
    is the innermost one. ``name``: "A", which has the rows of the result, or "B".
    """

    source: Any
    name: str
    along: bool
    outer: int = 1

    @property
    def bytes(self) -> int:
        """Of an element."""
        kind = self.source.type() if hasattr(self.source, "type") else self.source.types()[0]
        return int(kind.bytes())

    def box(self, tiling: Tiling) -> tuple[int, int]:
        """What a block reads for a run of k, in the operand's own order."""
        extent = tiling.m if self.name == "A" else tiling.n
        return (tiling.k, extent) if self.along else (extent, tiling.k)


@dataclass(frozen=True, slots=True)
class Contraction:
    """The Funcs that a schedule talks about: ``output`` reads ``product`` where it is computed;
    ``product`` is pure in ``n``, the innermost, and ``m``, and its update sums over ``k``, an RVar,
    and over ``turns``, other RVars, outside of it. Both have the same variables, those and
    ``batch``, over pairs of operands.
    """

    output: Any
    product: Any
    a: Operand
    b: Operand
    n: Any
    m: Any
    k: Any
    batch: tuple[Any, ...] = ()
    turns: tuple[Any, ...] = ()

    @property
    def scattered(self) -> bool:
        """Whether other dimensions lie between those of a tile, or are several: Halide has then to
        be told that a block has one element along each.
        """
        between = [v.name() for v in self.product.args()].index(self.m.name()) > 1
        return between or len(self.batch) > 1


def contract(c: Contraction, tiling: Tiling) -> Any:
    """Schedule a contraction so; returns the output. ``limits.why_not`` says whether that compiles
    for a target.
    """
    output = c.output
    if tiling.part:
        c = _parted(c, tiling)
    innermost = _blocks(c, tiling)
    product, letter = c.product, "g" if tiling.unit == "group" else "w"
    groups = MemoryType.WGMMAAccumulator
    product.bound_extent(c.n, tiling.n).bound_extent(c.m, tiling.m).compute_at(c.output, innermost)
    store_in(product, groups if tiling.unit == "group" else MemoryType.WMMAAccumulator)
    if c.scattered:
        for other in c.batch:
            product.bound_extent(other, 1)
        product.reorder(c.n, c.m, *c.batch)
        product.update().reorder(c.n, c.m, *c.batch)
    _parts(product, c.n, c.m, tiling, letter)
    ko, ki, ku, kv = rvars("ko", "ki", "ku", "kv")
    update, unrolled = product.update().split(c.k, ko, ki, tiling.k), ()
    if tiling.vector_k < tiling.k:
        update.split(ki, ku, kv, tiling.vector_k)
        ki, unrolled = kv, (ku,)
    vectors, parts = _parts(update.atomic(), c.n, c.m, tiling, letter)
    update.reorder(ki, *vectors, *unrolled, *parts, ko, *c.turns).vectorize(ki)
    for loop in unrolled:
        update.unroll(loop)
    for operand in (c.a, c.b):
        _stage(operand, c, ko, tiling)
    return output


def _parted(c: Contraction, tiling: Tiling) -> Contraction:
    """Have the parts of the sums added where they are read; the contraction that computes them."""
    ko, ki = rvars("kp", "kr")
    (part,) = variables("part")
    if c.scattered:
        c.output.reorder(c.n, c.m, *c.batch)
    c.product.update().split(c.k, ko, ki, tiling.part)
    sums = c.product.update().rfactor(ko, part)
    reader = added(c.output, c.product, c.n, c.m, ko, tiling.adders)
    parts = sums.in_(reader).compute_root()
    if c.batch:
        c.output.gpu_blocks(*as_one(c.output, c.batch))
        for other in (part, *c.batch):
            sums.bound_extent(other, 1)
    return replace(c, output=parts, product=sums, k=ki, batch=(part, *c.batch))


def as_one(stage: Any, loops: Sequence[Any]) -> tuple[Any, ...]:
    """The loop that several are; none for none."""
    for number, other in enumerate(loops[1:]):
        (both,) = variables(f"all{number}")
        stage.fuse(loops[0], other, both)
        loops = (both,)
    return tuple(loops)


def added(output: Any, total: Any, n: Any, m: Any, parts: Any, adders: int = 1) -> Any:
    """Add the ``parts`` of each sum where ``output`` reads it, whose first dimensions are ``n`` and
    ``m``: every one of the ``adders`` threads some, in its registers, and the first of them the
    adders' sums, which meet in shared memory. The Func that reads the parts.
    """
    no, mo, ni, mi, adder = variables("no", "mo", "ni", "mi", "adder")
    turn, own, each = rvars("turn", "own", "each")
    width, warps = ADDING
    output.tile(n, m, no, mo, ni, mi, width, max(1, warps // adders))
    output.gpu_threads(ni, mi).gpu_blocks(no, mo)
    total.compute_at(output, ni)
    if adders == 1:
        total.update().atomic().split(parts, turn, each, AT_ONCE).unroll(each)
        return total
    total.update().split(parts, turn, own, adders)
    adding = total.update().rfactor(own, adder)
    met = adding.in_(total).compute_at(output, no).store_in(GPU_SHARED)
    met.gpu_threads(n, m, adder)
    adding.compute_at(met, n)
    return adding


def _blocks(c: Contraction, tiling: Tiling) -> Any:
    """Give each block its tile, and each group or warp its part of it; the innermost block loop."""
    output, letter = c.output, "g" if tiling.unit == "group" else "w"
    no, mo, ni, mi, mb, mr, block = variables("no", "mo", "ni", "mi", "mb", "mr", "block")
    if c.scattered:
        output.reorder(c.n, c.m, *c.batch)
    output.tile(c.n, c.m, no, mo, ni, mi, tiling.n, tiling.m)
    if tiling.band:
        first, then = (no, mo) if tiling.wide else (mo, no)
        output.split(first, mb, mr, tiling.band, GUARD)
        output.reorder(ni, mi, mr, then, mb).fuse(mr, then, block).gpu_blocks(block, mb)
    else:
        block = no
        output.gpu_blocks(no, mo)
    if tiling.persistent:
        persistent(output, tiling.persistent)
    teams(output, tiling.teams)
    cluster(output, tiling.cluster)
    if tiling.self_fed:
        self_fed(output)
    _parts(output, ni, mi, tiling, letter)
    if c.batch:
        output.gpu_blocks(*as_one(output, c.batch))
    return block


def _parts(
    stage: Any, n: Any, m: Any, tiling: Tiling, letter: str
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Give each group or warp its part of a block tile, as unrolled vector statements; the loops of
    these, innermost first, and those of the groups or warps.
    """
    np, nu, nv, mp, mu, mv = variables(f"n{letter}", "nu", "nv", f"m{letter}", "mu", "mv")
    stage.split(n, np, nv, tiling.part_n).split(nv, nu, nv, tiling.vector_n)
    stage.split(m, mp, mv, tiling.part_m).split(mv, mu, mv, tiling.vector_m)
    vectors = (mv, nv, mu, nu) if tiling.swapped else (nv, mv, nu, mu)
    stage.reorder(*vectors, np, mp)
    stage.vectorize(nv).vectorize(mv).unroll(nu).unroll(mu).gpu_threads(np, mp)
    return vectors, (np, mp)


def _stage(operand: Operand, c: Contraction, ko: Any, tiling: Tiling) -> None:
    """Copy what a block needs of an operand for one run of k into shared memory, several runs
    deep.
    """
    copied = operand.name in tiling.copied
    source = _copied(operand, c) if copied else operand.source
    staged = source.in_(c.product)
    inner, outer = (staged.args()[d] for d in (0, operand.outer))
    for d, other in enumerate(staged.args()):
        if c.scattered and d not in (0, operand.outer):
            staged.bound_extent(other, 1)
    extents = operand.box(tiling)
    turned = copied and _turned(operand)
    row, length = (outer, extents[1]) if turned else (inner, extents[0])
    if turned:
        staged.reorder_storage(outer, inner)
    if operand.bytes > 2:  # shorter elements' rows are padded by the bridge
        staged.align_storage(row, _apart(operand, length, along=operand.along or turned))
    staged.compute_at(c.product, ko).store_in(GPU_SHARED)
    staged.bound_extent(inner, extents[0]).bound_extent(outer, extents[1])
    staged.vectorize(inner).vectorize(outer)
    pipeline_stages(staged, tiling.stages)


def _apart(operand: Operand, extent: int, *, along: bool) -> int:
    """Elements from a row of single floats in shared memory to the next. Along the sum 8 rows are
    read at a time, 16 bytes of each; across it 32 of each of 4 rows: all from banks of their own.
    """
    per = COPY_BYTES // operand.bytes
    pieces = -(-extent // per)
    return (pieces | 1 if along else pieces + (2 - pieces) % 4) * per


def _turned(operand: Operand) -> bool:
    """Whether a copy of an operand is a transposed one: wgmma reads other elements than of two
    bytes along the sum only.
    """
    return operand.bytes != 2 and not operand.along


def _copied(operand: Operand, c: Contraction) -> Any:
    """An operand as a Func that a kernel of its own computes, 16 bytes of a row a thread."""
    copy, run = operand.source.in_(c.product), COPY_BYTES // operand.bytes
    x, *batch = copy.args()
    y = batch.pop(operand.outer - 1)
    if operand.outer > 1:
        copy.reorder(x, y, *batch)
    xo, yo, xi, yi, xv, yv, yu = variables("xo", "yo", "xi", "yi", "xv", "yv", "yu")
    copy.compute_root()
    if _turned(operand):
        copy.reorder_storage(y, x).align_storage(y, LINE // operand.bytes)
        copy.tile(x, y, xo, yo, xi, yi, 32, 8 * run).split(yi, yi, yv, run)
        copy.reorder(yv, xi, yi, xo, yo).vectorize(yv)
        return copy.gpu_threads(xi, yi).gpu_blocks(xo, yo, *as_one(copy, batch))
    copy.align_storage(x, LINE // operand.bytes)
    copy.tile(x, y, xo, yo, xi, yi, 32 * run, 16).split(xi, xi, xv, run).split(yi, yu, yi, 8)
    copy.reorder(xv, yu, xi, yi, xo, yo).vectorize(xv).unroll(yu)
    return copy.gpu_threads(xi, yi).gpu_blocks(xo, yo, *as_one(copy, batch))
