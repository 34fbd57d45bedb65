"""Why a statement could not go to the tensor unit: the first condition that fails, and the change
that mends it.

The checks run in the order in which a user would mend them: placement of the accumulator, shape of
the statement, types, target, access patterns, block shape. They look at the statement itself, not
at the e-graph.
"""

from __future__ import annotations

from collections.abc import Iterator

from selector.eqsat.conditions import blocks, factors, placement, sums
from selector.eqsat.conditions.context import Context, Miss, nearest, stage_of
from selector.eqsat.extract import Shape
from selector.eqsat.scopes import Scope
from selector.intrinsics import TensorInstruction
from selector.ir.remarks import Origin
from selector.operands.updates import Update
from selector.targets import Target

__all__ = ["Miss", "diagnose", "stage_of"]


def diagnose(
    scope: Scope,
    index: int,
    shapes: frozenset[Shape],
    legal: tuple[TensorInstruction, ...],
    target: Target,
    origins: tuple[Origin, ...] = (),
) -> Miss:
    """The first condition that statement ``index`` of a scope fails.

    ``shapes`` are the instructions and tiles that it could use alone; ``origins`` the user's names.
    """
    context = Context(scope, scope.stores[index], legal, target, origins)
    for miss in _checks(context, shapes):
        if miss is not None:
            return miss
    return context.miss(
        "no rule turns its access pattern into operands of an instruction",
        "look at `python -m selector rules trace` for what the rules made of it",
        nearest(context),
    )


def _checks(c: Context, shapes: frozenset[Shape]) -> Iterator[Miss | None]:
    yield placement.no_unit(c)
    yield placement.other_shape(c, shapes)
    if c.store.buffer not in c.scope.accumulators:
        yield placement.reads(c)
        return
    yield placement.dense_store(c)
    yield placement.reads(c)
    yield placement.predicated(c)
    if stage_of(c.store, c.scope) == "init":
        yield placement.unused(c)
        return
    update = Update.of(c.store)
    yield sums.one_reduction(c, update)
    yield sums.accumulates(c, update)
    yield sums.factored(c)
    yield sums.product(c, update)
    yield factors.loaded(c, update)
    yield factors.types(c, update)
    yield factors.affine(c, update)
    yield blocks.block(c, update)
