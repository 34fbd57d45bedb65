"""Running the selected program in the interpreter, called like a kernel."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.runtime import arguments, host
from selector.runtime.arrays import view
from selector.runtime.plan import Plan
from selector.runtime.prepare import output_sizes
from selector.runtime.promises import check_promises
from selector.runtime.sizes import Size, check_requirements, environment


def interpret_plan(
    plan: Plan, module: Module, args: Sequence[Any], named: Mapping[str, Any], sizes: Any
) -> Any:
    """Run ``module`` on arrays of any kind; the output, or a dict of outputs by name.

    The same checks and the same sizes as for a call on a device. Inputs of torch give torch tensors
    on the CPU, all others NumPy arrays.
    """
    importlib.import_module("selector.intrinsics")  # gives the interpreter their meaning

    values = arguments.match_names(plan, args, named)
    inputs = arguments.inputs_of(plan)
    arrays = {b.name: host.to_host(b.name, values[b.name]) for b in inputs}
    known: dict[str, Size] = {}
    for buffer in inputs:
        seen = view(buffer.name, arrays[buffer.name])
        arguments.check_array(buffer, seen)
        known[buffer.name] = arguments.size_of(buffer, seen)
    scalars = {s.name: arguments.check_scalar(s, values[s.name]) for s in plan.scalars}
    numbers = arguments.numbers(plan, scalars)
    known |= output_sizes(plan, known, numbers, sizes)
    env = environment(plan, known, numbers)
    check_requirements(plan, env)
    check_promises(plan, env, scalars)
    shapes = {b.name: known[b.name].extents[::-1] for b in arguments.outputs_of(plan)}
    results = interpret(
        module, arrays, {n: arguments.number(plan, n, v) for n, v in scalars.items()}, shapes
    )
    given = [values[b.name] for b in inputs]
    made = {b.name: host.to_result(b, results[b.name], given) for b in arguments.outputs_of(plan)}
    return next(iter(made.values())) if len(made) == 1 else made
