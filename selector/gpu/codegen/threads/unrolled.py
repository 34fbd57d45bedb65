"""Scalar statements of one thread that stand side by side, as those of an unrolled loop do: where
all of them are executed and all that they load is inside, nothing is tested between them.

    if (4*y < h) out[...] = a[...]               if (4*y + 3 < h && ...) { out[...] = a[...] ... }
    if (4*y + 1 < h) out[...] = a[... + w]  =>   else { if (4*y < h) out[...] = a[...]
    ...                                                 ... }

Behind a test a load waits for it, and the next statement for both. Without tests all loads go to
memory together. What is too long to be written twice stands behind one test where all have the
same, so that what they compute alike is computed once (``passes.name_choices``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space
from selector.gpu.codegen.threads.needs import Needs, Unknown
from selector.gpu.codegen.threads.sums import ThreadStatements
from selector.gpu.codegen.threads.vector_code import condition_of
from selector.gpu.codegen.threads.windows import Windows
from selector.gpu.ir.expressions import all_of
from selector.ir.affine import settled
from selector.ir.contents import holds, nodes_of
from selector.ir.nodes import Expr, Load, Stmt, Store, VectorReduce
from selector.ir.traverse import walk_expr
from selector.lowering.structure import loaded_names, stored_names, under_conditions
from selector.lowering.written_out import MOST


@dataclass(frozen=True, slots=True)
class _Unrolled:
    """``stores``, what has to hold for all to be executed, and ``loads`` that need no test then."""

    stores: tuple[Store, ...]
    needs: Needs
    loads: frozenset[Load]


def emit_unrolled(stmts: Sequence[Stmt], code: ThreadStatements) -> bool:
    """Write some statements if they are such."""
    context = code.context
    found = _unrolled(stmts, context) if len(stmts) > 1 else None
    condition = None if found is None else condition_of(found.needs, (), context)
    if found is None or condition is None:
        return False
    w, free = context.writer, found.loads - context.facts.inside
    context.facts.inside.update(free)
    with w.when(condition):
        for s in found.stores:
            code.statement(s)
    context.facts.inside.difference_update(free)
    with w.otherwise():
        if not _emit_behind_one(stmts, code):
            for s in stmts:
                code.statement(s)
    return True


def emit_behind_one(stmts: Sequence[Stmt], code: ThreadStatements) -> bool:
    """Write some statements that are too long to be written twice, if they have one condition."""
    stores = [store for s in stmts if isinstance(store := under_conditions(s)[1], Store)]
    nodes = sum(1 for s in stores for _ in walk_expr(s.value)) if len(stmts) > 1 else 0
    return nodes > MOST and _emit_behind_one(stmts, code)


def _emit_behind_one(stmts: Sequence[Stmt], code: ThreadStatements) -> bool:
    found, context = [under_conditions(s) for s in stmts], code.context
    stores = [s for _, s in found if isinstance(s, Store) and _is_plain(s, context)]
    tests = {(*conditions, s.predicate) for conditions, s in found if isinstance(s, Store)}
    written = frozenset[str]().union(*map(stored_names, stores))
    if len(tests) != 1 or len(stores) < len(stmts) or any(loaded_names(s) & written for s in stmts):
        return False
    (conditions,) = tests
    test = all_of(context.scalar.legal(c) for c in conditions if c is not None)
    with nullcontext() if test is None else context.writer.when(test):
        for s in stores:
            code.statement(Store(s.buffer, s.index, s.value))
    return True


def _unrolled(stmts: Sequence[Stmt], context: KernelContext) -> _Unrolled | None:
    needs, stores, loads = Needs(1), list[Store](), set[Load]()
    try:
        for s in stmts:
            conditions, store = under_conditions(s)
            if not isinstance(store, Store) or not _is_plain(store, context):
                return None
            for c in (*conditions, *([] if store.predicate is None else [store.predicate])):
                if holds(c, Load):
                    return None
                needs.holds(c)
            stores.append(Store(store.buffer, store.index, store.value))
    except Unknown:
        return None
    written = frozenset[str]().union(*map(stored_names, stores))
    if any(loaded_names(s) & written for s in stores):
        return None
    if sum(1 for s in stores for _ in walk_expr(s.value)) > MOST:
        return None
    for load, own in (found for s in stores for found in _inside(s.value, context)):
        needs.update(own)
        alike = settled(load)  # as an index has it
        loads |= {x for x in (load, alike) if isinstance(x, Load)}
    return _Unrolled(tuple(stores), needs, frozenset(loads)) if loads else None


def _is_plain(s: Store, context: KernelContext) -> bool:
    """Whether a statement stores one element, of which others than this thread's may know."""
    single = s.value.type.lanes == 1 and not holds(s.value, VectorReduce)
    return single and context.storages[s.buffer].space is Space.GLOBAL


def _inside(value: Expr, context: KernelContext) -> Iterator[tuple[Load, Needs]]:
    """The loads of which it can be said beforehand when they are inside, and when that is."""
    for load in nodes_of(value, Load):
        if load.predicate is not None or context.storages[load.buffer].space is not Space.GLOBAL:
            continue
        own = Needs(1)
        try:
            Windows(context, own).inside(load, own)
        except Unknown:
            continue
        if not any(holds(room.to_expr(), Load) for room in own.least):
            yield load, own
