"""Reductions of vectors, lane by lane: each becomes a loop ahead of the statement that has it."""

from __future__ import annotations

from dataclasses import replace

from selector.diagnostics import EmitError
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.legal import computed
from selector.gpu.codegen.scalars.storage import c_type
from selector.gpu.ir.expressions import number
from selector.gpu.ir.nodes import State
from selector.ir.contents import holds
from selector.ir.lanes import Digits, own_lane
from selector.ir.nodes import Binary, Cast, Expr, IntImm, ReduceOp, Select, Store, Var, VectorReduce
from selector.ir.traverse import change_expr


def lane_of(e: Expr, digits: Digits, context: KernelContext) -> Expr:
    """One lane of a value; reductions become loops written ahead of the statement."""
    match e:
        case VectorReduce(op, value, lanes) if value.type.lanes != lanes:
            return _reduced(op, value, value.type.lanes // lanes, digits, context)
        case _ if not holds(e, VectorReduce):
            return own_lane(e, digits)
        case Binary(op, a, b):
            return Binary(op, lane_of(a, digits, context), lane_of(b, digits, context))
        case Cast(t, v):
            return Cast(t.element, lane_of(v, digits, context))
        case Select(c, a, b):
            chosen = (lane_of(x, digits, context) for x in (a, b))
            return Select(own_lane(c, digits), *chosen)
        case _:
            raise EmitError(f"a reduction inside a {type(e).__name__} has no form in a thread")


def expanded(s: Store, context: KernelContext) -> Store:
    """A scalar store whose value may hold a reduction to one lane."""
    if not holds(s.value, VectorReduce):
        return s

    def expand(e: Expr) -> Expr | None:
        match e:
            case VectorReduce(op, value, 1):
                return _reduced(op, value, value.type.lanes, (), context)
            case _:
                return None

    return replace(s, value=change_expr(s.value, expand))


def _reduced(
    op: ReduceOp, value: Expr, factor: int, digits: Digits, context: KernelContext
) -> Expr:
    w, names, scalar = context.writer, context.names, context.scalar
    step, total = Var(f"$r{names.fresh('r')}"), names.fresh("total")
    counter, t = names.get(step.name), value.type.element

    def term(place: Expr) -> Expr:
        return scalar.legal(lane_of(value, ((place, factor), *digits), context))

    w.add(State(c_type(t), (total,), (term(IntImm(0)),)))
    with w.loop(counter, number(1), number(factor)):
        found = term(step)
        w.store(Var(total, t), computed(op.joins, Var(total, t), found, t))
    return names.variable(total, t)
