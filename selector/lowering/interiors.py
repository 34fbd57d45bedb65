"""What fills shared memory from an array with a boundary condition, twice: as a plain copy where
all of it lies inside the array, and as it is.

    for v1, v0: shared[...] = a[max(min(v0, w - 1), 0) + max(min(v1, h - 1), 0)*pitch]
                                                    =>
    if (0 <= least v0 && greatest v0 <= w - 1 && ...)     asked once for a block
      for v1, v0: shared[...] = a[v0 + v1*pitch]
    else
      for v1, v0: shared[...] = a[max(min(v0, w - 1), 0) + max(min(v1, h - 1), 0)*pitch]

Most blocks of an image are inside. They copy 16 bytes at once, as if there were no condition.
"""

from __future__ import annotations

from dataclasses import field

from selector.dataclass import dataclass
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Load,
    Memory,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, simplify
from selector.ir.traverse import free_vars, map_expr, map_stmt, substitute, walk_expr, walk_stmt
from selector.lowering.boundaries import inner_side
from selector.lowering.normalize import holds_tensor
from selector.lowering.predicates import denied, every, holds_everywhere

ZERO = IntImm(0)


def copy_insides(body: Stmt) -> Stmt:
    """The body of a kernel with such fills; that of one with tensor units as it is: there the copy
    engine and the copies of rings know what is inside.
    """
    shared = {
        x.name
        for x in walk_stmt(body)
        if isinstance(x, Allocate) and x.memory is Memory.GPU_SHARED and x.stages <= 1
    }
    return body if not shared or holds_tensor(body) else _fills(body, shared)


def _fills(s: Stmt, shared: set[str]) -> Stmt:
    nest = _nest(s)
    if nest is None or nest[1].buffer not in shared:
        return map_stmt(s, lambda x: _fills(x, shared), lambda e: e)
    loops, store = nest
    inside = _Inside(frozenset(loop.name for loop in loops))
    value = inside.value(store.value)
    lows = {loop.name: add(loop.min, Var(loop.name)) for loop in loops}
    digits = {Var(x.name): x.extent.value for x in loops if isinstance(x.extent, IntImm)}
    tests = [holds_everywhere(substitute(c, lows), digits) for c in inside.conditions]
    known = [simplify(t) for t in tests if t is not None]
    if not tests or len(known) < len(tests):
        return s
    plain: Stmt = Store(store.buffer, store.index, simplify(value))
    for loop in reversed(loops):
        plain = For(loop.name, loop.min, loop.extent, loop.kind, plain)
    return IfThenElse(every(dict.fromkeys(known)), plain, s)


def _nest(s: Stmt) -> tuple[list[For], Store] | None:
    """Loops of constant extents, outermost first, around one store."""
    loops = list[For]()
    while isinstance(s, For) and s.kind is ForKind.SERIAL and isinstance(s.extent, IntImm):
        loops.append(s)
        s = s.body
    names = {loop.name for loop in loops}
    constant = all(names.isdisjoint(free_vars(loop.min)) for loop in loops)
    return (loops, s) if loops and constant and isinstance(s, Store) else None


@dataclass(slots=True)
class _Inside:
    """Values as they are inside an array, and the ``conditions`` under which they are that."""

    names: frozenset[str]
    conditions: list[Expr] = field(default_factory=list[Expr])

    def value(self, e: Expr) -> Expr:
        match e:
            case Load():
                return Load(e.type, e.buffer, self.index(e.index))
            case Select(condition, a, b) if _loads(a) != _loads(b):
                found = self.side(condition, a, b, a if _loads(a) else b)
                return e if found is None else self.value(found)
            case _:
                return map_expr(e, self.value)

    def index(self, e: Expr) -> Expr:
        match e:
            case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b) if self.free(b) != self.free(a):
                along, end = (a, b) if self.free(b) else (b, a)
                along = self.index(along)
                order = CompareOp.LE if op is BinaryOp.MIN else CompareOp.GE
                self.conditions.append(Compare(order, along, end))
                return along
            case Binary(BinaryOp.MOD, a, b) if self.free(b) and not self.free(a):
                a = self.index(a)
                self.conditions += [Compare(CompareOp.LE, ZERO, a), Compare(CompareOp.LT, a, b)]
                return a
            case Select(condition, a, b) if not self.free(condition):
                found = self.side(condition, a, b, inner_side(a, b))
                return e if found is None else self.index(found)
            case Binary(BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL as op, a, b):
                return Binary(op, self.index(a), self.index(b))
            case _:
                return e

    def side(self, condition: Expr, a: Expr, b: Expr, wanted: Expr) -> Expr | None:
        """A side of a choice, where a condition without an ``or`` says that it is that one."""
        needed = condition if wanted is a else denied(condition)
        if needed is None:
            return None
        self.conditions.append(needed)
        return wanted

    def free(self, e: Expr) -> bool:
        return self.names.isdisjoint(free_vars(e))


def _loads(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in walk_expr(e))
