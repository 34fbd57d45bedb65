"""The shape of a kernel's body: thread loops, allocations, and which buffers statements touch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from selector.diagnostics import ScheduleError
from selector.ir.contents import loaded
from selector.ir.nodes import (
    Allocate,
    Block,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Stmt,
    Store,
    Var,
)
from selector.ir.printer import print_expr
from selector.ir.traverse import stmt_children, stmt_exprs, substitute_stmt, union_of_names
from selector.lowering.normalize import TENSOR_MEMORY, sequence


def stored_names(s: Stmt) -> frozenset[str]:
    """Buffers that a statement writes."""
    found: frozenset[str] | None = getattr(s, "known_stores", None)
    if found is None:
        own = frozenset((s.buffer,)) if isinstance(s, Store) else frozenset[str]()
        found = union_of_names([own, *map(stored_names, stmt_children(s))])
        s.known_stores = found
    return found


def loaded_names(s: Stmt) -> frozenset[str]:
    """Buffers that a statement reads."""
    found: frozenset[str] | None = getattr(s, "known_loads", None)
    if found is None:
        own = map(loaded, stmt_exprs(s))
        found = union_of_names([*own, *map(loaded_names, stmt_children(s))])
        s.known_loads = found
    return found


def constant_elements(s: Allocate) -> int:
    """Elements of an allocation; ``ScheduleError`` where that is not a constant."""
    total = 1
    for extent in s.extents:
        if not isinstance(extent, IntImm):
            raise ScheduleError(
                f"`{s.name}` has no constant size",
                "memory inside a kernel is laid out when it is compiled, and one of its extents is "
                f"`{print_expr(extent)[:80]}`",
                "bound the extents it is computed over, or split by constants",
            )
        total *= extent.value
    return total


def stage_elements(s: Allocate) -> int:
    """Elements from one slot of a ring to the next: slots start at multiples of 16 bytes."""
    size = constant_elements(s) * s.type.bytes
    return -(-size // 16) * 16 // s.type.bytes


def hoist_allocations(s: Stmt) -> tuple[list[Allocate], list[Stmt]]:
    """Allocations at the head of a loop body, and the statements below them in order."""
    allocations: list[Allocate] = []
    body: list[Stmt] = []
    for x in sequence(s):
        if isinstance(x, Allocate) and x.memory not in TENSOR_MEMORY:
            more, inner = hoist_allocations(x.body)
            allocations += [x, *more]
            body += inner
        else:
            body.append(x)
    return allocations, body


def peel_threads(s: For) -> tuple[list[tuple[str, int]], Stmt]:
    """(variable, extent) of directly nested thread loops, innermost first, and their body."""
    loops: list[tuple[str, int]] = []
    body: Stmt = s
    while isinstance(body, For) and body.kind is ForKind.GPU_THREAD:
        if not isinstance(body.extent, IntImm) or body.min != IntImm(0):
            raise ScheduleError(
                f"the thread loop {body.name} has no constant extent",
                hint="split by a constant and mark the inner loop with gpu_threads(...)",
            )
        if body.extent.value < 1:
            raise ScheduleError(
                f"the thread loop {body.name} has an extent of {body.extent.value}",
                "a block has at least one thread",
            )
        loops.insert(0, (body.name, body.extent.value))
        body = body.body
    return loops, body


def thread_regions(s: Stmt) -> Iterable[tuple[list[tuple[str, int]], Stmt]]:
    """Every nest of thread loops: its loops, innermost first, and its body."""
    match s:
        case For(kind=ForKind.GPU_THREAD):
            yield peel_threads(s)
        case _:
            for child in stmt_children(s):
                yield from thread_regions(child)


def in_order(s: Stmt, *, of_thread: bool = False) -> Iterator[Stmt]:
    """The statements of a body one after the other: those of its blocks and allocations, and those
    ``of_thread``, inside the loops over threads.
    """
    match s:
        case Block(stmts):
            for x in stmts:
                yield from in_order(x, of_thread=of_thread)
        case Allocate(body=body):
            yield from in_order(body, of_thread=of_thread)
        case For(kind=ForKind.GPU_THREAD, body=body) if of_thread:
            yield from in_order(body, of_thread=True)
        case _:
            yield s


def under_conditions(s: Stmt) -> tuple[list[Expr], Stmt]:
    """What has to hold for what stands in a statement, and that."""
    conditions: list[Expr] = []
    while isinstance(s, IfThenElse) and s.otherwise is None:
        conditions.append(s.condition)
        s = s.then
    return conditions, s


def outside_threads(s: Stmt) -> Iterable[Stmt]:
    """Every statement that is not inside a thread loop."""

    if isinstance(s, For) and s.kind is ForKind.GPU_THREAD:
        return
    yield s
    for child in stmt_children(s):
        yield from outside_threads(child)


def with_variable_of(loop: For, like: For) -> For:
    """The loop with the variable of another one."""
    if loop.name == like.name:
        return loop
    body = substitute_stmt(loop.body, {loop.name: Var(like.name)})
    return replace(loop, name=like.name, body=body)
