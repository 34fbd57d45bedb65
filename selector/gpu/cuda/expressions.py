"""Expressions of a kernel's control as C, with the brackets that they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from selector.diagnostics import InternalError
from selector.gpu.ir.expressions import PLACES
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
from selector.ir.types import INT32, UINT32

Numbers = Mapping[str, str]
"""The texts of numbers that are no variables of C."""


class _Text(NamedTuple):
    text: str
    binds: int  # how closely its outermost operator does

    def inside(self, binds: int) -> str:
        """As an operand of an operator that binds so closely."""
        return self.text if self.binds >= binds else f"({self.text})"


_SIGNS = {
    BinaryOp.OR: ("||", 2), BinaryOp.AND: ("&&", 3), CompareOp.EQ: ("==", 5),
    CompareOp.NE: ("!=", 5), CompareOp.LT: ("<", 6), CompareOp.LE: ("<=", 6),
    CompareOp.GT: (">", 6), CompareOp.GE: (">=", 6), BinaryOp.ADD: ("+", 8), BinaryOp.SUB: ("-", 8),
    BinaryOp.MUL: ("*", 9), BinaryOp.DIV: ("/", 9), BinaryOp.MOD: ("%", 9),
}  # fmt: skip
_CALLS = {"bitwise_and": ("&", 4), "shift_right": (">>", 7)}
_EXTREMA = {BinaryOp.MIN: "min", BinaryOp.MAX: "max"}
_TYPES = {INT32: "int", UINT32: "u32"}
_CHOICE, _PRODUCT, _UNARY, _ATOM = 1, 9, 10, 11
_PLACES = {"blockIdx.x": "(int)blockIdx.x", "gridDim.x": "(int)gridDim.x"}


def spell(e: Expr, numbers: Numbers) -> str:
    """The text of an expression."""
    return _spell(e, numbers).text


def operand(e: Expr, numbers: Numbers) -> str:
    """The same in brackets, unless it needs none before any operator."""
    return _spell(e, numbers).inside(_UNARY)


def parity(phase: Expr, numbers: Numbers) -> str:
    """That of a phase's number."""
    return f"{operand(phase, numbers)} & 1"


def summand(e: Expr, numbers: Numbers) -> str:
    """The same for what is added."""
    return _spell(e, numbers).inside(_PRODUCT)


def _spell(e: Expr, numbers: Numbers) -> _Text:
    match e:
        case IntImm(value):
            return _Text(str(value), _ATOM)
        case Var(name):
            return _Text(numbers.get(name) or _PLACES.get(name, name), _ATOM)
        case Binary(op, a, b) | Compare(op, a, b) if op in _SIGNS:
            return _infix(*_SIGNS[op], a, b, numbers)
        case Binary(op, a, b) if op in _EXTREMA:
            texts = (_spell(x, numbers).text for x in (a, b))
            return _Text(f"{_EXTREMA[op]}({', '.join(texts)})", _ATOM)
        case Call(_, name, (a, b)) if name in _CALLS:
            return _infix(*_CALLS[name], a, b, numbers)
        case Call(_, name, arguments):
            return _Text(_called(name, arguments, numbers), _ATOM)
        case Not(value):
            return _Text(f"!{_spell(value, numbers).inside(_UNARY)}", _UNARY)
        case Cast(t, value) if t != value.type and not value.type.is_bool:
            return _Text(f"({_TYPES[t]}){operand(value, numbers)}", _UNARY)
        case Cast(_, value):
            return _spell(value, numbers)
        case Select(c, a, b):
            test, one, other = (_spell(x, numbers) for x in (c, a, b))
            text = f"{test.inside(2)} ? {one.inside(2)} : {other.inside(_CHOICE)}"
            return _Text(text, _CHOICE)
        case _:
            raise InternalError(f"{e} has no form in a kernel's control")


def _called(name: str, arguments: tuple[Expr, ...], numbers: Numbers) -> str:
    texts = [_spell(x, numbers).text for x in arguments]
    match arguments:
        case (IntImm(),) if name == "shared_address":
            return f"{name}(smem + {texts[0]})"
        case (_, *parts) if name == "shared_address":
            text = texts[0]
            for n, part in enumerate(parts):
                text = f"{f'({text})' if n else text} + {summand(part, numbers)}"
            return f"{name}({text})"
        case (*_, _) if name in PLACES:
            return f"{name}<{', '.join(texts[:-1])}>({texts[-1]})"
        case _:
            return f"{name}({', '.join(texts)})"


def _infix(sign: str, binds: int, a: Expr, b: Expr, numbers: Numbers) -> _Text:
    left, right = _spell(a, numbers).inside(binds), _spell(b, numbers).inside(binds + 1)
    return _Text(f"{left} {sign} {right}", binds)
