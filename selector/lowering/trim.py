"""Loops without the iterations that add nothing.

    for k < n: m = max(m, select(k <= q, x, low)); s += select(k <= q, y, 0)

leaves m, which starts at ``low``, and s as they are where no lane has k <= q: the loop ends there.
With k > q - w as well it begins where a lane has that, and with q < m it has no iteration where no
lane has that. All are expressions of the loops around it, such as the block's number, and of what
arrays have there, such as a length.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
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
from selector.ir.simplify import add, as_conjunction, div, float_constant, sub
from selector.ir.traverse import change_expr, conjuncts, free_vars, walk_stmt
from selector.lowering.factors import makes_zero
from selector.lowering.predicates import lane_slacks
from selector.lowering.structure import stored_names

_BLOCKS = (".block_id_x", ".block_id_y", ".block_id_z")
Room = tuple[Affine, int]
"""Iteration v counts only if v * step is at most the sum; or, of beginnings, at least minus it.
With a step of 0 all of them or none: if the sum is not negative.
"""
_BEGIN, _END, _ANY = 1, -1, 0
"""What is looked at, by the sign of the steps that say it."""


@dataclass(slots=True)
class _Loop:
    """A loop of which one ``side`` is looked at: where it begins, where it ends, or whether there
    is any iteration. ``starts``: constants that buffers hold before it; ``made``: buffers that the
    kernel fills.
    """

    variable: str
    threads: dict[str, int]
    starts: Mapping[str, float]
    made: Set[str]
    side: int
    held: dict[str, Room | None] = field(default_factory=dict[str, "Room | None"])


def trimmed(loop: For, starts: Mapping[str, float], made: Set[str] = frozenset()) -> For:
    """The loop from the first to the last iteration that changes anything, if all of its statements
    are sums and maxima with one mask; else as it is. ``made``: buffers that the kernel fills.
    """
    if loop.min != IntImm(0):
        return loop
    first, last, some = (_room(loop, starts, made, side) for side in (_BEGIN, _END, _ANY))
    low, end = loop.min, loop.extent
    if last is not None:
        end = Binary(BinaryOp.MIN, end, add(_quotient(last), IntImm(1)))
    if first is not None:
        low = Binary(BinaryOp.MAX, low, sub(IntImm(0), _quotient(first)))
        end = Binary(BinaryOp.SUB, end, low)
    if some is not None:
        end = Select(Compare(CompareOp.LE, IntImm(0), some[0].to_expr()), end, IntImm(0))
    return replace(loop, min=low, extent=end)


def _quotient(room: Room) -> Expr:
    return div(room[0].to_expr(), IntImm(room[1]))


def _room(loop: For, starts: Mapping[str, float], made: Set[str], side: int) -> Room | None:
    """Which iterations count on one side of a loop; None where all may."""
    threads = {
        x.name: x.extent.value
        for x in walk_stmt(loop.body)
        if isinstance(x, For) and x.kind is ForKind.GPU_THREAD and isinstance(x.extent, IntImm)
    }
    local = {x.name for x in walk_stmt(loop.body) if isinstance(x, Allocate)}
    state = _Loop(loop.name, threads, starts, made | stored_names(loop), side)
    stores = [x for x in walk_stmt(loop.body) if isinstance(x, Store)]
    for s in stores:
        if s.buffer in local:
            _hold(s, state)
    return _widest([_changing(s, state) for s in stores if s.buffer not in local])


def _hold(s: Store, state: _Loop) -> None:
    """Remember in which iterations what a statement stores may be other than 0."""
    bound = _nonzero(s.value, state)
    if s.buffer in state.held:
        bound = _widest([bound, state.held[s.buffer]])
    state.held[s.buffer] = bound


def _widest(bounds: list[Room | None]) -> Room | None:
    """The room that all of them keep to; None if there is none."""
    found: Room | None = None
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


def _changing(s: Store, state: _Loop) -> Room | None:
    """The iterations in which a statement changes a buffer that stays."""
    match s.value:
        case Binary(BinaryOp.ADD | BinaryOp.MAX as op, a, b) if s.predicate is None:
            for own, term in ((a, b), (b, a)):
                if isinstance(own, Load) and (own.buffer, own.index) == (s.buffer, s.index):
                    if op is BinaryOp.ADD:
                        return _nonzero(term, state)
                    low = state.starts.get(s.buffer)
                    return None if low is None else _above(term, low, state)
            return None
        case _:
            return None


def _nonzero(e: Expr, state: _Loop) -> Room | None:
    match e:
        case Select(c, a, b) if float_constant(b) == 0.0:
            return _unmasked(c, state) or _nonzero(a, state)
        case Cast(_, v) | Broadcast(v) | VectorReduce(ReduceOp.ADD, v):
            return _nonzero(v, state)
        case Binary(BinaryOp.MUL, a, b):
            return _nonzero(a, state) or _nonzero(b, state)
        case Call(_, "exp_f32", (exponent,)):
            return _power(exponent, state)
        case Call(_, "pow_f32", (base, exponent)) if (float_constant(base) or 0) >= 2:
            return _power(exponent, state)
        case Load(_, buffer):
            return state.held.get(buffer)
        case _:
            return None


def _power(exponent: Expr, state: _Loop) -> Room | None:
    match exponent:
        case Select(c, a, low) if makes_zero(low):
            return _unmasked(c, state) or _power(a, state)
        case _:
            return None


def _above(e: Expr, low: float, state: _Loop) -> Room | None:
    match e:
        case Select(c, a, b) if (value := float_constant(b)) is not None and value <= low:
            return _unmasked(c, state) or _above(a, low, state)
        case Broadcast(v) | VectorReduce(ReduceOp.MAX, v):
            return _above(v, low, state)
        case _:
            return None


def _unmasked(c: Expr, state: _Loop) -> Room | None:
    """The iterations in which a condition holds in any lane of any thread, by what is around the
    loop.
    """
    for part in conjuncts(change_expr(c, as_conjunction)):
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
        sign = None if step is None else (step > 0) - (step < 0)
        if step is None or sign != state.side or rest.mentions(state.variable):
            continue
        if any(_is_known(a, state) for a in around):
            return rest, abs(step)
    return None


def _is_known(e: Expr, state: _Loop) -> bool:
    """Whether a number is that of the block, or of an array at the block's place."""
    match e:
        case Var(name):
            return name.endswith(_BLOCKS)
        case Load(_, buffer, index, None):
            blocks = any(name.endswith(_BLOCKS) for name in free_vars(index))
            return (
                blocks
                and buffer not in state.made
                and state.threads.keys().isdisjoint(free_vars(index))
            )
        case _:
            return False


def constant_starts(stmts: list[Stmt]) -> dict[str, float]:
    """Buffers of which all that is stored before a loop is one constant."""
    found: dict[str, set[float | None]] = {}
    for s in stmts:
        for x in walk_stmt(s):
            if isinstance(x, Store):
                found.setdefault(x.buffer, set()).add(float_constant(x.value))
    return {
        name: value
        for name, values in found.items()
        for value in values
        if len(values) == 1 and value is not None
    }


def grows_with(s: Stmt, variable: str) -> bool:
    """Whether a serial loop has more iterations the larger a variable around it is, and none has
    fewer.
    """
    loops = [x for x in walk_stmt(s) if isinstance(x, For) and x.kind is ForKind.SERIAL]
    trends = [_trend(x.extent, variable) for x in loops]
    return 1 in trends and None not in trends


def _trend(e: Expr, variable: str) -> int | None:
    """1 if a value never falls as a variable grows, 0 if it is the same; else None."""
    if variable not in free_vars(e):
        return 0
    match e:
        case Var():
            return 1
        case Binary(BinaryOp.MIN | BinaryOp.MAX, a, b):
            trends = (_trend(a, variable), _trend(b, variable))
            return None if None in trends else 1
        case Binary(BinaryOp.DIV, a, IntImm(n)) if n > 0:
            return _trend(a, variable)
        case _:
            terms = to_affine(e).terms
            if terms == (((e,), 1),):
                return None
            varying = [(m, c) for m, c in terms if any(variable in free_vars(a) for a in m)]
            grow = all(len(m) == 1 and c > 0 and _trend(m[0], variable) for m, c in varying)
            return 1 if grow else None
