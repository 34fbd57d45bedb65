"""A plan's expressions as C++: over the extents and strides of a call's arrays and its numbers.

Sizes are whole numbers without a width (``selector.ir.evaluator.evaluate_scalar``), here 64 bits.
Promises are of the types that they are written in: integers wrap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from selector.dataclass import dataclass
from selector.diagnostics import TargetError
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    IntImm,
    Let,
    Not,
    Select,
    Var,
)
from selector.ir.printer import print_expr
from selector.ir.types import Kind, Type
from selector.runtime import arguments
from selector.runtime.plan import Plan

_BINARY = {
    BinaryOp.ADD: "sum", BinaryOp.SUB: "difference", BinaryOp.MUL: "product",
    BinaryOp.DIV: "quotient", BinaryOp.MOD: "remainder", BinaryOp.MIN: "least",
    BinaryOp.MAX: "most", BinaryOp.AND: "both", BinaryOp.OR: "either",
}  # fmt: skip
_COMPARE = {
    CompareOp.EQ: "==", CompareOp.NE: "!=", CompareOp.LT: "<", CompareOp.LE: "<=",
    CompareOp.GT: ">", CompareOp.GE: ">=",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Names:
    """What stands for the variables of a plan's expressions. ``exact``: values have the types of
    the expressions.
    """

    known: Mapping[str, str]
    exact: bool = False

    def text(self, e: Expr) -> str:
        """``TargetError`` for what has no value outside the machine."""
        match e:
            case IntImm(v, t):
                return f"{self._type(t)}({v}LL)" if v >= -(2**63) + 1 else _refuse(e)
            case FloatImm(v, t) if self.exact:
                return f"{self._type(t)}({float(v).hex()})"
            case Var(name, t) if name in self.known:
                return f"{self._type(t)}({self.known[name]})"
            case Binary(op, a, b):
                if self.exact and op is BinaryOp.MOD and e.type.is_float:
                    return _refuse(e)
                return f"{_BINARY[op]}<{self._type(e.type)}>({self.text(a)}, {self.text(b)})"
            case Compare(op, a, b):
                return f"({self.text(a)} {_COMPARE[op]} {self.text(b)})"
            case Cast(t, v) if self.exact or (t.is_integer and v.type.is_integer):
                inner = f"{c_type(t)}({self.text(v)})"
                return inner if self.exact else f"int64_t({inner})"
            case Not(v):
                return f"!({self.text(v)})"
            case Select(c, t, f):
                return f"({self.text(c)} ? {self.text(t)} : {self.text(f)})"
            case Let(name, v, body):
                local = f"l{len(self.known)}"
                inner = replace(self, known={**self.known, name: local}).text(body)
                return f"[&] {{ const auto {local} = {self.text(v)}; return {inner}; }}()"
            case _:
                return _refuse(e)

    def _type(self, t: Type) -> str:
        return c_type(t) if self.exact else "int64_t"


def names_of(plan: Plan) -> dict[str, str]:
    """The variables that a plan's expressions may use (``runtime.sizes.environment``), as C++."""
    known: dict[str, str] = {}
    for j, scalar in enumerate(plan.scalars):
        known[scalar.name] = f"s[{j}].{'real' if scalar.type.is_float else 'whole'}"
    for i, buffer in enumerate(arguments.inputs_then_outputs(plan)):
        for d, dim in enumerate(buffer.dims):
            here = {"extent": f"v[{i}].extents[{d}]", "stride": f"v[{i}].strides[{d}]"}
            known |= {f"{buffer.name}.{what}.{d}": text for what, text in here.items()}
            known[f"{buffer.name}.min.{d}"] = "0"
            for what, where in (("extent", dim.extent), ("stride", dim.stride)):
                if isinstance(where, Var):
                    known[where.name] = here[what]
    return known


def c_type(t: Type) -> str:
    """The C++ type of values of a scalar type; ``TargetError`` for halves, which it has not."""
    if t.is_bool:
        return "bool"
    if t.kind is Kind.FLOAT and t.bits in (32, 64):
        return "float" if t.bits == 32 else "double"
    if t.kind in (Kind.INT, Kind.UINT):
        return f"{'u' if t.kind is Kind.UINT else ''}int{t.bits}_t"
    raise TargetError(
        f"an expression of sizes or promises has the type {t}",
        why="C++ has no such numbers",
        hint="use float32 for it",
    )


def _refuse(e: Expr) -> str:
    raise TargetError(
        f"a size or a promise cannot be exported: {print_expr(e)}",
        why="it is neither integers nor comparisons of the arguments' sizes and numbers",
    )
