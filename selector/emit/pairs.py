"""Values of 16 bits, two at a time.

An accumulator's lane holds neighbours (``read_outs``), which go as one register to memory or to the
next product. What is computed on f16 ahead of that, a select or a sum for instance, is computed on
both halves by one instruction (PTX ISA: add, mul, min, max, set on ``.f16x2``). The IR speaks
of the f32 operation, rounded to f16: that is the same number, since f32 has twice the digits and
two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from selector.ir.nodes import Binary, BinaryOp, Call, Compare, CompareOp, Expr, FloatImm, Select
from selector.ir.types import FLOAT16

_ARITHMETIC = {
    BinaryOp.ADD: "pair_add",
    BinaryOp.SUB: "pair_sub",
    BinaryOp.MUL: "pair_mul",
    BinaryOp.MIN: "pair_min",
    BinaryOp.MAX: "pair_max",
}
_COMPARISONS = {
    CompareOp.EQ: "pair_eq",
    CompareOp.LT: "pair_lt",
    CompareOp.LE: "pair_le",
    CompareOp.GT: "pair_gt",
    CompareOp.GE: "pair_ge",
}
_LEAF = re.compile(r"«(\d+)»")


@dataclass(frozen=True, slots=True)
class PairText:
    """The text of a pair: ``«k»`` stands for leaf k, which is a scalar text of one element."""

    text: str
    leaves: tuple[str, ...]

    def fill(self, first: Callable[[str], str], second: Callable[[str], str]) -> str:
        """The text with both elements of every leaf."""

        def pair(match: re.Match[str]) -> str:
            leaf = self.leaves[int(match[1])]
            return f"pack16({first(leaf)}, {second(leaf)})"

        return _LEAF.sub(pair, self.text)


def pair_text(e: Expr, scalar: Callable[[Expr], str]) -> PairText | None:
    """A scalar f16 value as a pair; None where nothing of it is computed in f16."""
    leaves: list[str] = []

    def leaf(x: Expr) -> str:
        text = scalar(x)
        if text not in leaves:
            leaves.append(text)
        return f"«{leaves.index(text)}»"

    def value(x: Expr) -> str:
        match x:
            case Binary(op, a, b) if x.type == FLOAT16 and op in _ARITHMETIC:
                return f"{_ARITHMETIC[op]}({value(a)}, {value(b)})"
            case Call(_, "abs", (a,)) if x.type == FLOAT16:
                return f"pair_abs({value(a)})"
            case Select(Compare(op, a, b), y, z) if _is_pair_select(x):
                return _select(f"{_COMPARISONS[op]}({value(a)}, {value(b)})", y, z, value)
            case _:
                return leaf(x)

    text = value(e)
    return None if _LEAF.fullmatch(text) else PairText(text, tuple(leaves))


def _is_pair_select(e: Select) -> bool:
    match e.condition:
        case Compare(op, a, _):
            return e.type == FLOAT16 and a.type == FLOAT16 and op in _COMPARISONS
        case _:
            return False


def _select(mask: str, y: Expr, z: Expr, value: Callable[[Expr], str]) -> str:
    if _is_zero(z):
        return f"({mask} & {value(y)})"
    if _is_zero(y):
        return f"(~{mask} & {value(z)})"
    return f"pair_select({mask}, {value(y)}, {value(z)})"


def _is_zero(e: Expr) -> bool:
    return isinstance(e, FloatImm) and str(e.value) == "0.0"
