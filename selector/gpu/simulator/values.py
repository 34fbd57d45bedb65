"""Expressions of a kernel's control as functions of the variables' values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from selector.diagnostics import InternalError
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    IntImm,
    Not,
    Select,
    Var,
)

Values = Mapping[str, int]

_SIGNS = {
    BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.MUL: "*", BinaryOp.DIV: "//",
    BinaryOp.MOD: "%", BinaryOp.AND: "and", BinaryOp.OR: "or", CompareOp.EQ: "==",
    CompareOp.NE: "!=", CompareOp.LT: "<", CompareOp.LE: "<=", CompareOp.GT: ">",
    CompareOp.GE: ">=",
}  # fmt: skip
_EXTREMA = {BinaryOp.MIN: "min", BinaryOp.MAX: "max"}
_CALLS = {"bitwise_and": "&", "shift_right": ">>"}


@lru_cache(maxsize=1 << 14)
def value_of(e: Expr) -> Callable[[Values], int]:
    """The function; ``KeyError`` where a variable has no value."""
    return eval(f"lambda v: {_python(e)}", {"min": min, "max": max})


def _python(e: Expr) -> str:
    match e:
        case IntImm(value):
            return f"({value})"
        case Var(name):
            return f"v[{name!r}]"
        case Binary(op, a, b) if op in _EXTREMA:
            return f"{_EXTREMA[op]}({_python(a)}, {_python(b)})"
        case Binary(op, a, b) | Compare(op, a, b):
            return f"({_python(a)} {_SIGNS[op]} {_python(b)})"
        case Not(a):
            return f"(not {_python(a)})"
        case Select(c, a, b):
            return f"({_python(a)} if {_python(c)} else {_python(b)})"
        case Cast(_, a):
            return f"int({_python(a)})"
        case Call(_, name, (a, b)) if name in _CALLS:
            return f"({_python(a)} {_CALLS[name]} {_python(b)})"
        case Call(_, "shared_address", (a,)):
            return _python(a)
        case Call(_, name, ()):
            return f"v[{name!r}]"
        case _:
            raise InternalError(f"{e} has no value in a kernel's control")
