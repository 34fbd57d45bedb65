"""What a loop of a thread stores and reads again in its next turns stays in registers.

    for t: y[t] = f(x[t], y[t - 1])           last = y[min - 1]
                                              for t: new = f(x[t], last); y[t] = new; last = new

Memory would answer as many cycles later as hundreds of operations take, and each turn waits for the
one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from selector.ir.traverse import (
    change_stmts,
    conjuncts,
    free_vars,
    map_stmt,
    replaced_all,
    stmt_children,
    substitute,
    walk_expr,
)
from selector.lowering.normalize import sequence
from selector.lowering.predicates import slack
from selector.lowering.scans.find import lag
from selector.lowering.structure import stored_names

LAST = ".last"  # behind the name of an array: what the turns before have stored to it


def hands_on(loop: For) -> bool:
    """Whether turns of a loop find what those before have stored in registers."""
    handed = (s for s in _turn_of(loop.body) if isinstance(s, Store) and s.buffer.endswith(LAST))
    return any(isinstance(s.value, Var) for s in handed)  # and not what a loop in it begins with


def _turn_of(s: Stmt) -> Iterator[Stmt]:
    """The statements of a turn, but for those of loops in it."""
    yield s
    for child in stmt_children(s):
        if not isinstance(child, For):
            yield from _turn_of(child)


@dataclass(frozen=True, slots=True)
class _Carried:
    """An array that a loop stores to: what is ``read`` of it, of so many turns before."""

    store: Store
    read: Mapping[Expr, int]

    @property
    def last(self) -> int:
        """How many turns later an element is read."""
        return max(self.read.values())

    @property
    def name(self) -> str:
        return f"{self.store.buffer}{LAST}"

    def element(self, back: int) -> Load:
        return Load(self.store.value.type, self.name, IntImm(back - 1))

    def begun(self, loop: For) -> list[Stmt]:
        """What turns before the first one have stored."""
        buffer, t = self.store.buffer, self.store.value.type
        found = list[Stmt]()
        for back in range(1, self.last + 1):
            before = Affine.of(loop.min) - back
            index = substitute(self.store.index, {loop.name: before.to_expr()})
            found.append(Store(self.name, IntImm(back - 1), Load(t, buffer, index)))
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
            if all(_is_apart(test, loop) for test in tests) and (found := _carried(loop)):
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
    return tests, loop


def _is_apart(test: Expr, loop: For) -> bool:
    """Whether a test is the same in all turns, or but says where an array ends: beyond that nothing
    is stored, and zero is read.
    """
    names, stored = free_vars(test), stored_names(loop.body)
    if stored & loaded(test):
        return False
    return loop.name not in names or any(f"{name}.extent" in v for name in stored for v in names)


def _always(s: Stmt) -> Stmt | None:
    return replace(s, predicate=None) if isinstance(s, Store) else None


def _carried(loop: For) -> Sequence[_Carried]:
    """None where turns may read what they hand on in another way, or nothing is."""
    stores = sequence(loop.body)
    found = [x for x in stores if isinstance(x, Store)]
    if len({x.buffer for x in found}) < len(stores) or any(x.predicate for x in found):
        return ()
    if any(x.index.type.lanes > 1 for x in found):
        return ()
    read = [(x, _read(x, found, loop)) for x in found]
    return [_Carried(x, r) for x, r in read if r] if all(r is not None for _, r in read) else ()


def _read(store: Store, stores: Sequence[Store], loop: For) -> dict[Expr, int] | None:
    """What is read of turns before, and of how many before; None where that differs."""
    index, turn, found = Affine.of(store.index), Var(loop.name), dict[Expr, int]()
    step = index.coefficient(turn)
    walks = step.terms and not step.mentions(loop.name) and not index.rest(turn).mentions(loop.name)
    if not walks:
        return None
    for e in (e for x in stores for e in (*walk_expr(x.value), *walk_expr(x.index))):
        if isinstance(e, Load) and e.buffer == store.buffer:
            single = e.index.type.lanes == 1 and e.predicate is None
            back = lag(index, e, step) if single else None
            if back is None:
                return None
            found |= {e: back} if back else {}
    return found


def _with_registers(loop: For, carried: Sequence[_Carried], tests: Sequence[Expr]) -> Stmt:
    """The loop, where it has turns; under those ``tests`` that are the same in all of them."""
    known = {e: c.element(back) for c in carried for e, back in c.read.items()}
    stores = [x for x in sequence(loop.body) if isinstance(x, Store)]
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
