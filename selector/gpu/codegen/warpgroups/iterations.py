"""What the groups do in one iteration of a pipelined loop, as far as it has to know.

It says when the instructions that read a stage are complete: in the iteration itself, or in the
next one, or between the statements of one. ``consumers`` are an iteration's statements without
those that fill the stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from math import prod

from selector.gpu.codegen.warpgroups.windows import is_window
from selector.ir.contents import holds
from selector.ir.nodes import (
    Allocate,
    Block,
    Call,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Load,
    Stmt,
    Store,
)
from selector.ir.traverse import walk_stmt
from selector.lowering.normalize import holds_tensor, sequence
from selector.lowering.structure import in_order, loaded_names, peel_threads, stored_names
from selector.lowering.tiles import Accumulate, as_accumulate


def only_region(consumers: list[Stmt]) -> tuple[list[tuple[str, int]], Stmt]:
    """The thread loops of an iteration that is nothing else, and their body; nothing of others."""
    match consumers:
        case [For(kind=ForKind.GPU_THREAD) as region]:
            return peel_threads(region)
        case _:
            return [], Block(())


def only_if(consumers: list[Stmt]) -> IfThenElse | None:
    """The condition that an iteration is nothing else than."""
    match consumers:
        case [IfThenElse(otherwise=None) as found]:
            return found
        case _:
            return None


def _products(stmts: Iterable[Stmt]) -> list[Accumulate | None]:
    return [as_accumulate(x) if isinstance(x, Store) else None for x in stmts]


def only_accumulates(consumers: list[Stmt]) -> list[str] | None:
    """The accumulators, where an iteration does nothing but add to them in all groups."""
    parts = _products(sequence(only_region(consumers)[1]))
    names = dict.fromkeys(p.accumulator for p in parts if p is not None)
    return list(names) if names and None not in parts else None


def trailing_accumulators(consumers: list[Stmt]) -> list[str]:
    """Accumulators whose products end an iteration and may run on into the next one: that
    waits for products of its own before anybody touches those accumulators.
    """
    stmts = list(in_order(only_region(consumers)[1]))
    parts, (head, tail) = _products(stmts), first_products(stmts)
    names = list(dict.fromkeys(p.accumulator for p in parts[tail:] if p))
    if not names or head > tail:
        return []
    early = {x for s in stmts[:head] for x in (stored_names(s) | loaded_names(s))}
    written = {x for s in stmts[:head] for x in stored_names(s)}
    operands = {o.buffer for p in parts[tail:] if p for o in (p.a, p.b)}
    return [] if early & set(names) or written & operands else names


def first_products(stmts: Sequence[Stmt]) -> tuple[int, int]:
    """Where the first run of products of an iteration ends, and where the last one begins."""
    parts = _products(stmts)
    end = next((i for i, p in enumerate(reversed(parts)) if p is None), len(parts))
    return _after_first(parts), len(parts) - end


def _after_first(parts: Sequence[Accumulate | None]) -> int:
    """Where the first run of products ends."""
    first = next((i for i, p in enumerate(parts) if p is not None), len(parts))
    return next((i for i, p in enumerate(parts) if i > first and p is None), len(parts))


def read_first(consumers: list[Stmt], names: Set[str]) -> bool:
    """Whether only the first products of an iteration read some buffers."""
    stmts = list(in_order(only_region(consumers)[1]))
    head = _after_first(_products(stmts))
    return bool(stmts) and not any(loaded_names(s) & names for s in stmts[head:])


def stage_readers(consumers: list[Stmt], staged: set[str], groups: int) -> int:
    """How many accumulate statements read the ``staged`` buffers, if nothing else does and all
    ``groups`` come to all of them once an iteration; else 0.
    """
    loops, body = only_region(consumers)
    every = prod(e for _, e in loops) == groups
    return (_straight_readers(body, staged) or 0) if every else 0


def read_by_threads(consumers: list[Stmt], staged: set[str]) -> bool:
    """Whether threads read the ``staged`` buffers themselves, and not instructions for all of a
    group.
    """
    stores = (s for x in consumers for s in walk_stmt(x) if isinstance(s, Store))
    return any(loaded_names(s) & staged for s in stores if as_accumulate(s) is None)


def is_loaded_fill(s: Store) -> bool:
    """Whether a statement fills an accumulator with numbers from few places in memory."""
    match s.value:
        case Call(_, "tile.fill", (value,)):
            return holds(value, Load)
        case _:
            return False


def _straight_readers(s: Stmt, names: set[str]) -> int | None:
    """How many accumulate statements there are; None if others read these buffers, or some in a
    loop or under a condition.
    """
    match s:
        case Store() if as_accumulate(s) is not None:
            return 1
        case Block(stmts):
            found = [_straight_readers(x, names) for x in stmts]
            return None if None in found else sum(n for n in found if n is not None)
        case Allocate(body=body) | LetStmt(body=body):
            return _straight_readers(body, names)
        case For() if is_window(s):  # all of it is one run of instructions
            return sum(isinstance(x, Store) for x in walk_stmt(s))
        case For() | IfThenElse() if holds_tensor(s):
            return None
        case _:
            return None if loaded_names(s) & names else 0
