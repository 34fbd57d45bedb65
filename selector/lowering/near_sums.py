"""Sums of exponentials that nothing but quotients rounded to 16 bits are made of.

    for s < n: p[0] = p[0] + exp(a[...])               p[0] = p[0] + near(exp(a[...]))
    q[0] = row.add(p[0])                         =>    ...
    for s < n: o[...] = f16(exp(a[...]) / q[0])        o[...] = f16(near(exp(a[...])) / q[0])

``near`` stands for what is computed as if it were rounded to 16 bits next
(``codegen.scalars.legal``), where an exponential is a multiplication and an instruction. Its terms
are positive, so that a sum is off by no larger part of itself than they are, and a product or a
quotient of such numbers by no more than both; all of them are rounded to 16 bits, which loses many
times as much. That goes in kernels of rows (``joined_rows``) where nothing else is made of the sum.
"""

from __future__ import annotations

from dataclasses import field

from selector.dataclass import dataclass
from selector.ir.contents import loaded
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    For,
    Load,
    Select,
    Stmt,
    Store,
)
from selector.ir.traverse import map_expr, map_stmt, walk_all_exprs, walk_stmt
from selector.ir.types import FLOAT32
from selector.lowering.joined_rows import ROW_JOIN
from selector.lowering.row_folds import fold_of
from selector.lowering.structure import in_order

NEAR = "near"
EXPONENTIAL = "exp_f32"


def near_sums(body: Stmt) -> Stmt:
    """The body of a joined kernel with such sums."""
    steps = list(in_order(body, of_thread=True))
    loops = [s for s in steps if isinstance(s, For) and _sum_of(s) is not None]
    for loop in loops:
        name = _sum_of(loop)
        assert name is not None
        found = _Made({name})
        if all(found.takes(s) for s in steps if s is not loop):
            users = [loop, *found.users]
            body = _replaced(body, users)
            steps = list(in_order(body, of_thread=True))
    return body


def _sum_of(s: For) -> str | None:
    """The local array to which a loop adds nothing but exponentials."""
    stores = [x for x in walk_stmt(s) if isinstance(x, Store)]
    names = {x.buffer for x in stores}
    return stores[0].buffer if len(names) == 1 and all(map(_adds, stores)) else None


def _adds(s: Store) -> bool:
    match s.value:
        case Binary(BinaryOp.ADD, a, b) if s.value.type.element == FLOAT32:
            own = [
                isinstance(x, Load) and (x.buffer, x.index) == (s.buffer, s.index) for x in (a, b)
            ]
            return sum(own) == 1 and _is_exponential(b if own[0] else a)
        case _:
            return False


def _is_exponential(e: Expr) -> bool:
    return isinstance(e, Call) and e.name == EXPONENTIAL and e.type.element == FLOAT32


@dataclass(slots=True)
class _Made:
    """What is made of a sum: ``sums`` of it, ``factors`` that it is used by in products, and loops
    that are ``users`` of these.
    """

    sums: set[str]
    factors: set[str] = field(default_factory=set[str])
    users: list[Stmt] = field(default_factory=list[Stmt])

    def takes(self, s: Stmt) -> bool:
        """Whether a statement makes such numbers, or none, of the sum."""
        read = frozenset[str]().union(*map(loaded, walk_all_exprs(s)))
        if not read & (self.sums | self.factors):
            return not (isinstance(s, Store) and s.buffer in self.factors)
        match s:
            case Store(name, _, value):
                return self._number(name, value)
            case For() if (fold := fold_of(s)) is not None:
                self.sums.add(fold.to)
                return fold.op is BinaryOp.ADD and fold.load.buffer in self.sums
            case For():
                self.users.append(s)
                stores = [x for x in walk_stmt(s) if isinstance(x, Store)]
                names = {x.buffer for x in stores}
                return not names & (self.sums | self.factors) and all(map(self._rounded, stores))
            case _:
                return False

    def _number(self, name: str, value: Expr) -> bool:
        """A number of the row."""
        match value:
            case Select(_, then, FloatImm(other)) if not isinstance(then, FloatImm):
                return other >= 0 and self._number(name, then)
            case Select(_, FloatImm(), FloatImm()):  # which power of two it is scaled by
                self.factors.add(name)
                return True
            case Call(_, call, (own, *_)) if call.startswith(ROW_JOIN):
                return call == f"{ROW_JOIN}{BinaryOp.ADD.name}" and self._number(name, own)
            case Load(_, buffer) if buffer in self.sums:
                self.sums.add(name)
                return True
            case Binary(BinaryOp.ADD, Load(_, a), Load(_, b)) if {a, b} <= self.sums | {name}:
                self.sums.add(name)
                return True
            case Binary(BinaryOp.DIV, FloatImm(), below) if self._product(below):
                self.factors.add(name)
                return True
            case _:
                return False

    def _rounded(self, s: Store) -> bool:
        match s.value:
            case Cast(t, value) if t.is_float and t.bits == 16:
                return self._product(value)
            case _:
                return False

    def _product(self, e: Expr) -> bool:
        """Whether the sum is but a factor or a divisor of what is computed."""
        match e:
            case Binary(BinaryOp.MUL | BinaryOp.DIV, a, b):
                return self._product(a) and self._product(b)
            case Broadcast(Load(_, name)) | Load(_, name) if name in self.sums | self.factors:
                return True
            case _:
                return not loaded(e) & (self.sums | self.factors)


def _replaced(body: Stmt, loops: list[Stmt]) -> Stmt:
    """With exponentials that are terms or factors in some loops as good as rounded ones."""

    def near(e: Expr) -> Expr:
        match e:
            case Binary(BinaryOp.ADD | BinaryOp.MUL | BinaryOp.DIV) | Cast():
                return map_expr(e, near)
            case _ if _is_exponential(e):
                return Call(e.type, NEAR, (e,))
            case _:
                return e

    def inside(s: Stmt) -> Stmt:
        return map_stmt(s, inside, lambda e: e if e.type.is_bool else near(e))

    def stmt(s: Stmt) -> Stmt:
        return inside(s) if any(s is x for x in loops) else map_stmt(s, stmt, lambda e: e)

    return stmt(body)
