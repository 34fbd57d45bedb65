"""What a pipeline's author has promised of its parameters, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from selector.diagnostics import ArgumentError
from selector.ir.evaluator import evaluate_expr
from selector.ir.types import Kind
from selector.runtime.plan import Plan
from selector.runtime.sizes import Environment


def check_promises(plan: Plan, env: Environment, scalars: Mapping[str, np.generic]) -> None:
    """``ArgumentError`` with the first promise that does not hold of these sizes and scalars."""
    if not plan.promises:
        return
    values = {**env, **{name: number(plan, name, value) for name, value in scalars.items()}}
    for promise in plan.promises:
        if not evaluate_expr(promise.condition, values).all():
            raise ArgumentError(
                promise.message,
                why="the pipeline was compiled with that promise, and these arguments break it",
                hint="pass arguments that keep it, or compile a pipeline that promises less",
            )


def number(plan: Plan, name: str, value: np.generic) -> np.generic:
    """A scalar as the interpreter takes it: a number, also where a device takes bfloat16 bits."""
    scalar = next(s for s in plan.scalars if s.name == name)
    if scalar.type.kind is not Kind.BFLOAT:
        return value
    return np.uint32(int(value) << 16).view(np.float32)
