"""Rows that a thread reads again and again, in its registers.

    for s < n: p = max(p, a[s*1024 + 8*x ...])       for s < 6: if s < n: k[8*s ...] = a[...]
    for s < n: q = q + exp(a[...] - p)          =>   for s < 6: if s < n: p = max(p, k[8*s ...])
    for s < n: o[...] = exp(a[...] - p) / q          for s = 6 ... n: p = max(p, a[...])
                                                     ...
In a kernel of rows (``joined_rows``) the loops of a thread over its part of a row load the same
vectors of arrays that nobody writes. The first of them are loaded once, all of them before the
first use, and stay; what a long row has behind them is read again. How many stay is a matter of
registers, so the length of a row need not be known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from selector.dataclass import dataclass
from selector.ir.affine import Affine, to_affine
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
    Load,
    Memory,
    Ramp,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import sub
from selector.ir.traverse import change_exprs, change_stmts, walk_all_exprs, walk_stmt
from selector.ir.types import Type
from selector.lowering.predicates import test_of_all
from selector.lowering.row_folds import Row
from selector.lowering.structure import in_order, stored_names

STEPS = 6  # vectors that stay of an array at most: those of a size class have 4 to 4 * sqrt(2)
BYTES = 256  # of a thread that stay: half of this in blocks that have few registers for each
MANY = 512  # threads of a block from which on that is so
REGISTERS = 1 << 16  # of a multiprocessor, of four bytes
OTHERS = 40  # of a thread, beside what stays
STEP = Var("row.step")
KEPT = "row.kept."  # what stays is called


@dataclass(frozen=True, slots=True)
class _Vector:
    """``lanes`` of a buffer from ``start`` on, which mentions ``STEP``."""

    buffer: str
    type: Type
    start: Affine

    @property
    def bytes(self) -> int:
        return self.type.bytes * self.type.lanes


def kept_rows(body: Stmt, row: Row) -> tuple[Stmt, int]:
    """The body of a joined kernel whose threads keep what they load again, and how many blocks have
    registers enough on a multiprocessor: what comes of arrays in parts must not take more.
    """
    stored = stored_names(body) | {s.name for s in walk_stmt(body) if isinstance(s, Allocate)}
    found: dict[_Vector, list[For]] = {}
    for loop in in_order(body, of_thread=True):
        if not isinstance(loop, For) or (loop.kind, loop.min) != (ForKind.SERIAL, IntImm(0)):
            continue
        for vector in dict.fromkeys(v for _, v in _vectors(loop) if v.buffer not in stored):
            found.setdefault(vector, []).append(loop)
    again = [vector for vector, loops in found.items() if len(loops) > 1]
    most = BYTES // (2 if row.threads * row.rows > MANY else 1)
    again = again[: most // (2 * max((v.bytes for v in again), default=1))]
    if not again:
        return body, 0
    steps = min(STEPS, most // sum(v.bytes for v in again))
    extents = list(dict.fromkeys(loop.extent for v in again for loop in found[v]))
    known = [e.value for e in extents if isinstance(e, IntImm)]
    if len(known) == len(extents):
        steps = min(steps, max(known))
    names = {vector: f"{KEPT}{n}" for n, vector in enumerate(again)}
    registers = OTHERS + steps * sum(v.bytes for v in again) // 4
    resident = REGISTERS // (row.threads * row.rows * registers)
    return _Keeping(names, steps, extents).kept(body), resident


def _vectors(loop: For) -> Iterator[tuple[Load, _Vector]]:
    """The loads of neighbours that each iteration has its own of."""
    for e in walk_all_exprs(loop.body):
        match e:
            case Load(t, buffer, Ramp(base, IntImm(1), _)) if base.type.lanes == 1:
                start = to_affine(base)
                factor = start.coefficient(Var(loop.name))
                rest = start.rest(Var(loop.name))
                if factor.constant and not rest.mentions(loop.name):
                    yield e, _Vector(buffer, t, rest + Affine.of(STEP) * factor.constant)
            case _:
                pass


@dataclass(frozen=True, slots=True)
class _Keeping:
    names: dict[_Vector, str]
    steps: int
    extents: list[Expr]

    def kept(self, s: Stmt) -> Stmt:
        """A body with the loads at its begin."""
        match s:
            case Allocate(memory=Memory.GPU_SHARED) | For(kind=ForKind.GPU_THREAD):
                return replace(s, body=self.kept(s.body))
            case _:
                pass
        s = Block(
            (
                *(self._loaded(v, name) for v, name in self.names.items()),
                change_stmts(s, self._read),
            )
        )
        for vector, name in self.names.items():
            count = IntImm(self.steps * vector.type.lanes)
            s = Allocate(name, vector.type.element, (count,), Memory.STACK, s)
        return s

    def _loaded(self, v: _Vector, name: str) -> Stmt:
        value = Load(v.type, v.buffer, Ramp(v.start.to_expr(), IntImm(1), v.type.lanes))
        store: Stmt = Store(name, _place(v, STEP), value)
        if not all(isinstance(e, IntImm) for e in self.extents):
            tests: list[Expr] = [Compare(CompareOp.LT, STEP, e) for e in self.extents]
            store = IfThenElse(reduce(lambda a, b: Binary(BinaryOp.OR, a, b), tests), store)
        return For(STEP.name, IntImm(0), IntImm(self.steps), ForKind.UNROLLED, store)

    def _read(self, s: Stmt) -> Stmt | None:
        match s:
            case Block() | Allocate():
                return None
            case For(min=IntImm(0), kind=ForKind.SERIAL):
                own = {e: v for e, v in _vectors(s) if v in self.names}
                return self._split(s, own) if own else s
            case _:
                return s

    def _split(self, s: For, own: dict[Load, _Vector]) -> Stmt:
        """A loop over what is kept, and one over the rest."""

        step = Var(s.name)
        kept: dict[Expr, Expr] = {
            e: Load(e.type, self.names[v], _place(v, step)) for e, v in own.items()
        }
        body = change_exprs(s.body, kept.get)
        if isinstance(body, IfThenElse):
            body = replace(body, condition=test_of_all(body.condition))
        steps = IntImm(self.steps)
        match s.extent:
            case IntImm(n) if n <= self.steps:
                return replace(s, kind=ForKind.UNROLLED, body=body)
            case IntImm():
                first = replace(s, extent=steps, kind=ForKind.UNROLLED, body=body)
            case _:
                test = Compare(CompareOp.LT, Var(s.name), s.extent)
                inner = IfThenElse(test, body)
                first = replace(s, extent=steps, kind=ForKind.UNROLLED, body=inner)
        return Block((first, replace(s, min=steps, extent=sub(s.extent, steps))))


def _place(v: _Vector, step: Expr) -> Expr:
    base = (to_affine(step) * v.type.lanes).to_expr()
    return Ramp(base, IntImm(1), v.type.lanes)
