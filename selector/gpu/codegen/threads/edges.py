"""Vectors of one thread (``threads.vectors``) some lanes of which read beyond an edge.

    out[ramp(8*x, 1, 8)] = a[max(min(ramp(8*x - 1, 1, 8), w - 1), 0)] + a[ramp(8*x, 1, 8)] + ...

Where a thread reads its own elements and few beside them, the own ones are a vector, and each of
the others is loaded as the lane that reads it says: beyond an edge, too, however that is made up.
All threads of a row do the same then. What is zeros beyond an edge that all lanes of a thread are
at, above an image say, is a vector of zeros there.

What reads further goes as vectors where all lanes are inside. Few threads have others, but those
beside them in a warp wait for them: what they read is loaded element by element, all of it before
the first use; computed and stored it is as vectors.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import reduce

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.threads.lanes import LANE, in_order
from selector.gpu.codegen.threads.needs import Needs, Unknown
from selector.gpu.codegen.threads.vector_code import (
    condition_of,
    declare,
    emit_vectors,
    load_vector,
    pieces,
)
from selector.gpu.codegen.threads.vectors import Vectors
from selector.gpu.codegen.threads.windows import Window, Windows
from selector.gpu.ir.expressions import element, number, plus, pointer
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Load, Not, Select
from selector.ir.simplify import add
from selector.ir.traverse import conjuncts, free_vars, substitute, walk_expr
from selector.ir.types import BOOL
from selector.lowering.predicates import conjunction, slack
from selector.lowering.written_out import MOST

ENDS = (BinaryOp.MIN, BinaryOp.MAX)


@dataclass(frozen=True, slots=True)
class Beside:
    """When a thread's own elements are inside, all others that it reads being few (``needs``); and
    for each window when it is no zeros, which is the same for all its elements (``wanted``).
    """

    needs: Needs
    wanted: dict[str, Needs]


def beside(v: Vectors, context: KernelContext) -> Beside | None:
    """None where a thread does not read so."""
    lanes, needs, wanted = v.needs.lanes, Needs(v.needs.lanes), dict[str, Needs]()
    if not _is_dense(v) or v.given or not any(_others(w, lanes) for w in v.windows):
        return None
    if not all(_is_near(w, lanes) for w in v.windows):
        return None
    needs.update(v.stored)
    try:
        for window in v.windows:
            asked = list[Needs]()
            for offset, load in window.loads:
                first, last = max(0, -offset), min(lanes, lanes - offset)
                own, alike = Needs(last - first), Needs(1)
                Windows(context, own).inside(_moved(load, first), own, alike)
                needs.update(own)
                asked.append(alike)
            if any(alike != asked[0] for alike in asked):
                return None
            wanted[window.name] = asked[0]
    except Unknown:
        return None
    return Beside(needs, wanted)


def emit_beside(v: Vectors, found: Beside, context: KernelContext) -> None:
    """Write such a statement for where its own elements are inside."""
    w, names = context.writer, context.names
    for window in v.windows:
        declare(window, context)
        condition, wanted = condition_of(found.wanted[window.name], (), context), None
        if condition is not None:
            own = names.fresh("wanted")
            w.add(Let("bool", (own,), (condition,)))
            wanted = names.variable(own, BOOL)
        known = Needs(1)
        known.update(found.needs)
        known.update(found.wanted[window.name])
        with w.when(context.aligned_flag(window.buffer, window.per)):
            for k, n in pieces(window, smaller=False):
                if n == 1:
                    _load_beside(window, k, (wanted, known), v.needs.lanes, context)
                else:
                    asked = None if wanted is None else context.scalar.legal(wanted)
                    load_vector(window, k, context, asked)
        with w.otherwise():
            _load(window, window.low, window.high, v.needs.lanes, context)
    emit_vectors(replace(v, windows=()), context)


def _load_beside(
    window: Window, k: int, asked: tuple[Expr | None, Needs], lanes: int, context: KernelContext
) -> None:
    """One of the other elements, as a lane loads it; what is ``asked`` in any case, and what is
    known then.
    """
    wanted, known = asked
    storage = window.storage
    offset, load = next(x for x in window.loads if x[0] <= k < x[0] + lanes)
    load = substitute(_moved(load, k - offset), {LANE.name: IntImm(0)})
    assert isinstance(load, Load)
    inside, left = Needs(1), [] if wanted is None else [wanted]
    known = replace(known, least=dict(known.least), tests=dict(known.tests))
    for c in () if load.predicate is None else conjuncts(load.predicate):
        own = Needs(1)
        own.holds(c)
        if not known.implies(own):
            left.append(c)
    for c in left[wanted is not None :]:
        known.holds(c)
    load = replace(load, predicate=reduce(conjunction, left) if left else None)
    Windows(context, inside).inside(replace(load, predicate=None), inside)
    free = {load} - context.facts.inside if known.implies(inside) else set[Load]()
    context.facts.inside.update(free)
    to = element(storage.type, pointer(window.name), k - window.first)
    context.writer.store(to, context.scalar.legal(load))
    context.facts.inside.difference_update(free)


def reaches_edges(v: Vectors) -> bool:
    """Whether lanes may read what lies beyond an edge, which is clamped lane by lane, and there are
    few enough elements. (What is mirrored or comes around takes a division for each.)
    """
    places = [e.index for w in v.windows for _, e in w.loads]
    bent = any(isinstance(e, Select) for place in places for e in walk_expr(place))
    few = sum(map(_written_out, v.windows)) <= MOST
    alike = all(_agree(w, k, v.needs.lanes) for w in v.windows for k in range(w.low, w.high))
    return _is_dense(v) and not bent and few and any(map(_is_clamped, places)) and alike


def emit_at_edges(v: Vectors, context: KernelContext) -> Expr | None:
    """Write such a statement for where all lanes are stored; when they are not, if that may be: the
    rest is written lane by lane.
    """
    whole = condition_of(v.stored, (), context)
    with nullcontext() if whole is None else context.writer.when(whole):
        for window in v.windows:
            declare(window, context)
            _load(window, window.low, window.high, v.needs.lanes, context)
        emit_vectors(replace(v, windows=()), context)
    return whole


def _is_dense(v: Vectors) -> bool:
    return all(w.step == 1 and not w.anywhere for w in v.windows)


def _others(window: Window, lanes: int) -> list[int]:
    """What is read beside a thread's own elements."""
    return [k for k in range(window.low, window.high) if not 0 <= k < lanes]


def _is_near(window: Window, lanes: int) -> bool:
    """Whether the vectors of a window are those of the own elements, and it is the same which lane
    loads one of the others.
    """
    near = window.low > -window.per and window.high < lanes + window.per
    own = window.per > 1 and near and all(abs(offset) < lanes for offset, _ in window.loads)
    return own and all(_agree(window, k, lanes) for k in _others(window, lanes))


def _agree(window: Window, k: int, lanes: int) -> bool:
    """Whether all lanes that load an element take it from one place, wherever that is."""
    loads = [_moved(e, k - offset) for offset, e in window.loads if offset <= k < offset + lanes]
    return len({(in_order(e.index), _asked(e.predicate)) for e in loads}) == 1


def _asked(predicate: Expr | None) -> frozenset[Affine | Expr]:
    """What a predicate says, however it is written."""
    parts = () if predicate is None else conjuncts(predicate)
    return frozenset(_meant(c) for c in parts)


def _meant(condition: Expr) -> Affine | Expr:
    """What is not negative where a condition holds; else the condition."""
    match condition:
        case Not(value) if (room := slack(value)) is not None:
            return -room - 1
        case _:
            room = slack(condition)
            return in_order(condition) if room is None else room


def _moved(load: Load, lanes: int) -> Load:
    """The same so many lanes later."""
    own = substitute(load, {LANE.name: add(LANE, IntImm(lanes))})
    assert isinstance(own, Load)
    return own


def _written_out(window: Window) -> int:
    one = max((sum(1 for _ in walk_expr(e.index)) for _, e in window.loads), default=0)
    return one * (window.high - window.low)


def _is_clamped(index: Expr) -> bool:
    clamps = (e for e in walk_expr(index) if isinstance(e, Binary) and e.op in ENDS)
    return any(LANE.name in free_vars(e) for e in clamps)


def _load(window: Window, low: int, high: int, lanes: int, context: KernelContext) -> None:
    """Some elements, each as one of the lanes loads it."""
    w, storage, name, k = context.writer, window.storage, context.names.get(LANE.name), low
    for offset, load in sorted(window.loads, key=lambda x: x[0]):
        end = min(offset + lanes, high)
        if end <= k or offset > k:
            continue
        own = _moved(load, k - offset)
        with w.loop(name, number(0), number(end - k), "unrolled"):
            to = element(storage.type, pointer(window.name), plus(name, k - window.first))
            w.store(to, context.scalar.legal(own))
        k = end
