"""Loops over blocks that a schedule has fused, because a grid has three dimensions, are apart again
where blocks stay on a multiprocessor: these count through all that there is to do by themselves.

    for v in 0 ... a * b: f(v % a, v / a)  =>  for v.1 in 0 ... b: for v.0 in 0 ... a: f(v.0, v.1)

The group that feeds the others would divide for every run of operands else.
"""

from __future__ import annotations

from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Stmt, Var
from selector.ir.traverse import change_exprs, free_vars, walk_all_exprs

Loop = tuple[str, Expr]  # name and extent


def apart(loop: Loop, body: Stmt) -> tuple[tuple[Loop, ...], Stmt]:
    """The loops that one from 0 on was made of, outermost first, and the body with their numbers;
    the same loop where it is not such a one.
    """
    name, extent = loop
    inner = _divisor(name, body)
    match extent:
        case Binary(BinaryOp.MUL, a, b) if inner is not None and inner in (a, b):
            outer = b if inner == a else a
        case _:
            return (loop,), body
    assert inner is not None
    low, high = f"{name}.0", f"{name}.1"
    numbers = {BinaryOp.MOD: Var(low), BinaryOp.DIV: Var(high)}

    def number(e: Expr) -> Expr | None:
        match e:
            case Binary(BinaryOp.DIV | BinaryOp.MOD as op, Var(n), _) if n == name:
                return numbers[op]
            case _:
                return None

    body = change_exprs(body, number)
    outers, body = apart((high, outer), body)
    inners, body = apart((low, inner), body)
    return (*outers, *inners), body


def _divisor(name: str, body: Stmt) -> Expr | None:
    """What every use of a variable divides it by."""
    found, uses = dict[Expr, None](), 0
    for e in walk_all_exprs(body):
        match e:
            case Var(n) if n == name:
                uses += 1
            case Binary(BinaryOp.DIV | BinaryOp.MOD, Var(n), by) if n == name:
                found[by], uses = None, uses - 1
            case _:
                pass
    if uses or len(found) != 1:
        return None
    (by,) = found
    return None if isinstance(by, IntImm) or name in free_vars(by) else by
