"""The schedule of attention on tensor instructions: everything in one loop over the keys of a head.

A block has a tile of queries, which its warps, or its groups of four warps, share out by rows. Keys
and values come in runs, the next ones ahead of their use. Scores stay in registers: their rows are
reduced there, they become weights, and with that the operand of the second product. Largest scores
and sums of weights are numbers of rows, and stay there as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import halide as hl

import halide_bridge as hb
from casestudies.attention.algorithm import Attention

DEPTH = 16  # of one vector statement
COLUMNS = 32  # of one vector statement, keys or channels
PADDING = 8  # elements after a row in shared memory


@dataclass(frozen=True, slots=True)
class Tiles:
    """``units`` warps of ``rows`` queries a block, or groups of four with ``groups``; ``keys`` of a
    run, and how many runs are in shared memory. A vector statement has ``vector`` rows, and of
    values so many ``channels``.
    """

    units: int = 4
    rows: int = 16
    keys: int = 64
    stages: int = 2
    vector: int = 16
    groups: bool = False
    channels: int = COLUMNS

    @property
    def block(self) -> int:
        return self.units * self.rows

    @property
    def memory(self) -> hb.MemoryType:
        """Where products are added up."""
        kind = hb.MemoryType
        return kind.WGMMAAccumulator if self.groups else kind.WMMAAccumulator

    def shared_bytes(self, depth: int, matrices: int) -> int:
        """What a block has in shared memory, all rows of warps with 16 bytes more."""
        padding = 0 if self.groups else PADDING
        keys, scores = depth + padding, self.keys + padding
        run = 2 * self.keys * keys + matrices * self.block * scores
        return 2 * (self.block * keys + self.stages * run)


def groups_for(depth: int, matrices: bool = False) -> Tiles:
    """As many groups as leave room for the sums in their registers, and as many runs of keys as do
    for ``matrices`` in shared memory.
    """
    units = 3 if depth <= 64 else 2
    return Tiles(units, 64, keys=128, stages=2 if matrices else 3, vector=64, groups=True)


def for_depth(tiles: Tiles, depth: int) -> Tiles:
    """The same with vector statements that a head's channels are whole numbers of."""
    return replace(tiles, channels=COLUMNS if depth % COLUMNS == 0 else DEPTH)


def narrow() -> Tiles:
    """For warps, where shared memory does not hold runs of as many keys as usual."""
    return Tiles(keys=COLUMNS)


def tensor(p: Attention, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or Tiles()
    mo, mi = hl.Var("mo"), hl.Var("mi")
    p.output.bound(p.d, 0, p.depth).split(p.m, mo, mi, size.block)
    p.output.reorder(p.d, mi, mo, p.h).gpu_blocks(mo, p.h)
    rows_of(p.output, mi, size, (p.d,))
    for number, rows in enumerate((p.peak, p.total)):
        rows.compute_at(p.output, mo).bound_extent(p.m, size.block)
        rows_of(rows, p.m, size)
        ro, ri, rv = (hl.RVar(name) for name in ("ro", "ri", "rv"))
        update = rows.update().split(p.r.x, ro, ri, size.keys).split(ri, ri, rv, COLUMNS)
        mw = rows_of(update.atomic(), p.m, size, inner=(rv,), outer=(ri, ro))
        score(p, p.scores[number], (rows, ro, mw), mo, size)
    mix(p, mo, size)
    hb.online(p.peak, p.total, p.mixed)
    return p.output


def mix(p: Attention, block: hl.Var, size: Tiles) -> None:
    """The weights, and the product with the values."""
    p.mixed.bound_extent(p.d, p.depth).bound_extent(p.m, size.block).compute_at(p.output, block)
    hb.store_in(p.mixed, size.memory)
    rows_of(p.mixed, p.m, size, (p.d,))
    ro, ri, rv = (hl.RVar(name) for name in ("ro", "ri", "rv"))
    update = p.mixed.update().split(p.r.x, ro, ri, size.keys).split(ri, ri, rv, DEPTH).atomic()
    mw = rows_of(update, p.m, size, (p.d,), inner=(rv,), outer=(ri, ro))
    p.weight.compute_at(p.mixed, mw).store_in(hl.MemoryType.Register)
    p.weight.bound_extent(p.n, size.keys).bound_extent(p.m, size.rows)
    tile(p.weight, p, size)
    score(p, p.scores[2], (p.mixed, ro, mw), block, size)
    stage(p.values.in_(p.mixed), p.mixed, ro, (p.depth, size.keys), size.stages)


def rows_of(
    stage: hl.Func | hl.Stage,
    m: hl.Var,
    size: Tiles,
    columns: tuple[hl.Var, ...] = (),
    *,
    inner: tuple[hl.RVar, ...] = (),
    outer: tuple[hl.RVar, ...] = (),
) -> hl.Var:
    """Give each unit its rows, as unrolled vector statements of some ``columns``; returns the loop
    over units. ``inner``: reductions within a statement; ``outer``: those around it.
    """
    mu, mv, mw, du, dv = (hl.Var(name) for name in ("mu", "mv", "mw", "du", "dv"))
    stage.split(m, mw, mv, size.rows).split(mv, mu, mv, size.vector)
    for d in columns:
        stage.split(d, du, dv, size.channels)
    lanes = (*inner, *((dv,) if columns else ()), mv)
    steps = (*((du,) if columns else ()), mu, *outer[:1])
    stage.reorder(*lanes, *steps, mw, *outer[1:])
    for loop in lanes:
        stage.vectorize(loop)
    for loop in steps:
        stage.unroll(loop)
    stage.gpu_threads(mw)
    return mw


def tile(
    stage: hl.Func | hl.Stage, p: Attention, size: Tiles, depth: hl.RVar | None = None
) -> None:
    """Unrolled vector statements of a unit's rows and a run of keys."""
    mu, mv, nu, nv = (hl.Var(name) for name in ("mu", "mv", "nu", "nv"))
    stage.split(p.m, mu, mv, size.vector).split(p.n, nu, nv, COLUMNS)
    if depth is None:
        stage.reorder(nv, mv, nu, mu)
    else:
        ko, ki = hl.RVar("ko"), hl.RVar("ki")
        stage.split(depth, ko, ki, DEPTH).reorder(ki, nv, mv, nu, mu, ko).atomic()
        stage.vectorize(ki).unroll(ko)
    stage.vectorize(nv).vectorize(mv).unroll(nu).unroll(mu)


def score(
    p: Attention,
    scores: hl.Func,
    place: tuple[hl.Func, hl.RVar, hl.Var],
    block: hl.Var,
    size: Tiles,
) -> None:
    """The scores of a run of keys and a unit's rows, in its registers, where ``place`` (a consumer,
    its loops over runs and over units) takes them.
    """
    consumer, run, unit = place
    scores.compute_at(consumer, unit).bound_extent(p.n, size.keys).bound_extent(p.m, size.rows)
    hb.store_in(scores, size.memory)
    tile(scores, p, size)
    (channel,) = scores.rvars(0)
    tile(scores.update(), p, size, channel)
    if scores.num_update_definitions() > 1:
        tile(scores.update(1), p, size)
    for matrix in p.matrices:
        shape = (size.keys, size.block)
        stage(matrix.in_(scores), consumer, run, shape, size.stages)
    stage(p.query.in_(scores), p.output, block, (p.depth, size.block))
    stage(p.keys.in_(scores), consumer, run, (p.depth, size.keys), size.stages)


def stage(
    staged: hl.Func,
    consumer: hl.Func,
    loop: hl.Var | hl.RVar,
    extents: tuple[int, int],
    stages: int = 1,
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
    for f in (*p.scores, p.peak, p.total, p.weight, p.mixed):
        f.compute_root()
    return p.output
