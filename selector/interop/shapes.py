"""Shapes of outputs from those of inputs, for sizes that a tracer does not know yet, too.

A plan's requirements say what its outputs need of its inputs; where they are affine in an extent of
an output they are solved for it, with integers or with torch's symbolic ones. Beside
``runtime.sizes.infer_extents``, which searches, and gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selector.diagnostics import ArgumentError
from selector.ir.affine import Affine
from selector.ir.nodes import Var
from selector.ir.remarks import Requirement
from selector.ir.traverse import free_vars
from selector.runtime import arguments
from selector.runtime.plan import Plan
from selector.runtime.prepare import output_shapes
from selector.runtime.sizes import constant_extents

Shape = tuple[Any, ...]
Rule = Callable[..., Any]


def rule_of(plan: Plan, shape: str | Rule | None) -> Rule:
    """A function from shapes of inputs (and scalars), in calling order, to those of all outputs.

    ``shape``: the input whose shape the output has, or a function that gives the output's shape, or
    a dict of those of several; None: what follows from the plan. ``ArgumentError`` for a name that
    is no input.
    """
    outputs = arguments.outputs_of(plan)
    if isinstance(shape, str):
        names = arguments.parameter_names(plan)
        if shape not in names:
            raise ArgumentError(
                f"{plan.name} has no input {shape!r}", why=f"it takes {', '.join(names)}"
            )
        place = names.index(shape)
        return lambda *given: (tuple(given[place]),) * len(outputs)
    if shape is None:
        return lambda *given: _inferred(plan, given)

    def by_user(*given: Any) -> tuple[Shape, ...]:
        found = shape(*given)
        if isinstance(found, Mapping):
            return tuple(tuple(found[b.name]) for b in outputs)
        return (tuple(found),)

    return by_user


def _inferred(plan: Plan, given: Sequence[Any]) -> tuple[Shape, ...]:
    inputs, outputs = arguments.inputs_of(plan), arguments.outputs_of(plan)
    known: dict[str, Any] = {}
    for buffer, shape in zip(inputs, given, strict=False):
        known |= {f"{buffer.name}.extent.{d}": n for d, n in enumerate(reversed(shape))}
    for scalar, value in zip(plan.scalars, given[len(inputs) :], strict=True):
        known[scalar.name] = value
    found: list[Shape] = []
    for buffer in outputs:
        extents = [
            _solved(plan, f"{buffer.name}.extent.{d}", known) if fixed is None else fixed
            for d, fixed in enumerate(constant_extents(buffer))
        ]
        if None in extents:
            return _searched(plan, given)
        found.append(tuple(reversed(extents)))
    return tuple(found)


def _solved(plan: Plan, name: str, known: Mapping[str, Any]) -> Any:
    """The largest value of an extent with which all inputs suffice; None where no input bounds it,
    or not by sums alone.
    """
    values: list[Any] = []
    outputs = {b.name for b in arguments.outputs_of(plan)}
    for r in plan.requirements:
        if r.buffer in outputs or name not in free_vars(r.maximum):
            continue
        value = _bound(r, name, known)
        if value is None:
            return None
        values.append(value)
    if not values:
        return None
    least = values[0]
    for value in values[1:]:
        least = least if _same(least, value) else min(least, value)
    return least


def _bound(r: Requirement, name: str, known: Mapping[str, Any]) -> Any:
    """The largest value of an extent that an input's extent allows."""
    most = Affine.of(r.maximum)
    step = most.coefficient(Var(name)).constant
    if step is None or step <= 0:
        return None
    rest: Any = 0
    for monomial, factor in most.rest(Var(name)):
        for atom in monomial:
            if not isinstance(atom, Var) or atom.name not in known:
                return None
            factor = factor * known[atom.name]
        rest = rest + factor
    room = known[f"{r.buffer}.extent.{r.dim}"] - 1 - rest
    return room if step == 1 else room // step


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def _searched(plan: Plan, given: Sequence[Any]) -> tuple[Shape, ...]:
    """By trying; sizes become those of this call."""
    inputs = arguments.inputs_of(plan)
    known = {
        b.name: arguments.dense_size(b, tuple(int(n) for n in shape))
        for b, shape in zip(inputs, given, strict=False)
    }
    numbers = {
        s.name: int(v)
        for s, v in zip(plan.scalars, given[len(inputs) :], strict=True)
        if not s.type.is_float
    }
    found = output_shapes(plan, known, numbers, None)
    return tuple(found[b.name] for b in arguments.outputs_of(plan))
