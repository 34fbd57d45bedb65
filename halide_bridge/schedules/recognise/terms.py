"""Sums whose terms are products for a tensor unit in other words (``halide_bridge.terms``):

f[x] += (f32(i[x + t]) - f32(i[x + 7 - t])) * f32(k[t])      products of sums
f[x] += f32(i[x - t]) * f32(k[t])                            windows that go backwards
f[x] += f32(i[clamp(x + t, 0, w - 1)]) * f32(k[t])           images that go on beyond their edges
"""

from __future__ import annotations

from collections.abc import Iterator

from halide_bridge.schedules.recognise.divided import (
    factors_of,
    multiplies_two,
    only_term,
    terms_of,
)
from halide_bridge.schedules.recognise.products import (
    factors,
    may_be_multiplied,
    product_variables,
)
from halide_bridge.schedules.recognise.program import Member, Program, Reduced, accesses
from halide_bridge.schedules.recognise.resampling import resampling_of
from halide_bridge.schedules.recognise.together import products_of
from halide_bridge.schedules.recognise.windows import BACKWARDS, window_of
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Cast, Expr, FloatImm, IntImm, Select, Var
from selector.ir.traverse import free_vars

INSIDE = (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MOD)


def multiplies_sums(member: Member, program: Program) -> bool:
    """Whether a sum adds products of sums, of elements that tensor units multiply."""
    term = _term(member, program)
    return term is not None and _has_sum(term, frozenset(r.name for r in _reduced(member)))


def adds_several(member: Member, program: Program) -> bool:
    """Whether it adds several products of two such factors, which are not of one matrix each."""
    term = _term(member, program)
    if term is None or products_of(member):
        return False
    terms = [*terms_of(term)]
    return len(terms) > 1 and all(
        multiplies_two([*factors_of(e)], member.stages[1], member, program) for e in terms
    )


def is_of_windows(member: Member, program: Program) -> bool:
    """Whether it adds several products, or products of sums, whose factors are not of matrices."""
    pair = factors(member)
    if pair is None:
        return adds_several(member, program)
    return product_variables(pair, member) is None and multiplies_sums(member, program)


def counts_down(member: Member, program: Program) -> list[int]:
    """The places in the reduction domain of the variables along which a window goes backwards."""
    pair = None if member.fixed else factors(member)
    if pair is None or window_of(member, program) != BACKWARDS:
        return []
    read = [Affine.of(i) for e in pair for a in accesses(e) for i in _along(a.indices, member)]
    return [
        place
        for place, r in enumerate(_reduced(member))
        if any((form.coefficient(Var(r.name)).constant or 0) < 0 for form in read)
    ]


def around_edges(member: Member, program: Program) -> Iterator[int]:
    """The factors that read a window of an image whose indices are held inside, or whose values are
    others where they are not; none of a resampling, which has its own form.
    """
    pair = None if member.fixed else factors(member)
    if pair is None or not may_be_multiplied(pair, member, program) or resampling_of(member):
        return
    for number, e in enumerate(pair):
        read = [i for a in accesses(e) for i in _along(a.indices, member)]
        held = any(isinstance(part, Binary) and part.op in INSIDE for i in read for part in _top(i))
        if read and (held or isinstance(_uncast(e), Select)):
            yield number


def _reduced(member: Member) -> tuple[Reduced, ...]:
    return member.stages[1].reduced


def _term(member: Member, program: Program) -> Expr | None:
    """What a sum adds, or subtracts, without a condition and of elements for tensor units."""
    term, _ = only_term(member)
    if term is None or member.fixed or member.stages[1].predicate is not None:
        return None
    return term if may_be_multiplied((term,), member, program) else None


def _has_sum(e: Expr, along: frozenset[str]) -> bool:
    """Whether a factor is a sum of what changes along a sum, or an integer with a sign in fewer
    bits; a sum that is rounded is one number.
    """
    match e:
        case Binary(BinaryOp.MUL, a, b):
            return (
                _is_sum(a, along) or _is_sum(b, along) or _has_sum(a, along) or _has_sum(b, along)
            )
        case _:
            return False


def _is_sum(e: Expr, along: frozenset[str]) -> bool:
    match e:
        case Cast(value=Binary(BinaryOp.SUB, IntImm(0) | FloatImm(0.0))) if e.type.is_integer:
            return True
        case Cast(value=value) if e.type.is_integer:
            return _is_sum(value, along)
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b):
            return bool(along & free_vars(a) and along & free_vars(b))
        case _:
            return False


def _along(indices: tuple[Expr, ...], member: Member) -> list[Expr]:
    """Those that neighbours of a result and the terms of their sums choose."""
    reduced = {r.name for r in _reduced(member)}
    return [i for i in indices if free_vars(i) & reduced and free_vars(i) & {*member.args}]


def _top(index: Expr) -> Iterator[Expr]:
    """An index, and what is in minima, maxima and remainders there."""
    yield index
    if isinstance(index, Binary) and index.op in INSIDE:
        yield from (*_top(index.a), *_top(index.b))


def _uncast(e: Expr) -> Expr:
    return e.value if isinstance(e, Cast) else e
