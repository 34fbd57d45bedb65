"""What a pipeline's author has promised of its parameters, checked before anything runs.

A promise comes with a condition on the parameters that is enough for it. Only where that is false,
and the promise is one about the iterations of loops, are these looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from selector.diagnostics import ArgumentError
from selector.ir.evaluator import Frame, evaluate, evaluate_expr
from selector.ir.remarks import Everywhere
from selector.runtime.arguments import number
from selector.runtime.plan import Plan
from selector.runtime.sizes import Environment

TOGETHER = 1 << 18  # iterations that are looked at at once


def check_promises(plan: Plan, env: Environment, scalars: Mapping[str, np.generic]) -> None:
    """``ArgumentError`` with the first promise that does not hold of these sizes and scalars."""
    if not plan.promises:
        return
    values = {**env, **{name: number(plan, name, value) for name, value in scalars.items()}}
    for promise in plan.promises:
        if evaluate_expr(promise.condition, values).all():
            continue
        if promise.exactly is None or not _holds(promise.exactly, values):
            raise ArgumentError(
                promise.message,
                why="the pipeline was compiled with that promise, and these arguments break it",
                hint="pass arguments that keep it, or compile a pipeline that promises less",
            )


def _holds(e: Everywhere, values: Mapping[str, object]) -> bool:
    """Whether a condition holds in all iterations."""
    known = {
        name: np.asarray(v, None if isinstance(v, np.generic) else np.int32).reshape(1, 1)
        for name, v in values.items()
    }
    with np.errstate(all="ignore"):
        frames = _iterations(e, 0, Frame(1, known))
        return all(bool(evaluate(e.condition, frame).all()) for frame in frames)


def _iterations(e: Everywhere, depth: int, frame: Frame) -> Iterator[Frame]:
    """The iterations of the loops from number ``depth`` on, so many at once: each of those around
    them, that is those of ``frame``, has its own.
    """
    if depth == len(e.loops):
        yield frame
        return
    name, low, extent = e.loops[depth]
    counts = np.maximum(np.broadcast_to(evaluate(extent, frame), (frame.size, 1))[:, 0], 0)
    ends = np.cumsum(counts, dtype=np.int64)
    for begin in range(0, int(ends[-1]), TOGETHER):
        numbers = np.arange(begin, min(begin + TOGETHER, int(ends[-1])))
        around = np.searchsorted(ends, numbers, side="right")
        inner = frame.pick(around)
        own = (numbers - (ends - counts)[around])[:, None]
        inner.variables[name] = (evaluate(low, inner) + own).astype(np.int32)
        yield from _iterations(e, depth + 1, inner)
