"""Iterations that a number of the block leaves out.

    for k: copy of run k                               for k: copy of run k
           threads: m = max(m, select(b, s, -inf))            if b:
                    t += exp(select(b, s, -inf) - m)  =>        threads: m = max(m, s)
                                                                         t += exp(s - m)

where ``b`` is the same for all lanes of all threads, such as ``mask[k/2] != 0`` in an array that
says which blocks of keys a block of queries has. Without it an iteration takes maxima with what is
never more, and adds powers that are 0: nothing of what stays changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import field, replace
from math import inf

from selector.dataclass import dataclass
from selector.ir.contents import bits_of, holds, kinds_of, loaded
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Load,
    Not,
    ReduceOp,
    Select,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.simplify import binary, constant, float_constant, literal
from selector.ir.traverse import (
    change_stmts,
    free_vars,
    map_expr,
    map_stmt,
    substitute,
    walk_stmt,
)
from selector.lowering.factors import makes_zero
from selector.lowering.one_value import one_value
from selector.lowering.online_forms import grows, multiple, terms_of
from selector.lowering.predicates import denied, every
from selector.lowering.structure import stored_names

Asked = frozenset[Expr]
"""Scalar conditions that all have to hold for anything to change."""

_NONE = Asked()
_MASKS = bits_of(Select)


def left_out(s: Stmt, sums: Set[str], floors: Mapping[str, float]) -> Stmt:
    """The statement with what threads do in the loops that take ``sums`` further under the
    conditions that all of these loops have; ``floors``: numbers that no element of a buffer is ever
    below.
    """
    loops = [
        x
        for x in walk_stmt(s)
        if isinstance(x, For) and x.kind is ForKind.SERIAL and stored_names(x) & sums
    ]
    made, turn = stored_names(s), Var("")
    found = [_renamed(_changes(x, floors, made), {x.name: turn}) for x in loops]
    shared = found[0].intersection(*found[1:]) if found else _NONE

    def under(x: Stmt) -> Stmt | None:
        if not any(x is loop for loop in loops) or not isinstance(x, For):
            return None
        return _under(x, _renamed(shared, {turn.name: Var(x.name)}))

    return change_stmts(s, under) if shared else s


def _renamed(asked: Asked, names: Mapping[str, Expr]) -> Asked:
    return frozenset(substitute(c, names) for c in asked)


def _threads(loop: For) -> dict[str, int]:
    """The variables of the loops over threads in an iteration, and how many these are."""
    return {
        x.name: x.extent.value
        for x in walk_stmt(loop.body)
        if isinstance(x, For) and x.kind is ForKind.GPU_THREAD and isinstance(x.extent, IntImm)
    }


def _changes(loop: For, floors: Mapping[str, float], made: Set[str]) -> Asked:
    """Without which an iteration changes nothing that stays."""
    local = {x.name for x in walk_stmt(loop.body) if isinstance(x, Allocate)}
    inner = frozenset(x.name for x in walk_stmt(loop.body) if isinstance(x, For))
    state = _Iteration(loop.name, _threads(loop), inner, made, floors)
    stores = [x for x in walk_stmt(loop.body) if isinstance(x, Store)]
    for s in stores:
        if s.buffer in local:
            found = state.nonzero(s.value)
            state.held[s.buffer] = found & state.held.get(s.buffer, found)
    changes = [state.changing(s) for s in stores if s.buffer not in local]
    return changes[0].intersection(*changes[1:]) if changes else _NONE


@dataclass(slots=True)
class _Iteration:
    """What is asked in an iteration of a loop: ``threads`` by their loops, ``inner`` loops, what
    the kernel has ``made``. ``held``: without which all of a buffer of the iteration is 0.
    """

    variable: str
    threads: Mapping[str, int]
    inner: frozenset[str]
    made: Set[str]
    floors: Mapping[str, float]
    held: dict[str, Asked] = field(default_factory=dict[str, Asked])

    def changing(self, s: Store) -> Asked:
        """Without which a statement leaves what it stores to as it is."""
        if grows(s, s.buffer) and isinstance(s.value, Binary):
            low = self.floors.get(s.buffer)
            own = isinstance(s.value.a, Load) and s.value.a.buffer == s.buffer
            return _NONE if low is None else self.above(s.value.b if own else s.value.a, low)
        terms = None if s.predicate is not None else terms_of(s)
        return _NONE if terms is None else self.nonzero(terms)

    def nonzero(self, e: Expr) -> Asked:
        """Without which a value is 0."""
        match e:
            case Select(c, a, b):
                return self._chosen(c, a, b, self.nonzero, lambda x: float_constant(x) == 0)
            case Cast(_, v) | Broadcast(v) | VectorReduce(ReduceOp.ADD, v):
                return self.nonzero(v)
            case Binary(BinaryOp.MUL, a, b):
                return self.nonzero(a) | self.nonzero(b)
            case Call(_, "exp_f32", (exponent,)):
                return self._power(exponent)
            case Call(_, "pow_f32", (base, exponent)) if (float_constant(base) or 0) >= 2:
                return self._power(exponent)
            case Load(_, buffer):
                return self.held.get(buffer, _NONE)
            case _:
                return _NONE

    def _power(self, exponent: Expr) -> Asked:
        """Without which a power is 0."""
        match exponent:
            case Select(c, a, b):
                return self._chosen(c, a, b, self._power, makes_zero)
            case _:
                return self.above(exponent, -inf)

    def above(self, e: Expr, low: float) -> Asked:
        """Without which a value is not above a number."""
        match e:
            case Select(c, a, b):
                return self._chosen(c, a, b, lambda x: self.above(x, low), lambda x: _at(x, low))
            case Broadcast(v) | VectorReduce(ReduceOp.MAX, v):
                return self.above(v, low)
            case Binary(BinaryOp.MUL, a, b) if (float_constant(b) or 0) > 0:
                return self.above(a, -inf)
            case Binary(BinaryOp.MUL, a, b) if (float_constant(a) or 0) > 0:
                return self.above(b, -inf)
            case Binary(BinaryOp.SUB, a, m) if self._is_finite(m):
                return self.above(a, -inf)
            case _:
                return _NONE

    def _is_finite(self, m: Expr) -> bool:
        """Whether a value is a number of a buffer that is never below one, or a multiple of it: no
        -inf, of which -inf is less by no number.
        """
        found = multiple(m)
        return found is not None and found[1].buffer in self.floors

    def _chosen(
        self,
        c: Expr,
        a: Expr,
        b: Expr,
        asked: Callable[[Expr], Asked],
        nothing: Callable[[Expr], bool],
    ) -> Asked:
        """Of one of two values, one of which may be nothing."""
        if nothing(b):
            return self.conditions(c) | asked(a)
        if nothing(a):
            return self.conditions(c, wanted=False) | asked(b)
        return asked(a) & asked(b)

    def conditions(self, c: Expr, *, wanted: bool = True) -> Asked:
        """What holds wherever a condition holds, or does not."""
        match c:
            case Broadcast(value):
                return self.conditions(value, wanted=wanted)
            case Not(value):
                return self.conditions(value, wanted=not wanted)
            case Binary(BinaryOp.AND | BinaryOp.OR as op, a, b):
                x, y = (self.conditions(v, wanted=wanted) for v in (a, b))
                return x | y if (op is BinaryOp.AND) is wanted else x & y
            case _:
                one = one_value(c, self.threads) if holds(c, Load) else None
                known = one is not None and self._is_of_block(one)
                return frozenset({one if wanted else opposite(one)}) if known and one else _NONE

    def _is_of_block(self, c: Expr) -> bool:
        """Whether a condition is known before an iteration, and another in others."""
        names = free_vars(c)
        return self.variable in names and not names & self.inner and not loaded(c) & self.made


def _at(e: Expr, low: float) -> bool:
    """Whether a value is a number that is not above another."""
    value = float_constant(e)
    return value is not None and value <= low


def opposite(c: Expr) -> Expr:
    """The condition that holds where another does not."""
    said = denied(c)
    return Not(c) if said is None else said


def _under(loop: For, asked: Asked) -> Stmt:
    """The loop whose threads do nothing where these do not hold, and do not ask otherwise."""
    threads = _threads(loop)
    never = frozenset(map(opposite, asked))

    def known(e: Expr) -> Expr:
        """With what the conditions say of others."""
        if not kinds_of(e) & _MASKS and not e.type.is_bool:
            return e
        one = one_value(e, threads) if e.type.is_bool and holds(e, Load) else None
        if one in asked or one in never:
            return literal(int(one in asked), e.type)
        match map_expr(e, known):
            case Binary(BinaryOp.AND | BinaryOp.OR as op, a, b):
                return binary(op, a, b)
            case Not(value) if (fact := constant(value)) is not None:
                return literal(int(not fact), e.type)
            case Select(c, a, b) if (fact := constant(c)) is not None:
                return a if fact else b
            case inner:
                return inner

    def within(s: Stmt) -> Stmt:
        return map_stmt(s, within, known)

    def region(s: Stmt) -> Stmt | None:
        inside = isinstance(s, For) and s.kind is ForKind.GPU_THREAD
        return IfThenElse(every(sorted(asked, key=str)), within(s)) if inside else None

    return replace(loop, body=change_stmts(loop.body, region))
