"""Attention in a plain pipeline: a product, its rows' largest elements, sums of powers that go down
from those, and the product of these powers with other values.

    scores[n, m] = sum over c of query[c, m] * key[c, n]
    peak[m] = max over n of s(scores[n, m])
    total[m] = sum over n of w(scores[n, m], peak[m])
    mixed[d, m] = sum over n of weight[n, m] * value[d, n]      weight = f16(w(...))

with as many dimensions of heads as there are. Whether the powers go down as they have to, so that
the three loops over n may be one, is for ``online`` to find out when the schedule is tried.
"""

from __future__ import annotations

from dataclasses import dataclass

from halide_bridge.schedules.recognise.products import (
    Factor,
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
from halide_bridge.schedules.recognise.rows import associative
from selector.ir.nodes import Binary, BinaryOp, Expr, FloatImm, Var
from selector.ir.types import Type

HEADS = 2  # dimensions of blocks beside that of queries


@dataclass(frozen=True, slots=True)
class Online:
    """Funcs by name. ``depth``: channels of queries, keys and values. ``paths``: from the peak and
    from the total to the scores, pure Funcs of which none is met twice.
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
    paths: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def members(self) -> frozenset[str]:
        """Those that are computed in one loop."""
        return frozenset((self.mixed, self.peak, self.total, self.weight, self.scores))

    @property
    def inside(self) -> frozenset[str]:
        """Those and what is computed inside of them."""
        return self.members.union(*self.paths)


def online_of(mixed: Member, program: Program) -> Online | None:
    """The attention whose second product a reduction is; None if it is none."""
    pair = factors(mixed)
    if pair is None or len(mixed.args) not in range(2, 3 + HEADS):
        return None
    d, m, *heads = mixed.args
    loop = _loop(mixed)
    named = {tuple(_names(a)): (a, e) for e in pair if (a := element(e)) is not None}
    if loop is None or len(named) < 2:
        return None
    weighed, valued = named.get((loop, m, *heads)), named.get((d, loop, *heads))
    if weighed is None or valued is None:
        return None
    types = [multiplied(e, mixed, program) for _, e in (weighed, valued)]
    weight, value = (program.members[a.func] for a, _ in (weighed, valued))
    if not isinstance(types[0], Type) or types[0] != types[1] or types[0].bits != 16:
        return None
    below = _below(weight, program)
    peaks = [f for f in below if not f.pure and _is_peak(f)]
    products = [f for f in below if not f.pure and factors(f) is not None]
    if not weight.pure or len(peaks) != 1 or len(products) != 1:
        return None
    return _joined(mixed, weight, value, peaks[0], products[0], program)


def _joined(
    mixed: Member, weight: Member, value: Member, peak: Member, scores: Member, program: Program
) -> Online | None:
    """With the sum of the weights, and what reads both sums."""
    operands = _scored(scores, program)
    readers = _readers(mixed, program)
    if operands is None or len(readers) != 1 or not readers[0].pure:
        return None
    (output,) = readers
    totals = [
        f
        for f in _read(output, program)
        if f.reduction and f.name not in (mixed.name, peak.name) and peak in _below(f, program)
    ]
    depth = number(scores.stages[1].reduced[0].extent)
    if len(totals) != 1 or not associative(totals[0]) or depth is None:
        return None
    paths = tuple(_path(f, scores, program) for f in (peak, totals[0], weight))
    if None in paths:
        return None
    found = Online(
        output.name, mixed.name, peak.name, totals[0].name, weight.name, scores.name,
        operands[0].func, operands[1].func, value.name, depth, (paths[0] or (), paths[1] or ()),
    )  # fmt: skip
    return found if _is_closed(found, program) else None


def _is_closed(found: Online, program: Program) -> bool:
    """Whether nobody else reads, needs or has scheduled a part of it, and all read their own row of
    keys, queries and heads.
    """
    output = program.members[found.output]
    _, *row = output.args
    if output.bounds.get(output.args[0]) != found.depth or output.fixed:
        return False
    inside = set(found.members)
    for name in found.members - {found.scores}:
        inside |= {f.name for f in _below(program.members[name], program)}
    for name in inside:
        member = program.members[name]
        readers = {r.name for r in _readers(member, program)}
        if member.fixed or name in program.outputs or not readers <= {*inside, found.output}:
            return False
    own = {name: (program.members[name].args, _loop(program.members[name])) for name in inside}
    for name, (args, loop) in own.items():
        queries = args if name in (found.peak, found.total) else args[1:]
        for access in program.members[name].accesses():
            if name == found.scores or access.func not in inside or access.func == name:
                continue
            wide = access.func not in (found.peak, found.total)
            first = loop if loop is not None else args[0]
            if _names(access) != [*([first] if wide else []), *queries]:
                return False
    parts = {found.mixed: list(output.args), found.total: row}
    return all(_names(a) == parts[a.func] for a in output.accesses() if a.func in parts)


def _scored(scores: Member, program: Program) -> tuple[Factor, Factor] | None:
    """The operands of the scores: of queries and of keys, both with channels first."""
    pair, channel = factors(scores), _loop(scores)
    if pair is None or channel is None or len(scores.args) < 2:
        return None
    n, m, *heads = scores.args
    found: dict[str, Factor] = {}
    for e in pair:
        kind, access = multiplied(e, scores, program), element(e)
        if not isinstance(kind, Type) or kind.bits != 16 or access is None:
            return None
        names = _names(access)
        if names[:1] != [channel] or names[2:] != heads:
            return None
        found[names[1]] = Factor(access.func, kind, along=True)
    zero = starts_at_zero(scores.stages[0])
    return (found[m], found[n]) if zero and found.keys() == {m, n} else None


def _path(member: Member, scores: Member, program: Program) -> tuple[str, ...] | None:
    """Pure Funcs from one to the scores, these last; None if there are several ways."""
    over = [f for f in _read(member, program) if f is scores or scores in _below(f, program)]
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


def _is_peak(member: Member) -> bool:
    start = member.stages[0].values[0]
    match member.stages[-1].values:
        case (Binary(BinaryOp.MAX),):
            return associative(member) and isinstance(start, FloatImm) and start.value > -1e39
        case _:
            return False


def _below(member: Member, program: Program) -> list[Member]:
    """Funcs that it is made of, through pure ones, arguments apart."""
    found: dict[str, Member] = {}
    waiting = [member]
    while waiting:
        for f in _read(waiting.pop(), program):
            if f.name not in found and f.name != member.name and _computes(f, program):
                found[f.name] = f
                waiting += [f] if f.pure else []
    return list(found.values())


def _computes(member: Member, program: Program) -> bool:
    """Whether it is more than an argument."""
    return not member.pure or any(a.func in program.members for a in member.accesses())


def _read(member: Member, program: Program) -> list[Member]:
    names = dict.fromkeys(a.func for a in member.accesses())
    return [program.members[n] for n in names if n in program.members and n != member.name]


def _readers(member: Member, program: Program) -> list[Member]:
    return [f for f in program if f is not member and member in _read(f, program)]


def _names(access: Access) -> list[str]:
    """Of the variables at which it reads; "" for what is none."""
    return [_name(i) for i in access.indices]


def _name(e: Expr) -> str:
    return e.name if isinstance(e, Var) else ""
