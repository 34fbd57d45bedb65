"""Halide's intrinsics on scalars as CUDA C++ text; their meaning is in ``selector.ir.builtins``.

Each spelling gets the call and the texts of its arguments. What it calls is a snippet of
``preamble``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from selector.ir.nodes import Call
from selector.ir.types import Kind, Type

Spelling = Callable[[Call, Sequence[str]], str]


def _infix(operator: str) -> Spelling:
    return lambda _, v: f"({v[0]} {operator} {v[1]})"


def _bitwise_not(call: Call, values: Sequence[str]) -> str:
    return f"!{values[0]}" if call.type.is_bool else f"(~{values[0]})"


def _bits(t: Type) -> int:
    return max(8, t.bits)


def _unsigned(text: str, t: Type) -> str:
    """An integer as an unsigned one of its own width, then of at least 32 bits."""
    own = f"(u{_bits(t)})({text})"
    return own if t.bits >= 32 else f"(u32){own}"


def _leading_zeros(call: Call, values: Sequence[str]) -> str:
    t = call.args[0].type
    value = _unsigned(values[0], t)
    return f"__clzll({value})" if t.bits == 64 else f"(__clz({value}) - {32 - t.bits})"


def _trailing_zeros(call: Call, values: Sequence[str]) -> str:
    t = call.args[0].type
    value = _unsigned(values[0], t)
    function = "__ffsll" if t.bits == 64 else "__ffs"
    return f"({values[0]} == 0 ? {t.bits} : {function}({value}) - 1)"


def _population(call: Call, values: Sequence[str]) -> str:
    t = call.args[0].type
    return f"__popc{'ll' if t.bits == 64 else ''}({_unsigned(values[0], t)})"


def _range(t: Type) -> tuple[int, int]:
    if t.kind is Kind.UINT:
        return 0, (1 << t.bits) - 1
    return -(1 << (t.bits - 1)), (1 << (t.bits - 1)) - 1


def _saturating_cast(call: Call, values: Sequence[str]) -> str:
    """Floats go to integers of 32 and 64 bits by the machine's own conversion, which saturates."""
    source, target = call.args[0].type.element, call.type.element
    text = values[0]
    if target.is_float:
        return text
    low, high = _range(target)
    if source.is_float:
        if target.bits <= 16:
            name = "fmin" if source.bits == 64 else "fminf"
            text = f"{name}({name.replace('min', 'max')}({text}, {low}), {high})"
        return text
    least, most = _range(source)
    if least < low:
        text = f"max({text}, {_literal(low, source)})"
    if most > high:
        text = f"min({text}, {_literal(high, source)})"
    return text


def _literal(value: int, t: Type) -> str:
    if t.bits < 32:
        return str(value)
    suffix = ("u" if t.kind is Kind.UINT else "") + ("ll" if t.bits == 64 else "")
    return f"{value}{suffix}" if value > -(1 << (t.bits - 1)) else f"({value + 1}{suffix} - 1)"


def _difference(call: Call, values: Sequence[str]) -> str:
    a, b = values
    if call.type.is_float:
        return f"abs({a} - {b})"
    t = call.args[0].type
    x, y = _unsigned(a, t), _unsigned(b, t)
    return f"({a} > {b} ? {x} - {y} : {y} - {x})"


_C_NAMES = {16: "f16", 32: "float", 64: "double"}


def _reinterpret(call: Call, values: Sequence[str]) -> str:
    t = call.type
    if t.is_float:
        name = "bf16" if t.kind is Kind.BFLOAT else _C_NAMES[t.bits]
    else:
        name = (
            "int" if t == Type(Kind.INT, 32) else f"{'u' if t.kind is Kind.UINT else 's'}{t.bits}"
        )
    return f"bits_as<{name}>({values[0]})"


SPELLINGS: dict[str, Spelling] = {
    "bitwise_and": _infix("&"),
    "bitwise_or": _infix("|"),
    "bitwise_xor": _infix("^"),
    "bitwise_not": _bitwise_not,
    "shift_left": lambda _, v: f"shift_left({v[0]}, {v[1]})",
    "shift_right": lambda _, v: f"shift_right({v[0]}, {v[1]})",
    "reinterpret": _reinterpret,
    "absd": _difference,
    "saturating_cast": _saturating_cast,
    "count_leading_zeros": _leading_zeros,
    "count_trailing_zeros": _trailing_zeros,
    "popcount": _population,
    "div_round_to_zero": _infix("/"),
    "mod_round_to_zero": _infix("%"),
    "lerp": lambda _, v: f"({v[0]} * (1 - {v[2]}) + {v[1]} * {v[2]})",
    "strict_float": lambda _, v: v[0],
    "unsafe_promise_clamped": lambda _, v: v[0],
}

RAW_ARGUMENTS = frozenset(("reinterpret", "strict_float", "unsafe_promise_clamped"))
"""Calls that take half-precision arguments as they are; others get them as float."""


def spell(call: Call, values: Sequence[str]) -> str | None:
    """The text of an intrinsic, in C's arithmetic type for its result; None for any other call."""
    if call.name == "lerp" and not call.type.is_float:
        return None
    spelling = SPELLINGS.get(call.name)
    return None if spelling is None else spelling(call, values)
