"""Chains of stencils that one kernel can compute: a thread goes down the rows of its columns, and
the rows of each stage that are still read stay in its registers.

    dx[x, y] = a[x + 1, y] - a[x - 1, y]         for y: row of a, row of dx (and two before it),
    out[x, y] = dx[x, y - 1] + dx[x, y + 1]             row of out

Neighbours along the first dimension are computed by each thread that reads them, so that threads
need not meet; those down the second one once. Decided from what is read where, as ``facts`` does,
and from how many registers that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from math import prod

from halide_bridge.schedules.lanes import lanes_of
from halide_bridge.schedules.recognise.costs import (
    LOAD,
    MULTIPLY_ADD,
    distinct,
    operations,
    written,
)
from halide_bridge.schedules.recognise.facts import STORED, UNKNOWN, Place, Placement
from halide_bridge.schedules.recognise.program import (
    Access,
    Member,
    Program,
    Reduced,
    accesses,
    number,
)
from halide_bridge.schedules.recognise.reuse import read_of, variables_of
from selector.dataclass import dataclass
from selector.ir.nodes import Expr
from selector.ir.traverse import free_vars

REGISTERS = 112  # of a thread for rows that are still read
TEXT = 900  # multiply-adds that a turn of a thread's loop is as long as: of more, NVRTC takes long
TERMS = 64  # of a sum at most
FEW_ROWS = 3  # of what is in memory that a stage reads
MOST = 8  # neighbours of a thread
FEWEST = 4  # and at least
BYTE = 8  # operations that a GPU is through with while a byte comes from memory, or goes there
LONGEST = 32  # rows of a thread
KERNEL, CHAIN = 20, 64  # operations that one takes for an element besides its own, and a chain does

Beside = tuple[tuple[int, int], ...]
Storing = Callable[[set[str]], Placement]


@dataclass(frozen=True, slots=True)
class Span:
    """Which elements of a Func a thread reads for one of its results, from the first ``left`` to
    the last ``right`` along the first dimension, from ``above`` to ``below`` along the second, how
    many rows of it are read at a time, and whether ``several`` elements are by one reader.
    """

    left: int = 0
    right: int = 0
    above: int = 0
    below: int = 0
    rows: int = 1
    several: bool = False

    def width(self, lanes: int) -> int:
        return lanes + self.right - self.left

    def registers(self, lanes: int) -> int:
        """Of a thread from row to row; what is read in the turn that makes it has some anyway."""
        return self.rows * self.width(lanes) if self.rows > 1 else 0


@dataclass(frozen=True, slots=True)
class Slide:
    """A chain by its stages, producers first, the last of which stores the results of a kernel with
    ``lanes`` neighbours a thread; the stages have its first ``dims`` dimensions. ``loaded``: what
    else rows of stay in registers, of what other kernels store, and who reads it.
    """

    spans: Mapping[str, Span]
    lanes: int
    dims: int
    loaded: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def stages(self) -> tuple[str, ...]:
        """All but the last one."""
        return tuple(self.spans)[:-1]

    @property
    def registers(self) -> int:
        """Of a thread, for rows."""
        return sum(span.registers(self.lanes) for span in self.spans.values())

    @property
    def before(self) -> int:
        """Rows that a thread computes before its first result."""
        return max(s.below - s.above for s in self.spans.values())


def chain_of(
    member: Member,
    placement: Placement,
    storing: Storing,
    others: Set[str],
    windows: Mapping[str, int],
) -> tuple[Slide, set[str]] | None:
    """The longest chain that ends with a Func, and the labels of those of its stages that are
    inside of others otherwise; None if there is none. ``storing``: the placement if some Funcs are
    not inside others; ``others``: labels of what is computed in another way; ``windows``: terms of
    those that add up rows for a chain, by the names of these.
    """
    if not _is_stage(member, placement, others) or placement.places[member.name] is Place.THREAD:
        return None
    if len(member.args) < 2:
        return None
    body = placement.bodies[member.name][-1]
    lanes = min(MOST, lanes_of(body, member.args[0], member.types[0].bytes))
    arities = {len(m.args) for m in placement.program if 2 <= len(m.args) <= len(member.args)}
    while lanes >= FEWEST:
        for dims in sorted(arities, reverse=True):
            found = _chain(member, placement, storing, _Form(lanes, dims, frozenset(others)))
            if found is not None and _is_worth(found[0], placement, windows):
                # only then does the length of rows decide
                return None if _is_narrow(member, placement) else found
        lanes //= 2
    return None


def _is_worth(slide: Slide, placement: Placement, windows: Mapping[str, int]) -> bool:
    """Whether a chain takes fewer operations for a result, with those that neighbours repeat, than
    kernels that load and store each of its stages, and add up ``windows`` without rows.
    """
    moved = computed = chained = 0.0
    for name, span in slide.spans.items():
        member = placement.program.members[name]
        if placement.places[name] is Place.KERNEL and name not in windows:
            moved += 2 * BYTE * member.types[0].bytes + KERNEL
        for body in placement.bodies.get(name, ()):
            turns = _terms(member) if body.stage.number else 1
            loads = {a for e in body.values for a in accesses(e)}
            others = [a.func for a in loads if a.func != name]
            alone = distinct(*body.values) - LOAD * len(loads)
            chained += turns * alone * span.width(slide.lanes) / slide.lanes
            if windows.keys().isdisjoint(others):
                computed += windows.get(name, turns) * (alone + LOAD * len(others))
    return (CHAIN + chained) * (1 + slide.before / LONGEST) < max(moved, computed)


def _is_narrow(member: Member, placement: Placement) -> bool:
    """Whether rows are told to be so short that most threads of a warp were idle."""
    return (placement.extent(member.name, 0) or placement.about(member.name, 0)) < UNKNOWN


@dataclass(frozen=True, slots=True)
class _Form:
    """Of a chain: neighbours of a thread, dimensions of the stages, and what is no stage."""

    lanes: int
    dims: int
    others: frozenset[str]


def _chain(
    member: Member, placement: Placement, storing: Storing, form: _Form
) -> tuple[Slide, set[str]] | None:
    while True:
        slide = _slide_of(member, placement, form)
        if slide is None:
            return None
        slide, labels, stored = _with_sources(slide, member, placement, storing, form)
        slide, stored = _with_loads(slide, stored, storing, labels)
        members = [stored.program.members[name] for name in slide.spans]
        lacking = {m.label for m in members if not _has_rows(m, slide, stored)}
        if not lacking:
            return slide, labels
        if member.label in lacking:
            return None
        form = replace(form, others=form.others | lacking)


def _slide_of(member: Member, placement: Placement, form: _Form) -> Slide | None:
    spans = _spans(member, placement, form)
    if all(placement.places[name] is not Place.KERNEL for name in spans if name != member.name):
        return None
    order = (m.name for m in placement.program)
    return Slide({name: spans[name] for name in order if name in spans}, form.lanes, form.dims)


def _is_stage(member: Member, placement: Placement, others: Set[str]) -> bool:
    """Whether a Func is one value, or one sum of few terms, that is computed by threads."""
    own = placement.places[member.name] in (Place.KERNEL, Place.THREAD)
    plain = len(member.types) == 1 and not member.bounds and member.label not in others
    return own and plain and (member.pure or _terms(member) > 0)


def _terms(member: Member) -> int:
    """How many terms a sum has, each at a time; 0 for what is none, or one of many."""
    if not member.reduction or len(member.stages) != 2 or member.stages[1].predicate is not None:
        return 0
    extents = [number(r.extent) for r in member.stages[1].reduced]
    terms = 0 if None in extents else prod(n or 0 for n in extents)
    return terms if terms <= TERMS else 0


def _cost(member: Member, placement: Placement) -> tuple[int, int]:
    """Operations of one element where what it reads is in registers, and how many multiply-adds
    their text is as long as.
    """
    again = text = 0
    for body in placement.bodies.get(member.name, ()):  # none of what is inside of others
        turns = _terms(member) if body.stage.number else 1
        operated = turns * sum(map(_arithmetic, body.values))
        again += operated
        text += max(operated // MULTIPLY_ADD, sum(map(written, body.values)))
    return again, text


def _arithmetic(e: Expr) -> int:
    return operations(e) - LOAD * sum(1 for _ in accesses(e))


def _spans(member: Member, placement: Placement, form: _Form) -> Mapping[str, Span]:
    lanes, program, spans = form.lanes, placement.program, {member.name: Span()}
    left, text = REGISTERS, lanes * _cost(member, placement)[1]
    for stage in reversed([*program]):
        own = stage.name not in program.outputs and _is_stage(stage, placement, form.others)
        span = _span(stage, spans, placement) if own and len(stage.args) == form.dims else None
        if span is None:
            continue
        wide, (again, longer) = span.width(lanes), _cost(stage, placement)
        longer = text + wide * longer
        kept = span.registers(lanes)
        if again * (wide / lanes - 1) <= STORED and kept <= left and longer <= TEXT:
            spans[stage.name] = span
            left -= kept
            text = longer
    return spans


def _span(
    stage: Member, spans: Mapping[str, Span], placement: Placement, *, alone: bool = True
) -> Span | None:
    """What is read of a stage; None if not all of it is beside results of the chain, or if others
    read it, too (``alone``).
    """
    members, found = placement.program.members, list[tuple[Span, Beside]]()
    for name, bodies in placement.bodies.items():
        for body in bodies:
            for access in body.reads():
                if access.func == stage.name and name != stage.name and (alone or name in spans):
                    far = _beside(access, members[name], body.stage.reduced)
                    if name not in spans or far is None or any(n != (0, 0) for n in far[2:]):
                        return None
                    found.append((spans[name], far))
    if not found:
        return None
    first = [own.below + far[1][0] for own, far in found]  # of the last row that a reader has
    last = [own.below + far[1][1] for own, far in found]
    return Span(
        min(own.left + far[0][0] for own, far in found),
        max(own.right + far[0][1] for own, far in found),
        min(own.above + far[1][0] for own, far in found),
        max(last),
        max(last) - min(first) + 1,
        len({(own, far) for own, far in found}) > len({own for own, _ in found})
        or any(low < high for _, far in found for low, high in far),
    )


def _beside(access: Access, reader: Member, reduced: Sequence[Reduced]) -> Beside | None:
    """How far from the reader's own element an access is along each dimension, at least and at
    most; None if that is not the same for all elements.
    """
    read, found = read_of(access, variables_of(reader, reduced)), list[tuple[int, int]]()
    if read is None or len(read.indices) > len(reader.args):
        return None
    extents = {r.name: n for r in reduced if (n := number(r.extent)) is not None}
    for index, arg in zip(read.indices, reader.args, strict=False):
        moves = index.factors.keys() - extents.keys()
        if index.rest.constant is None or moves != {arg} or index.factors[arg] != 1:
            return None
        low = index.rest.constant + index.low(extents)
        found.append((low, low + index.reach(extents)))
    return tuple(found)


def _with_sources(
    slide: Slide, member: Member, placement: Placement, storing: Storing, form: _Form
) -> tuple[Slide, set[str], Placement]:
    """The chain with what is computed inside of its stages, too, so that it stays in registers: an
    element of an image, at its borders another one maybe, whatever is read at several places. The
    labels of that, and the placement.
    """
    labels, stored, program = set[str](), placement, placement.program
    for source in reversed([*program]):
        inside = placement.places[source.name] is Place.INSIDE and source.pure
        several = inside and len(source.args) == slide.dims and _several(source, program)
        if several and slide.spans.keys() >= set(_kernels(source, placement)):
            own = {*labels, source.label}
            more = storing(own)
            # What is as cheap inside of others then stays a stage, whose rows cost nothing.
            stages = (program.members[name] for name in slide.spans)
            left = {m.label for m in stages if more.places[m.name] is Place.INSIDE}
            if left:
                own |= left
                more = storing(own)
            found = _slide_of(member, more, form)
            wanted = {*slide.spans, source.name}
            same = found is not None and {*found.spans} == wanted
            if found and same and found.spans[source.name].several:
                slide, stored, labels = found, more, own
    return slide, labels, stored


def _with_loads(
    slide: Slide, placement: Placement, storing: Storing, labels: set[str]
) -> tuple[Slide, Placement]:
    """The chain with elements in registers of what other kernels store, or have inside of them,
    too; and the placement where those are no part of the stages.
    """
    program, loaded = placement.program, dict[str, tuple[str, ...]]()
    left, apart = REGISTERS - slide.registers, {*labels}
    for source in reversed([*program]):
        own = source.name in slide.spans or len(source.args) != slide.dims or not source.pure
        if own or not _several(source, program):
            continue
        readers = _callers(source, slide, placement)
        more = placement
        if readers and placement.places[source.name] is Place.INSIDE:
            more = storing({*apart, source.label})
            if not slide.spans.keys() <= more.bodies.keys():  # some are inside others then
                continue
        span = _span(source, slide.spans, more, alone=False)
        fits = span is not None and span.registers(slide.lanes) <= left
        if span and fits and span.several and readers and len(source.types) == 1:
            left -= span.registers(slide.lanes)
            loaded[source.name] = readers
            if more is not placement:
                placement = more
                apart.add(source.label)
    return replace(slide, loaded=loaded), placement


def _several(source: Member, program: Program) -> bool:
    """Whether a Func reads several elements of another one in its own definition."""
    for reader in program.readers(source):
        read = {a.indices for a in reader.accesses() if a.func == source.name}
        named = frozenset[str]().union(*(free_vars(i) for indices in read for i in indices))
        if len(read) > 1 or named - {*reader.args}:
            return True
    return False


def _callers(source: Member, slide: Slide, placement: Placement) -> tuple[str, ...]:
    """Those that read something for the chain, in their own definitions; none if one of them is
    computed inside of others, too.
    """
    found = list[str]()
    for reader in placement.program.readers(source):
        kernels = set(_kernels(reader, placement))
        if kernels & slide.spans.keys():
            if not kernels <= slide.spans.keys():
                return ()
            found.append(reader.name)
    return tuple(found)


def _kernels(member: Member, placement: Placement) -> Iterator[str]:
    """Where a Func is computed: itself, or those that it is inside of."""
    if placement.places[member.name] is not Place.INSIDE:
        yield member.name
        return
    for reader in placement.program.readers(member):
        yield from _kernels(reader, placement)


def _has_rows(member: Member, slide: Slide, placement: Placement) -> bool:
    """Whether what a stage reads of several rows is in registers, and so are its sums: of windows
    over what is in memory other ways to compute them share more.
    """
    if not {m.name for m in placement.at_threads_of(member)} <= slide.spans.keys():
        return False
    rows, kept = dict[str, set[Expr]](), {member.name, *slide.spans, *slide.loaded}
    for body in placement.bodies[member.name]:
        reduced = {r.name for r in body.stage.reduced}
        for access in body.reads():
            named = frozenset[str]().union(*map(free_vars, access.indices))
            if access.func not in kept and named - reduced:
                if named & reduced:
                    return False
                rows.setdefault(access.func, set()).update(access.indices[1:2])
    return all(len(found) <= FEW_ROWS for found in rows.values())
