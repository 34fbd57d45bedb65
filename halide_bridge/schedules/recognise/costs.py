"""What an element of a Func costs to compute: what decides whether it is computed anew by each that
reads it.

In operations of a CUDA core: an addition is one. A load that the cache answers keeps a
multiprocessor as busy as four; values that take the special unit or its sequences as long as
``_CALLS`` says.
"""

from __future__ import annotations

from halide_bridge.records import ELEMENT
from selector.ir.nodes import Binary, BinaryOp, Call, Expr, FloatImm, IntImm, Var
from selector.ir.traverse import expr_children

LOAD = 4
_DIVISION = 8
_CALL = 12  # exp, sin, pow, ...
_CHEAP = frozenset({"abs", "likely", "select", "reinterpret", "absd"})


def operations(e: Expr) -> int:
    """Of one element. The indices of what it reads are not counted: threads share most of them."""
    total, waiting = 0, [e]
    while waiting:
        part = waiting.pop()
        total += _one(part)
        if not (isinstance(part, Call) and ELEMENT in part.name):
            waiting += expr_children(part)
    return total


def _one(e: Expr) -> int:
    match e:
        case Call(name=name):
            return LOAD if ELEMENT in name else 1 if name in _CHEAP else _CALL
        case Binary(BinaryOp.DIV | BinaryOp.MOD, _, divisor):
            cheap = isinstance(divisor, IntImm | FloatImm)
            return 2 if cheap else _DIVISION
        case Var() | IntImm() | FloatImm():
            return 0
        case _:
            return 1
