"""Vector indices in one canonical form: nested ramps and broadcasts of one scalar base.

Halide vectorizes a sum over several loops into sums of full-length vectors, such as

    ramp(x512(a), x512(s), 64) + x2048(ramp(b, 1, 16))

A vector whose lanes are affine in their position is the same as a scalar base with a list of levels
(stride, count), innermost first; here base a + b and levels (1, 16), (0, 32), (s, 64), which reads

    ramp(x32(ramp(a + b, 1, 16)), x512(s), 64)
"""

from __future__ import annotations

from selector.ir.access import access, level, merge
from selector.ir.lanes import lane
from selector.ir.nodes import Binary, BinaryOp, Broadcast, Expr, IntImm, Ramp
from selector.ir.traverse import walk_expr
from selector.ir.types import INT32

_DIVISIONS = (BinaryOp.DIV, BinaryOp.MOD)


def canonical_index(e: Expr, lanes: int = 0) -> Expr:
    """The same vector as nested ramps; ``e`` itself where its lanes are not affine.

    ``lanes`` is the length of the vector, if the caller knows it.
    """
    count = lanes or e.type.lanes
    if count == 1 or not isinstance(e, Ramp | Broadcast | Binary) or _is_plain(e):
        return e
    if e.type.element != INT32:
        return e
    found = None if any(map(_divides, walk_expr(e))) else access(e)
    if found is None:
        return e
    index = lane(e, ((IntImm(0), count),))
    for stride, n in merge(found.levels):
        index = level(index, stride.to_expr(), n)
    return index


def _is_plain(e: Expr) -> bool:
    """One ramp of scalars, or ramps of constant strides none of which continues another."""
    if isinstance(e, Ramp) and e.base.type.lanes == 1:
        return True
    outer = 0
    while isinstance(e, Ramp):
        match e.stride:
            case IntImm(stride) | Broadcast(IntImm(stride)) if stride and e.count > 1:
                if stride * e.count == outer:
                    return False
                outer, e = stride, e.base
            case _:
                return False
    return e.type.lanes == 1


def _divides(e: Expr) -> bool:
    """Whether lanes are divided: sums of products with phases are found by that."""
    return isinstance(e, Binary) and e.op in _DIVISIONS and e.type.lanes > 1
