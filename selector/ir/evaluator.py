"""The meaning of every expression, for one iteration or for a whole batch of iterations at once.

A value is an array of shape (batch, lanes), where a value that all iterations share has batch 1. A
``Frame`` holds the variables; ``Memory`` holds buffers as (rows, elements), one row per iteration
that owns a copy.

``register(name, function)`` gives a call its meaning: ``function(call, values) -> values`` on such
arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, assert_never

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.ir import arithmetic
from selector.ir.arithmetic import Array, dtype_of
from selector.ir.bfloat16 import from_bits
from selector.ir.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Expr,
    ExprVar,
    FloatImm,
    IntImm,
    Let,
    Load,
    LocToLoc,
    Not,
    Ramp,
    Select,
    Shuffle,
    Var,
    VectorReduce,
)
from selector.ir.printer import print_expr
from selector.ir.simplify import COMPARE, FOLD, wrap
from selector.ir.types import BFLOAT16, Type

Meaning = Callable[[Call, Sequence[Array]], Array]
_CALLS: dict[str, Meaning] = {}


def register(name: str, meaning: Meaning) -> None:
    """Give calls of ``name`` a meaning; values and result are (batch, lanes), batch 1 where
    shared."""
    _CALLS[name] = meaning


def registered(name: str) -> bool:
    return name in _CALLS


@dataclass(slots=True)
class Buffer:
    """``data`` is (rows, elements); a bfloat16 parameter holds bit patterns (``bits``)."""

    element: Type
    data: Array
    level: int = 0
    bits: bool = False


@dataclass(slots=True)
class Frame:
    """A batch of iterations. ``rows[k]`` maps each to its row in buffers of level k; None is the
    identity."""

    size: int
    variables: dict[str, Array]
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    rows: tuple[Array | None, ...] = (None,)

    @property
    def level(self) -> int:
        return len(self.rows) - 1

    def pick(self, index: Array) -> Frame:
        """The batch whose j-th iteration continues this one's ``index[j]``-th; it is a level of its
        own."""
        variables = {
            name: value if value.shape[0] == 1 else value[index]
            for name, value in self.variables.items()
        }
        rows = tuple(index if r is None else r[index] for r in self.rows)
        return Frame(len(index), variables, self.buffers, (*rows, None))


def evaluate(e: Expr, frame: Frame) -> Array:  # noqa: C901 (one case per node)
    """The value of an expression: (batch or 1, lanes)."""
    match e:
        case Var(name, _):
            value = frame.variables.get(name)
            if value is None:
                raise InternalError(f"the variable `{name}` has no value")
            return value
        case IntImm(v, t):
            return np.array([[wrap(v, t)]], dtype_of(t))
        case FloatImm(v, t):
            return np.array([[v]], dtype_of(t))
        case Binary(op, a, b):
            return arithmetic.binary(op, evaluate(a, frame), evaluate(b, frame), e.type)
        case Compare(op, a, b):
            return arithmetic.compare(op, evaluate(a, frame), evaluate(b, frame))
        case Cast(t, v):
            return arithmetic.cast(evaluate(v, frame), t)
        case Load():
            return _load(e, frame)
        case Ramp(base, stride, n):
            return _ramp(evaluate(base, frame), evaluate(stride, frame), n)
        case Broadcast(v, n):
            value = evaluate(v, frame)
            return np.tile(value, (1, n))
        case VectorReduce(op, v, lanes):
            return arithmetic.reduce(op, evaluate(v, frame), lanes, e.type)
        case LocToLoc(_, _, v) | ExprVar(v):
            return evaluate(v, frame)
        case Not(v):
            return np.logical_not(evaluate(v, frame))
        case Select(c, t, f):
            return np.where(evaluate(c, frame), evaluate(t, frame), evaluate(f, frame))
        case Let(name, v, body):
            return _let(name, evaluate(v, frame), body, frame)
        case Shuffle(vectors, indices):
            values = [evaluate(v, frame) for v in vectors]
            batch = max(v.shape[0] for v in values)
            wide = [np.broadcast_to(v, (batch, v.shape[1])) for v in values]
            return np.concatenate(wide, axis=1)[:, list(indices)]
        case Call():
            return _call(e, frame)
        case _:
            assert_never(e)


def _ramp(base: Array, stride: Array, n: int) -> Array:
    steps = np.arange(n, dtype=base.dtype)[None, :, None] * stride[:, None, :]
    values = base[:, None, :] + steps
    return values.reshape(values.shape[0], -1)


def _let(name: str, value: Array, body: Expr, frame: Frame) -> Array:
    outer = frame.variables.get(name)
    frame.variables[name] = value
    result = evaluate(body, frame)
    del frame.variables[name]
    if outer is not None:
        frame.variables[name] = outer
    return result


def _call(e: Call, frame: Frame) -> Array:
    meaning = _CALLS.get(e.name)
    if meaning is None:
        raise InternalError(f"the call `{e.name}` has no meaning here: {print_expr(e)}")
    values = [evaluate(a, frame) for a in e.args]
    result = arithmetic.rounded(meaning(e, values), e.type)
    if result.ndim != 2 or result.shape[1] != e.type.lanes:
        raise InternalError(f"`{e.name}` gave {result.shape[1:]} lanes instead of {e.type.lanes}")
    return result


def contiguous(index: Expr, frame: Frame) -> slice | None:
    """The elements of a dense ramp with a base that all iterations share, else None."""
    match index:
        case Ramp(base, IntImm(1), n) if base.type.lanes == 1:
            first = evaluate(base, frame)
            return slice(int(first[0, 0]), int(first[0, 0]) + n) if first.shape[0] == 1 else None
        case _:
            return None


def _load(e: Load, frame: Frame) -> Array:
    buffer = frame.buffers.get(e.buffer)
    if buffer is None:
        raise InternalError(f"a load from the unknown buffer `{e.buffer}`")
    data, rows, size = buffer.data, frame.rows[buffer.level], buffer.data.shape[1]
    shared = data.shape[0] == 1
    dense = contiguous(e.index, frame) if e.predicate is None and (shared or rows is None) else None
    if dense is not None and dense.start >= 0 and dense.stop <= size:
        return _decoded(data[:, dense], buffer)
    index = evaluate(e.index, frame)
    if e.predicate is not None:
        index = np.where(evaluate(e.predicate, frame), index, index.dtype.type(-1))
    outside = None
    if index.min() < 0 or index.max() >= size:
        outside = (index < 0) | (index >= size)
        index = np.where(outside, 0, index)
    if size == 0:
        return np.zeros(index.shape, dtype_of(buffer.element))
    if shared:
        value = data[0].take(index)
    elif rows is None and index.shape[0] == 1:
        value = data.take(index[0], axis=1)
    else:
        row = np.arange(frame.size) if rows is None else rows
        value = data.reshape(-1).take(row[:, None] * size + index)
    value = _decoded(value, buffer)
    return value if outside is None else np.where(outside, value.dtype.type(0), value)


def _decoded(value: Array, buffer: Buffer) -> Array:
    return from_bits(value) if buffer.bits else value


def evaluate_expr(
    e: Expr, env: Mapping[str, object] | None = None, memory: Mapping[str, Array] | None = None
) -> Array:
    """The lanes of one expression, shape (lanes,); bfloat16 values come as float32.

    ``env`` holds numbers or 1-D arrays by variable, ``memory`` 1-D arrays by buffer (bfloat16 as
    uint16 bit patterns or as float32). A load outside its array gives 0.
    """
    frame = Frame(1, {k: np.atleast_1d(np.asarray(v))[None, :] for k, v in (env or {}).items()})
    _bind_variables(e, frame)
    for name, array in (memory or {}).items():
        frame.buffers[name] = Buffer(BFLOAT16, array[None, :], bits=False)
    for load in _loads(e):
        buffer = frame.buffers.get(load.buffer)
        if buffer is not None:
            buffer.element = load.type.element
            buffer.bits = buffer.element == BFLOAT16 and buffer.data.dtype == np.uint16
    with np.errstate(all="ignore"):
        return np.broadcast_to(evaluate(e, frame), (1, e.type.lanes))[0]


def _loads(e: Expr) -> list[Load]:
    from selector.ir.traverse import walk_expr

    return [x for x in walk_expr(e) if isinstance(x, Load)]


def _bind_variables(e: Expr, frame: Frame) -> None:
    """Give numbers from outside the types that the expression's variables have."""
    from selector.ir.traverse import walk_expr

    for x in walk_expr(e):
        if isinstance(x, Var) and x.name in frame.variables:
            frame.variables[x.name] = frame.variables[x.name].astype(dtype_of(x.type))


def evaluate_scalar(e: Expr, env: Mapping[str, int | float]) -> int:
    """The value of a scalar integer expression, in Python integers: for sizes and launch geometry.
    Positions that are computed in floats (``floor(x * scale)``) are rounded as their types say.

    InternalError for what has no such value: loads, unknown variables.
    """
    match e:
        case IntImm(v, _):
            return v
        case Var(name, _):
            if name not in env:
                raise InternalError(f"the variable `{name}` has no value")
            return int(env[name])
        case Binary(op, a, b):
            return FOLD[op](evaluate_scalar(a, env), evaluate_scalar(b, env))
        case Compare(op, a, b) if not a.type.is_float:
            return int(COMPARE[op](evaluate_scalar(a, env), evaluate_scalar(b, env)))
        case Cast(t, v) if t.is_integer and v.type.is_integer:
            return wrap(evaluate_scalar(v, env), t.element)
        case Cast() | Compare() if not _loads(e):
            return int(_evaluated_as_written(e, env))
        case Let(name, v, body) if v.type.is_float and not _loads(v):
            return evaluate_scalar(body, {**env, name: float(_evaluated_as_written(v, env))})
        case Not(v):
            return int(not evaluate_scalar(v, env))
        case Select(c, t, f):
            return evaluate_scalar(t if evaluate_scalar(c, env) else f, env)
        case Let(name, v, body):
            return evaluate_scalar(body, {**env, name: evaluate_scalar(v, env)})
        case _:
            raise InternalError(f"no integer at hand for {print_expr(e)}")


def _evaluated_as_written(e: Expr, env: Mapping[str, int | float]) -> Any:
    from selector.ir.traverse import free_vars

    missing = free_vars(e) - env.keys()
    if missing:
        raise InternalError(f"the variable `{min(missing)}` has no value")
    return evaluate_expr(e, {name: env[name] for name in free_vars(e)})[0]
