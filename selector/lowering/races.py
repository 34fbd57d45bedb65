"""Atomic updates that several threads make to one element.

Halide's ``atomic()`` allows a reduction to run in parallel. Dropping it is right where the blocks
and threads around the update store to different elements; else it needs atomic instructions, which
are not emitted yet, and the schedule is refused.
"""

from __future__ import annotations

from selector.diagnostics import ScheduleError, Where
from selector.ir.affine import to_affine
from selector.ir.lanes import lane
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Expr,
    For,
    ForKind,
    IntImm,
    LetStmt,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import stmt_children, substitute

_PARALLEL = (ForKind.GPU_BLOCK, ForKind.GPU_THREAD, ForKind.GPU_LANE, ForKind.PARALLEL)
_Lets = tuple[tuple[str, Expr], ...]


def refuse_races(s: Stmt) -> None:
    """ScheduleError for an atomic update to one element from several blocks or threads."""
    _walk(s, {}, {}, (), atomic=False)


def _walk(
    s: Stmt, loops: dict[str, For], owned: dict[str, frozenset[str]], lets: _Lets, *, atomic: bool
) -> None:
    """``owned``: buffers with the parallel loops around their allocation."""
    match s:
        case For(name=name) if s.kind in _PARALLEL and s.extent != IntImm(1):
            loops = {**loops, name: s}
        case Allocate(name=name):
            owned = {**owned, name: frozenset(loops)}
        case LetStmt(name, value, _):
            lets = (*lets, (name, value))
        case Atomic():
            atomic = True
        case Store() if atomic:
            _check(s, loops.keys() - owned.get(s.buffer, frozenset()), lets)
        case _:
            pass
    for child in stmt_children(s):
        _walk(child, loops, owned, lets, atomic=atomic)


def _check(s: Store, loops: set[str], lets: _Lets) -> None:
    lanes = s.index.type.lanes
    index = lane(s.index, ((IntImm(0), lanes),)) if lanes > 1 else s.index
    for name, value in reversed(lets):
        index = substitute(index, {name: value})
    place = to_affine(index)
    for loop in sorted(loops):
        factor = place.coefficient(Var(loop))
        opaque = place.rest(Var(loop)).mentions(loop) or factor.mentions(loop)
        if opaque or not factor.terms:
            raise ScheduleError(
                f"several threads update one element of `{s.buffer}`",
                f"the update is atomic, and iterations of {loop} may store to the same element",
                "make that loop serial, or reduce in parallel with rfactor(...)",
                Where(func=s.buffer),
            )
