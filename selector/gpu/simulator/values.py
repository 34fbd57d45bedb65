"""Expressions of a kernel's control as functions of the variables' values: of a thread, or of
several at once, whose values are arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from selector.diagnostics import InternalError
from selector.gpu.ir.expressions import PLACES
from selector.gpu.ir.layouts import BYTE, Dealt, Swizzle
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
from selector.ir.types import BOOL, UINT32

Values = Mapping[str, int]

_SIGNS = {
    BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.MUL: "*", BinaryOp.DIV: "//",
    BinaryOp.MOD: "%", BinaryOp.AND: "and", BinaryOp.OR: "or", CompareOp.EQ: "==",
    CompareOp.NE: "!=", CompareOp.LT: "<", CompareOp.LE: "<=", CompareOp.GT: ">",
    CompareOp.GE: ">=",
}  # fmt: skip
_EXTREMA = {BinaryOp.MIN: "min", BinaryOp.MAX: "max"}
_CALLS = {"bitwise_and": "&", "bitwise_xor": "^", "shift_right": ">>"}
_LOGIC = {BinaryOp.AND: "&", BinaryOp.OR: "|"}
_WORD = 0xFFFFFFFF


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
        case Call(_, "shared_address" | "anew", (a,)):
            return _python(a)
        case Call(_, name, ()):
            return f"v[{name!r}]"
        case _:
            raise InternalError(f"{e} has no value in a kernel's control")


@lru_cache(maxsize=1 << 14)
def values_of(e: Expr) -> Callable[[Mapping[str, Any]], Any]:
    """The function of several threads at once."""
    extrema = {"min": np.minimum, "max": np.maximum, "where": np.where, "true": np.not_equal}
    return eval(
        f"lambda v: {_numpy(e)}", extrema | dict(zip(PLACES, (_panel, _strip), strict=True))
    )


def _numpy(e: Expr) -> str:
    match e:
        case Binary(op, a, b) if op in _LOGIC:
            return f"({_truth(a)} {_LOGIC[op]} {_truth(b)})"
        case Binary(op, a, b) if op in _EXTREMA:
            return f"{_EXTREMA[op]}({_numpy(a)}, {_numpy(b)})"
        case Binary(op, a, b) | Compare(op, a, b):
            return f"({_numpy(a)} {_SIGNS[op]} {_numpy(b)})"
        case Not(a):
            return f"(True ^ {_truth(a)})"
        case Select(c, a, b):
            return f"where({_truth(c)}, {_numpy(a)}, {_numpy(b)})"
        case Cast(t, a) if t == BOOL:
            return _truth(a)
        case Cast(t, a):
            return f"({_numpy(a)} & {_WORD})" if t == UINT32 else f"({_numpy(a)} + 0)"
        case Call(_, name, (a, b)) if name in _CALLS:
            return f"({_numpy(a)} {_CALLS[name]} {_numpy(b)})"
        case Call(_, "anew", (a,)):
            return _numpy(a)
        case Call(_, name, args) if name in PLACES:
            return f"{name}({', '.join(map(_numpy, args))})"
        case _:
            return _python(e)


def _truth(e: Expr) -> str:
    return f"true({_numpy(e)}, 0)"


def _panel(pitch: int, rows: int, size: int, row_bytes: int, index: Any) -> Any:
    """The element of swizzled panels (``ir.expressions.PLACES``)."""
    row, column = index // pitch, index % pitch
    width = row_bytes // size
    byte = row * row_bytes + column % width * size
    return column // width * rows * width + Swizzle(row_bytes)(byte)[BYTE] // size


def _strip(pitch: int, step: int, per: int, column: Any) -> Any:
    """The element of a row whose chunks are dealt out to strips."""
    return Dealt(pitch, step, per).place(column)
