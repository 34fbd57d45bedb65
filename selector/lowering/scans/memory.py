"""After how many steps a linear recurrence has forgotten where it began.

Where weights are numbers and the powers of the transition decay, what lies further back is left out
of a state, so that blocks, and threads far apart, have nothing to tell each other: they run through
so many steps ahead of their own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from selector.diagnostics import InternalError
from selector.ir.affine import settled
from selector.ir.contents import holds
from selector.ir.evaluator import Frame, evaluate
from selector.ir.nodes import Expr, IntImm, Load, Store, Var
from selector.ir.simplify import add, mul, sub
from selector.ir.traverse import free_vars, substitute
from selector.ir.types import Type
from selector.lowering.scans.find import Spread

LONGEST = 1 << 14  # steps that are looked through
LARGEST = 1e30  # a power that does not decay


def memory(found: Spread) -> int | None:
    """The number of steps after which no state makes a difference of more than the square of the
    type's precision, of its own largest part, to any that comes later; None where there is none, or
    it is not known what outputs are multiplied by.
    """
    if not found.weights or not found.type.is_float:
        return None
    if any(free_vars(w) or holds(w, Load) for w in found.weights):
        return None
    try:
        weights = [float(evaluate(w, Frame(1, {})).flat[0]) for w in found.weights]
    except InternalError:
        return None
    return steps_until(weights, _precision(found.type) ** 2)


def ahead(found: Spread, kept: int, threads: int) -> Spread | None:
    """The steps before a block's of which it has ``kept`` at least, as few for each thread; None
    where a tile has fewer, or the steps of a thread are no single loop.
    """
    if found.blocks is None or len(found.inner) != 1:
        return None
    (x,), steps = found.inner, 1 << (-(-kept // threads) - 1).bit_length()
    if found.steps % steps or (found.steps // steps).bit_count() != 1:
        return None
    along = found.along
    place = sub(add(mul(Var(along.name), IntImm(steps)), Var(x.name)), IntImm(threads * steps))
    values: dict[str, Expr] = {x.name: place, along.name: IntImm(0)}  # as if one took all steps
    values |= {loop.name: loop.min for loop in found.outer}
    store = Store(
        found.store.buffer,
        settled(substitute(found.store.index, values)),
        settled(substitute(found.store.value, values)),
    )
    loops = (found.blocks, along, replace(x, extent=IntImm(steps)))
    tests = tuple(settled(substitute(t, values)) for t in found.tests)
    return replace(found, store=store, loops=loops, tests=tests)


def steps_until(weights: list[float], small: float) -> int | None:
    """Steps after which the transition's powers, that one and all later ones, are so small."""
    order, power, largest = len(weights), np.eye(len(weights)), 1.0
    transition = np.eye(order, k=-1)
    transition[0] = weights
    for steps in range(1, LONGEST):
        power = power @ transition
        size = float(np.abs(power).sum(1).max())
        if size > LARGEST:
            return None
        largest = max(largest, size)
        if size * largest <= small:  # any later power is one of these, one before, and no others
            return steps
    return None


def _precision(t: Type) -> float:
    return float(np.finfo(np.float64 if t.bits == 64 else np.float32).eps)
