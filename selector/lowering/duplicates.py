"""Equal computations, once: a buffer that is filled as an earlier one is, is that one.

Works on a flat sequence of statements below its allocations, as ``flat`` makes it. Buffers A and B
are equal if the statements that fill B are those that fill A with A's name in place of B's, nothing
that they read is written in between, and neither is written again: B's statements go, and whoever
read B reads A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from selector.ir.contents import holds, loaded, may_hold, nodes_of
from selector.ir.nodes import Allocate, Block, Call, Expr, Load, Stmt, Store
from selector.ir.traverse import map_expr, map_stmt
from selector.lowering.structure import loaded_names, stored_names

Flat = tuple[list[Allocate], list[Stmt]]


def flat(s: Stmt) -> Flat:
    """Allocations (each with an empty body) and statements of nested blocks, in order."""
    match s:
        case Block(stmts):
            allocations: list[Allocate] = []
            body: list[Stmt] = []
            for x in stmts:
                more, inner = flat(x)
                allocations += more
                body += inner
            return allocations, body
        case Allocate(body=body_):
            more, inner = flat(body_)
            return [replace(s, body=Block(())), *more], inner
        case _:
            return [], [s]


def nested(allocations: Sequence[Allocate], body: Sequence[Stmt]) -> Stmt:
    """The inverse of ``flat``: every allocation holds for all statements."""
    result: Stmt = body[0] if len(body) == 1 else Block(tuple(body))
    for a in reversed(allocations):
        result = replace(a, body=result)
    return result


def merge_equal(allocations: list[Allocate], body: list[Stmt]) -> tuple[Flat, dict[str, str]]:
    """The sequence without repeated computations, and which name took the place of which."""
    renamed: dict[str, str] = {}
    kept: list[Allocate] = []
    for a in allocations:
        same = (k for k in kept if _alike(k, a) and _equal(body, k.name, a.name))
        first = next(same, None)
        if first is None:
            kept.append(a)
            continue
        renamed[a.name] = first.name
        body = [rename(s, a.name, first.name) for s in body if a.name not in stored_names(s)]
    return (kept, body), renamed


def _alike(a: Allocate, b: Allocate) -> bool:
    """Whether two buffers have one shape and lie in one memory."""
    return replace(a, name=b.name) == b


def _equal(body: list[Stmt], first: str, second: str) -> bool:
    fills = [[i for i, s in enumerate(body) if name in stored_names(s)] for name in (first, second)]
    if not fills[0] or len(fills[0]) != len(fills[1]) or fills[0][-1] >= fills[1][0]:
        return False
    for i, j in zip(*fills, strict=True):
        if (
            stored_names(body[i]) != frozenset((first,))
            or rename(body[j], second, first) != body[i]
        ):
            return False
    if any(_read_early(body, name, at) for name, at in zip((first, second), fills, strict=True)):
        return False
    sources = {x for i in fills[0] for x in loaded_names(body[i])} - {first}
    between = body[fills[0][0] : fills[1][-1] + 1]
    return not any(sources & stored_names(s) for s in between)


def share_values(allocations: Sequence[Allocate], body: list[Stmt]) -> list[Stmt]:
    """Values that one of the buffers is filled with are read from it where others compute them.

    The fill comes ahead of its first reader, if nothing in between writes what it is made of. The
    buffers' fills are to be apart from each other.
    """
    names = {a.name for a in allocations}
    for fill in [s for s in body if isinstance(s, Store) and s.buffer in names]:
        if fill.predicate is None and holds(fill.value, Call):
            body = _shared(fill, body)
    return body


def _shared(fill: Store, body: list[Stmt]) -> list[Stmt]:
    def touches(s: Stmt) -> bool:
        fills = isinstance(s, Store) and s.buffer == fill.buffer and s.index != fill.index
        written = stored_names(s) - ({fill.buffer} if fills else set())
        return bool(written & {*loaded_names(fill), fill.buffer})

    place = next(i for i, s in enumerate(body) if s is fill)
    readers = (i for i, s in enumerate(body) if _holds(s, fill) or fill.buffer in loaded_names(s))
    first = next((i for i in readers if body[i] is not fill), place)
    if first < place:
        passed = body[first:place]
        if any(touches(s) or fill.buffer in loaded_names(s) for s in passed):
            return body
        body = [*body[:first], fill, *passed, *body[place + 1 :]]
        place = first
    load = Load(fill.value.type, fill.buffer, fill.index)
    result = body[: place + 1]
    for i, s in enumerate(body[place + 1 :], place + 1):
        if touches(s):
            return [*result, *body[i:]]
        result.append(_with(s, fill.value, load) if _holds(s, fill) else s)
    return result


def _holds(s: Stmt, fill: Store) -> bool:
    value = fill.value
    return (
        isinstance(s, Store)
        and may_hold(s.value, value)
        and any(x == value for x in nodes_of(s.value, type(value)))
    )


def _with(s: Stmt, value: Expr, load: Load) -> Stmt:
    def expr(e: Expr) -> Expr:
        if not may_hold(e, value):
            return e
        return load if e == value else map_expr(e, expr)

    assert isinstance(s, Store)
    return replace(s, value=expr(s.value))


def _read_early(body: list[Stmt], name: str, fills: list[int]) -> bool:
    """Whether somebody reads a buffer that is not filled yet."""
    return any(name in loaded_names(body[i]) for i in range(fills[-1] + 1) if i not in fills)


def rename(s: Stmt, old: str, new: str) -> Stmt:
    """The statement with another buffer in place of ``old``."""

    if old not in loaded_names(s) and old not in stored_names(s):
        return s

    def expr(e: Expr) -> Expr:
        if old not in loaded(e):
            return e
        e = map_expr(e, expr)
        return replace(e, buffer=new) if isinstance(e, Load) and e.buffer == old else e

    s = map_stmt(s, lambda x: rename(x, old, new), expr)
    return replace(s, buffer=new) if isinstance(s, Store) and s.buffer == old else s
