"""Products that a tensor unit takes only where they are a Func of their own: one of several
updates, one of several values, a sum that is an output itself while something comes last.

    f[n, m] = 0,  f[n, m] += a[k, m] * b[k, n],  f[n, m] = max(f[n, m], 0)

Each sum is one from zero on, and what reads the Func reads what is made of them
(``hb.sums_apart``).
"""

from __future__ import annotations

from halide_bridge.schedules.recognise.differences import has_zero_points
from halide_bridge.schedules.recognise.divided import (
    factors_of,
    is_held_back,
    multiplies_two,
    only_term,
    terms_of,
)
from halide_bridge.schedules.recognise.products import factors, is_own, may_be_multiplied
from halide_bridge.schedules.recognise.program import Member, Program, Stage, number
from halide_bridge.schedules.recognise.together import products_of
from halide_bridge.schedules.recognise.windows import Window, window_of
from selector.ir.nodes import Binary, BinaryOp, Expr
from selector.ir.traverse import free_vars


def sums_of(member: Member, program: Program) -> tuple[Stage, ...]:
    """The updates with such products."""
    read = (program.members.get(a.func) for a in member.accesses())
    others = program.readers(member)
    if member.pure or member.extern or any(m and m.fixed for m in (member, *read, *others)):
        return ()
    found = tuple(s for s in member.stages[1:] if s.in_place and _is_product(s, member, program))
    alone = len(member.stages) == 2 and only_term(member)[0] is not None
    some = any(_outside(s.predicate, s) for s in found if s.predicate is not None)
    return found if some or not alone or _comes_last(member, program) else ()


def begins_elsewhere(member: Member, program: Program) -> bool:
    """Whether a sum of products for a tensor unit goes along a variable that does not begin at 0,
    and is no window, which may.
    """
    pair = factors(member)
    if pair is None or member.fixed or not may_be_multiplied(pair, member, program):
        return False
    elsewhere = any(number(r.minimum) != 0 for r in member.stages[1].reduced)
    return elsewhere and not isinstance(window_of(member, program), Window)


def _comes_last(member: Member, program: Program) -> bool:
    """Whether an output needs a reader that makes something of its products."""
    return member.name in program.outputs and (
        is_held_back(member, program) or has_zero_points(member) or products_of(member) > 0
    )


def _is_product(stage: Stage, member: Member, program: Program) -> bool:
    """Whether an update adds up elements and products."""
    for i, value in enumerate(stage.values):
        terms = [*terms_of(value)]
        products = (e for e in terms if multiplies_two([*factors_of(e)], stage, member, program))
        if any(is_own(e, member, i) for e in terms) and any(True for _ in products):
            return True
    return False


def _outside(condition: Expr, stage: Stage) -> bool:
    """Whether the sum has no say in a part of a condition."""
    match condition:
        case Binary(BinaryOp.AND, a, b):
            return _outside(a, stage) or _outside(b, stage)
        case _:
            return not free_vars(condition) & {r.name for r in stage.reduced}
