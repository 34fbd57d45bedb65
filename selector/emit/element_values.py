"""Values of a block's elements, made of what a lane holds (``elements``): accumulators, tiles, rows
and numbers that are kept in registers, staged memory, what all elements read.
"""

from __future__ import annotations

from selector.diagnostics import EmitError
from selector.emit.context import KernelContext
from selector.emit.elements import COLUMN, ROW, AccumulatorElement, ElementScalar, ElementValues
from selector.emit.lane_numbers import lane_number
from selector.emit.places import ReadOut
from selector.emit.regions import LANE_NAMES, Region
from selector.emit.row_registers import row_element
from selector.emit.scalar import c_type
from selector.emit.staged_tiles import kept_element, staged_element
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine, to_affine
from selector.ir.lanes import Digits
from selector.ir.nodes import Binary, Call, Cast, Expr, Load, Select, Var
from selector.ir.simplify import literal
from selector.ir.traverse import free_vars, map_expr


def element_values(
    context: KernelContext,
    plan: ReadOut,
    region: Region,
    outer: Digits,
    *,
    guarded: bool,
    summed: bool = False,
) -> ElementValues:
    """Value and guard of a block's elements."""
    digits = ((COLUMN, region.n), (ROW, region.m), *outer)
    value, expected = plan.element(digits)
    scalar = ElementScalar(context, region, summed=summed)
    held = _held(value, expected, scalar)
    p = plan.store.predicate
    guard = plan.condition(p, digits) if guarded and p is not None else None
    return ElementValues(held, guard, scalar)


def _held(x: Expr, expected: Affine, scalar: ElementScalar) -> Expr:
    """A value of an element with leaves for what a lane holds; accumulators are read in the order
    ``expected``.
    """
    match x:
        case Call(t, "tile.read", (Load(_, buffer, index, wanted),)):
            if to_affine(index) != expected:
                raise EmitError(
                    f"`{buffer}` is read in an order other than the one it is kept in",
                    hint="read all accumulators of a statement with the same index",
                )
            read = scalar.leaf(AccumulatorElement(buffer, t), t)
            return read if wanted is None else Select(wanted, read, literal(0, t))
        case Load() if x.buffer in scalar.context.registers.tiles:
            return kept_element(x, scalar)
        case Load() if (row := row_element(x, scalar)) is not None:
            return row
        case Cast() | Binary() if (number := lane_number(x, scalar)) is not None:
            return number
        case Load() if (half := staged_element(x, scalar)) is not None:
            return half
        case Load() if _is_uniform(x, scalar.context):
            return _loaded_once(x, scalar.context)
        case _:
            return map_expr(x, lambda e: _held(e, expected, scalar))


def _is_uniform(load: Load, context: KernelContext) -> bool:
    """Whether all elements read the same number of an input."""
    return context.is_input(load.buffer) and not LANE_NAMES & free_vars(load)


def _loaded_once(load: Load, context: KernelContext) -> Var:
    """What stands for a number which all elements read."""
    name, value = context.names.fresh(load.buffer), context.scalar.legal(load)
    context.writer.add(Let(c_type(load.type), (name,), (value,)))
    return context.names.variable(name, load.type)
