"""Sums and extrema over windows of which neighbours share rows.

    f[x, y] += a[x + r.x, y + r.y]           rows[x, y] += a[x + r.x, y]
                                             f[x, y] += rows[x, y + r.y]

take as many terms as a window has rows and columns, not as it has elements, and what is stored
between them. Whether they share them so, the native module finds out (``hb.separated``).
"""

from __future__ import annotations

from math import prod

from halide_bridge.schedules.recognise.facts import STORED
from halide_bridge.schedules.recognise.products import factors, may_be_multiplied
from halide_bridge.schedules.recognise.program import Member, Program, number
from halide_bridge.schedules.recognise.rows import associative
from selector.ir.nodes import Expr
from selector.ir.types import FLOAT32

TERM = 2  # operations of one, where threads share what they load
GAIN = 1.5  # times as few operations as that is to take at least


def rows_of(member: Member, program: Program, between: int = STORED) -> int | None:
    """The variable of its domain, by place, along which windows have rows that are worth it, where
    a row costs so many operations ``between`` its own sum and that of rows.
    """
    if member.fixed or len(member.types) != 1 or not associative(member):
        return None
    update, pair = member.stages[1], factors(member)
    if not update.in_place or update.predicate is not None or len(update.reduced) < 2:
        return None
    if pair is not None and _may_be_of_tensors(pair, member, program):
        return None
    terms, rows = terms_of(member), number(update.reduced[-1].extent)
    if not terms or not rows or len(member.args) < 2:
        return None
    apart = TERM * (terms // rows + rows) + between
    return len(update.reduced) - 1 if TERM * terms >= GAIN * apart else None


def terms_of(member: Member) -> int:
    """How many elements a window has; 0 if nobody knows."""
    return prod(number(r.extent) or 0 for r in member.stages[1].reduced)


def _may_be_of_tensors(pair: tuple[Expr, Expr], member: Member, program: Program) -> bool:
    tf32 = "tf32" in program.asked and member.types[0] == FLOAT32
    return tf32 or may_be_multiplied(pair, member, program)
