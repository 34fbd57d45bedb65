"""The allocations in a tensor unit's memory, and the statements that touch them."""

from __future__ import annotations

from selector.ir.contents import holds
from selector.ir.nodes import Allocate, Location, LocToLoc, Stmt
from selector.ir.traverse import stmt_exprs, walk_stmt


def is_tensor(s: Stmt) -> bool:
    """Whether a statement allocates in a tensor unit's memory."""
    return isinstance(s, Allocate) and s.memory.location is not Location.MEM


def accumulators_of(allocation: Allocate) -> dict[str, Location]:
    """The tensor allocations of a scope and where they live, the outermost first."""
    placed: dict[str, Location] = {}
    for s in walk_stmt(allocation):
        if isinstance(s, Allocate) and is_tensor(s):
            placed.setdefault(s.name, s.memory.location)
    return placed


def touches_tensor(s: Stmt) -> bool:
    """Whether a statement holds a movement to or from a tensor unit directly."""
    return any(holds(e, LocToLoc) for e in stmt_exprs(s))
