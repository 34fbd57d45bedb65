"""Running a module in NumPy: the reference that rules, passes and emitters are held against.

Iterations of gpu_block, gpu_thread, gpu_lane and parallel loops form a batch: each statement is
evaluated for all of them at once, in order. For programs without races that is what running them
one after the other means; a recurrence over threads (``lowering.scans``) runs so. Blocks are cut
into chunks whose temporaries stay below ``CHUNK_BYTES``. Serial loops run one after the other,
except nests around one store that do not read what they write. An allocation has one copy per
iteration of the loops around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import numpy as np

from selector.diagnostics import InternalError
from selector.ir import arithmetic, builtins
from selector.ir.arithmetic import Array, dtype_of
from selector.ir.bfloat16 import to_bits
from selector.ir.evaluator import (
    Buffer,
    Frame,
    contiguous,
    evaluate,
    evaluate_expr,
    evaluate_scalar,
    register,
    registered,
)
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Block,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Role,
    Stmt,
    Store,
)
from selector.ir.parameters import bind_parameters
from selector.ir.recurrences import is_recurrence
from selector.ir.traverse import stmt_children, stmt_exprs, walk_all_exprs, walk_expr, walk_stmt
from selector.ir.types import Kind

CHUNK_BYTES = 64 << 20
_BYTES_PER_LANE = 24  # an index, a value and their copies
_BATCHED = frozenset((ForKind.GPU_BLOCK, ForKind.GPU_THREAD, ForKind.GPU_LANE, ForKind.PARALLEL))
_CUT = frozenset((ForKind.GPU_BLOCK, ForKind.PARALLEL))

__all__ = [
    "CHUNK_BYTES",
    "builtins",
    "evaluate_expr",
    "evaluate_scalar",
    "interpret",
    "register",
    "registered",
]


def interpret(
    module: Module,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, object] | None = None,
    sizes: Mapping[str, tuple[int, ...]] | None = None,
    outputs: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """The output arrays of a module by name, in NumPy's axis order (the last axis is dimension 0).

    ``arrays`` holds the inputs (bfloat16 as uint16 bit patterns or ml_dtypes), ``outputs`` arrays
    to write into; an output that is not given is allocated poisoned, with constant extents or those
    of ``sizes[name]``. ArgumentError for arrays that do not fit; InternalError for a store outside
    its buffer.
    """
    parameters, variables = bind_parameters(
        module, arrays, scalars or {}, sizes or {}, outputs or {}
    )
    frame = Frame(1, variables)
    for name, p in parameters.items():
        frame.buffers[name] = Buffer(p.element, p.flat[None, :], 0, p.element.kind is Kind.BFLOAT)
    with np.errstate(all="ignore"):
        _run(module.body, frame)
    return {b.name: parameters[b.name].finish() for b in module.buffers if b.role is Role.OUTPUT}


def _run(s: Stmt, frame: Frame) -> None:
    match s:
        case Block(stmts):
            for child in stmts:
                _run(child, frame)
        case Store():
            _store(s, frame)
        case LetStmt(name, value, body):
            outer = frame.variables.get(name)
            frame.variables[name] = evaluate(value, frame)
            _run(body, frame)
            _restore(frame.variables, name, outer)
        case Allocate():
            _allocate(s, frame)
        case For():
            if (s.kind in _BATCHED and not is_recurrence(s)) or _scatters(s):
                _run_batched(s, frame)
            else:
                _run_serial(s, frame)
        case IfThenElse():
            _branch(s, frame)
        case Evaluate(value):
            evaluate(value, frame)
        case Atomic():
            _atomic(s, frame)
        case _:
            assert_never(s)


def _restore(table: dict[str, Any], name: str, outer: object) -> None:
    if outer is None:
        del table[name]
    else:
        table[name] = outer


def _allocate(s: Allocate, frame: Frame) -> None:
    size = 1
    for extent in s.extents:
        value = evaluate(extent, frame)
        size *= max(0, int(value.max()))
    data = arithmetic.poisoned((frame.size, size), dtype_of(s.type))
    outer = frame.buffers.get(s.name)
    frame.buffers[s.name] = Buffer(s.type.element, data, frame.level)
    _run(s.body, frame)
    _restore(frame.buffers, s.name, outer)


def _branch(s: IfThenElse, frame: Frame) -> None:
    condition = evaluate(s.condition, frame)[:, 0]
    if condition.all():
        _run(s.then, frame)
    elif not condition.any():
        if s.otherwise is not None:
            _run(s.otherwise, frame)
    else:
        _run(s.then, frame.pick(np.flatnonzero(condition)))
        if s.otherwise is not None:
            _run(s.otherwise, frame.pick(np.flatnonzero(~condition)))


def _bounds(s: For, frame: Frame) -> tuple[Array, Array]:
    """Minimum and extent of a loop, one per iteration of the batch or one for all."""
    return evaluate(s.min, frame)[:, 0], evaluate(s.extent, frame)[:, 0]


def _run_serial(s: For, frame: Frame) -> None:
    low, extent = _bounds(s, frame)
    outer = frame.variables.get(s.name)
    varies = int(extent.min()) != int(extent.max())
    for i in range(max(0, int(extent.max()))):
        inner = frame.pick(np.flatnonzero(extent > i)) if varies else frame
        mins = low if inner is frame or len(low) == 1 else low[extent > i]
        inner.variables[s.name] = (mins + low.dtype.type(i))[:, None]
        _run(s.body, inner)
    if s.name in frame.variables:
        _restore(frame.variables, s.name, outer)


def _run_batched(s: For, frame: Frame) -> None:
    """All iterations at once; blocks, which are independent, in chunks bounded in memory."""
    low, extent = _bounds(s, frame)
    count = max(0, int(extent.max()))
    chunk = max(1, count)
    if s.kind in _CUT or s.kind not in _BATCHED:
        chunk = max(1, CHUNK_BYTES // max(1, footprint(s.body, frame) * frame.size))
    for start in range(0, count, chunk):
        steps = np.arange(start, min(count, start + chunk), dtype=low.dtype)
        index = np.repeat(np.arange(frame.size), len(steps))
        loop = np.tile(steps, frame.size)
        mins = low[index] if len(low) > 1 else low
        inner = frame.pick(index)
        inner.variables[s.name] = (mins + loop)[:, None]
        if len(extent) > 1 and extent.min() < count:
            inner = inner.pick(np.flatnonzero(loop < extent[index]))
        if inner.size:
            _run(s.body, inner)


def _scatters(s: For) -> bool:
    """Whether a serial nest does nothing but one store to a buffer that it does not read.

    Its iterations may run at once: where two write one element, NumPy keeps the later one.
    """
    if s.kind is ForKind.UNROLLED:
        return False
    inner: Stmt = s
    while isinstance(inner, For | LetStmt):
        inner = inner.body
    if not isinstance(inner, Store):
        return False
    return not any(isinstance(e, Load) and e.buffer == inner.buffer for e in walk_all_exprs(s))


def footprint(s: Stmt, frame: Frame) -> int:
    """An estimate of the bytes that one iteration of a batch needs at a time."""
    lanes = max((e.type.lanes for x in stmt_exprs(s) for e in walk_expr(x)), default=0)
    inner = max((footprint(c, frame) for c in stmt_children(s)), default=0)
    match s:
        case For() if s.kind in _BATCHED and s.kind not in _CUT:
            inner *= _estimate(s, frame)
        case Allocate():
            size = s.type.bytes
            for extent in s.extents:
                size *= extent.value if isinstance(extent, IntImm) else 1
            inner += size
        case _:
            pass
    return max(inner, lanes * _BYTES_PER_LANE)


def _estimate(s: For, frame: Frame) -> int:
    try:
        return max(1, int(evaluate(s.extent, frame).max()))
    except InternalError:  # it depends on a variable that is bound further in
        return 1


def _atomic(s: Atomic, frame: Frame) -> None:
    """Iterations that may update one element run one after the other."""
    shared = any(
        isinstance(x, Store) and frame.buffers[x.buffer].level != frame.level
        for x in walk_stmt(s.body)
    )
    if frame.size == 1 or not shared:
        _run(s.body, frame)
        return
    for i in range(frame.size):
        _run(s.body, frame.pick(np.array([i])))


def _store(s: Store, frame: Frame) -> None:
    buffer = frame.buffers.get(s.buffer)
    if buffer is None:
        raise InternalError(f"a store to the unknown buffer `{s.buffer}`")
    value = evaluate(s.value, frame)
    if buffer.bits:
        value = to_bits(value)
    data, rows, size = buffer.data, frame.rows[buffer.level], buffer.data.shape[1]
    own = rows is None and data.shape[0] == frame.size
    dense = contiguous(s.index, frame) if s.predicate is None and own else None
    if dense is not None:
        _check(s, dense.start, dense.stop - 1, size)
        data[:, dense] = value
        return
    index = evaluate(s.index, frame)
    batch = 1 if data.shape[0] == 1 and len(index) == len(value) == 1 else frame.size
    shape = (batch, index.shape[1])
    flat, value = np.broadcast_to(index, shape), np.broadcast_to(value, shape)
    if data.shape[0] > 1:
        row = np.arange(frame.size) if rows is None else rows
        target = row[:, None] * size + flat
    else:
        target = flat
    if s.predicate is not None:
        predicate = evaluate(s.predicate, frame)
        if len(predicate) > batch:  # the index and value are shared, the predicate is not
            predicate = predicate.any(axis=0, keepdims=True)
        keep = np.broadcast_to(predicate, shape)
        flat, target, value = flat[keep], target[keep], value[keep]
    if flat.size:
        _check(s, int(flat.min()), int(flat.max()), size)
        data.reshape(-1)[target] = value


def _check(s: Store, low: int, high: int, size: int) -> None:
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        raise InternalError(f"a store to `{s.buffer}`[{wrong}], which has {size} elements")
