"""The schedule of attention on tensor instructions: everything in one loop over the keys of a head.

A block has a tile of queries, which its warps, or its groups of four warps, share out by rows. Keys
and values come in runs, the next ones ahead of their use. Scores stay in registers: their rows are
reduced there, they become weights, and with that the operand of the second product. Largest scores
and sums of weights are numbers of rows, and stay there as well. A block that stays goes on to the
next tile while its results leave.
"""

from __future__ import annotations

from typing import Any

from halide_bridge.memory import MemoryType
from halide_bridge.schedules.asked import online, persistent, pipeline_stages, store_in
from halide_bridge.schedules.contraction import as_one
from halide_bridge.stock import GPU_SHARED, GUARD, REGISTER, rvars, variables
from selector.dataclass import dataclass
from selector.families.attention.tiling import DEPTH, JOINED_AT_ONCE, Tiling, padded

HEADS = 2  # dimensions of blocks beside that of queries


@dataclass(frozen=True, slots=True)
class Places:
    """The dimension of each Func that goes along the queries; of keys and values that of these."""

    output: int = 1
    mixed: int = 1
    peak: int = 0
    total: int = 0
    weight: int = 1
    scores: int = 1
    query: int = 1
    key: int = 1
    value: int = 1


@dataclass(frozen=True, slots=True)
class Joining:
    """``output``, of channels, queries and heads, joins what blocks have found of parts of the
    keys: ``top`` is the largest size of a part, ``sums`` go over the parts, which they
    read as ``near``.
    """

    output: Any
    near: Any
    top: Any
    sums: Any


@dataclass(frozen=True, slots=True)
class Attention:
    """The Funcs that a schedule talks about: of channels (``depth`` of them) or keys, then queries
    and heads in one or two dimensions, in the order of ``places``, with sums over the keys.

    ``peak``, ``total``: the largest score of a query, and the sum of its weights; ``mixed``: that
    of the weighted values, which ``output`` divides by ``total``. ``scores``: of the operands
    ``query`` and ``key``, for each of the three, with the number of their updates; ``weight``: of
    ``mixed``. ``keys``, ``values``: the Funcs of the operands ``key`` and ``value`` that the sums
    read. ``matrices``: Funcs of keys, queries and heads that the scores, or what is made of them,
    read, to be staged like these: each with who reads it, for each of the three, and the dimension
    that goes along the queries. ``whole``: values have ``depth`` channels as well; else a block has
    as many of however many there are. ``joining``: of what ``output`` has for each part of the
    keys, its last dimension.
    """

    output: Any
    mixed: Any
    peak: Any
    total: Any
    weight: Any
    scores: tuple[Any, Any, Any]
    query: Any
    key: Any
    value: Any
    keys: Any
    values: Any
    depth: int
    updates: int = 1
    matrices: tuple[tuple[Any, tuple[Any, Any, Any], int], ...] = ()
    joining: Joining | None = None
    places: Places = Places()
    whole: bool = True


def schedule_attention(p: Attention, size: Tiling) -> Any:
    """Schedule attention so; returns the output."""
    mo, mi, do, di = variables("mo", "mi", "do", "di")
    (d, m), heads = _dims(p.output, p.places.output)
    stored = (d, *heads[-1:], m, *heads[:-1])  # parts beside the channels that they are joined in
    tail = (GUARD,) if p.joining is not None else ()  # nobody reads rows beyond the last
    p.output.split(m, mo, mi, size.block, *tail)
    if p.whole:
        p.output.bound(d, 0, p.depth)
        if len(heads) > HEADS:
            heads = [*as_one(p.output, heads[:HEADS]), *heads[HEADS:]]
    else:
        heads = [*as_one(p.output, heads), do]
        p.output.split(d, do, di, padded(p.depth))
        d = di
    blocks = (*heads, mo) if size.heads_first else (mo, *heads)
    p.output.reorder(d, mi, *blocks).gpu_blocks(*blocks)
    _rows_of(p.output, mi, size, (d,))
    for number, rows in enumerate((p.peak, p.total)):
        place = (p.places.peak, p.places.total)[number]
        (m,), (r,) = _of_a_head(rows, place, rows.update(), inner=0), rows.rvars(0)
        rows.compute_at(p.output, blocks[0]).bound_extent(m, size.block)
        _rows_of(rows, m, size)
        ro, ri, rv = rvars("ro", "ri", "rv")
        update = rows.update().split(r, ro, ri, size.keys).split(ri, ri, rv, size.columns)
        mw = _rows_of(update.atomic(), m, size, inner=(rv,), outer=(ri, ro))
        _score(p, number, (rows, ro, mw), blocks[0], size)
    _mix(p, blocks[0], size)
    online(p.peak, p.total, p.mixed)
    if size.persistent:
        persistent(p.output, size.persistent)
    if p.joining is not None:
        p.output.compute_root().reorder_storage(*stored)
        return _join(p.joining, p.depth, whole=p.whole)
    return p.output


def _join(p: Joining, depth: int, *, whole: bool) -> Any:
    """A thread for each channel of a query."""
    d, *rows = p.output.args()
    if whole:
        p.output.bound(d, 0, depth)
    else:
        do, di = variables("do", "di")
        rows = [*(as_one(p.output, rows) if len(rows) > HEADS else rows), do]
        p.output.split(d, do, di, padded(depth))
        d = di
    p.output.gpu_threads(d).gpu_blocks(*rows)
    for func in (p.top, p.sums):
        some, each = rvars("some", "each")
        update = func.compute_at(p.output, d).update()
        update.split(func.rvars(0)[0], some, each, JOINED_AT_ONCE).unroll(each)
        near = p.near.in_(func)  # all at once, before any is needed
        part = near.args()[-1]
        near.compute_at(func, some).store_in(REGISTER).bound_extent(part, JOINED_AT_ONCE)
        near.unroll(part)
    return p.output


def _mix(p: Attention, block: Any, size: Tiling) -> None:
    """The weights, and the product with the values."""
    (d, m), (r,) = _of_a_head(p.mixed, p.places.mixed, p.mixed.update()), p.mixed.rvars(0)
    p.mixed.bound_extent(d, padded(p.depth)).bound_extent(m, size.block).compute_at(p.output, block)
    store_in(p.mixed, _memory(size))
    _rows_of(p.mixed, m, size, (d,))
    ro, ri, rv = rvars("ro", "ri", "rv")
    update = p.mixed.update().split(r, ro, ri, size.keys).split(ri, ri, rv, DEPTH).atomic()
    mw = _rows_of(update, m, size, (d,), inner=(rv,), outer=(ri, ro))
    n, m = _of_a_head(p.weight, p.places.weight)
    p.weight.compute_at(p.mixed, mw).store_in(REGISTER)
    p.weight.bound_extent(n, size.keys).bound_extent(m, size.rows)
    _tile(p.weight, n, m, size)
    _score(p, 2, (p.mixed, ro, mw), block, size)
    values, shape = p.values.in_(p.mixed), (padded(p.depth), size.keys)
    _stage(values, p.places.value, p.mixed, ro, shape, size.stages)


def _rows_of(
    stage: Any,
    m: Any,
    size: Tiling,
    columns: tuple[Any, ...] = (),
    *,
    inner: tuple[Any, ...] = (),
    outer: tuple[Any, ...] = (),
) -> Any:
    """Give each unit its rows, as unrolled vector statements of some ``columns``; returns the loop
    over units. ``inner``: reductions within a statement; ``outer``: those around it.
    """
    mu, mv, mw, du, dv = variables("mu", "mv", "mw", "du", "dv")
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


def _tile(stage: Any, n: Any, m: Any, size: Tiling, depth: Any | None = None) -> None:
    """Unrolled vector statements of a unit's rows and a run of keys."""
    mu, mv, nu, nv = variables("mu", "mv", "nu", "nv")
    stage.split(m, mu, mv, size.vector).split(n, nu, nv, size.columns)
    if depth is None:
        stage.reorder(nv, mv, nu, mu)
    else:
        ko, ki = rvars("ko", "ki")
        stage.split(depth, ko, ki, DEPTH).reorder(ki, nv, mv, nu, mu, ko).atomic()
        stage.vectorize(ki).unroll(ko)
    stage.vectorize(nv).vectorize(mv).unroll(nu).unroll(mu)


def _score(
    p: Attention, number: int, place: tuple[Any, Any, Any], block: Any, size: Tiling
) -> None:
    """The scores of a run of keys and a unit's rows, in its registers, where ``place`` (one of
    three consumers, its loops over runs and over units) takes them.
    """
    consumer, run, unit = place
    scores = p.scores[number]
    updates = [scores.update(n) for n in range(p.updates)]
    n, m = _of_a_head(scores, p.places.scores, *updates)
    scores.compute_at(consumer, unit).bound_extent(n, size.keys).bound_extent(m, size.rows)
    store_in(scores, _memory(size))
    _tile(scores, n, m, size)
    (channel,) = scores.rvars(0)
    _tile(updates[0], n, m, size, channel)
    for update in updates[1:]:
        _tile(update, n, m, size)
    for matrix, readers, along in p.matrices:
        shape = (size.keys, size.block)
        _stage(matrix.in_(readers[number]), along, consumer, run, shape, size.stages)
    queries, keys = p.query.in_(scores), p.keys.in_(scores)
    channels = padded(p.depth)
    _stage(queries, p.places.query, p.output, block, (channels, size.block))
    _stage(keys, p.places.key, consumer, run, (channels, size.keys), size.stages)


def _stage(
    staged: Any, place: int, consumer: Any, loop: Any, extents: tuple[int, int], stages: int = 1
) -> None:
    """A copy of rows of channels in shared memory, ``stages`` iterations of the loop deep."""
    inner, outer = _of_a_head(staged, place)
    staged.compute_at(consumer, loop).store_in(GPU_SHARED)
    staged.bound_extent(inner, extents[0]).bound_extent(outer, extents[1])
    staged.vectorize(inner).vectorize(outer)
    pipeline_stages(staged, stages)


def _dims(func: Any, place: int, inner: int = 1) -> tuple[tuple[Any, ...], list[Any]]:
    """The ``inner`` dimensions of a Func and the one at a place, and those of heads."""
    others = [*func.args()]
    row = others.pop(place)
    return (*others[:inner], row), others[inner:]


def _of_a_head(func: Any, place: int, *updates: Any, inner: int = 1) -> tuple[Any, ...]:
    """The dimensions of a Func that is computed for one head at a time, but those of heads."""
    own, heads = _dims(func, place, inner)
    for head in heads:
        func.bound_extent(head, 1)
    if place > inner:
        for stage in (func, *updates):
            stage.reorder(*own, *heads)
    return own


def _memory(size: Tiling) -> MemoryType:
    """Where products are added up."""
    return MemoryType.WGMMAAccumulator if size.groups else MemoryType.WMMAAccumulator
