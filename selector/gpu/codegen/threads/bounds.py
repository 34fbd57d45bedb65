"""Loads of a thread's loop that need no test in any of its turns.

    for t < 13: s += a[max(min(start + t, n - 1), 0) + 4*x] * w[t + 16*y]

Each load is of nothing outside of its array. Where an index is clamped, or counts turns, its least
and its largest value in the loop are known before it, and tested there once for all loads.
"""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space
from selector.gpu.codegen.threads.sums import ThreadStatements, whole_sums
from selector.gpu.ir.expressions import all_of, at_least
from selector.ir.affine import Affine, carry, split_by_strides
from selector.ir.contents import holds
from selector.ir.nodes import Allocate, Expr, For, ForKind, IntImm, LetStmt, Load, Store, Var
from selector.ir.traverse import walk_all_exprs, walk_stmt
from selector.lowering.boundaries import clamps


def emit_tested(s: For, start: Expr, stop: Expr, code: ThreadStatements) -> bool:
    """Write a loop, in whose turns something is loaded for the others, twice if what its turns test
    is the same for all of them: tested ahead, four of them go at a time.
    """
    if s.kind is not ForKind.SERIAL or not isinstance(s.body, Allocate):
        return False
    context, w, name = code.context, code.context.writer, code.context.names.get(s.name)
    sums, loads = whole_sums(s, context), inside(s, context)
    condition = all_of(
        [*([] if sums is None else [sums[1]]), *([] if loads is None else [loads.condition])]
    )
    if condition is None:
        return False
    whole = set[tuple[Store, ...]]() if sums is None else {sums[0]}
    free = set[Load]() if loads is None else loads.loads - context.facts.inside
    code.whole |= whole
    context.facts.inside.update(free)
    with w.when(condition), w.loop(name, start, stop, "fours"):
        code.statement(s.body)
    code.whole -= whole
    context.facts.inside.difference_update(free)
    with w.otherwise(), w.loop(name, start, stop, "plain"):
        code.statement(s.body)
    return True


@dataclass(frozen=True, slots=True)
class Inside:
    """Loads that are of elements of their arrays in all turns of a loop, under a ``condition``."""

    loads: frozenset[Load]
    condition: Expr


def inside(s: For, context: KernelContext) -> Inside | None:
    """None where there are none."""
    found, rooms = set[Load](), dict[Affine, None]()
    for e in walk_all_exprs(s.body):
        if not isinstance(e, Load) or e.type.lanes > 1 or e.buffer not in context.storages:
            continue
        own = _rooms(e, s, context)
        if own is not None:
            found.add(e)
            rooms.update(dict.fromkeys(own))
    tests = all_of(at_least(context.scalar.number(r.to_expr()), 0) for r in rooms if r.terms)
    return None if not found or tests is None else Inside(frozenset(found), tests)


def _rooms(e: Load, s: For, context: KernelContext) -> list[Affine] | None:
    """What has to be at least zero for a load to be inside."""
    storage = context.storages[e.buffer]
    if storage.space is not Space.GLOBAL or storage.param is None:
        return None
    dims = storage.param.dims
    coordinates = split_by_strides(e.index, dims)
    if coordinates is None:
        return None
    rooms = list[Affine]()
    for c, d in zip(carry(coordinates, dims), dims, strict=True):
        ends = _ends(Affine.of(c), s)
        if ends is None:
            return None
        low, high, orders = ends
        rooms += [low, Affine.of(d.extent) - 1 - high, *orders]
    own = [x.name for x in walk_stmt(s.body) if isinstance(x, For | LetStmt)]
    if any(r.mentions(name) for r in rooms for name in own):
        return None
    constants = [r.constant for r in rooms]
    return rooms if all(c is None or c >= 0 for c in constants) else None


def _ends(c: Affine, s: For) -> tuple[Affine, Affine, list[Affine]] | None:
    """The least and the largest value of a coordinate in all turns of a loop, where loads do not
    say what they are, and what has to be at least zero for that.
    """
    low, high, orders = Affine(), Affine(), list[Affine]()
    for atoms, factor in c:
        term = Affine.build({atoms: factor})
        own = clamps(Affine.build({atoms: 1})) if factor > 0 else ()
        if own:
            low, high = low + own[0] * factor, high + own[1] * factor
            orders.append(own[1] - own[0])
        elif atoms == (Var(s.name),) and s.min == IntImm(0):  # without turns nothing is loaded
            last = (Affine.of(s.extent) - 1) * factor
            low, high = (low, high + last) if factor > 0 else (low + last, high)
        elif any(holds(a, Load) for a in atoms) or term.mentions(s.name):
            return None
        else:
            low, high = low + term, high + term
    return low, high, orders
