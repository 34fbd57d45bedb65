"""The one normal form in which loops leave the bridge.

* Vector lets are inlined; what they name is index arithmetic and masks.
* ``select(mask, buffer[index], 0)`` is ``buffer[index if mask]``, without the clamps that the mask
  makes idle; a mask has a condition for each coordinate, of which Halide may compare the larger.
* Indices and the sides of masks are nested ramps (``halide_bridge.ramps``), without the divisions
  of fused loops (``halide_bridge.quotients``).
* The terms of a sum that a condition leaves out are the zeros of ``select(condition, term, 0)``.
* A broadcast of a load stands outside the load, and outside casts of it.
"""

from __future__ import annotations

from halide_bridge.clamps import drop_idle_clamps
from halide_bridge.quotients import undivided
from halide_bridge.ramps import canonical_index
from selector.ir.contents import holds
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Cast,
    Compare,
    CompareOp,
    Expr,
    Let,
    LetStmt,
    Load,
    Not,
    Ramp,
    Select,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.simplify import as_conjunction, constant, float_constant
from selector.ir.traverse import change_expr, map_expr, map_stmt, substitute, substitute_stmt

_NEGATED = {
    CompareOp.EQ: CompareOp.NE,
    CompareOp.NE: CompareOp.EQ,
    CompareOp.LT: CompareOp.GE,
    CompareOp.LE: CompareOp.GT,
    CompareOp.GT: CompareOp.LE,
    CompareOp.GE: CompareOp.LT,
}
_MIRRORED = {CompareOp.GT: CompareOp.LT, CompareOp.GE: CompareOp.LE}


def normalise(s: Stmt) -> Stmt:
    """The statement in normal form; its meaning is unchanged."""
    return _Normaliser().stmt(s)


class _Normaliser:
    """Rewrites bottom-up, each shared expression once."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Expr, Expr]] = {}  # by identity; the key object is kept alive

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case LetStmt(name, value, body) if can_inline(value):
                return self.stmt(substitute_stmt(body, {name: value}))
            case Store(buffer, index, value, predicate):
                mask = None if predicate is None else self.expr(predicate)
                place = canonical_index(self.expr(index))
                return whole_reduction(Store(buffer, place, self.expr(value), mask))
            case _:
                return map_stmt(s, self.stmt, self.expr)

    def expr(self, e: Expr) -> Expr:
        known = self._done.get(id(e))
        if known is None:
            known = self._done[id(e)] = (e, self._rewrite(e))
        return known[1]

    def _rewrite(self, e: Expr) -> Expr:
        if isinstance(e, Let) and can_inline(e.value):
            return self.expr(substitute(e.body, {e.name: e.value}))
        return normal_expr(map_expr(e, self.expr))


def whole_reduction(s: Store) -> Store:
    """A reduction that Halide took over some of its vectorized loops, taken over all of them.

    Over two reduction loops it leaves ``f[ramp(x5(b), x5(s), n)] = reduce(v) op f[same]`` with the
    index as a plain loop variable: five lanes add to each element, and the one store keeps one of
    them. What is meant is ``f[ramp(b, s, n)] = reduce'(v) op f[same]`` with n results.
    """
    match s.index:
        case Ramp(Broadcast(base, _), Broadcast(stride, _), count) if base.type.lanes == 1:
            index = Ramp(base, stride, count)
        case _:
            return s
    match s.value:
        case Binary(op, VectorReduce(reduce, value, _), Load(t, buffer, place, None) as own):
            pass
        case Binary(op, Load(t, buffer, place, None) as own, VectorReduce(reduce, value, _)):
            pass
        case _:
            return s
    if s.predicate is not None or buffer != s.buffer or place != s.index:
        return s
    if op is not reduce.joins:
        return s
    total = VectorReduce(reduce, value, count)
    current = Load(t.with_lanes(count), buffer, index)
    left, right = (current, total) if s.value.a is own else (total, current)
    return Store(s.buffer, index, Binary(op, left, right))


def normal_expr(e: Expr) -> Expr:
    """``e`` in normal form, its operands being so already."""
    match e:
        case Select():
            return _masked_load(e)
        case Load():
            return _outside_broadcast(e)
        case Compare():
            plain = undivided(e)
            left, right = canonical_index(plain.a), canonical_index(plain.b)
            same = plain is e and left is e.a and right is e.b
            return e if same else Compare(plain.op, left, right)
        case VectorReduce(op, Select() as terms, lanes):
            turned = _zero_last(terms)
            return e if turned is terms else VectorReduce(op, turned, lanes)
        case Cast(to, Broadcast(value, count)):
            return Broadcast(Cast(to.with_lanes(to.lanes // count), value), count)
        case _:
            return e


def can_inline(value: Expr) -> bool:
    """Whether a let's value is a vector that costs nothing to repeat."""
    return value.type.lanes > 1 and not holds(value, Load)


def _masked_load(e: Select) -> Expr:
    match _zero_last(e):
        case Select(mask, Load(_, _, _, None) as load, zero) if _is_zero(zero):
            return _with_mask(load, mask)
        case Select(mask, Broadcast(Load(_, _, _, None) as load, count), zero) if _is_zero(zero):
            return _with_mask(_broadcast_load(load, count), mask)
        case _:
            return e


def _zero_last(e: Select) -> Select:
    """``select(mask, 0, value)`` as ``select(!mask, value, 0)``."""
    if not _is_zero(e.then) or _is_zero(e.otherwise):
        return e
    return Select(negate(e.condition), e.otherwise, e.then)


def _broadcast_load(load: Load, count: int) -> Load:
    index = Broadcast(load.index, count)
    return Load(load.type.with_lanes(load.type.lanes * count), load.buffer, index)


def _with_mask(load: Load, mask: Expr) -> Expr:
    lanes, mask = load.type.lanes, change_expr(mask, as_conjunction)
    wide = mask if mask.type.lanes == lanes else Broadcast(mask, lanes)
    index = drop_idle_clamps(load.index, wide)
    return _outside_broadcast(Load(load.type, load.buffer, index, wide))


def _outside_broadcast(load: Load) -> Expr:
    index = canonical_index(load.index, load.type.lanes)
    if isinstance(index, Broadcast):
        lanes = load.type.lanes // index.count
        mask = None if load.predicate is None else _narrowed(load.predicate, lanes)
        if mask is not None or load.predicate is None:
            inner = Load(load.type.with_lanes(lanes), load.buffer, index.value, mask)
            return Broadcast(_outside_broadcast(inner), index.count)
    return load if index is load.index else Load(load.type, load.buffer, index, load.predicate)


def _narrowed(mask: Expr, lanes: int) -> Expr | None:
    """The first ``lanes`` lanes of a mask that repeats with that period, else None."""
    match mask:
        case _ if mask.type.lanes == lanes:
            return mask
        case Broadcast(value, _):
            if value.type.lanes <= lanes and lanes % value.type.lanes == 0:
                count = lanes // value.type.lanes
                return value if count == 1 else Broadcast(value, count)
            return _narrowed(value, lanes)
        case Compare(op, a, b):
            left, right = _narrowed(a, lanes), _narrowed(b, lanes)
            return None if left is None or right is None else Compare(op, left, right)
        case Binary(BinaryOp.AND | BinaryOp.OR as op, a, b):
            left, right = _narrowed(a, lanes), _narrowed(b, lanes)
            return None if left is None or right is None else Binary(op, left, right)
        case _:
            return None


def negate(e: Expr) -> Expr:
    """The complement of a mask; a comparison stays one unless NaN may be in it, and greater-than
    reads as less-than.
    """
    match e:
        case Compare(op, a, b) if not a.type.is_float or op in (CompareOp.EQ, CompareOp.NE):
            negated = _NEGATED[op]
            mirrored = _MIRRORED.get(negated)
            return Compare(negated, a, b) if mirrored is None else Compare(mirrored, b, a)
        case Not(value):
            return value
        case Binary(BinaryOp.OR, a, b):
            return Binary(BinaryOp.AND, negate(a), negate(b))
        case Broadcast(value, count):
            return Broadcast(negate(value), count)
        case _:
            return Not(e)


def _is_zero(e: Expr) -> bool:
    return 0 in (constant(e), float_constant(e))
