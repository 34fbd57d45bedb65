"""Vectors of one thread (``thread_vectors``) some lanes of which read beyond an edge.

    out[ramp(8*x, 1, 8)] = a[max(min(ramp(8*x + 2, 1, 8), w - 1), 0)] + ...

goes as vectors where all lanes are inside. Few threads have others, but those beside them in a warp
wait for them: what they read is loaded element by element, all of it before the first use; computed
and stored it is as vectors.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from selector.emit.context import KernelContext
from selector.emit.scalar import c_type
from selector.emit.thread_lanes import LANE
from selector.emit.thread_vector_code import condition_of, emit_vectors
from selector.emit.thread_vectors import Vectors, Window
from selector.gpu.ir.expressions import element, number, plus, pointer
from selector.gpu.ir.memory import Array
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Select
from selector.ir.simplify import add
from selector.ir.traverse import free_vars, substitute, walk_expr

ENDS = (BinaryOp.MIN, BinaryOp.MAX)
MOST = 2400  # nodes of the places of all elements: more takes long to compile


def reaches_edges(v: Vectors) -> bool:
    """Whether lanes may read what lies beyond an edge, which is clamped lane by lane, and there are
    few enough elements. (What is mirrored or comes around takes a division for each.)
    """
    places = [e.index for w in v.windows for e in w.loads.values()]
    dense = all(w.step == 1 and not w.anywhere for w in v.windows)
    bent = any(isinstance(e, Select) for place in places for e in walk_expr(place))
    few = sum(map(_written_out, v.windows)) <= MOST
    return dense and not bent and few and any(map(_is_clamped, places))


def _written_out(window: Window) -> int:
    one = max((sum(1 for _ in walk_expr(e.index)) for e in window.loads.values()), default=0)
    return one * (window.high - window.low)


def _is_clamped(index: Expr) -> bool:
    clamps = (e for e in walk_expr(index) if isinstance(e, Binary) and e.op in ENDS)
    return any(LANE.name in free_vars(e) for e in clamps)


def emit_at_edges(v: Vectors, context: KernelContext) -> Expr | None:
    """Write such a statement for where all lanes are stored; when they are not, if that may be: the
    rest is written lane by lane.
    """
    whole = condition_of(v.stored, (), context)
    with nullcontext() if whole is None else context.writer.when(whole):
        for window in v.windows:
            _load(window, v.needs.lanes, context)
        emit_vectors(replace(v, windows=()), context)
    return whole


def _load(window: Window, lanes: int, context: KernelContext) -> None:
    """Each element as one of the lanes loads it."""
    w, storage, name = context.writer, window.storage, context.names.get(LANE.name)
    size, alignment = window.high - window.first, window.per * storage.type.bytes
    w.add(Array(window.name, c_type(storage.type), size, alignment))
    k = window.low
    for offset, load in sorted(window.loads.items(), key=lambda x: x[0]):
        end = min(offset + lanes, window.high)
        if end <= k:
            continue
        own = substitute(load, {LANE.name: add(LANE, IntImm(k - offset))})
        with w.loop(name, number(0), number(end - k), "unrolled"):
            to = element(storage.type, pointer(window.name), plus(name, k - window.first))
            w.store(to, context.scalar.legal(own))
        k = end
