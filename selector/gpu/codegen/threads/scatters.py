"""Loops of one thread that update elements which data choose, as a histogram's: what all iterations
load is loaded ahead of the first update.

    for k in 0..8 (unrolled): if (c) bins[a[8*i + k]] += 1

Each load of ``a`` takes as long as a few hundred instructions; behind an update, which may be of
any element, none would begin before that is done.
"""

from __future__ import annotations

from contextlib import nullcontext

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.gpu.ir.expressions import all_of, element, number, pointer
from selector.gpu.ir.memory import Array
from selector.ir.contents import holds
from selector.ir.nodes import Expr, For, ForKind, IntImm, Load, Store, Var
from selector.ir.traverse import free_vars, replaced_all, walk_expr
from selector.lowering.structure import under_conditions

MOST = 32  # elements that a thread holds


@dataclass(frozen=True, slots=True)
class Scatter:
    """``store``, where all ``conditions`` hold, and what it ``loads`` from arrays, each once."""

    loop: For
    count: int
    store: Store
    conditions: tuple[Expr, ...]
    loads: tuple[Load, ...]


def as_scatter(s: For, context: KernelContext) -> Scatter | None:
    """None for other loops."""
    if s.kind is not ForKind.UNROLLED or not isinstance(s.extent, IntImm) or s.extent.value > MOST:
        return None
    conditions, body = under_conditions(s.body)
    if not isinstance(body, Store) or body.value.type.lanes > 1:
        return None
    if not holds(body.index, Load):
        return None
    loads = dict.fromkeys(
        e
        for part in (body.index, body.value)
        for e in walk_expr(part)
        if isinstance(e, Load) and s.name in free_vars(e) and _is_given(e, context)
    )
    return Scatter(s, s.extent.value, body, tuple(conditions), tuple(loads)) if loads else None


def _is_given(e: Load, context: KernelContext) -> bool:
    """Whether nobody writes there while the kernel runs, and it may be asked for anywhere."""
    plain = not holds(e.index, Load) and e.predicate is None
    return plain and context.is_input(e.buffer) and context.storages[e.buffer].space is Space.GLOBAL


def emit_scatter(s: Scatter, context: KernelContext) -> None:
    """Write the loop as two."""
    w, scalar, name = context.writer, context.scalar, context.names.get(s.loop.name)
    held: dict[Expr, Expr] = {}
    with w.block():
        for load in s.loads:
            own = context.names.fresh("held")
            context.storages[own] = Storage(own, load.type, Space.LOCAL)
            w.add(Array(own, c_type(load.type), s.count))
            held[load] = Load(load.type, own, Var(s.loop.name))
        with w.loop(name, number(0), number(s.count), "unrolled"):
            for load, own in held.items():
                assert isinstance(own, Load)
                to = element(load.type, pointer(own.buffer), name)
                w.store(to, scalar.legal(load))
        with w.loop(name, number(0), number(s.count), "unrolled"):
            index, value = (replaced_all(e, held) for e in (s.store.index, s.store.value))
            test = all_of(scalar.legal(replaced_all(c, held)) for c in s.conditions)
            to = scalar.access(context.storages[s.store.buffer], index)
            with nullcontext() if test is None else w.when(test):
                w.store(to, scalar.legal(value))
