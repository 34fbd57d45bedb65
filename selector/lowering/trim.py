"""Loops without the iterations that add nothing.

    for k < n: m = max(m, select(k <= q, x, low)); s += select(k <= q, y, 0)

leaves m, which starts at ``low``, and s as they are where no lane has k <= q: the loop ends there.
The end is an expression of the loops around it, such as the block's number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    For,
    ForKind,
    IntImm,
    Load,
    ReduceOp,
    Select,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.simplify import add, div
from selector.ir.traverse import conjuncts, walk_stmt
from selector.lowering.factors import makes_zero
from selector.lowering.predicates import lane_slacks

_BLOCKS = (".block_id_x", ".block_id_y", ".block_id_z")
Last = tuple[Affine, int]  # iteration v counts only if v * step <= the sum


@dataclass(slots=True)
class _Loop:
    """A loop that is looked at; ``starts``: constants that buffers hold before it."""

    variable: str
    threads: dict[str, int]
    starts: Mapping[str, float]
    held: dict[str, Last | None] = field(default_factory=dict[str, "Last | None"])


def trimmed(loop: For, starts: Mapping[str, float]) -> For:
    """The loop up to its last iteration that changes anything, if all of its statements are sums
    and maxima with one mask; else as it is.
    """
    threads = {
        x.name: x.extent.value
        for x in walk_stmt(loop.body)
        if isinstance(x, For) and x.kind is ForKind.GPU_THREAD and isinstance(x.extent, IntImm)
    }
    local = {x.name for x in walk_stmt(loop.body) if isinstance(x, Allocate)}
    state = _Loop(loop.name, threads, starts)
    stores = [x for x in walk_stmt(loop.body) if isinstance(x, Store)]
    for s in stores:
        if s.buffer in local:
            _hold(s, state)
    bounds = [_last(s, state) for s in stores if s.buffer not in local]
    last = _latest(bounds)
    if last is None or loop.min != IntImm(0):
        return loop
    symbolic, step = last
    end = add(div(symbolic.to_expr(), IntImm(step)), IntImm(1))
    return replace(loop, extent=Binary(BinaryOp.MIN, loop.extent, end))


def _hold(s: Store, state: _Loop) -> None:
    """Remember until when what a statement stores may be other than 0."""
    bound = _zero_after(s.value, state)
    if s.buffer in state.held:
        bound = _latest([bound, state.held[s.buffer]])
    state.held[s.buffer] = bound


def _latest(bounds: list[Last | None]) -> Last | None:
    """The bound that all of them keep; None if there is none."""
    found: Last | None = None
    for bound in bounds:
        if bound is None:
            return None
        if found is None:
            found = bound
            continue
        apart = (bound[0] - found[0]).constant
        if apart is None or bound[1] != found[1]:
            return None
        found = bound if apart > 0 else found
    return found


def _last(s: Store, state: _Loop) -> Last | None:
    """When a statement on a buffer that stays ceases to change it."""
    match s.value:
        case Binary(BinaryOp.ADD | BinaryOp.MAX as op, a, b) if s.predicate is None:
            for own, term in ((a, b), (b, a)):
                if isinstance(own, Load) and (own.buffer, own.index) == (s.buffer, s.index):
                    if op is BinaryOp.ADD:
                        return _zero_after(term, state)
                    low = state.starts.get(s.buffer)
                    return None if low is None else _low_after(term, low, state)
            return None
        case _:
            return None


def _zero_after(e: Expr, state: _Loop) -> Last | None:
    match e:
        case Select(c, a, b) if _constant(b) == 0.0:
            return _masked_after(c, state) or _zero_after(a, state)
        case Cast(_, v) | Broadcast(v) | VectorReduce(ReduceOp.ADD, v):
            return _zero_after(v, state)
        case Binary(BinaryOp.MUL, a, b):
            return _zero_after(a, state) or _zero_after(b, state)
        case Call(_, "exp_f32", (Select(c, _, low),)) if makes_zero(low):
            return _masked_after(c, state)
        case Call(_, "pow_f32", (base, Select(c, _, low))) if makes_zero(low):
            return _masked_after(c, state) if (_constant(base) or 0) >= 2 else None
        case Load(_, buffer):
            return state.held.get(buffer)
        case _:
            return None


def _low_after(e: Expr, low: float, state: _Loop) -> Last | None:
    match e:
        case Select(c, a, b) if (value := _constant(b)) is not None and value <= low:
            return _masked_after(c, state) or _low_after(a, low, state)
        case Broadcast(v) | VectorReduce(ReduceOp.MAX, v):
            return _low_after(v, low, state)
        case _:
            return None


def _constant(e: Expr) -> float | None:
    while isinstance(e, Broadcast | Cast):
        e = e.value
    return e.value if isinstance(e, FloatImm) else None


def _masked_after(c: Expr, state: _Loop) -> Last | None:
    """After which iteration a condition holds in no lane of no thread, by what is around the
    loop.
    """
    for part in conjuncts(c):
        slacks = lane_slacks(part)
        if slacks is None:
            continue
        room = to_affine(slacks[1].to_expr())
        for name, extent in state.threads.items():
            step = room.coefficient(Var(name)).constant
            if step is None:
                break
            room = room.rest(Var(name)) + max(0, step * (extent - 1))
        v = Var(state.variable)
        step = room.coefficient(v).constant
        rest = room.rest(v)
        around = [a for m, _ in rest for a in m]
        if step is None or step >= 0 or rest.mentions(state.variable):
            continue
        if any(isinstance(a, Var) and a.name.endswith(_BLOCKS) for a in around):
            return rest, -step
    return None


def constant_starts(stmts: list[Stmt]) -> dict[str, float]:
    """Buffers of which all that is stored before a loop is one constant."""
    found: dict[str, set[float | None]] = {}
    for s in stmts:
        for x in walk_stmt(s):
            if isinstance(x, Store):
                found.setdefault(x.buffer, set()).add(_constant(x.value))
    return {
        name: value
        for name, values in found.items()
        for value in values
        if len(values) == 1 and value is not None
    }
