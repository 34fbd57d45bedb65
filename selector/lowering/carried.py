"""What a loop of a thread stores and reads again in its next turns stays in registers.

    for t: y[t] = f(x[t], y[t - 1])           last = y[min - 1]
                                              for t: new = f(x[t], last); y[t] = new; last = new

Memory would answer as many cycles later as hundreds of operations take, and each turn waits for the
one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.contents import loaded
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Compare,
    CompareOp,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Stmt,
    Store,
    Var,
)
from selector.ir.recurrences import ORDER
from selector.ir.traverse import (
    change_stmts,
    conjuncts,
    free_vars,
    map_stmt,
    replaced_all,
    substitute,
    walk_expr,
    walk_stmt,
)
from selector.lowering.normalize import sequence
from selector.lowering.predicates import slack
from selector.lowering.structure import stored_names

LAST = ".last"  # behind the name of an array: what the turns before have stored to it


def hands_on(loop: For) -> bool:
    """Whether turns of a loop find what those before have stored in registers."""
    return any(isinstance(s, Store) and s.buffer.endswith(LAST) for s in walk_stmt(loop.body))


@dataclass(frozen=True, slots=True)
class _Carried:
    """An array that a loop stores to: how many of its ``last`` turns' elements later ones read."""

    store: Store
    last: int

    @property
    def name(self) -> str:
        return f"{self.store.buffer}{LAST}"

    def element(self, lag: int) -> Load:
        return Load(self.store.value.type, self.name, IntImm(lag - 1))

    def begun(self, loop: For) -> list[Stmt]:
        """What turns before the first one have stored."""
        buffer, t = self.store.buffer, self.store.value.type
        found = list[Stmt]()
        for lag in range(1, self.last + 1):
            before = Affine.of(loop.min) - lag
            index = substitute(self.store.index, {loop.name: before.to_expr()})
            found.append(Store(self.name, IntImm(lag - 1), Load(t, buffer, index)))
        return found

    def gone_on(self, new: Var) -> list[Stmt]:
        """After a turn."""
        older = [Store(self.name, IntImm(n), self.element(n)) for n in range(self.last - 1, 0, -1)]
        return [*older, Store(self.name, IntImm(0), new)]


def carry(s: Stmt, *, in_thread: bool = False) -> Stmt:
    """With elements in registers that the turns of a loop hand on."""
    match s:
        case For(kind=ForKind.GPU_THREAD):
            in_thread = True
        case For(kind=ForKind.SERIAL) if in_thread:
            tests, loop = _tests_apart(s)
            if found := _carried(loop):
                return _with_registers(loop, found, tests)
        case _:
            pass
    return map_stmt(s, lambda inner: carry(inner, in_thread=in_thread), lambda e: e)


def _tests_apart(loop: For) -> tuple[list[Expr], For]:
    """Conditions of all that a loop does, and the loop without them."""
    tests = list[Expr]()
    while isinstance(s := loop.body, IfThenElse) and s.otherwise is None:
        tests += conjuncts(s.condition)
        loop = replace(loop, body=s.then)
    asked = {x.predicate for x in sequence(loop.body) if isinstance(x, Store)}
    test = asked.pop() if len(asked) == 1 else None
    if test is not None:
        tests += conjuncts(test)
        loop = replace(loop, body=change_stmts(loop.body, _always))
    stored = stored_names(loop.body)
    apart = all(_is_apart(t, loop, stored) for t in tests)
    return (tests, loop) if apart else ([], replace(loop, body=Block(())))


def _is_apart(test: Expr, loop: For, stored: Set[str]) -> bool:
    """Whether a test is the same in all turns, or but says where an array ends: beyond that nothing
    is stored, and zero is read.
    """
    if stored & loaded(test):
        return False
    names = free_vars(test)
    return loop.name not in names or any(f"{name}.extent" in v for name in stored for v in names)


def _always(s: Stmt) -> Stmt | None:
    return replace(s, predicate=None) if isinstance(s, Store) else None


def _carried(loop: For) -> Sequence[_Carried]:
    """None where turns may read what they hand on in another way, or nothing is."""
    stores = sequence(loop.body)
    if not stores or not all(isinstance(x, Store) for x in stores):
        return ()
    found = [x for x in stores if isinstance(x, Store)]
    if len({x.buffer for x in found}) < len(found) or any(x.predicate for x in found):
        return ()
    if any(x.index.type.lanes > 1 for x in found):
        return ()
    carried = [_Carried(x, _last(x, found, loop)) for x in found]
    return [c for c in carried if c.last] if min(c.last for c in carried) >= 0 else ()


def _last(store: Store, stores: Sequence[Store], loop: For) -> int:
    """How many turns later an element is read; -1 where that differs, or another one is."""
    index, turn = Affine.of(store.index), Var(loop.name)
    step, last = index.coefficient(turn), 0
    if not step.terms or step.mentions(loop.name) or index.rest(turn).mentions(loop.name):
        return -1
    for e in (e for x in stores for e in (*walk_expr(x.value), *walk_expr(x.index))):
        if isinstance(e, Load) and e.buffer == store.buffer:
            lag = _lag(e, index, step)
            if lag is None:
                return -1
            last = max(last, lag)
    return last


def _lag(e: Load, index: Affine, step: Affine) -> int | None:
    if e.index.type.lanes > 1 or e.predicate is not None:
        return None
    back = index - Affine.of(e.index)
    return next((n for n in range(ORDER + 1) if back == step * n), None)


def _with_registers(loop: For, carried: Sequence[_Carried], tests: Sequence[Expr]) -> Stmt:
    """The loop, where it has turns; under those ``tests`` that are the same in all of them."""
    known = dict[Expr, Expr]()
    stores = [x for x in sequence(loop.body) if isinstance(x, Store)]
    for c in carried:
        index = Affine.of(c.store.index)
        step = index.coefficient(Var(loop.name))
        for e in (e for x in stores for e in walk_expr(x.value)):
            if isinstance(e, Load) and e.buffer == c.store.buffer:
                lag = _lag(e, index, step)
                known |= {e: c.element(lag)} if lag else {}
    by_store = {c.store: c for c in carried}
    turn, extent = _turn(stores, by_store, known, []), loop.extent
    for test in (t for t in tests if loop.name in free_vars(t)):
        turns = _turns(test, loop)
        extent = extent if turns is None else Binary(BinaryOp.MIN, extent, turns)
        turn = turn if turns is not None else IfThenElse(test, turn)
    s: Stmt = replace(loop, extent=extent, body=turn)
    s = Block((*(x for c in carried for x in c.begun(loop)), s))
    for c in carried:
        t = c.store.value.type
        s = Allocate(c.name, t, (IntImm(c.last),), Memory.STACK, s)
    outside = [test for test in tests if loop.name not in free_vars(test)]
    if not isinstance(loop.extent, IntImm) or loop.extent.value < 1:
        outside.append(Compare(CompareOp.LT, IntImm(0), loop.extent))
    for test in outside:
        s = IfThenElse(test, s)
    return s


def _turns(test: Expr, loop: For) -> Expr | None:
    """How many of the first turns a test holds in, if in none behind these."""
    room, turn = slack(test), Var(loop.name)
    if room is None or room.coefficient(turn).constant != -1:
        return None
    rest = room.rest(turn)
    first = rest - Affine.of(loop.min) + 1
    return None if rest.mentions(loop.name) else first.to_expr()


def _turn(
    stores: Sequence[Store],
    carried: Mapping[Store, _Carried],
    known: Mapping[Expr, Expr],
    after: Sequence[Stmt],
) -> Stmt:
    """The stores of a turn, each value computed once, and what is handed on behind them."""
    if not stores:
        return Block(tuple(after))
    store, *others = stores
    value = replaced_all(store.value, known)
    found = carried.get(store)
    if found is None:
        return Block((replace(store, value=value), _turn(others, carried, known, after)))
    new = Var(f"{store.buffer}.new", value.type)
    rest = _turn(others, carried, known, [*after, *found.gone_on(new)])
    return LetStmt(new.name, value, Block((replace(store, value=new), rest)))
