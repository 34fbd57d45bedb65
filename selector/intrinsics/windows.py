"""Intermediates whose elements meet a band's zeros before anybody has computed them.

A window of a banded product is as long as the band is high: beside the last outputs that are
stored it reads what lies past them, and nothing but zeros of the band meets it. Zero times NaN is
NaN, so that memory which nobody wrote must not be read there: such buffers start as zeros.
"""

from __future__ import annotations

from dataclasses import replace

from selector.intrinsics.calls import TOEPLITZ, TOEPLITZ_TRANSPOSED
from selector.intrinsics.records import find
from selector.intrinsics.unwritten import (
    ReadBy,
    all_zeros,
    fills,
    holds_numbers,
    masked_buffers,
    reads_of,
)
from selector.ir.module import Module
from selector.ir.nodes import Allocate, Block, Call, Expr, Load, Memory, Stmt, Store
from selector.ir.traverse import map_stmt, walk_expr, walk_stmt

_PLAIN = (Memory.AUTO, Memory.HEAP, Memory.STACK)


def windows(body: Stmt) -> frozenset[str]:
    """The allocations that have to start as zeros: floats, in memory that products with a band
    read, and those that they are made from.
    """
    stores = [s for s in walk_stmt(body) if isinstance(s, Store)]
    bands = {s.buffer for s in stores if _is_band(s.value)}
    read: set[str] = set()
    for s in stores:
        match s.value:
            case Call(_, name, (_, _, _, _, a, b)) if find(name) is not None:
                for operand, other in ((a, b), (b, a)):
                    if _is_band(other) or _loads(other) & bands:
                        read |= _loads(operand)
            case _:
                pass
    made = [(s.buffer, _loads(s.value)) for s in stores if s.buffer not in bands]
    reached: set[str] = set()
    while reached != read:
        reached = set(read)
        for buffer, sources in made:
            read |= sources if buffer in reached else set()
    return frozenset(
        s.name
        for s in walk_stmt(body)
        if isinstance(s, Allocate)
        and s.name in reached
        and s.memory in _PLAIN
        and not holds_numbers(s)
    )


def with_zeros(module: Module) -> Module:
    """The module with stores that make ``windows``, and what is ``unwritten`` in staged buffers,
    start as zeros, for the interpreter: a kernel gets such memory, from the runtime or by lines of
    its own.
    """
    body = module.body
    return replace(module, body=_filled(body, windows(body), reads_of(masked_buffers(body))))


def _filled(s: Stmt, names: frozenset[str], read_by: ReadBy) -> Stmt:
    s = map_stmt(s, lambda x: _filled(x, names, read_by), lambda e: e)
    if not isinstance(s, Allocate):
        return s
    before = [all_zeros(s)] if s.name in names else fills(s, read_by)
    return replace(s, body=Block((*before, s.body))) if before else s


def _is_band(e: Expr) -> bool:
    return any(
        isinstance(x, Call) and x.name in (TOEPLITZ, TOEPLITZ_TRANSPOSED) for x in walk_expr(e)
    )


def _loads(e: Expr) -> set[str]:
    return {x.buffer for x in walk_expr(e) if isinstance(x, Load)}
