"""What each element of a row is computed with, and is alike for all of them, computed once.

    for s < n: o[...] = a[...] * x8(1 / sqrt(q[0]))     v[0] = 1 / sqrt(q[0])
                                                   =>   for s < n: o[...] = a[...] * x8(v[0])
C's compilers leave divisions and functions where they are if it is not certain that they are
executed. A division by such a number, rounded to 16 bits next, is a product with its reciprocal:
both are rounded, which is at most what ``scalars.legal`` takes of such divisions (4 units of
float32, of the 8192 that a unit of float16 has). So is one that is a factor of what is rounded, or
a term: then it is off by a unit of its own, as the product and the sum are that follow. So is a
term of what a thread adds up, the parts of which are rounded in an order of their own in any case.
Divisors below 2^-64 are scaled, so that the reciprocal is a number.
"""

from __future__ import annotations

from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.ir.contents import holds
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    For,
    ForKind,
    IntImm,
    Load,
    Memory,
    Select,
    Stmt,
    Store,
)
from selector.ir.traverse import (
    change_expr,
    change_exprs,
    change_stmts,
    free_vars,
    map_expr,
    walk_expr,
    walk_stmt,
)
from selector.ir.types import FLOAT32
from selector.lowering.structure import stored_names

ROW_VALUE = "row.value."  # what is computed so is called
SMALL = 2.0**-64
ZERO = IntImm(0)


def row_values(body: Stmt) -> Stmt:
    """The body of a joined kernel without functions of rows in the loops over their elements."""
    local = {
        s.name for s in walk_stmt(body) if isinstance(s, Allocate) and s.extents == (IntImm(1),)
    }
    numbers = [0]

    def outer(s: Stmt) -> Stmt | None:
        match s:
            case For(kind=ForKind.GPU_THREAD) | Block() | Allocate():
                return None
            case For(kind=ForKind.SERIAL):
                loops = {x.name for x in walk_stmt(s) if isinstance(x, For)}
                found = _Values(frozenset(local - stored_names(s)), frozenset(loops), numbers)
                return found.around(change_exprs(change_stmts(s, found.added), found.expr))
            case _:
                return s

    return change_stmts(body, outer)


@dataclass(slots=True)
class _Values:
    """Of one loop: ``alike``, the numbers of the thread that it leaves as they are; its variables;
    ``found``: what is computed before it, by what it is called.
    """

    alike: frozenset[str]
    variables: frozenset[str]
    numbers: list[int]
    found: dict[Expr, str] = field(default_factory=dict[Expr, str])

    def around(self, s: Stmt) -> Stmt:
        s = Block((*(Store(name, ZERO, e) for e, name in self.found.items()), s))
        for name in self.found.values():
            s = Allocate(name, FLOAT32, (IntImm(1),), Memory.STACK, s)
        return s

    def added(self, s: Stmt) -> Stmt | None:
        """A statement that adds to what it stores to."""
        match s:
            case Store(name, _, Binary(BinaryOp.ADD, a, b) as sum_) if (
                sum_.type.element == FLOAT32 and name in {_loaded(a), _loaded(b)}
            ):
                return replace(s, value=map_expr(sum_, self._rounded))
            case _:
                return None

    def expr(self, e: Expr) -> Expr | None:
        match e:
            case Cast(t, value) if t.is_float and t.bits == 16:
                return replace(e, value=self._rounded(value))
            case _ if e.type == FLOAT32 and self._is_alike(e) and _is_costly(e) and holds(e, Load):
                return self._value(e)
            case _:
                return None

    def _rounded(self, e: Expr) -> Expr:
        """What is rounded to 16 bits next, or is a term or a factor of that."""
        match e:
            case Binary(BinaryOp.DIV, a, Broadcast(b, lanes)) if (
                b.type == FLOAT32 and self._is_alike(b)
            ):
                return self._product(change_expr(a, self.expr), b, lanes)
            case Binary(BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL):
                return map_expr(e, self._rounded)
            case _:
                return change_expr(e, self.expr)

    def _product(self, a: Expr, b: Expr, lanes: int) -> Expr:
        """A quotient, by the reciprocal."""
        one = FloatImm(1.0, FLOAT32)
        if _is_count(b):
            inverse = self._value(Binary(BinaryOp.DIV, one, b))
            return Binary(BinaryOp.MUL, a, Broadcast(inverse, lanes))
        size = Binary(BinaryOp.MAX, b, Binary(BinaryOp.SUB, FloatImm(0.0, FLOAT32), b))
        small = Compare(CompareOp.LT, size, FloatImm(SMALL, FLOAT32))
        scale = self._value(Select(small, FloatImm(1 / SMALL, FLOAT32), one))
        inverse = self._value(Binary(BinaryOp.DIV, one, Binary(BinaryOp.MUL, b, scale)))
        scaled = Binary(BinaryOp.MUL, a, Broadcast(scale, lanes))
        return Binary(BinaryOp.MUL, scaled, Broadcast(inverse, lanes))

    def _value(self, e: Expr) -> Expr:
        if e not in self.found:
            self.numbers[0] += 1
            self.found[e] = f"{ROW_VALUE}{self.numbers[0]}"
        return Load(FLOAT32, self.found[e], ZERO)

    def _is_alike(self, e: Expr) -> bool:
        """Whether it is the same for all elements, made of the thread's numbers, if any, alone."""
        loads = [x for x in walk_expr(e) if isinstance(x, Load)]
        alike = all(x.buffer in self.alike and x.index == ZERO for x in loads)
        return alike and not free_vars(e) & self.variables


def _loaded(e: Expr) -> str | None:
    """The array that a value is loaded from."""
    return e.buffer if isinstance(e, Load) else None


def _is_count(e: Expr) -> bool:
    """Whether it is a whole number, of which the reciprocal is a number if it is not zero."""
    match e:
        case Cast(_, value):
            return value.type.is_integer
        case FloatImm(value):
            return value.is_integer()
        case _:
            return False


def _is_costly(e: Expr) -> bool:
    return any(
        isinstance(x, Call) or (isinstance(x, Binary) and x.op is BinaryOp.DIV)
        for x in walk_expr(e)
    )
