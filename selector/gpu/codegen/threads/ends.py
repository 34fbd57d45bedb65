"""What is left of a row of threads' vectors (``threads.vectors``): element by element,
neighbours by neighbouring threads.

    out[ramp(16*t, 1, 16)] = a[ramp(16*t - 1, 1, 16)]  at t < 32, of 500 elements

goes as vectors for 0 < t < 31. Few threads have other elements, which they would take one after the
other while all others wait. Most blocks have no such threads, and find that out for all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.threads.needs import Needs
from selector.gpu.codegen.threads.sums import ThreadStatements
from selector.gpu.codegen.threads.vectors import Vectors
from selector.gpu.ir.expressions import (
    all_of,
    at_least,
    chosen,
    either,
    least,
    less,
    minus,
    most,
    negated,
    number,
    plus,
    shifted,
    times,
)
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine
from selector.ir.nodes import Expr, Store, Var
from selector.ir.traverse import free_vars
from selector.ir.types import BOOL
from selector.lowering.predicates import TRUE


@dataclass(frozen=True, slots=True)
class Row:
    """The loop over threads of a row, how many of them have vectors, and by how many lanes these
    begin later, if they do.
    """

    thread: str
    count: int
    shift: str | None = None


def whole_block(needs: Needs, counts: Mapping[str, int], context: KernelContext) -> Var | None:
    """Declare whether ``needs`` are met for all threads of a block, whose loops have these
    ``counts``, as far as that can be said of all at once; None if it cannot, or always are.
    """
    met = met_by_all(needs, counts, context)
    if met is None or met == TRUE:
        return None
    name = context.names.fresh("whole")
    context.writer.add(Let("bool", (name,), (met,)))
    return Var(name, BOOL)


def met_by_all(needs: Needs, counts: Mapping[str, int], context: KernelContext) -> Expr | None:
    """Whether ``needs`` are met in all turns of loops with these ``counts``, ``TRUE`` if always;
    None if that cannot be said of all at once.
    """
    rooms = [_least(room + least_, counts) for room, least_ in needs.least.items()]
    known = [room for room in rooms if room is not None]
    if len(known) < len(rooms) or any(free_vars(t) & counts.keys() for t in needs.tests):
        return None
    open_ = [context.scalar.number(r.to_expr()) for r in known if not context.is_met(r)]
    met = all_of((*(at_least(r, 0) for r in open_), *map(context.scalar.legal, needs.tests)))
    return TRUE if met is None else met


def _least(room: Affine, counts: Mapping[str, int]) -> Affine | None:
    """A number, where each loop is at the end at which that is least; None if it is not known."""
    for name, count in counts.items():
        factor, rest = room.coefficient(Var(name)).constant, room.rest(Var(name))
        if factor is None or rest.mentions(name):
            return None
        room = rest + min(0, factor * (count - 1))
    return room


def emit_ends(
    needs: Needs,
    condition: Expr,
    vectors: Sequence[Vectors],
    stores: Sequence[Store],
    row: Row,
    code: ThreadStatements,
    *,
    apart: bool = False,
) -> tuple[Expr, bool]:
    """Write what vectors of a row of threads are left whose ``needs`` are not met, if those are of
    the first and the last ones: whether they are. With it, when a thread has vectors, which are to
    follow: where the ``condition`` holds that is made of its needs, and in blocks without ends,
    unless these have been told ``apart`` before.
    """
    context, w = code.context, code.context.writer
    counts = {**code.alone, row.thread: row.count}
    whole = None if apart else whole_block(needs, counts, context)
    found = _ends(needs, row, context)
    if found is not None:
        with nullcontext() if whole is None else w.when(negated(whole)):
            ends = _named(*found, context)
            for v, s in zip(vectors, stores, strict=True):
                _emit_ends(ends, v, s, row, code)
    return condition if whole is None else either(whole, condition), found is not None


def _ends(needs: Needs, row: Row, context: KernelContext) -> tuple[Expr, Expr, Expr | None] | None:
    """The first thread of a row whose vector is as it has to be, and the first one behind those:
    none unless a condition holds for all of them alike. None where others may fail.
    """
    lanes, scalar, thread, count = needs.lanes, context.scalar, row.thread, row.count
    low, high, alike = number(0), number(count), [scalar.legal(t) for t in needs.tests]
    for room, least_ in needs.least.items():
        if context.is_met(room + least_):
            continue
        factor, rest = room.coefficient(Var(thread)).constant, room.rest(Var(thread)) + least_
        if factor is None or rest.mentions(thread) or abs(factor) not in (0, lanes):
            return None
        value = scalar.number(rest.to_expr())
        if factor == 0:
            alike.append(at_least(value, 0))
        elif factor > 0:
            low = most(low, _threads_of(minus(lanes - 1, value), lanes))
        else:
            high = least(high, plus(_threads_of(value, lanes), 1))
    if lanes.bit_count() != 1 or any(thread in free_vars(t) for t in alike):
        return None
    return least(low, count), high, all_of(alike)


def _named(low: Expr, high: Expr, alike: Expr | None, context: KernelContext) -> tuple[str, str]:
    """Declare the first thread with a vector, and the first one behind those."""
    first, behind = context.names.fresh("first"), context.names.fresh("behind")
    found, add = most(high, first), context.writer.add
    add(Let("int", (first,), (low,)))
    add(Let("int", (behind,), (found if alike is None else chosen(alike, found, first),)))
    return first, behind


def _threads_of(elements: Expr, lanes: int) -> Expr:
    return shifted(elements, lanes.bit_length() - 1)


def _emit_ends(
    ends: tuple[str, str], v: Vectors, s: Store, row: Row, code: ThreadStatements
) -> None:
    """The elements of the other vectors of a row, neighbours by neighbouring threads: few threads
    have them, which would take them one after the other while all others wait.
    """
    (first, behind), thread = ends, row.thread
    w, scalar, lanes = code.context.writer, code.context.scalar, v.needs.lanes
    stored = number(lanes * row.count)
    for room, least_ in v.stored.least.items():
        if room.coefficient(Var(thread)).constant == -lanes:
            rest = room.rest(Var(thread)) + (least_ + lanes)
            if not rest.mentions(thread):
                stored = least(stored, scalar.number(rest.to_expr()))
    left = times(first, lanes)
    stop = plus(left, most(minus(stored, times(behind, lanes)), 0))
    own, every = code.context.names.get(thread), number(code.alone[thread])
    turn = plus("l", chosen(less("l", left), 0, times(minus(behind, first), lanes)))
    turn = turn if row.shift is None else plus(turn, row.shift)
    code.turns(s, thread, turn, w.loop("l", number(own), stop, step=every))


def deal_out(s: Store, thread: str, code: ThreadStatements) -> None:
    """Element by element, neighbours by neighbouring threads."""
    own, count = code.context.names.get(thread), code.alone[thread]
    turn = plus(own, times("l", count))
    loop = code.context.writer.loop("l", number(0), number(s.value.type.lanes), "fours")
    code.turns(s, thread, turn, loop)
