"""The sizes of a call: what the expressions of a plan are worth, and output extents that were not
given.

A plan states what it reads as requirements: ``[minimum, maximum]`` of each dimension of each
buffer, as expressions over the extents of the outputs. ``infer_extents`` turns them round: each
unknown output extent becomes the largest one whose requirements the inputs meet (the "valid
region" of a convolution).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError
from selector.ir.interpreter import evaluate_scalar
from selector.ir.nodes import BufferParam, Call, Expr, IntImm, Role, Var
from selector.ir.remarks import Requirement
from selector.ir.traverse import free_vars, walk_expr
from selector.runtime.plan import Plan

Environment = dict[str, Any]  # integers, and scalars that sizes are computed from
LARGEST = 2**31 - 1  # indices are int32
_SEARCH_LIMIT = 2**30


@dataclass(frozen=True, slots=True)
class Size:
    """Extents and strides of one buffer in elements, innermost dimension first."""

    extents: tuple[int, ...]
    strides: tuple[int, ...]


def environment(plan: Plan, sizes: Mapping[str, Size], scalars: Environment) -> Environment:
    """Values of the variables that a plan's expressions may use, for the buffers in ``sizes``."""
    env: Environment = dict(scalars)
    for buffer in plan.buffers:
        size = sizes.get(buffer.name)
        if size is None:
            continue
        for d, dim in enumerate(buffer.dims):
            bind_extent(env, buffer, d, size.extents[d])
            env[f"{buffer.name}.min.{d}"] = 0
            env[f"{buffer.name}.stride.{d}"] = size.strides[d]
            _bind(env, dim.stride, size.strides[d])
    return env


def bind_extent(env: Environment, buffer: BufferParam, d: int, value: int) -> None:
    """Note the extent of one dimension, under its own name and the variable that the plan has for
    it.
    """
    env[f"{buffer.name}.extent.{d}"] = value
    _bind(env, buffer.dims[d].extent, value)


def constant_extents(buffer: BufferParam) -> tuple[int | None, ...]:
    """The extents that the plan fixes, innermost first; None where they are free."""
    return tuple(d.extent.value if isinstance(d.extent, IntImm) else None for d in buffer.dims)


def axis_of(buffer: BufferParam, dim: int) -> int:
    """The NumPy axis of a dimension: the last axis is dimension 0."""
    return len(buffer.dims) - 1 - dim


def infer_extents(plan: Plan, env: Environment, unknown: Sequence[tuple[BufferParam, int]]) -> None:
    """Give each unknown output extent its largest value that the inputs allow, in ``env``.

    ``ArgumentError`` if no requirement bounds an extent by itself: then there is more than one
    answer.
    """
    names = frozenset(f"{b.name}.extent.{d}" for b, d in unknown)
    for buffer, d in unknown:
        own = f"{buffer.name}.extent.{d}"
        bounding = [
            r
            for r in plan.requirements
            if _is_input(plan, r.buffer) and _unknowns(r, names) == frozenset((own,))
        ]
        value = _largest(_fits(plan, bounding, env, own), _reach(bounding, env, own))
        if value is None:
            raise ArgumentError(
                f"{buffer.name}: its axis {axis_of(buffer, d)} does not follow from the inputs",
                hint=_way_out(buffer.name),
            )
        bind_extent(env, buffer, d, value)


def check_requirements(plan: Plan, env: Environment) -> None:
    """``ArgumentError`` naming the first buffer that is too small for the outputs asked for."""
    if _writes_nothing(plan, env):
        return
    _know_functions(plan)
    for r in plan.requirements:
        buffer = _buffer(plan, r.buffer)
        low, high = evaluate_scalar(r.minimum, env), evaluate_scalar(r.maximum, env)
        first = evaluate_scalar(buffer.dims[r.dim].min, env)
        has = env[f"{r.buffer}.extent.{r.dim}"]
        if high < low or (first <= low and high < first + has):
            continue
        axis = axis_of(buffer, r.dim)
        if low < first:
            what = f"{r.buffer}: axis {axis} is read from {low} on, and begins at {first}"
        else:
            what = f"{r.buffer}: axis {axis} needs {high + 1 - first} elements, has {has}"
        raise ArgumentError(
            f"{what}, for {_outputs_text(plan, env)}",
            hint="pass larger inputs (padded), or ask for a smaller output with out= or sizes=",
        )


def _know_functions(plan: Plan) -> None:
    """Give the functions of positions in floats (``floor_f32``) their meaning."""
    ends = (e for r in plan.requirements for e in (r.minimum, r.maximum))
    if any(isinstance(x, Call) for e in ends for x in walk_expr(e)):
        importlib.import_module("selector.intrinsics")


def _writes_nothing(plan: Plan, env: Environment) -> bool:
    outputs = [b for b in plan.buffers if b.role is Role.OUTPUT]
    return all(any(env[f"{b.name}.extent.{d}"] == 0 for d in range(len(b.dims))) for b in outputs)


def _outputs_text(plan: Plan, env: Environment) -> str:
    outputs = [b for b in plan.buffers if b.role is Role.OUTPUT]
    shapes = (
        tuple(env[f"{b.name}.extent.{d}"] for d in reversed(range(len(b.dims)))) for b in outputs
    )
    return ", ".join(f"{b.name} of shape {s}" for b, s in zip(outputs, shapes, strict=True))


def _bind(env: Environment, where: Expr, value: int) -> None:
    if isinstance(where, Var):
        env[where.name] = value


def _buffer(plan: Plan, name: str) -> BufferParam:
    return next(b for b in plan.buffers if b.name == name)


def _is_input(plan: Plan, name: str) -> bool:
    return _buffer(plan, name).role is Role.INPUT


def _unknowns(r: Requirement, names: frozenset[str]) -> frozenset[str]:
    return (free_vars(r.minimum) | free_vars(r.maximum)) & names


def _fits(
    plan: Plan, bounding: Sequence[Requirement], env: Environment, name: str
) -> Callable[[int], bool]:
    """Whether the inputs meet the requirements for one value of an unknown extent."""

    def fits(value: int) -> bool:
        trial = {**env, name: value}
        for r in bounding:
            first = evaluate_scalar(_buffer(plan, r.buffer).dims[r.dim].min, trial)
            last = first + env[f"{r.buffer}.extent.{r.dim}"] - 1
            if evaluate_scalar(r.maximum, trial) > last:
                return False
            if evaluate_scalar(r.minimum, trial) < first:
                return False
        return True

    return fits


def _reach(bounding: Sequence[Requirement], env: Environment, name: str) -> Callable[[int], int]:
    """How far the reads go for one value of an unknown extent; it must not fall as the extent
    grows.
    """
    return lambda value: sum(evaluate_scalar(r.maximum, {**env, name: value}) for r in bounding)


def _largest(fits: Callable[[int], bool], reach: Callable[[int], int]) -> int | None:
    """The largest value that fits, by doubling and halving; None if nothing bounds it.

    1 if not even that fits: the check of the requirements then says what is too small.
    """
    if not fits(1):
        return 1
    good, bad = 1, 2
    while fits(bad):
        if bad >= _SEARCH_LIMIT or reach(bad) < reach(good):
            return None
        good, bad = bad, bad * 2
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _way_out(name: str) -> str:
    return f"give the size: sizes={{{name!r}: (...)}} (last axis innermost) or out=array"
