"""Attention in a plain pipeline: a product, its rows' largest elements, sums of powers that go down
from those, and the product of these powers with other values.

    scores[n, m] = sum over c of query[c, m] * key[c, n]
    peak[m] = max over n of s(scores[n, m])
    total[m] = sum over n of w(scores[n, m], peak[m])
    mixed[d, m] = sum over n of weight[n, m] * value[d, n]      weight = f16(w(...))

with as many dimensions of heads as there are, between channels and queries or behind them; keys and
values may be those of another head, found from the head alone. Whether the powers go down as they
have to, so that the three loops over n may be one, is for ``online`` to find out when the schedule
is tried.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from halide_bridge.schedules.attention import HEADS, Places
from halide_bridge.schedules.recognise.beside import (
    KEYS,
    blocks_of,
    matrices_of,
    own_axes,
    shared_path,
    sharing_of,
)
from halide_bridge.schedules.recognise.products import (
    element,
    factors,
    multiplied,
    starts_at_zero,
)
from halide_bridge.schedules.recognise.program import (
    Access,
    Member,
    Program,
    number,
)
from halide_bridge.schedules.recognise.reading import below, names_of, read, variables_of
from halide_bridge.schedules.recognise.rows import associative
from selector.dataclass import dataclass
from selector.ir.affine import to_affine
from selector.ir.nodes import Binary, BinaryOp, Compare, CompareOp, FloatImm
from selector.ir.traverse import free_vars, walk_expr
from selector.ir.types import FLOAT32, Type


@dataclass(frozen=True, slots=True)
class Online:
    """Funcs by name. ``depth``: channels of queries and keys; ``whole``: the user has said that
    values have as many; ``causal``: keys are compared with queries, so that some have fewer, with
    a ``window`` only so many of the last ones (0: all).
    ``paths``: from the peak and from the total to the scores, pure Funcs of which none is met
    twice. ``matrices``: arrays of 16 bits of keys, queries and heads that such a
    Func reads, with the Func and the dimension that goes along the queries. ``along``: which
    dimensions of the output those of the peak, the total and the sum of values go along.
    ``divisible``: parts of the keys may have sums of their own, as nothing but the scores says what
    a key weighs. ``blocks``: of so many keys and queries a number of an array says whether they
    count (0: there is none). ``sharing``: so many neighbouring heads have the same keys and values;
    ``heads``: the dimension of the output along these.
    """

    output: str
    mixed: str
    peak: str
    total: str
    weight: str
    scores: str
    query: str
    key: str
    value: str
    depth: int
    whole: bool
    causal: bool
    window: int
    paths: tuple[tuple[str, ...], tuple[str, ...]]
    places: Places
    along: tuple[tuple[int, ...], ...]
    divisible: bool
    matrices: tuple[tuple[str, str, int], ...] = ()
    blocks: tuple[int, int] = (0, 0)
    sharing: int = 1
    heads: int = 0
    between: tuple[str, ...] = ()

    @property
    def members(self) -> frozenset[str]:
        """Those that are computed in one loop."""
        return frozenset((self.mixed, self.peak, self.total, self.weight, self.scores))

    @property
    def inside(self) -> frozenset[str]:
        """Those and what is computed inside of them."""
        return self.members.union(*self.paths, self.between)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is computed in one loop, and who reads it."""

    output: Member
    mixed: Member
    peak: Member
    total: Member
    weight: Member
    scores: Member

    @property
    def inside(self) -> tuple[Member, ...]:
        return self.mixed, self.peak, self.total, self.weight, self.scores

    def between(self, program: Program) -> tuple[Member, ...]:
        """Pure Funcs of rows, of the peak and the total, by which others read these."""
        rows = {self.peak.name, self.total.name}
        readers = (self.output, *self.inside[:-1])
        found = {f.name: f for r in readers for f in below(r, program) if f.pure}
        sums = {n: {x.name for x in below(f, program) if not x.pure} for n, f in found.items()}
        return tuple(f for n, f in found.items() if sums[n] and sums[n] <= rows)


def online_of(mixed: Member, program: Program) -> Online | None:
    """The attention whose second product a reduction is; None if it is none."""
    operands = weighted(mixed, program)
    parts = operands and _parts(mixed, program.members[operands[0].func], program)
    axes = parts and _axes(parts, program)
    if operands is None or parts is None or axes is None:
        return None
    depth, value = number(parts.scores.stages[1].reduced[0].extent), operands[1]
    paths = tuple(_path(f, parts.scores, program) for f in (parts.peak, parts.total, parts.weight))
    queries = [m for m in mixed.args[1:] if m not in variables_of(value)]
    if None in paths or len(queries) != 1:
        return None
    along = axes[mixed.name][mixed.args.index(queries[0])]
    place = {name: axis.index(along) for name, axis in axes.items()}
    heads = {*mixed.args[1:]} - {*queries}
    valued = _placed(value, mixed.args[0], _loop(mixed) or "", heads)
    asked = _scored(parts.scores, place[parts.scores.name], program)
    if depth is None or valued is None or asked is None:
        return None
    (query, of_query), (key, of_key) = asked
    ordered, window = _ordered(parts, paths[0] or (), axes, along, program)
    names = {name: getattr(parts, name).name for name in _Parts.__slots__}
    shared = shared_path(paths)
    own = [own_axes(f, axes[f.name]) for f in (parts.scores, parts.scores, mixed)]
    sharing, head = sharing_of(*zip((query, key, value), own, strict=True))
    matrices = matrices_of(shared, axes, along, program)
    between = tuple(f.name for f in parts.between(program))
    return Online(
        **names,
        query=query.func,
        key=key.func,
        value=value.func,
        depth=depth,
        causal=ordered,
        window=window,
        whole=parts.output.bounds.get(parts.output.args[0]) == depth,
        paths=(paths[0] or (), paths[1] or ()),
        along=tuple(
            tuple(map(parts.output.args.index, axes[f.name]))
            for f in (parts.peak, parts.total, mixed)
        ),
        divisible=not (ordered or matrices or between)
        and _is_divisible(parts, paths, axes, program),
        matrices=matrices,
        blocks=blocks_of(shared, axes, along, program),
        sharing=sharing,
        heads=parts.output.args.index(head) if head else 0,
        between=between,
        places=Places(
            **{name: place[func] for name, func in names.items()},
            query=of_query,
            key=of_key,
            value=valued,
        ),
    )


def _parts(mixed: Member, weight: Member, program: Program) -> _Parts | None:
    """By what they are, wherever they are read."""
    readers, made_of = program.readers(mixed), below(weight, program)
    peaks = [f for f in made_of if is_peak(f)]
    products = [f for f in made_of if not f.pure and factors(f) is not None]
    if len(mixed.args) not in range(2, 3 + HEADS) or not weight.pure:
        return None
    if (len(readers), len(peaks), len(products)) != (1, 1, 1) or not readers[0].pure:
        return None
    (output,), (peak,), (scores,) = readers, peaks, products
    totals = [
        f
        for f in below(output, program)
        if f.reduction and f.name not in (mixed.name, peak.name) and peak in below(f, program)
    ]
    sums = (mixed, scores, *totals)
    if len(totals) != 1 or not associative(totals[0]) or peak.types[0] != FLOAT32:
        return None
    if not all(starts_at_zero(f.stages[0]) for f in sums):  # what is else would go down as well
        return None
    return _Parts(output, mixed, peak, totals[0], weight, scores)


def _axes(parts: _Parts, program: Program) -> Mapping[str, tuple[str, ...]] | None:
    """What the dimensions of all that is inside go along, in the output's variables; None if
    somebody else reads, needs or has scheduled a part of it, or it is not of one row of keys,
    queries and heads throughout.
    """
    output, between = parts.output, {f.name for f in parts.between(program)}
    inside = {f.name for f in parts.inside} | between
    for member in parts.inside[:-1]:
        inside |= {f.name for f in below(member, program)}
    for name in inside:
        member = program.members[name]
        readers = {r.name for r in program.readers(member)}
        if member.fixed or name in program.outputs or not readers <= {*inside, output.name}:
            return None
    axes, waiting = {output.name: output.args}, [output]
    while waiting:
        member = waiting.pop()
        own = own_axes(member, axes[member.name])
        for access in member.accesses():
            if access.func not in inside or access.func == member.name:
                continue
            along = tuple(own.get(n, "") for n in names_of(access))
            if access.func not in axes:
                waiting.append(program.members[access.func])
            if axes.setdefault(access.func, along) != along:
                return None
    channels, *rows = output.args
    for name in inside:
        single = name in (parts.peak.name, parts.total.name) or name in between
        first = [] if single else [channels if name == parts.mixed.name else KEYS]
        along = [*axes[name]]
        if along[: len(first)] != first or sorted(along[len(first) :]) != sorted(rows):
            return None
    return None if output.fixed else axes


def _ordered(
    parts: _Parts,
    path: tuple[str, ...],
    axes: Mapping[str, tuple[str, ...]],
    queries: str,
    program: Program,
) -> tuple[bool, int]:
    """Whether the place of a key among the queries says if it counts, and how many are the last
    that do, if that is a number.
    """
    found, window = False, 0
    for member in (parts.peak, *(program.members[name] for name in path[:-1])):
        own = own_axes(member, axes[member.name])
        for e in (e for stage in member.stages for e in stage.values):
            for part in walk_expr(e):
                if not isinstance(part, Compare):
                    continue
                greater = part.op in (CompareOp.GT, CompareOp.GE)
                less, more = (part.b, part.a) if greater else (part.a, part.b)
                sides = [{own.get(v, "") for v in free_vars(x)} for x in (less, more)]
                found = found or sides in ([{KEYS}, {queries}], [{queries}, {KEYS}])
                if sides == [{queries}, {KEYS}] and part.op not in (CompareOp.EQ, CompareOp.NE):
                    apart = to_affine(Binary(BinaryOp.SUB, more, less)).offset
                    window = max(window, apart + (part.op in (CompareOp.LE, CompareOp.GE)))
    return found, window


def _is_divisible(
    parts: _Parts,
    paths: tuple[tuple[str, ...] | None, ...],
    axes: Mapping[str, tuple[str, ...]],
    program: Program,
) -> bool:
    """Whether every part of the keys has some that count: what is read of each key is its score
    alone, and none is infinitely low.
    """
    over = {name for path in paths for name in path or ()} - {parts.scores.name}
    for member in (parts.peak, parts.total, *(program.members[name] for name in over)):
        own = own_axes(member, axes[member.name])
        for access in member.accesses():
            keyed = any(own.get(v) == KEYS for v in variables_of(access))
            if keyed and access.func not in {*over, parts.scores.name}:
                return False
        stages = member.stages[1:] or member.stages
        for e in (e for stage in stages for value in stage.values for e in walk_expr(value)):
            if isinstance(e, FloatImm) and math.isinf(e.value):
                return False
    return True


def _operands(member: Member, program: Program) -> list[tuple[Access, Access]]:
    """Of a product that tensor units take, of elements of 16 bits, in both orders; else none."""
    pair = factors(member)
    if pair is None or _loop(member) is None:
        return []
    types = [multiplied(e, member, program) for e in pair]
    elements = [a for a in map(element, pair) if a is not None]
    if not isinstance(types[0], Type) or types[0] != types[1] or types[0].bits != 16:
        return []
    return [(elements[0], elements[1]), (elements[1], elements[0])]


def weighted(mixed: Member, program: Program) -> tuple[Access, Access] | None:
    """Weights and values of a product, both read with what goes along memory first."""
    for weighed, valued in _operands(mixed, program):
        if [*names_of(weighed)[:1], *names_of(valued)[:1]] == [_loop(mixed), mixed.args[0]]:
            return weighed, valued
    return None


def _scored(
    scores: Member, place: int, program: Program
) -> tuple[tuple[Access, int], tuple[Access, int]] | None:
    """The operands of the scores: of queries and of keys, and where these are."""
    n, m, channel = scores.args[0], scores.args[place], _loop(scores) or ""
    heads = {*scores.args} - {n, m}
    for query, key in _operands(scores, program):
        places = _placed(query, channel, m, heads), _placed(key, channel, n, heads)
        if places[0] is not None and places[1] is not None:
            return (query, places[0]), (key, places[1])
    return None


def _placed(access: Access, first: str, row: str, heads: Collection[str]) -> int | None:
    """The dimension of an operand that goes along its rows; ``first`` goes along the innermost one,
    and where all others are the heads say. None if it is read otherwise.
    """
    names = names_of(access)
    others = [i for i, name in zip(access.indices, names, strict=True) if name not in (first, row)]
    used = variables_of(replace(access, indices=tuple(others)))
    if names[:1] != [first] or names.count(first) + names.count(row) != 2 or not used <= {*heads}:
        return None
    return names.index(row)


def _path(member: Member, scores: Member, program: Program) -> tuple[str, ...] | None:
    """Pure Funcs from one to the scores, these last; None if there are several ways."""
    over = [f for f in read(member, program) if f is scores or scores in below(f, program)]
    over = [f for f in over if f is scores or f.pure]
    if len(over) != 1:
        return None
    if over[0] is scores:
        return (scores.name,)
    rest = _path(over[0], scores, program)
    return None if rest is None else (over[0].name, *rest)


def _loop(member: Member) -> str | None:
    """The variable that a reduction with one update goes along from 0 on, without conditions."""
    if len(member.stages) != 2 or not member.reduction:
        return None
    update = member.stages[1]
    if len(update.reduced) != 1 or update.predicate is not None:
        return None
    (r,) = update.reduced
    return r.name if number(r.minimum) == 0 else None


def is_peak(member: Member) -> bool:
    """Whether it is the largest of some numbers."""
    if member.pure:
        return False
    start = member.stages[0].values[0]
    match member.stages[-1].values:
        case (Binary(BinaryOp.MAX),):
            return associative(member) and isinstance(start, FloatImm)
        case _:
            return False
