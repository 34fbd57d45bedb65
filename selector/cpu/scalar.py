"""Scalar expressions as legal ones of C: what differs from CUDA C++ (``scalars.legal``).

A load beyond its buffer, or its row of it (``bounds_of``), is 0. A load that a check ahead of its
loops covers (``safe``) has none of its own.
"""

from __future__ import annotations

from selector.cpu.limits import bounds_of
from selector.gpu.codegen.scalars.builtins import (
    count,
    legal_builtin,
    limits,
    unless_zero,
    unsigned,
)
from selector.gpu.codegen.scalars.legal import ScalarEmitter, guarded
from selector.gpu.codegen.scalars.names import Names
from selector.gpu.codegen.scalars.storage import Storage
from selector.gpu.cuda.expressions import Words, operand, spell
from selector.gpu.ir.expressions import all_of, less, minus
from selector.intrinsics.functions import PureFunction
from selector.ir.affine import to_affine
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Compare, Expr, IntImm, Load
from selector.ir.types import FLOAT32, FLOAT64, INT32, INT64, UINT64, Kind, Type
from selector.lowering.ranges import Ranges

_FUNCTIONS = {
    "__frcp_rn": "inverse",
    "__drcp_rn": "inverse",
    "rsqrtf": "inverse_sqrtf",
    "rsqrt": "inverse_sqrt",
}
_WORDS = Words(
    nan={FLOAT32: '__builtin_nanf("")', FLOAT64: '__builtin_nan("")'},
    infinity={FLOAT32: "__builtin_inff()", FLOAT64: "__builtin_inf()"},
    typed="{name}({type}, {values})",
    no_half="({type})0",
)


class CScalarEmitter(ScalarEmitter):
    """Makes scalar expressions legal in C."""

    language = "C"
    words = _WORDS

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

    # ------------------------------------------------------------------ text

    def expr(self, e: Expr) -> str:
        """A scalar expression, as an operand of any operator; EmitError where it has no text."""
        return operand(self.legal(e), self.words)

    def address(self, storage: Storage, index: Expr) -> str:
        """``pointer[index]``."""
        return operand(self.access(storage, index), self.words)

    def index(self, e: Expr) -> str:
        """An integer expression as a sum of products; in brackets where it is more than one atom
        to anything but a comparison or an argument.
        """
        return spell(self.number(e), self.words)

    def condition(self, *conditions: Expr) -> str:
        """Conditions, of which there is one at least, between the brackets of an ``if``."""
        found = all_of(map(self.legal, conditions))
        assert found is not None
        return spell(found, self.words)

    # ------------------------------------------------------------------ expressions

    def number(self, e: Expr) -> Expr:
        return self._sum(to_affine(e).to_expr())

    def _sum(self, e: Expr) -> Expr:
        match e:
            case Binary(BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL as op, a, b):
                return Binary(op, self._sum(a), self._sum(b))
            case _:
                return self.legal(e)

    def legal(self, e: Expr) -> Expr:
        match e:
            case Binary(BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL, a, _) if a.type == INT32:
                return self.number(e)
            case Compare(op, a, b) if a.type == INT32:
                return Compare(op, self.number(a), self.number(b))
            case _:
                return super().legal(e)

    def function(self, function: PureFunction, t: Type, *, rounded: bool) -> str:
        if function.name == "abs" or function.cuda == "abs":
            return _absolute(t) if t.is_float else "abs"
        return _FUNCTIONS.get(function.cuda, function.cuda)

    def as_rounded(self, function: PureFunction) -> str | None:
        return None

    def builtin(self, call: Call, values: list[Expr]) -> Expr | None:
        match call.name:
            case "absd" if call.type.is_float:
                return Call(values[0].type, _absolute(call.type), (minus(*values),))
            case "saturating_cast" if call.args[0].type.is_float and not call.type.is_float:
                return _saturated(values[0], call.type)
            case "count_leading_zeros" | "count_trailing_zeros" | "popcount":
                return _counted(call.name, values[0])
            case _:
                return legal_builtin(call, values)

    def bounds(self, storage: Storage, index: Expr) -> Expr | None:
        tests = [
            less(*(Cast(UINT64, self.number(x)) for x in (place.to_expr(), limit)))
            for place, limit in bounds_of(storage, to_affine(index))
            if not self.ranges.inside(place, to_affine(limit))
        ]
        return all_of(tests)

    def load(self, e: Load) -> Expr:
        storage = self.storages[e.buffer]
        predicate = None if e.predicate in self.holding else e.predicate
        wanted = None if predicate is None else self.legal(predicate)
        inside = None if e in self.safe else self.bounds(storage, e.index)
        return guarded(self.access(storage, e.index), wanted, inside)


def _absolute(t: Type) -> str:
    return "fabs" if t.bits == 64 else "fabsf"


def _counted(name: str, value: Expr) -> Expr:
    wide, suffix = unsigned(value), "l" if value.type.bits == 64 else ""
    match name:
        case "popcount":
            return count(f"__builtin_popcount{suffix}", wide)
        case "count_leading_zeros":
            found = count(f"__builtin_clz{suffix}", wide)
            return unless_zero(value, minus(found, wide.type.bits - value.type.bits))
        case _:
            return unless_zero(value, count(f"__builtin_ctz{suffix}", wide))


def _saturated(value: Expr, t: Type) -> Expr:
    """A float as the nearest integer of a type."""
    wide = UINT64 if t.kind is Kind.UINT else INT64
    return Call(t, "saturate", (value, *(IntImm(limit, wide) for limit in limits(t))))
