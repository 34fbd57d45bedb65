"""Sums whose terms have a factor that could as well come last: what is the same for all terms of an
element, a number, or a scale of its row or column; and attention whose weights are divided before
they are multiplied with values, as probabilities, or by the logarithm of their sum.

    p[n, m] = f16(w(scores[n, m], peak[m]) / total[m])
    mixed[d, m] = sum over n of p[n, m] * value[d, n]

The total is known when the last key is, so in one loop over the keys the sum is divided, not its
terms (``hb.divided_last``). Terms are rounded to 16 bits then as they are: that they are at most
one has to be seen, ``w`` a power of what the largest score of the row is subtracted from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from halide_bridge.schedules.recognise.attention import is_peak, weighted
from halide_bridge.schedules.recognise.products import (
    added,
    added_to,
    element,
    factors,
    is_own,
    may_be_multiplied,
    starts_at_zero,
)
from halide_bridge.schedules.recognise.program import Member, Program, Stage, accesses, inlined
from halide_bridge.schedules.recognise.reading import below
from halide_bridge.schedules.recognise.rows import associative
from selector.dataclass import dataclass
from selector.ir.nodes import Binary, BinaryOp, Call, Expr, FloatImm, IntImm, Select, Var
from selector.ir.simplify import float_constant
from selector.ir.traverse import free_vars, substitute, walk_expr

_Bodies = Mapping[str, tuple[tuple[str, ...], tuple[Expr, ...]]]


@dataclass(frozen=True, slots=True)
class Divided:
    """Funcs: ``between`` are those by which the ``weight`` reads the ``total``."""

    weight: Member
    total: Member
    mixed: Member
    reader: Member
    between: tuple[Member, ...]


def has_same(member: Member, program: Program) -> bool:
    """Whether the terms of a sum from zero on have a sign, or are products for a tensor unit and
    have a factor that is the same for all terms of an element.
    """
    term, negative = only_term(member)
    read = (program.members.get(a.func) for a in member.accesses())
    if term is None or not starts_at_zero(member.stages[0]) or any(m and m.fixed for m in read):
        return False
    parts = [*factors_of(term)]
    signed = negative or parts != [*factors_of(term, negated=False)]
    return signed or (len(parts) > 2 and multiplies_two(parts, member.stages[1], member, program))


def is_held_back(member: Member, program: Program) -> bool:
    """Whether that keeps a product from a tensor unit, which has two other factors."""
    term, _ = only_term(member)
    two = term is not None and multiplies_two(
        [*factors_of(term)], member.stages[1], member, program
    )
    return two and has_same(member, program)


def multiplies_two(parts: Iterable[Expr], stage: Stage, member: Member, program: Program) -> bool:
    """Whether two factors change along a sum, and tensor units may multiply these."""
    sums = {r.name for r in stage.reduced}
    vary = [e for e in parts if sums & free_vars(e) or _reads(e, member.name)]
    return len(vary) == 2 and may_be_multiplied(vary, member, program)


def only_term(member: Member) -> tuple[Expr | None, bool]:
    """What the only update of a reduction adds to the element itself, or subtracts; whether it
    does.
    """
    if len(member.stages) != 2 or not member.reduction or len(member.types) != 1:
        return None, False
    return term_of(member.stages[1].values[0], member)


def term_of(value: Expr, member: Member, number: int = 0) -> tuple[Expr | None, bool]:
    """What is added to a value of an element, or subtracted from it; whether it is."""
    match value:
        case Binary(BinaryOp.SUB, own, term) if is_own(own, member, number):
            return term, True
        case _:
            return added_to(value, member, number), False


def factors_of(e: Expr, negated: bool = True) -> Iterator[Expr]:
    """Of a product, what it is divided by, and, where it is ``negated``, of what that is of."""
    match e:
        case Binary(BinaryOp.MUL, a, b):
            yield from (*factors_of(a, negated), *factors_of(b, negated))
        case Binary(BinaryOp.DIV, a, b) if e.type.is_float:
            yield from (*factors_of(a, negated), b)
        case Binary(BinaryOp.SUB, IntImm(0) | FloatImm(0.0), b) if negated:
            yield from factors_of(b)
        case _:
            yield e


def terms_of(e: Expr) -> Iterator[Expr]:
    """What a sum is the sum of."""
    match e:
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b):
            yield from (*terms_of(a), *terms_of(b))
        case _:
            yield e


def divided_of(mixed: Member, program: Program) -> Divided | None:
    """The weights whose sum a reduction is, if they are divided and at most one without that."""
    found = weighted(mixed, program)
    weight = found and program.members[found[0].func]
    readers = program.readers(mixed)
    if not weight or not weight.pure or len(readers) != 1 or not readers[0].pure:
        return None
    made_of = below(weight, program)
    totals = [f for f in made_of if is_total(f, program)]
    peaks = [f for f in made_of if is_peak(f)]
    if len(totals) != 1 or len(peaks) != 1 or any(f.fixed for f in (mixed, weight, *readers)):
        return None
    if not starts_at_zero(mixed.stages[0]) or not _is_at_most_one(
        weight, peaks[0], totals[0], made_of
    ):
        return None
    between = (f for f in made_of if f.pure and totals[0] in below(f, program))
    return Divided(weight, totals[0], mixed, readers[0], tuple(between))


def is_total(member: Member, program: Program) -> bool:
    """Whether it is a sum of what goes down from a peak."""
    sums = not member.pure and associative(member) and added(member) is not None
    return sums and factors(member) is None and any(is_peak(f) for f in below(member, program))


def _is_at_most_one(weight: Member, peak: Member, total: Member, made_of: list[Member]) -> bool:
    """Whether its powers are of scores less the largest of just these."""
    bodies = {f.name: (f.args, f.stages[0].values) for f in made_of if f.pure}
    (key, *_), (update,) = weight.args, peak.stages[1:]
    (largest,) = update.values
    assert isinstance(largest, Binary)
    terms = [e for e in (largest.a, largest.b) if not _reads(e, peak.name)]
    at = dict(zip((r.name for r in update.reduced), (Var(key),), strict=False))
    value = _written_out(weight.stages[0].values[0], bodies)
    rows = next((a.indices for a in accesses(value) if a.func == peak.name), ())
    at |= dict(zip(peak.args, rows, strict=False))
    score = substitute(_written_out(terms[0], bodies), at)
    powers = [e for e in walk_expr(value) if isinstance(e, Call) and e.name in _POWERS]
    return len(powers) == 1 and _goes_down(powers[0].args[-1], score, (peak.name, total.name))


_POWERS = ("exp_f32", "pow_f32")


def _written_out(e: Expr, bodies: _Bodies) -> Expr:
    while (found := inlined(e, bodies)) != e:
        e = found
    return e


def _reads(e: Expr, name: str) -> bool:
    return any(a.func == name for a in accesses(e))


def _goes_down(e: Expr, score: Expr, rows: tuple[str, str]) -> bool:
    """Whether an exponent is the ``score`` less the peak, or with the logarithm of the total less
    than that, times a positive number; ``rows``: the names of both.
    """
    match e:
        case Select(_, value, low) if (float_constant(low) or 0) < 0:
            return _goes_down(value, score, rows)
        case Binary(BinaryOp.MUL | BinaryOp.DIV, a, b) if (float_constant(b) or 0) > 0:
            return _goes_down(a, score, rows)
        case Binary(BinaryOp.SUB, a, b) if a == score:
            return _is_of(b, rows)
        case Binary(BinaryOp.SUB, a, b):
            return _is_logarithm(b, rows[1]) and _goes_down(a, score, rows)
        case _:
            return False


def _is_of(e: Expr, rows: tuple[str, str]) -> bool:
    """Whether a number is the peak, with the logarithm of the total or without."""
    match e:
        case Binary(BinaryOp.ADD, a, b):
            return any(_is_of(x, rows) and _is_logarithm(y, rows[1]) for x, y in ((a, b), (b, a)))
        case _:
            return _is_read(e, rows[0])


def _is_logarithm(e: Expr, total: str) -> bool:
    match e:
        case Binary(BinaryOp.MUL, a, b) if (float_constant(b) or 0) > 0:
            return _is_logarithm(a, total)
        case Call(_, "log_f32", (value,)):
            return _is_read(value, total)
        case _:
            return False


def _is_read(e: Expr, name: str) -> bool:
    access = element(e)
    return access is not None and access.func == name
