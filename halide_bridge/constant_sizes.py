"""Memory inside loops has one size in all of their iterations: the greatest.

    let n = select(i < 38, 8, 300 - i*8)           let n = select(i < 38, 8, 300 - i*8)
    allocate parts[float32 * n]              ->    allocate parts[float32 * 8]

What a thread or a block has is laid out when a kernel is compiled. Halide gives a Func that is
computed at the end of a row as many elements as are left there.
"""

from __future__ import annotations

from dataclasses import replace

from selector.ir.affine import to_affine
from selector.ir.nodes import Allocate, Expr, For, IntImm, LetStmt, Stmt
from selector.ir.traverse import map_stmt
from selector.ir.types import INT32
from selector.lowering.ranges import Ranges, loop_bounds


def constant_sizes(s: Stmt) -> Stmt:
    """The statement with such sizes, as far as they are known; its meaning is unchanged."""
    return _sized(s, Ranges())


def _sized(s: Stmt, ranges: Ranges) -> Stmt:
    match s:
        case For():
            ranges = ranges.extended({s.name: loop_bounds(s)})
        case LetStmt(name, value) if value.type == INT32:
            ranges = ranges.extended({name: (value, value)})
        case Allocate(extents=extents) if ranges.bounds:
            s = replace(s, extents=tuple(_greatest(e, ranges) for e in extents))
        case _:
            pass
    return map_stmt(s, lambda x: _sized(x, ranges), lambda e: e)


def _greatest(extent: Expr, ranges: Ranges) -> Expr:
    if isinstance(extent, IntImm):
        return extent
    found = ranges.interval(to_affine(extent))
    most = None if found is None else found[1].to_expr()
    return most if isinstance(most, IntImm) else extent
