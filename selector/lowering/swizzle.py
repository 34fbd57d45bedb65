"""A matrix in VNNI order as one load whose index walks memory in that order.

``vnni(K, N, g, buffer[base + k*sk + n*sn])`` lists the lanes (k / g, n, k % g); where g divides K
that is the same load with another nest of ramps, which any emitter can copy at full speed.
"""

from __future__ import annotations

from selector.intrinsics import VNNI
from selector.ir.access import merge, walk
from selector.ir.affine import to_affine
from selector.ir.lanes import lane
from selector.ir.nodes import Binary, BinaryOp, Call, Compare, Expr, IntImm, Load, Var

_K, _N = Var("$k"), Var("$n")


def in_memory_order(value: Expr) -> Expr:
    """The value with a swizzled load as a load; anything else is left alone."""
    match value:
        case Call(t, name, (IntImm(k), IntImm(n), IntImm(group), Load(_, buffer, index, mask))) if (
            name == VNNI and k % group == 0
        ):
            swizzled = _reordered(index, k, n, group)
            predicate = None if mask is None else _reordered(mask, k, n, group)
            if swizzled is None or (mask is not None and predicate is None):
                return value
            return Load(t, buffer, swizzled, predicate)
        case _:
            return value


def _reordered(e: Expr, k: int, n: int, group: int) -> Expr | None:
    """Lanes (k, n) of an index or a predicate as lanes (k / group, n, k % group); None if it is not
    affine."""
    match e:
        case Compare(op, a, b):
            left, right = _reordered(a, k, n, group), _reordered(b, k, n, group)
            return None if left is None or right is None else Compare(op, left, right)
        case Binary(BinaryOp.AND, a, b):
            left, right = _reordered(a, k, n, group), _reordered(b, k, n, group)
            return None if left is None or right is None else Binary(BinaryOp.AND, left, right)
        case _ if e.type.is_integer:
            parts = to_affine(lane(e, ((_N, n), (_K, k)))).parts(_K, _N)
            if parts is None:
                return None
            base, sk, sn = parts
            levels = ((sk, group), (sn, n), (sk * group, k // group))
            return walk(base, merge(tuple((s, c) for s, c in levels if c > 1)))
        case _:
            return None
