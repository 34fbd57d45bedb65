"""The schedule of sums whose factors are read again for neighbouring results (``recognise.reuse``):
blocks of threads, each with a tile of sums in its registers.

What a tile reads is staged in shared memory by all threads of the block, for a run of the sum at a
time where it is too long to be staged as a whole. What reads the sums' elements stores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from halide_bridge.schedules.asked import clone, pipeline_stages, resident_blocks
from halide_bridge.schedules.boxes import Box, Part, boxes_of, lengths_of
from halide_bridge.schedules.kernels import Grid, aligned, fused
from halide_bridge.schedules.recognise.costs import written
from halide_bridge.schedules.recognise.facts import Place, Placement
from halide_bridge.schedules.recognise.program import Member
from halide_bridge.schedules.recognise.reuse import Read, Reuse
from halide_bridge.schedules.recognise.rows import associative
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.rows import JOINED, Columns, columns
from halide_bridge.schedules.sizes import Guess, is_argument
from halide_bridge.stock import GPU_SHARED, REGISTER
from selector.dataclass import dataclass
from selector.families.blocks import RUN, RUN_OF_TERMS, Factor, Sums, Tile, ranked
from selector.machine import Machine

LARGEST = 64 << 10  # bytes of shared memory that leave room for other blocks
REGISTER_BYTES = 4
AHEAD = 2  # runs of a sum in shared memory: one that is used, one that is copied


@dataclass(frozen=True, slots=True)
class Blocks:
    """A tile for a sum. ``runs``: variables of which a run is staged at a time, and how long those
    are, at each value of the others of unknown extent. ``staged``: what is read, and the box of it
    that runs read. ``work``: of a term, in multiply-adds.
    ``anywhere``: tiles begin where the first element is, be that a multiple of vectors or not.
    ``part``: a variable of which a block adds up so many terms, where others add up what blocks
    have. ``ahead``: runs in shared memory, one that is used, others that are copied.
    """

    reuse: Reuse
    tile: Tile
    runs: Mapping[str, int]
    staged: Sequence[tuple[Part, Box]]
    work: int
    anywhere: bool
    part: tuple[str, int] | None
    ahead: int

    @property
    def around(self) -> tuple[str, ...]:
        """The other variables of unknown extent."""
        return tuple(r for r, e in self.reuse.reduced.items() if e is None and r not in self.runs)

    def steps_along(self, part: Part, d: int) -> bool:
        """Whether runs follow each other along a dimension of what is read: Halide does not know
        where they end then.
        """
        steps = {*self.around, *self.runs} if self.runs else set[str]()
        return any(steps & r.indices[d].factors.keys() for r in part.reads)

    def strays(self, part: Part, d: int, run: int, args: Sequence[str]) -> bool:
        """Whether tiles begin at other elements of a ``run`` along a dimension of what is read: one
        tile after the other, or along dimensions (of ``args``) that blocks have one of.
        """
        dims = [args[i] for i in (self.reuse.n, self.reuse.m) if i is not None]
        steps = dict(zip(dims, self.tile.extents, strict=False))
        indices = [r.indices[d].factors.items() for r in part.reads]
        return any(f * steps.get(v, 1) % run for i in indices for v, f in i if v in args)


def blocks_for(
    reuse: Reuse, member: Member, reader: Member | None, order: Sequence[int],
    placement: Placement, known: Guess, machine: Machine,
) -> Blocks | None:  # fmt: skip
    """The tile that is done first, along the dimension for which that holds; None where what a tile
    reads does not fit into shared memory. ``reader``: who makes something of the sums, in that
    ``order`` of its dimensions.
    """
    work = written(member.stages[1].values[0])
    lengths = {r.name: known.value(r.extent) for r in member.stages[1].reduced}
    longest = max(lengths.values()) if associative(member) else 0  # that may be cut into parts
    bodies = placement.bodies[reader.name] if reader else ()
    last = sum(written(value) for body in bodies for value in body.values)
    ranks = [
        (clocks, r, tile, parts)
        for r in reuse.alternatives
        for clocks, tile, parts in ranked(
            _sums(r, member, (work, last), known, lengths),
            machine,
            flat=r.m is None,
            longest=longest,
        )
    ]
    ranks.sort(key=lambda rank: rank[0])
    width = {r.func: placement.program.members[r.func].types[0].bytes for r in reuse.reads}
    run = max(_run(name, placement) for name in width)
    for every in _runs(reuse, lengths):
        for (_, found, tile, parts), runs in product(ranks, every):
            anywhere = _gains_tiles(reader or member, order[found.n], tile, run, known)
            staged = boxes_of(found, tile, runs, member, anywhere=anywhere)
            if staged is None:
                break
            ahead = AHEAD if any(k < lengths[r] for r, k in runs.items()) else 1
            boxes = ((width[part.func], box) for part, box in staged if part.kept)
            taken = sum(bytes_ * prod(box.extents) for bytes_, box in boxes)
            if taken * ahead <= LARGEST:
                part = _part(runs, parts, lengths)
                return Blocks(found, tile, runs, staged, work, anywhere, part, ahead)
    return None


def _part(
    runs: Mapping[str, int], parts: int, lengths: Mapping[str, int]
) -> tuple[str, int] | None:
    """Of the longest variable of which a run is staged at a time, for about so many parts."""
    if not runs or parts == 1:
        return None
    length, name, run = max((lengths[r], r, k) for r, k in runs.items())
    return (name, -(-length // (parts * run)) * run) if length > run * parts else None


def _gains_tiles(kept: Member, n: int, tile: Tile, run: int, known: Guess) -> bool:
    """Whether there are more tiles if the first one begins at a multiple of ``run``, before the
    first element of what is ``kept``. (It begins where readers say, if that is before.)
    """
    before, extent, each = (kept.first(n) or 0) % run, known.extent(kept, n), tile.extents[0]
    return -(-(before + extent) // each) > -(-extent // each)


def _runs(reuse: Reuse, lengths: Mapping[str, int]) -> Iterator[Sequence[Mapping[str, int]]]:
    """What is staged at a time: all, where that is told to be little, or else a run of a variable,
    the outermost one first.
    """
    unknown = [r for r, e in reuse.reduced.items() if e is None]
    if unknown:
        told = {r: lengths[r] for r in unknown if 1 < lengths[r] <= RUN_OF_TERMS}
        if len(told) == len(unknown):
            yield [told]
        first = next((r for r in unknown if r not in told), unknown[0])
        yield [{first: k} for k in (RUN_OF_TERMS, RUN_OF_TERMS // 4, 1)]
        return
    windowed = {
        r for read in reuse.reads for i in read.indices for r in i.factors if len(i.factors) > 1
    }
    plain = [r for r in [*reuse.reduced][::-1] if r not in windowed]
    runs = [
        [{r: k} for k in range(RUN_OF_TERMS, 0, -1) if (reuse.reduced[r] or 1) % k == 0]
        for r in (*plain, *(r for r in reuse.reduced if r in windowed))
    ]
    if not plain or (reuse.terms or 0) <= RUN_OF_TERMS:
        yield [{}]
    yield from runs


def _slides(read: Read, reuse: Reuse) -> bool:
    """Whether a result reads neighbours of what those beside it read."""
    return any(len(i.factors.keys() & reuse.reduced.keys()) < len(i.factors) > 1
               for i in read.indices)  # fmt: skip


def _served(read: Read, names: Sequence[str], lengths: Mapping[str, int | None]) -> int:
    """Terms for which a block reads an element: those along variables that move in an index as the
    dimensions of a tile do, or in none.
    """
    apart = {r for i in read.indices if i.factors.keys().isdisjoint(names) for r in i.factors}
    return prod(e or 1 for r, e in lengths.items() if r not in apart)


def _around(read: Read, arg: str, lengths: Mapping[str, int | None]) -> int:
    """Elements that a tile reads beyond as many as it has results along a dimension."""
    known = {r: e or 1 for r, e in lengths.items()}
    return max((i.reach(known) for i in read.indices if arg in i.factors), default=0)


def _singly(read: Read, names: Sequence[str], lengths: Mapping[str, int | None]) -> bool:
    """Whether elements are brought one by one: those that lie the other way round, and rows that
    are no whole runs.
    """
    if _along([read], names[0]):
        return True
    inner = read.indices[0]
    row = inner.reach({v: e or 1 for v, e in lengths.items()}) + 1
    return inner.factors.keys().isdisjoint(names) and row % RUN != 0


def _sums(
    reuse: Reuse, member: Member, work: tuple[int, int], known: Guess, told: Mapping[str, int]
) -> Sums:
    extents = [known.extent(member, d) for d in range(len(member.args))]
    m = 1 if reuse.m is None else extents[reuse.m]
    terms = prod(max(1, n) for n in told.values())
    names = [member.args[d] for d in (reuse.n, reuse.m) if d is not None]
    first, *_ = next(_runs(reuse, told)) if None in reuse.reduced.values() else ({},)
    lengths = lengths_of(reuse, first)
    factors = tuple(
        Factor(
            r.follows(names[0]),
            r.follows(names[-1]) and len(names) > 1,
            _slides(r, reuse),
            _served(r, names, lengths),
            (_around(r, names[0], lengths), _around(r, names[-1], lengths)),
            _singly(r, names, lengths),
        )
        for r in reuse.reads
    )
    others = prod(extents) // max(1, extents[reuse.n] * m)
    registers = -(-member.types[0].bytes // REGISTER_BYTES)
    return Sums(extents[reuse.n], m, others, terms, factors, _inner(lengths), *work, registers)


def _inner(lengths: Mapping[str, int | None]) -> tuple[int, int]:
    """Lengths of the two inner loops of a thread."""
    first, second, *_ = (*(e for e in lengths.values() if e), 1, 1)
    return first, second


def by_blocks(
    script: Script,
    blocks: Blocks,
    member: Member,
    reader: Member | None,
    order: Sequence[int],
    placement: Placement,
) -> Grid:
    """The directives. ``reader``: of the sums where it is computed itself, its dimensions in that
    ``order``; None: they are stored as they are.
    """
    func, kept = script.func(member.label, member.handle), reader or member
    stored = func.in_() if reader is None else script.func(reader.label, reader.handle)
    loops = dict(zip(blocks.reuse.reduced, func.rvars(0), strict=True))
    if blocks.part is None:
        _tiles(script, blocks, member, func, stored, loops, kept, order, placement)
    else:
        (name, terms), n = blocks.part, blocks.reuse.n
        rv, rl = script.rvars("rv", "rl")
        func.update(0).split(loops[name], rv, rl, terms)
        parts, own = func.update(0).rfactor(rv, *script.variables("v")), range(len(order))
        _tiles(
            script, blocks, member, parts, parts.in_(), {**loops, name: rl}, member, own, placement
        )
        found = Columns(func, func.args()[n], rv, JOINED)
        columns(script, stored, stored.args()[order[n]], [found], 1)
    tile, part = blocks.tile, f", in parts of {blocks.part[1]} terms" if blocks.part else ""
    text = f"{tile.lanes} x {tile.rows} threads, {tile.n} x {tile.m} sums each{part}"
    return Grid(text=text)


def _tiles(
    script: Script,
    blocks: Blocks,
    member: Member,
    func: Recorded,
    stored: Recorded,
    loops: dict[str, Any],
    kept: Member,
    order: Sequence[int],
    placement: Placement,
) -> None:
    """Tiles of sums (``func``) in registers, and of what is ``kept`` of them (``stored``)."""
    reuse, tile, n = blocks.reuse, blocks.tile, order[blocks.reuse.n]
    dims = [d for d in (reuse.n, reuse.m) if d is not None]
    run = max(_run(part.func, placement) for part, _ in blocks.staged)
    begin = kept.first(n)
    if begin is None or (begin % run and not blocks.anywhere):
        aligned(stored, stored.args()[n], run)
    block = _spread(script, stored, tile, [order[d] for d in dims])
    args = func.args()
    func.compute_at(stored, block).store_in(REGISTER)
    for d, arg in enumerate(args):
        func.bound_extent(arg, dict(zip(dims, tile.extents, strict=False)).get(d, 1))
    _threads(script, func, tile, [args[d] for d in dims], ())
    update, outer = func.update(0), list[Any]()
    for number, (name, k) in enumerate(blocks.runs.items()):
        ko, ki = script.rvars(*(f"{x}{number or ''}" for x in ("ko", "ki")))
        update.split(loops[name], ko, ki, k)
        loops[name] = ki
        outer.append(ko)
    outer += [loops.pop(r) for r in blocks.around]
    inner = list(loops.values())
    unrolled = _written_out(script, update, blocks, inner)
    _threads(script, update, tile, [args[d] for d in dims], (*inner, None, *outer))
    if unrolled is not None:
        update.unroll(unrolled)
    for part, box in blocks.staged:
        at = (func, outer[0]) if outer else (stored, block)
        _stage(script, part, box, blocks, func, at, placement, member)
    if tile.resident > 1:
        resident_blocks(stored, tile.resident)


def _spread(script: Script, stored: Recorded, tile: Tile, dims: list[int]) -> Any:
    """Give each block its tile, and each thread its part of it; the innermost block loop."""
    stored.compute_root()
    args = stored.args()
    no, ni, mo, mi = script.variables("no", "ni", "mo", "mi")
    n, *m = (args[d] for d in dims)
    stored.split(n, no, ni, tile.extents[0])
    inner, grid = [ni], [no]
    for y in m:
        stored.split(y, mo, mi, tile.extents[1])
        inner, grid = [ni, mi], [no, mo]
    grid += fused(script, stored, [a for d, a in enumerate(args) if d not in dims])
    _threads(script, stored, tile, inner, (None, *grid))
    stored.gpu_blocks(*grid)
    return no


def _threads(
    script: Script, stage: Recorded, tile: Tile, dims: Sequence[Any], around: Sequence[Any]
) -> None:
    """Cut a tile into the parts of threads; ``around``: loops around a part, innermost first, and
    None where those over the threads are.
    """
    nt, nv, mt, mv = script.variables("nt", "nv", "mt", "mv")
    n, *m = dims
    parts, threads = [nv], [nt]
    if tile.runs > 1:
        nu, nw = script.variables("nu", "nw")
        stage.split(n, nu, nw, tile.extents[0] // tile.runs)
        parts, n = [nv, nu], nw
    stage.split(n, nt, nv, RUN)
    for y in m:
        stage.split(y, mt, mv, tile.m)
        parts, threads = [*parts, mv], [nt, mt]
    loops = list(around or (None,))
    at = loops.index(None)
    stage.reorder(*parts, *loops[:at], *threads, *loops[at + 1 :]).vectorize(nv)
    for part in parts[1:]:
        stage.unroll(part)
    stage.gpu_threads(*threads)


def _written_out(script: Script, update: Recorded, blocks: Blocks, loops: list[Any]) -> Any:
    """Cut the second loop of a thread's part of a sum; the loop that is to be written out."""
    times = blocks.tile.written_out(_inner(lengths_of(blocks.reuse, blocks.runs)), blocks.work)
    if len(loops) < 2 or times == 1:
        return None
    so, si = script.rvars("so", "si")
    update.split(loops[1], so, si, times)
    loops[1:2] = [si, so]
    return si


def _stage(
    script: Script,
    part: Part,
    box: Box,
    blocks: Blocks,
    func: Recorded,
    at: tuple[Recorded, Any],
    placement: Placement,
    sums: Member,
) -> None:
    """Have what a block reads of a Func brought to shared memory."""
    member, n = placement.program.members[part.func], sums.args[blocks.reuse.n]
    source = script.func(member.label, member.handle).stored()
    own = part.dimension
    staged = source.in_(func) if own is None else clone(source, func, func.args()[own])
    if not part.kept:
        return
    args = staged.args()
    staged.compute_at(*at).store_in(GPU_SHARED)
    run, along = _run(part.func, placement), _along(part.reads, n)
    if along:  # what lies side by side in memory goes to different banks
        others = [a for d, a in enumerate(args) if d != along]
        staged.reorder_storage(args[along], *others)
        staged.align_storage(args[along], box.rounded(along, run) + run)
    for d, (arg, extent) in enumerate(zip(args, box.extents, strict=True)):
        whole_runs = d == along and len(args) > 1 and not blocks.strays(part, d, run, sums.args)
        staged.bound_extent(arg, box.rounded(d, run) if whole_runs else extent)
        first = box.first[d]
        aside = first is None or first % run != 0
        if whole_runs and aside and not blocks.steps_along(part, d):
            staged.align_bounds(arg, run)
    whole = is_argument(member, placement.program)
    if blocks.ahead > 1 and (whole or placement.places[part.func] is not Place.INSIDE):
        pipeline_stages(staged, blocks.ahead)


def _run(func: str, placement: Placement) -> int:
    return max(1, 16 // placement.program.members[func].types[0].bytes)


def _along(reads: Sequence[Read], n: str) -> int:
    """The dimension along which threads read neighbours: the first one that ``n`` moves."""
    return next((d for r in reads for d, i in enumerate(r.indices) if n in i.factors), 0)
