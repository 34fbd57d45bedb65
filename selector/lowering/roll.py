"""Unrolled stages in shared memory, as loops again.

Halide writes the rows of an unrolled stage one by one:

    staged[ramp(0, 1, 32)] = I[ramp(y*stride, 1, 32)]
    staged[ramp(40, 1, 32)] = I[ramp((y + 1)*stride, 1, 32)]
    ...

A thread would profit; but the threads of a block share a stage's elements, and would do so row by
row, with a barrier after each. Neighbours that are one statement with another number in place of a
variable are that statement in a loop: all rows are shared at once, and the text is as long as one.

What is made of accumulators, or together with what is, may stay in registers, which are numbered:
its statements stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from selector.dataclass import dataclass
from selector.ir.affine import to_affine
from selector.ir.nodes import (
    Allocate,
    Block,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Memory,
    Ramp,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add
from selector.ir.traverse import (
    expr_children,
    free_vars,
    map_expr,
    map_stmt,
    stmt_children,
    stmt_exprs,
    walk_stmt,
)
from selector.ir.types import INT32, Type
from selector.lowering.normalize import TENSOR_MEMORY
from selector.lowering.structure import loaded_names


def roll_stages(body: Stmt, grid: Iterable[str] = ()) -> Stmt:
    """A kernel's body with loops in place of unrolled statements that fill shared memory; its
    meaning is unchanged. ``grid``: variables of the loops over blocks.
    """
    return _Rolling(_stages(body), frozenset(grid)).statement(body)


def _stages(body: Stmt) -> frozenset[str]:
    """Shared memory that no statement touches together with what is made of accumulators."""
    memory = {s.name: s.memory for s in walk_stmt(body) if isinstance(s, Allocate)}
    near = {name for name, place in memory.items() if place in TENSOR_MEMORY}
    stores = [s for s in walk_stmt(body) if isinstance(s, Store) and s.buffer not in near]
    together = [memory.keys() & (loaded_names(s) | {s.buffer}) for s in stores]
    while any(names & near and not names <= near for names in together):
        near.update(*(names for names in together if names & near))
    return frozenset(n for n, place in memory.items() if place is Memory.GPU_SHARED) - near


@dataclass(frozen=True, slots=True)
class _Rolling:
    """``around``: variables of loops and lets around."""

    stages: frozenset[str]
    around: frozenset[str]

    def statement(self, s: Stmt) -> Stmt:
        binds = isinstance(s, For | LetStmt)
        inner = _Rolling(self.stages, self.around | {s.name}) if binds else self
        s = map_stmt(s, inner.statement, lambda e: e)
        if not isinstance(s, Block):
            return s
        rolled = self._rolled(s.stmts)
        return s if len(rolled) == len(s.stmts) else _one_or_block(rolled)

    def _rolled(self, stmts: Sequence[Stmt]) -> list[Stmt]:
        """The statements of a block; loops that this makes may be unrolled themselves."""
        result: list[Stmt] = []
        at = 0
        while at < len(stmts):
            loop, count = self._loop(self._run(stmts, at))
            result += stmts[at : at + count] if loop is None else (loop,)
            at += count
        return result if len(result) == len(stmts) else self._rolled(result)

    def _loop(self, run: Sequence[Stmt]) -> tuple[For | None, int]:
        """The loop that the first statements of a run are, if they are one, and their number."""
        if len(run) == 1:
            return None, 1
        name = f"{_filled(run[0])}.row{_depth(run[0])}"
        body, count = _Row(Var(name), self.around).statement(run)
        if count == 1 or not _moves(body, name):
            return None, count
        return For(name, IntImm(0), IntImm(count), ForKind.UNROLLED, body), count

    def _run(self, stmts: Sequence[Stmt], at: int) -> list[Stmt]:
        """The statements from there on that fill one stage, and nothing else; the one, at least."""
        name = _filled(stmts[at])
        if name not in self.stages:
            return [stmts[at]]
        end = next((i for i in range(at, len(stmts)) if _filled(stmts[i]) != name), len(stmts))
        return list(stmts[at:end])


def _one_or_block(stmts: list[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else Block(tuple(stmts))


def _filled(s: Stmt) -> str:
    """The buffer that a nest stores; empty for any other statement."""
    match s:
        case Store(buffer):
            return buffer
        case For(body=body) | IfThenElse(then=body, otherwise=None):
            return _filled(body)
        case _:
            return ""


def _moves(body: Stmt, number: str) -> bool:
    """Whether each row fills elements of its own; else they are the terms of a sum."""
    stores = (s for s in walk_stmt(body) if isinstance(s, Store))
    return all(number in free_vars(s.index) for s in stores)


def _depth(s: Stmt) -> int:
    """Loops of this pass that a nest has already: names differ inside it."""
    match s:
        case For(body=body):
            return 1 + _depth(body)
        case IfThenElse(then=body):
            return _depth(body)
        case _:
            return 0


@dataclass(frozen=True, slots=True)
class _Row:
    """One statement for those that follow each other, of their ``number``. What each method returns
    stands for as many of the first as it says, for one at least.
    """

    number: Var
    around: frozenset[str]

    def statement(self, stmts: Sequence[Stmt]) -> tuple[Stmt, int]:
        first = stmts[0]
        count = _prefix(_same_node(s, first) for s in stmts)
        exprs: list[Expr] = []
        for position in range(len(stmt_exprs(first))):
            part, count = self.expr([stmt_exprs(s)[position] for s in stmts[:count]])
            exprs.append(part)
        inner: list[Stmt] = []
        for position in range(len(stmt_children(first))):
            child, count = self.statement([stmt_children(s)[position] for s in stmts[:count]])
            inner.append(child)
        return _with_parts(first, exprs, inner), count

    def expr(self, exprs: Sequence[Expr]) -> tuple[Expr, int]:
        first = exprs[0]
        if all(e == first for e in exprs):
            return first, len(exprs)
        return max(self._counted(exprs), self._by_operands(exprs), key=lambda found: found[1])

    def _counted(self, exprs: Sequence[Expr]) -> tuple[Expr, int]:
        """Numbers at equal distances, which nothing decides but sizes of the program."""
        first = exprs[0]
        if first.type != INT32:
            return first, 1
        start = to_affine(first)
        step = to_affine(exprs[1]) - start
        atoms = [atom for m, _ in step for atom in m]
        if not all(isinstance(a, Var) and a.name not in self.around for a in atoms):
            return first, 1
        count = _prefix(to_affine(e) - start == step * k for k, e in enumerate(exprs))
        return add(first, (step * self.number).to_expr()), count

    def _by_operands(self, exprs: Sequence[Expr]) -> tuple[Expr, int]:
        first = exprs[0]
        count = _prefix(_same_operation(e, first) for e in exprs)
        operands: list[Expr] = []
        for position in range(len(expr_children(first))):
            operand, count = self.expr([expr_children(e)[position] for e in exprs[:count]])
            operands.append(operand)
        return _with_operands(first, operands), count


def _prefix(same: Iterable[bool]) -> int:
    """How many are, before the first that is not."""
    return sum(1 for _ in takewhile(bool, same))


def _same_operation(e: Expr, first: Expr) -> bool:
    """Whether two expressions differ in their operands only; lanes are as far apart."""
    operands = expr_children(first)
    if isinstance(first, Ramp) and (not isinstance(e, Ramp) or e.stride != first.stride):
        return False
    alike = type(e) is type(first) and _types(expr_children(e)) == _types(operands)
    return alike and _with_operands(e, operands) == first


def _same_node(s: Stmt, first: Stmt) -> bool:
    """Whether two statements differ in their expressions, and the statements inside, only; loops
    run as often.
    """
    exprs, inner = stmt_exprs(first), stmt_children(first)
    if isinstance(first, For) and stmt_exprs(s) != exprs:
        return False
    alike = type(s) is type(first) and _types(stmt_exprs(s)) == _types(exprs)
    return alike and len(stmt_children(s)) == len(inner) and _with_parts(s, exprs, inner) == first


def _types(exprs: Iterable[Expr]) -> list[Type]:
    return [e.type for e in exprs]


def _with_operands(e: Expr, operands: Iterable[Expr]) -> Expr:
    left = iter(operands)
    return map_expr(e, lambda _: next(left))


def _with_parts(s: Stmt, exprs: Iterable[Expr], inner: Iterable[Stmt]) -> Stmt:
    exprs_left, inner_left = iter(exprs), iter(inner)
    return map_stmt(s, lambda _: next(inner_left), lambda _: next(exprs_left))
