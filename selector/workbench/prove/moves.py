"""Values enter a tensor unit's memory and leave it by moves, and by nothing else.

At a lane a move is what it holds, so that values say nothing of moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from selector.ir.nodes import Allocate, Expr, Load, Location, LocToLoc, Stmt, Store
from selector.ir.printer import print_expr
from selector.ir.traverse import expr_children, stmt_children, stmt_exprs

Placement = Mapping[str, Location]


def misplaced(s: Stmt, placed: Placement = MappingProxyType({})) -> Iterator[str]:
    """Values of a program that are not where they are needed: stored ones are needed in the memory
    of their buffer, operands, indices and conditions in ordinary memory."""
    match s:
        case Allocate(name):
            placed = {**placed, name: s.memory.location}
        case Store(buffer, _, value):
            needed = placed.get(buffer, Location.MEM)
            yield from _misplaced(value, needed, placed)
        case _:
            pass
    for e in stmt_exprs(s):
        if not (isinstance(s, Store) and e is s.value):
            yield from _misplaced(e, Location.MEM, placed)
    for child in stmt_children(s):
        yield from misplaced(child, placed)


def _misplaced(e: Expr, needed: Location, placed: Placement) -> Iterator[str]:
    inner = own = Location.MEM
    match e:
        case LocToLoc(source, destination):
            inner, own = source, destination
        case Load(_, buffer):
            own = placed.get(buffer, Location.MEM)
        case _:
            pass
    if own is not needed or (isinstance(e, LocToLoc) and inner is own):
        yield f"`{print_expr(e)}` is in {own.value} and needed in {needed.value}"
    for child in expr_children(e):
        yield from _misplaced(child, inner, placed)
