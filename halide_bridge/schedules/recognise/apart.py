"""Why attention is not one loop over its keys (``attention.online_of``), in a user's words."""

from __future__ import annotations

from halide_bridge.schedules.recognise.attention import is_peak
from halide_bridge.schedules.recognise.divided import is_total
from halide_bridge.schedules.recognise.products import element, factors, starts_at_zero
from halide_bridge.schedules.recognise.program import Member, Program, number
from halide_bridge.schedules.recognise.reading import below, names_of, variables_of
from selector.ir.nodes import Call, Expr
from selector.ir.traverse import walk_expr
from selector.ir.types import FLOAT32


def why_apart(mixed: Member, program: Program, why: str = "") -> str:
    """What keeps a product of weights and values from it, ``why`` if nothing better is known; empty
    where there are no weights of 16 bits: no powers, or largest numbers of rows, of a product.
    """
    made_of = next(filter(None, (_weights(e, program) for e in factors(mixed) or ())), [])
    products = [f for f in made_of if factors(f) is not None]
    peaks, powers = [f for f in made_of if is_peak(f)], {n for f in made_of for n in _powers(f)}
    if not products or not (peaks or powers) or made_of[0].types[0].bits != 16:
        return ""
    if not peaks:
        return (
            "no largest score of a row is taken off before the powers, which may be more than "
            "there are numbers for: take them of scores[n, m] - top[m], top the maximum over n"
        )
    for f in peaks:
        if f.types[0] != FLOAT32:
            return f"`{f.label}` is kept in {f.types[0]}: keep the largest score in float32"
    if not powers <= {"exp_f32", "pow_f32"} or not powers:
        return (
            "its weights are not hl.exp or hl.pow of float32: what becomes of others as the "
            "largest score grows is not known"
        )
    if wrong := _wrong_sum(mixed, products, made_of):
        return wrong
    for f in made_of:
        if is_total(f, program):
            return (
                f"`{made_of[0].label}` is divided by `{f.label}` and rounded, and is not seen to "
                "be at most one without that: divide the sum of values instead"
            )
    readers = program.readers(mixed)
    if mixed.name in program.outputs or len(readers) != 1 or not readers[0].pure:
        return f"`{mixed.label}` is to be read by one pure Func, which divides it by the total"
    return why or (
        "its parts are not those of one row of keys for each query and head, or others read or "
        "schedule some of them"
    )


def _wrong_sum(mixed: Member, products: list[Member], made_of: list[Member]) -> str:
    """What is wrong with one of the two products; empty if nothing is."""
    for f in (mixed, *products):
        if not starts_at_zero(f.stages[0]):
            return f"`{f.label}` does not start at 0: add what it starts with where it is read"
        if not _is_first(f, made_of, f is mixed):
            return (
                f"the dimensions of `{f.label}` are in another order (hl.sum has them as they "
                "occur in it): keys are to be the first of scores, channels of the sum of values"
            )
    for f in products:
        if any(number(r.extent) is None for r in f.stages[1].reduced):
            return (
                f"how many terms `{f.label}` adds up is not known: sum over a constant, or declare "
                "the extent of the channels with set_extent"
            )
    return ""


def _weights(e: Expr, program: Program) -> list[Member]:
    """What a factor is made of, if it is computed; itself first."""
    access = element(e)
    member = access and program.members.get(access.func)
    return [member, *below(member, program)] if member and member.pure else []


def _powers(member: Member) -> set[str]:
    """Names of the powers that a pure Func takes."""
    if not member.pure:
        return set()
    calls = (x for v in member.stages[0].values for x in walk_expr(v) if isinstance(x, Call))
    return {x.name for x in calls if x.name.startswith(("exp_f", "pow_f"))}


def _is_first(member: Member, made_of: list[Member], channels: bool) -> bool:
    """Whether the first dimension is that of ``channels``, at which no weights are read, or that of
    keys, which the maximum goes over and is the first of what is made of the scores.
    """
    if channels:
        names = {f.name for f in made_of}
        reads = (a for a in member.accesses() if a.func in names)
        return all(member.args[0] not in variables_of(a) for a in reads)
    return all(
        names_of(a)[0] in ({r.name for s in f.stages for r in s.reduced} or f.args[:1])
        for f in made_of
        for a in f.accesses()
        if a.func == member.name != f.name
    )
