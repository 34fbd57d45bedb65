"""Sweeps, by the threads of blocks: each adds up a part in registers, and they meet in shared
memory.

The threads of a row lie along memory. Of a column there are 32 side by side, and some below each
other. Where one element may take more than a block (an image, columns of unknown height), blocks
add up parts of it in a kernel before, and another kernel joins those in their order. Floats are
added in another order then, as everywhere in this compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halide_bridge.schedules.kernels import LANES, LINE, WARPS, Grid, fused, power_of_two, vectors
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.stock import GPU_SHARED
from selector.dataclass import dataclass
from selector.lowering.row_work import BYTES

CHUNK = 16384  # elements of a line, or parts of them, that a block adds up
FOLD = 8  # rows of an image that a block adds up, and threads one above the other that do
HEIGHT = 256  # rows of columns that a block adds up
JOINED = 32  # threads one below the other that add up what blocks have, who knows how many
NARROW, DEEP = 8, 64  # the same side by side, and below, where those would take many turns
TURNS = 4
ELEMENTS, FEWER = 32, 16  # of a row that a thread has where they lie in vectors, up to that many
SHARE = 64  # bytes of these of all arrays, if those are not fewer than the least
SINGLE = 4  # elements where they do not
FEWEST, MOST = 8, 1024  # threads of a row: those that load 128 bytes side by side, those of a block
EACH, BLOCKS = 512, 8  # threads of each of the blocks that have a row together; those blocks
UNKNOWN = 128  # threads of a row of which the length is not known
MEET = 128  # threads of a block of rows, all of which wait where those of one row meet


@dataclass(frozen=True, slots=True)
class Part:
    """A sweep as it is computed at a block: ``func``, of which a block computes some along ``own``;
    the variable ``along`` which its threads lie, ``across`` which others do, if any; ``shared``:
    who reads it finds it in shared memory; ``lanes``: neighbours that a thread loads at once.
    """

    func: Recorded
    own: Any
    along: Any
    across: Any = None
    shared: bool = False
    lanes: int = 1


def by_blocks(
    script: Script,
    reader: Recorded,
    args: Sequence[Any],
    inner: Sequence[Any],
    parts: Sequence[Part],
    threads: int,
    lanes: int = 1,
) -> Grid:
    """A kernel whose blocks compute rows of ``reader``, and ``parts`` at them. ``args``: of the
    rows, ``inner``: those along a row, ``lanes`` neighbours by a thread at once.
    """
    rows = max(1, MEET // threads)
    y, *outer = args
    yo, yi, xo, xi = script.variables("yo", "yi", "xo", "xi")
    reader.compute_root().split(y, yo, yi, rows)
    z = fused(script, reader, outer, most=2)
    if inner:
        x, *others = inner
        xl = vectors(script, reader, x, threads, lanes)
        reader.reorder(*xl, *others, xo, xi, yi, yo, *z).gpu_blocks(yo, *z).gpu_threads(xi, yi)
    else:
        reader.reorder(yi, yo, *z).gpu_blocks(yo, *z).gpu_threads(yi)
    for part in parts:
        _together(script, part, reader, yo, xi if inner else yi, threads)
    text = (
        f"{threads} threads a row, {rows} rows a block" if rows > 1 else f"{threads} threads a row"
    )
    return Grid(text=text)


def _together(
    script: Script, part: Part, reader: Recorded, block: Any, thread: Any, threads: int
) -> None:
    """Let the threads of a row add up a sweep in two steps: parts of each thread, and groups of
    those.
    """
    func = part.func
    groups = 1 << (threads.bit_length() - 1) // 2
    ro, ri, ra, rb, rc, rd, rt, rm = script.rvars("ro", "ri", "ra", "rb", "rc", "rd", "rt", "rm")
    u, w, t = script.variables("u", "w", "t")
    update = func.update(0)
    wide = threads if part.across is None else threads // (FOLD // 2)
    update.split(part.along, ro, ri, wide * part.lanes)
    if part.lanes > 1:
        update.split(ri, ri, rm, part.lanes)
    if part.across is not None:
        update.split(part.across, rc, rd, FOLD // 2).fuse(ri, rd, rt)
        ri = rt
    update.split(ri, ra, rb, groups)
    own = (part.own, *(a for a in func.args() if a.name() != part.own.name()))
    near = None
    if part.lanes > 1:
        near = update.rfactors((ra, u), (rb, w), (rm, t))
        near.bound_extent(t, part.lanes).vectorize(t).update(0).vectorize(t)
    each = func.update(0).rfactors((ra, u), (rb, w))
    half = func.update(0).rfactor(rb, w)
    met = each.in_(half)
    met.compute_at(reader, block).store_in(GPU_SHARED)
    met.reorder(w, u, *own).reorder_storage(w, u, *own).gpu_threads(w, u, part.own)
    each.compute_at(met, w)
    if near is not None:
        near.compute_at(met, w)
    joined = half.in_(func)
    joined.compute_at(reader, block).store_in(GPU_SHARED)
    joined.reorder(w, *own).reorder_storage(w, *own).gpu_threads(w, part.own)
    half.compute_at(joined, w)
    if not part.shared:
        func.compute_at(reader, thread)
        return
    found = func.in_()
    found.compute_at(reader, block).store_in(GPU_SHARED).gpu_threads(part.own)
    func.compute_at(found, part.own)


def threads_of(
    extent: int | None,
    lanes: int,
    most: int = MOST,
    bytes_: int = SHARE // ELEMENTS,
    *,
    stored: bool = True,
    once: bool = False,
) -> int:
    """Those of a row, ``bytes_`` of whose arrays belong to an element: each loads some vectors,
    which it keeps (``lowering.whole_rows``), so that threads seldom meet. Those of short rows are
    few of a warp, of long ones ``most``; but where nothing of the row is ``stored``, and half of
    these can keep it, another block loads a row while one adds up. A row that is swept ``once`` is
    a warp's if that can keep it: nothing is kept but what is loaded.
    """
    if extent is None:
        return UNKNOWN
    fewest = FEWEST if lanes > 1 else LANES
    each = min(ELEMENTS, max(FEWER, SHARE // bytes_)) if lanes > 1 else SINGLE
    threads = power_of_two(-(-extent // each))
    if lanes > 1 and threads < LANES:
        each = FEWER
        threads = min(LANES, power_of_two(-(-extent // each)))
    if lanes > 1 and threads > LANES:  # half as many where a fifth would have nothing to do
        turns, half = (-(-extent // (n * lanes)) for n in (threads, threads // 2))
        idle = 5 * turns * threads * lanes > 6 * extent
        warp = once and threads == 2 * LANES and 2 * extent * bytes_ <= 3 * LANES * SHARE
        threads //= 2 if (idle or warp) and 2 * half * lanes <= 3 * each else 1
    if not stored and threads > EACH and extent * bytes_ <= EACH * BYTES:
        threads = EACH
    return min(most, max(fewest, threads))


def most_threads(rows: int, multiprocessors: int) -> int:
    """Those of a row: where there are fewer rows than multiprocessors, a cluster of blocks has
    one.
    """
    blocks = min(BLOCKS, multiprocessors // max(rows, 1))
    return max(MOST, EACH << max(blocks, 1).bit_length() - 1)


def in_parts(
    script: Script, func: Recorded, along: int, sizes: Sequence[int | None], lanes: int
) -> Any:
    """A kernel that adds up parts of a sweep; the variable that is left of it, along memory.
    ``sizes``: of the dimensions of its domain, where they are known.
    """
    rvars, lengths = list(func.rvars(0)), [n or CHUNK for n in sizes]
    line = rvars.pop(along)
    del lengths[along]
    rv, rl = script.rvars("rv", "rl")
    update = func.update(0)
    if rvars:
        update.split(rvars[lengths.index(max(lengths))], rv, rl, FOLD)
        _stored_parts(script, func, rv, line, rl, lanes)
    else:
        update.split(line, rv, rl, CHUNK)
        _stored_parts(script, func, rv, rl, None, lanes)
    return rv


def joined(script: Script, func: Recorded, parts: Any) -> Grid:
    """Parts of one number, added up by a block."""
    ro, ri = script.rvars("rp", "rq")
    func.update(0).split(parts, ro, ri, CHUNK)
    grid = _stored_parts(script, func, ro, ri)
    func.compute_root().gpu_single_thread()
    func.update(0).gpu_single_thread()
    return grid


def _stored_parts(
    script: Script, func: Recorded, by: Any, along: Any, across: Any = None, lanes: int = 1
) -> Grid:
    """Those for each value of the variable ``by``, by a block each."""
    (v,) = script.variables("v")
    parts = func.update(0).rfactor(by, v)
    stored = parts.in_()
    own = func.args()
    if own:
        stored.reorder_storage(v, *own)
    return by_blocks(
        script, stored, (v, *own), (), [Part(parts, v, along, across, lanes=lanes)], LINE
    )


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns as they are computed at a block: ``func``, side by side along ``x``, the variable
    ``along`` them; ``below``: threads one below the other.
    """

    func: Recorded
    x: Any
    along: Any
    below: int = WARPS


def columns(
    script: Script,
    reader: Recorded,
    x: Any,
    found: Sequence[Columns],
    lanes: int,
    wide: int | None = None,
) -> Grid:
    """A kernel whose blocks compute neighbours of ``reader`` along ``x``, ``lanes`` by each of so
    many threads side by side (``wide``), and what is ``found`` at them.
    """
    below = max(c.below for c in found)
    wide = wide or (NARROW if below == DEEP else LANES)
    xo, xi, xl = script.variables("xo", "xi", "xl")
    outer = [a for a in reader.args() if a.name() != x.name()]
    inner = vectors(script, reader.compute_root(), x, wide, lanes)
    z = fused(script, reader, outer, most=2)
    reader.reorder(*inner, xi, xo, *z).gpu_blocks(xo, *z).gpu_threads(xi)
    for c in found:
        ro, ri = script.rvars("ro", "ri")
        (u,) = script.variables("u")
        c.func.update(0).split(c.along, ro, ri, c.below)
        each = c.func.update(0).rfactor(ri, u)
        met = each.in_(c.func)
        own = [a for a in c.func.args() if a.name() != c.x.name()]
        met.compute_at(reader, xo).store_in(GPU_SHARED)
        thread = c.x
        if lanes > 1:
            met.split(c.x, xi, xl, lanes).vectorize(xl)
            thread = xi
            for func, reduced in ((each, each.rvars(0)), (c.func, (ri,))):
                func.vectorize(c.x).update(0).reorder(c.x, *reduced).vectorize(c.x)
        met.reorder(*inner, thread, u, *own).gpu_threads(thread, u)
        each.compute_at(met, thread)
        c.func.compute_at(reader, xi)
    return Grid(text=f"{wide * lanes} columns a block, {below} threads each")


def columns_in_parts(
    script: Script,
    func: Recorded,
    x: Any,
    along: int,
    height: int | None,
    lanes: int,
    width: int,
    told: int,
) -> Columns:
    """A kernel that adds up parts of about so many columns (``width``), if they may be high, and
    are about so high as far as is ``told``; what is left of them.
    """
    rvars = list(func.rvars(0))
    line = rvars.pop(along)
    if not rvars and (height or HEIGHT + 1) <= HEIGHT:
        return Columns(func, x, line)
    rv, rl = script.rvars("rv", "rl")
    update = func.update(0)
    if rvars:
        (rv,) = fused(script, update, rvars)
    else:
        update.split(line, rv, rl, HEIGHT)
        line = rl
    (v,) = script.variables("v")
    parts = update.rfactor(rv, v)
    wide = min(LANES, max(WARPS, power_of_two(-(-width // lanes))))
    found = Columns(parts, x, line, WARPS * LANES // wide)
    columns(script, parts.in_(), x, [found], lanes, wide)
    many = told > TURNS * JOINED * HEIGHT
    few = power_of_two(-(-told // HEIGHT)) if told and not rvars else JOINED
    return Columns(func, x, rv, DEEP if many else min(JOINED, few))
