"""Histograms, and other sums of which data choose the element: each thread of a block has a copy of
all elements in shared memory, which nobody else updates.

The copies of a block are added up when it is through with its part of the domain, and blocks' sums
as columns are (``rows``). Elements of a copy lie apart by one thread more than there are, so that
neither who updates them nor who adds them up meets in a bank. How many elements there are has to be
a number: where only an output's size would say it, the output has as many as the data can choose.
"""

from __future__ import annotations

from typing import Any

from halide_bridge.schedules.kernels import LANES, Grid, spread
from halide_bridge.schedules.recognise.facts import Placement
from halide_bridge.schedules.recognise.program import Member, Reduced, accesses, number
from halide_bridge.schedules.recognise.rows import SHORT
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.rows import CHUNK, FOLD, JOINED, Columns, columns
from halide_bridge.stock import GPU_SHARED
from selector.dataclass import dataclass
from selector.ir.nodes import Expr, IntImm
from selector.ir.simplify import simplify
from selector.ir.traverse import substitute

LARGEST = 68 << 10  # bytes of a block's copies: three blocks share a multiprocessor's memory
BATCH = 16  # elements whose places a thread loads at once


@dataclass(frozen=True, slots=True)
class Bins:
    """The elements of a Func: ``count`` of them from ``low`` on; ``threads`` that have copies.
    ``declared``: the user says how many there are; ``chosen``: only the data do; ``looked_up``:
    data choose which are read, too, so that Halide may not know how many are.
    """

    low: int
    count: int
    threads: int
    declared: bool
    chosen: bool
    looked_up: bool


def bins_of(member: Member, placement: Placement) -> Bins | None:
    """None where they are not known, or too many."""
    if len(member.args) != 1 or len(member.types) != 1:
        return None
    output = member.name in placement.program.outputs
    own = {f"{member.name}.extent.0": IntImm(0)} if output else dict[str, IntImm]()
    low, high = (None if e is None else _number(e, own) for e in member.region[0])
    if low is None or high is None:
        return None
    declared = member.bounds.get(member.args[0])
    count = high - low + 1 if declared is None else declared
    chosen = output and declared is None
    readers = (m for m in placement.program if m is not member)
    places = [a.indices[0] for m in readers for a in m.accesses() if a.func == member.name]
    looked_up = all(any(True for _ in accesses(at)) for at in places)
    for threads in (64, 32):
        if count * (threads + 1) * member.types[0].bytes <= LARGEST:
            return Bins(low, count, threads, declared is not None, chosen, looked_up)
    return None


def _number(e: Expr, own: dict[str, IntImm]) -> int | None:
    return number(simplify(substitute(e, own)))


def by_copies(script: Script, func: Recorded, bins: Bins, reduced: tuple[Reduced, ...]) -> Grid:
    """A kernel that adds up parts of the domain, and one that adds up those."""
    rvars, threads = list(func.rvars(0)), bins.threads
    sizes = [number(r.extent) or CHUNK for r in reduced]
    rv, rl, rs, rt, rb = script.rvars("rv", "rl", "rs", "rt", "rb")
    v, t, io, ii = script.variables("v", "t", "io", "ii")
    update = func.update(0)
    line = rvars.pop(along := next((i for i, n in enumerate(sizes) if n > SHORT), 0))
    del sizes[along]
    if rvars:
        split = sizes.index(max(sizes))
        update.split(rvars[split], rv, rl, FOLD)
        rvars[split] = rl
    else:
        update.split(line, rv, rl, CHUNK)
        line = rl
    parts = update.rfactor(rv, v)
    parts.update(0).split(line, rs, rt, threads)
    copies = parts.update(0).rfactor(rt, t)
    stored, (i, _) = parts.in_(), parts.args()
    stored.compute_root().split(i, io, ii, threads).reorder(ii, io, v)
    stored.gpu_blocks(v).gpu_threads(ii)
    parts.compute_at(stored, ii)
    copies.compute_at(stored, v).store_in(GPU_SHARED)
    copies.reorder_storage(t, i).align_storage(t, threads + 1).gpu_threads(t)
    each = copies.update(0).split(rs, rs, rb, BATCH)
    each.reorder(rb, rs, *rvars, t).unroll(rb).gpu_threads(t)
    (x,) = func.args()
    if bins.declared:
        _join(script, func, rv)
    else:
        out = func.in_()
        if bins.chosen:
            out.bound(x, bins.low, bins.count)
        elif bins.looked_up:
            out.bound(x, bins.low, -(-bins.count // LANES) * LANES)
        columns(script, out, x, [Columns(func, x, rv, JOINED)], 1)
    return Grid(text=f"a copy of its {bins.count} elements for each of {threads} threads a block")


def _join(script: Script, func: Recorded, blocks: Any) -> None:
    """Of what is computed in all its bounds, wherever it is, no part is at a block of another."""
    ro, ri = script.rvars("ro", "ri")
    (u,) = script.variables("u")
    parts = func.update(0).split(blocks, ro, ri, LANES).rfactor(ri, u)
    stored = parts.in_().compute_root()
    parts.compute_at(stored, spread(script, stored, stored.args()).inner)
    spread(script, func.compute_root(), func.args())
    spread(script, func.update(0), func.args())
