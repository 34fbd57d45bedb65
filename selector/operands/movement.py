"""Data-movement annotation: the first stage of selection.

Values that enter an allocation in a tensor unit are marked memory -> unit, values that leave it
unit -> memory (``hardboiled`` section III-B), so that equality saturation never equates a register
tile with memory. A ``LocToLoc`` changes no value. What is left of them after selection could not be
mapped.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from selector.ir.contents import holds, loaded
from selector.ir.nodes import (
    Allocate,
    Expr,
    Let,
    Load,
    Location,
    LocToLoc,
    Stmt,
    Store,
)
from selector.ir.traverse import map_expr, map_stmt, substitute

Placement = Mapping[str, Location]


def annotate_movement(s: Stmt, placed: Placement = MappingProxyType({})) -> Stmt:
    """A program with a ``LocToLoc`` around every value that enters or leaves a tensor unit's
    memory; ``placed`` are the units' buffers around it."""
    match s:
        case Allocate(name, _, _, memory, _):
            inner = {k: v for k, v in placed.items() if k != name}
            if memory.location is not Location.MEM:
                inner[name] = memory.location
            return map_stmt(
                s, lambda b: annotate_movement(b, inner), lambda e: _annotate(e, placed)
            )
        case Store(buffer, index, value, predicate):
            value = _annotate(_inline_reads(value, placed), placed)
            if buffer in placed:
                value = LocToLoc(Location.MEM, placed[buffer], value)
            predicate = None if predicate is None else _annotate(predicate, placed)
            return Store(buffer, _annotate(index, placed), value, predicate)
        case _:
            return map_stmt(
                s, lambda b: annotate_movement(b, placed), lambda e: _annotate(e, placed)
            )


def _inline_reads(e: Expr, placed: Placement) -> Expr:
    """Lets that hold what a unit computed are substituted: a statement is selected as one
    expression."""
    match e:
        case Let(name, value, body) if _reads(value, placed):
            return _inline_reads(substitute(body, {name: value}), placed)
        case _:
            return map_expr(e, lambda c: _inline_reads(c, placed)) if holds(e, Let) else e


def _reads(e: Expr, placed: Placement) -> bool:
    return not loaded(e).isdisjoint(placed)


def _annotate(e: Expr, placed: Placement) -> Expr:
    if not _reads(e, placed):
        return e
    match e:
        case LocToLoc():
            return e
        case Load(_, buffer, _, _) if buffer in placed:
            load = map_expr(e, lambda c: _annotate(c, placed))
            return LocToLoc(placed[buffer], Location.MEM, load)
        case _:
            return map_expr(e, lambda c: _annotate(c, placed))
