"""Scalar expressions as C text: what differs from CUDA C++ (``scalar``).

Buffers are bounded by their flat length alone, as in the interpreter: a load outside of it is 0. A
load that a check ahead of its loops covers (``safe``) has none of its own.
"""

from __future__ import annotations

import math

from selector.emit.builtins import spell
from selector.emit.names import Names
from selector.emit.scalar import ScalarEmitter, Storage, c_type, convert
from selector.intrinsics.functions import PureFunction
from selector.ir.affine import to_affine
from selector.ir.nodes import Binary, BinaryOp, Call, Compare, Expr, Load
from selector.ir.types import FLOAT32, INT32, Kind, Type
from selector.lowering.ranges import Ranges

_FUNCTIONS = {
    "__frcp_rn": "inverse",
    "__drcp_rn": "inverse",
    "rsqrtf": "inverse_sqrtf",
    "rsqrt": "inverse_sqrt",
}


class CScalarEmitter(ScalarEmitter):
    """Turns scalar expressions into C text."""

    language = "C"

    def __init__(
        self,
        names: Names,
        storages: dict[str, Storage],
        safe: frozenset[Load] = frozenset(),
        holding: frozenset[Expr] = frozenset(),
        ranges: Ranges | None = None,
    ) -> None:
        super().__init__(names, storages)
        self.ranges = ranges or Ranges()  # of the loops around
        self.safe = safe  # loads that are inside their buffers
        self.holding = holding  # conditions that are true

    def index(self, e: Expr) -> str:
        """An integer expression as a sum of products; in brackets where it is more than one atom
        to anything but a comparison or an argument.
        """
        parts: list[str] = []
        terms = sorted(to_affine(e), key=lambda x: (not x[0], x[1] < 0))
        for atoms, factor in terms:
            words = [self.expr(a) for a in atoms]
            if abs(factor) != 1 or not words:
                words.append(str(abs(factor)))
            sign = ("-" if factor < 0 else "") if not parts else ("- " if factor < 0 else "+ ")
            parts.append(sign + " * ".join(words))
        return " ".join(parts) or "0"

    def expr(self, e: Expr) -> str:
        match e:
            case Binary(BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL, a, _) if a.type == INT32:
                text = self.index(e)
                return f"({text})" if " " in text else text
            case Binary(BinaryOp.AND, a, b):
                return f"({self.condition(a)} && {self.condition(b)})"
            case Compare(op, a, b) if a.type == INT32:
                return f"({self.index(a)} {op.value} {self.index(b)})"
            case _:
                return super().expr(e)

    def condition(self, e: Expr) -> str:
        """A condition as an operand of ``&&`` or between the brackets of an ``if``."""
        text = self.expr(e)
        bare = isinstance(e, Compare) or (isinstance(e, Binary) and e.op is BinaryOp.AND)
        return text[1:-1] if bare else text

    def literal(self, value: float, t: Type) -> str:
        if t.bits == 16:
            return convert(self.literal(value, FLOAT32), FLOAT32, t)
        suffix = "f" if t.bits == 32 else ""
        if math.isnan(value):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(value):
            return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
        return f"{float(value)!r}{suffix}"

    def extremum(self, t: Type) -> str:
        return "min"

    def function(self, function: PureFunction, t: Type, *, rounded: bool) -> str:
        if function.name == "abs" or function.cuda == "abs":
            return {32: "fabsf", 16: "fabsf", 64: "fabs"}[t.bits] if t.is_float else "abs"
        return _FUNCTIONS.get(function.cuda, function.cuda)

    def as_rounded(self, function: PureFunction) -> str | None:
        return None

    def zero(self, t: Type) -> str:
        return f"({c_type(t)})0"

    def spell(self, call: Call, values: list[str]) -> str | None:
        if call.name in _SPELLINGS:
            return _SPELLINGS[call.name](call, values)
        return spell(call, values)

    def guard(self, storage: Storage, index: Expr) -> str | None:
        if storage.elements is None:
            return None
        limit = storage.elements
        if self.ranges.inside(to_affine(index), to_affine(limit)):
            return None
        return f"(u64)({self.index(index)}) < (u64)({self.index(limit)})"

    def load(self, e: Load) -> str:
        storage = self.storages[e.buffer]
        predicate = None if e.predicate in self.holding else e.predicate
        tests = [
            self.expr(predicate) if predicate is not None else None,
            None if e in self.safe else self.guard(storage, e.index),
        ]
        text = self.address(storage, e.index)
        condition = " && ".join(t for t in tests if t)
        return f"({condition} ? {text} : {self.zero(e.type)})" if condition else text


def _wide(text: str, t: Type) -> str:
    """An integer as an unsigned one of its own width, then of at least 32 bits."""
    own = f"(u{max(8, t.bits)})({text})"
    return own if t.bits >= 32 else f"(u32){own}"


def _count(name: str):
    def text(call: Call, values: list[str]) -> str:
        t = call.args[0].type
        suffix = "l" if t.bits == 64 else ""
        value = _wide(values[0], t)
        match name:
            case "popcount":
                return f"__builtin_popcount{suffix}({value})"
            case "clz":
                narrow = 0 if t.bits == 64 else 32 - t.bits
                return f"({values[0]} == 0 ? {t.bits} : __builtin_clz{suffix}({value}) - {narrow})"
            case _:
                return f"({values[0]} == 0 ? {t.bits} : __builtin_ctz{suffix}({value}))"

    return text


def _reinterpret(call: Call, values: list[str]) -> str:
    return f"bits_as({c_type(call.type)}, {values[0]})"


def _difference(call: Call, values: list[str]) -> str:
    if call.type.is_float:
        return f"fabs{'' if call.type.bits == 64 else 'f'}({values[0]} - {values[1]})"
    text = spell(call, values)
    assert text is not None
    return text


def _saturating(call: Call, values: list[str]) -> str:
    source, target = call.args[0].type, call.type
    if target.is_float or not source.is_float:
        text = spell(call, values)
        assert text is not None
        return text
    low = 0 if target.kind is Kind.UINT else -(1 << (target.bits - 1))
    high = (1 << (target.bits - (target.kind is Kind.INT))) - 1
    suffix = "ul" if target.kind is Kind.UINT else "l"
    least = f"(-{-low - 1}l - 1)" if low else "0"
    return f"saturate({c_type(target)}, {values[0]}, {least}, {high}{suffix})"


_SPELLINGS = {
    "reinterpret": _reinterpret,
    "absd": _difference,
    "saturating_cast": _saturating,
    "count_leading_zeros": _count("clz"),
    "count_trailing_zeros": _count("ctz"),
    "popcount": _count("popcount"),
}
