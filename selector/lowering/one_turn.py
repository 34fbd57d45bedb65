"""A loop of one turn stands where memory is filled ahead.

    allocate a[float16 * 4096] stages(4)       for (a.turn, 0, 1) {
      a[...] = in[...]                           allocate a[float16 * 4096] stages(4)
      sum[...] += ... a[...]             ->        a[...] = in[...]
                                                   sum[...] += ... a[...]
                                               }

Halide leaves out a loop whose one turn it knows. A ring of copies belongs to a loop all the same:
what fills it ahead may be the next tile of a block that stays, and the group that feeds warpgroups
has the copy engine bring the one turn while they fetch what their results are made of.
"""

from __future__ import annotations

from selector.ir.nodes import Allocate, For, ForKind, IntImm, Stmt
from selector.ir.traverse import map_stmt
from selector.ir.types import INT32

_ONCE = IntImm(0, INT32), IntImm(1, INT32)


def one_turn(s: Stmt, inside: bool = False) -> Stmt:
    """The statement with such loops; ``inside``: of a loop that a thread block goes through."""
    match s:
        case For(kind=kind):
            inside = inside or kind == ForKind.SERIAL
        case Allocate(name=name, stages=stages) if stages > 1 and not inside:
            s, inside = For(f"{name}.turn", *_ONCE, ForKind.SERIAL, s), True
        case _:
            pass
    return map_stmt(s, lambda b: one_turn(b, inside), lambda e: e)
