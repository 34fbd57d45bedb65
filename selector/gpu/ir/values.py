"""Expressions of a kernel's control as functions of the variables' values: of a thread, or of
several at once, whose values are arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.gpu.ir.expressions import GIVEN, PLACES
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
from selector.ir.traverse import expr_children
from selector.ir.types import BOOL, UINT32, Type

Values = Mapping[Any, int]  # of variables by name, of what is given by its expression

_SIGNS = {
    BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.MUL: "*", BinaryOp.DIV: "//",
    BinaryOp.MOD: "%", CompareOp.EQ: "==", CompareOp.NE: "!=", CompareOp.LT: "<",
    CompareOp.LE: "<=", CompareOp.GT: ">", CompareOp.GE: ">=",
}  # fmt: skip
_EXTREMA = {BinaryOp.MIN: "min", BinaryOp.MAX: "max"}
_CALLS = {
    "bitwise_and": "&", "bitwise_xor": "^", "shift_right": ">>", "floor_div": "//",
    "floor_mod": "%",
}  # fmt: skip
_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Forms:
    """What is written otherwise for one thread and for several."""

    logic: Mapping[BinaryOp | CompareOp, str]
    negated: str
    chosen: str
    test: str  # a number taken for a condition
    given: str


_ONE = _Forms(
    {BinaryOp.AND: "and", BinaryOp.OR: "or"},
    "(not {})",
    "({1} if {0} else {2})",
    "{}",
    "given(v, {1}, lambda: {0})",
)
_SEVERAL = _Forms(
    {BinaryOp.AND: "&", BinaryOp.OR: "|"},
    "(True ^ {})",
    "where({}, {}, {})",
    "true({}, 0)",
    "v[{1}]",
)


@lru_cache(maxsize=1 << 14)
def value_of(e: Expr) -> Callable[[Values], int]:
    """The function; ``KeyError`` where a variable has no value."""
    words: dict[str, Any] = {"min": min, "max": max, "given": _given, **_PLACED}
    return eval(f"lambda v: {_text(e, _ONE, words)}", words)


@lru_cache(maxsize=1 << 14)
def values_of(e: Expr) -> Callable[[Mapping[str, Any]], Any]:
    """The function of several threads at once."""
    words = {"min": np.minimum, "max": np.maximum, "where": np.where, "true": np.not_equal}
    words |= _PLACED
    return eval(f"lambda v: {_text(e, _SEVERAL, words)}", words)


def _given(v: Values, e: Expr, value: Callable[[], int]) -> int:
    """What is given follows from what has a value here, or is as it is assumed."""
    try:
        return value()
    except KeyError:
        return v[e]


def asked(e: Expr) -> Iterator[str | Expr]:
    """Variables, and what is given, that a value follows from."""
    match e:
        case Var(name):
            yield name
        case Call(_, name) if name == GIVEN:
            yield e
        case _:
            for x in expr_children(e):
                yield from asked(x)


def _text(e: Expr, forms: _Forms, words: dict[str, Any]) -> str:
    """As Python; ``words`` has what it mentions besides ``v``."""

    def text(e: Expr) -> str:
        return _text(e, forms, words)

    def test(e: Expr) -> str:
        return forms.test.format(text(e))

    match e:
        case IntImm(value):
            return f"({value})"
        case Var(name) | Call(_, name, ()):
            return f"v[{name!r}]"
        case Binary(op, a, b) if op in forms.logic:
            return f"({test(a)} {forms.logic[op]} {test(b)})"
        case Binary(op, a, b) if op in _EXTREMA:
            return f"{_EXTREMA[op]}({text(a)}, {text(b)})"
        case Binary(op, a, b) | Compare(op, a, b):
            return f"({text(a)} {_SIGNS[op]} {text(b)})"
        case Not(a):
            return forms.negated.format(test(a))
        case Select(c, a, b):
            return forms.chosen.format(test(c), text(a), text(b))
        case Cast(t, a):
            return _cast(t, text(a), test(a))
        case Call():
            return _call(e, forms, words)
        case _:
            raise InternalError(f"{e} has no value in a kernel's control")


def _call(e: Call, forms: _Forms, words: dict[str, Any]) -> str:
    if e.name == GIVEN:
        key = f"given{len(words)}"
        words[key] = e
        try:
            return forms.given.format(_text(e.args[0], forms, words), key)
        except InternalError:
            return f"v[{key}]"
    name, args = e.name, [_text(x, forms, words) for x in e.args]
    match args:
        case (a, b) if name in _CALLS:
            return f"({a} {_CALLS[name]} {b})"
        case (a,) if name in ("shared_address", "anew"):
            return a
        case _ if name in PLACES:
            return f"{name}({', '.join(args)})"
        case _:
            raise InternalError(f"{name}(...) has no value in a kernel's control")


def _cast(t: Type, number: str, test: str) -> str:
    if t == BOOL:
        return test
    return f"({number} & {_WORD})" if t == UINT32 else f"({number} + 0)"


def panel_index(pitch: Any, rows: Any, size: Any, row_bytes: Any, index: Any) -> Any:
    """The element of swizzled panels (``ir.expressions.PLACES``)."""
    row, column = index // pitch, index % pitch
    width = row_bytes // size
    byte = row * row_bytes + column % width * size
    return column // width * rows * width + Swizzle(int(row_bytes))(byte)[BYTE] // size


def strip_column(pitch: Any, step: Any, per: Any, column: Any) -> Any:
    """The element of a row whose chunks are dealt out to strips."""
    return Dealt(int(pitch), int(step), int(per)).place(column)


_PLACED: dict[str, Any] = dict(zip(PLACES, (panel_index, strip_column), strict=True))
