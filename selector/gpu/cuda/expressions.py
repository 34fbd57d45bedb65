"""Scalar expressions of a kernel as C, with the brackets that they need: the only place where they
become text. It decides nothing.

An expression is *legal* when every node of it is something that C has, of the type that it has
there: ``Var`` is a variable of the kernel (of type ``POINTER``, one that is an array or a pointer),
``DIV`` and ``MOD`` are C's, arithmetic is of ints and wider types, halves are only moved, compared
with nothing, and cast to and from float32 (``to_f32``, ``to_f16``). ``Load`` is none: an element of
an array or of memory is ``element(pointer, further ..., index)``. Other calls are those of C's
functions by their names, but for ``shared_address``, ``first_lane``, the ``PLACES``, the operators
of bits and what is named by a type (``bits_as``, ``saturate``). The emitter's ``scalars.legal``
makes legal expressions of the program's; control is made of them to begin with
(``gpu.ir.expressions``).

``spell`` and its kin print for CUDA; another language has ``Words`` of its own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NoReturn

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.gpu.ir.expressions import GIVEN, PAIR_IN_PANELS, PLACES
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    IntImm,
    Not,
    Select,
    Var,
)
from selector.ir.types import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Kind,
    Type,
)

TYPES: dict[Type, str] = {
    FLOAT16: "f16", BFLOAT16: "bf16", FLOAT32: "float", FLOAT64: "double", INT8: "s8",
    INT16: "s16", INT32: "int", INT64: "s64", BOOL: "bool", UINT8: "u8", UINT16: "u16",
    UINT32: "u32", UINT64: "u64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Words:
    """What languages do not have in common."""

    minima: Mapping[Type, str] = field(default_factory=dict[Type, str])  # of others: min
    nan: Mapping[Type, str] = field(default_factory=dict[Type, str])
    infinity: Mapping[Type, str] = field(default_factory=dict[Type, str])
    typed: str = "{name}<{type}>({values})"  # a call that is named by a type
    half: str = "{type}{{{bits}}}"  # a constant of 16 bits
    no_half: str = "{type}{{}}"  # the one whose bits are 0


CUDA = Words(
    {FLOAT32: "fminf", FLOAT64: "fmin"},
    {FLOAT32: "__int_as_float(0x7fffffff)", FLOAT64: "(double)__int_as_float(0x7fffffff)"},
    {FLOAT32: "__int_as_float(0x7f800000)", FLOAT64: "(double)__int_as_float(0x7f800000)"},
)


_Text = tuple[str, int]  # and how closely its outermost operator binds


_SIGNS = {
    BinaryOp.OR: ("||", 2), BinaryOp.AND: ("&&", 3), CompareOp.EQ: ("==", 7),
    CompareOp.NE: ("!=", 7), CompareOp.LT: ("<", 8), CompareOp.LE: ("<=", 8),
    CompareOp.GT: (">", 8), CompareOp.GE: (">=", 8), BinaryOp.ADD: ("+", 10),
    BinaryOp.SUB: ("-", 10), BinaryOp.MUL: ("*", 11), BinaryOp.DIV: ("/", 11),
    BinaryOp.MOD: ("%", 11),
}  # fmt: skip
_BITS = {
    "bitwise_or": ("|", 4), "bitwise_xor": ("^", 5), "bitwise_and": ("&", 6),
    "shift_right": (">>", 9),
}  # fmt: skip
_APART = {
    2: (3,),
    4: (5, 6, 7, 8, 10),
    5: (6, 7, 8, 10),
    6: (7, 8, 10),
    7: (7, 8),
    8: (7, 8),
    9: (10,),
}
_EXTREMA = {BinaryOp.MIN: "min", BinaryOp.MAX: "max"}
_CHOICE, _OR, _SUM, _PRODUCT, _UNARY, _ATOM = 1, 2, 10, 11, 12, 13
_PLACES = {name: f"(int){name}" for name in ("blockIdx.x", "blockIdx.y", "blockIdx.z", "gridDim.x")}


def spell(e: Expr, words: Words = CUDA) -> str:
    """The text of an expression."""
    return _Speller(words).spell(e)[0]


def operand(e: Expr, words: Words = CUDA) -> str:
    """The same in brackets, unless it needs none before any operator."""
    return _Speller(words).inside(e, _UNARY)


def parity(phase: Expr) -> str:
    """That of a phase's number."""
    return f"{operand(phase)} & 1"


def summand(e: Expr) -> str:
    """The same for what is added."""
    return _Speller(CUDA).inside(e, _PRODUCT)


class _Speller:
    """Most of printing is this: tables, and no matching of one pattern after the other."""

    __slots__ = ("words",)

    def __init__(self, words: Words) -> None:
        self.words = words

    def spell(self, e: Expr) -> _Text:
        return _FORMS[type(e)](self, e)

    def inside(self, e: Expr, binds: int) -> str:
        """As an operand of an operator that binds so closely."""
        text, own = self.spell(e)
        return text if own >= binds else f"({text})"

    def variable(self, e: Var) -> _Text:
        name = e.name
        return _PLACES.get(name, name), _ATOM

    def binary(self, e: Binary) -> _Text:
        op, a, b = e.op, e.a, e.b
        if op is BinaryOp.MIN or op is BinaryOp.MAX:
            least = self.words.minima.get(e.type, "min")
            return f"{least.replace('min', _EXTREMA[op])}({self.listed((a, b))})", _ATOM
        if op is BinaryOp.ADD and isinstance(b, IntImm) and _least(b.type) < b.value < 0:
            return self.infix("-", _SUM, a, IntImm(-b.value, b.type))
        return self.infix(*_SIGNS[op], a, b)

    def compare(self, e: Compare) -> _Text:
        return self.infix(*_SIGNS[e.op], e.a, e.b)

    def negation(self, e: Not) -> _Text:
        return f"!{self.inside(e.value, _UNARY)}", _UNARY

    def select(self, e: Select) -> _Text:
        test, one = self.inside(e.condition, _OR), self.inside(e.then, _OR)
        return f"{test} ? {one} : {self.inside(e.otherwise, _CHOICE)}", _CHOICE

    def float(self, e: FloatImm) -> _Text:
        value, t = e.value, e.type
        if t.bits == 16:
            code = _half_bits(value, t)
            form = self.words.half if code else self.words.no_half
            return form.format(type=TYPES[t], bits=code), _UNARY
        if math.isnan(value):
            return self.words.nan[t], _UNARY
        if math.isinf(value):
            sign = "-" if value < 0 else ""
            return f"{sign}{self.words.infinity[t]}", _UNARY
        return f"{value!r}{'f' if t.bits == 32 else ''}", _ATOM

    def cast(self, e: Cast) -> _Text:
        t, source = e.type, e.value.type
        if t is source or t == source or (source.is_bool and t == INT32):
            return self.spell(e.value)
        if source.is_float and source.bits == 16:
            return f"to_f32({self.spell(e.value)[0]})", _ATOM
        if t.is_float and t.bits == 16:
            return f"to_{TYPES[t]}({self.spell(e.value)[0]})", _ATOM
        return f"({TYPES[t]}){self.inside(e.value, _UNARY)}", _UNARY

    def call(self, e: Call) -> _Text:
        name, arguments = e.name, e.args
        if name in _BITS:
            return self.infix(*_BITS[name], *arguments)
        form = _CALLS.get(name)
        return (f"{name}({self.listed(arguments)})", _ATOM) if form is None else form(self, e)

    def element(self, e: Call) -> _Text:
        start, *further, index = e.args
        text = self.pointer(start, further) if further else self.spell(start)[0]
        return f"{text}[{self.spell(index)[0]}]", _ATOM

    def byte(self, e: Call) -> _Text:
        """Of an array that is read by words."""
        (byte,) = e.args
        assert isinstance(byte, Call)
        return f"{e.name}({self.listed(byte.args)})", _ATOM

    def behind(self, e: Call) -> _Text:
        start, *further = e.args
        return self.pointer(start, further, bare=True), _SUM

    def address(self, e: Call) -> _Text:
        start, *further = e.args
        if isinstance(start, IntImm):
            return f"{e.name}(smem + {start.value})", _ATOM
        return f"{e.name}({self.pointer(start, further, bare=True)})", _ATOM

    def template(self, e: Call) -> _Text:
        """A function whose first arguments are those of a template."""
        first = _TEMPLATES.get(e.name, len(e.args) - 1)
        sizes, values = self.listed(e.args[:first]), self.listed(e.args[first:])
        return f"{e.name}<{sizes}>({values})", _ATOM

    def typed(self, e: Call) -> _Text:
        values = self.listed(e.args)
        return self.words.typed.format(name=e.name, type=TYPES[e.type], values=values), _ATOM

    def complement(self, e: Call) -> _Text:
        return f"~{self.inside(e.args[0], _UNARY)}", _UNARY

    def shuffle(self, e: Call) -> _Text:
        return f"__shfl_xor_sync(0xffffffffu, {self.listed(e.args)})", _ATOM

    def given(self, e: Call) -> _Text:
        return self.inside(e.args[0], _UNARY), _ATOM

    def first_lane(self, e: Call) -> _Text:
        return f"__shfl_sync(0xffffffffu, {self.listed(e.args)}, 0)", _ATOM

    def listed(self, arguments: tuple[Expr, ...]) -> str:
        return ", ".join([self.spell(x)[0] for x in arguments])

    def pointer(self, pointer: Expr, further: list[Expr], *, bare: bool = False) -> str:
        """A pointer moved on, step by step; ``bare``: brackets are around it."""
        text = self.spell(pointer)[0]
        for n, part in enumerate(further):
            text = f"{f'({text})' if n else text} + {self.inside(part, _PRODUCT)}"
        return text if bare or not further else f"({text})"

    def infix(self, sign: str, binds: int, a: Expr, b: Expr) -> _Text:
        """In brackets are operands that need them, and some, whatever C says, for readers and
        compilers that warn them.
        """
        (left, one), (right, other) = _FORMS[type(a)](self, a), _FORMS[type(b)](self, b)
        apart = _APART.get(binds, ())
        if one < binds or one in apart:
            left = f"({left})"
        if other <= binds or other in apart:
            right = f"({right})"
        return f"{left} {sign} {right}", binds


_SUFFIXES = {INT64: "ll", UINT64: "ull", UINT32: "u"}


def _integer(_: _Speller, e: IntImm) -> _Text:
    value, t = e.value, e.type
    if t is INT32 and value > -(1 << 31):
        return str(value), _ATOM
    if t.is_bool:
        return "true" if value else "false", _ATOM
    suffix = _SUFFIXES.get(t, "")
    if t.bits >= 32 and value == _least(t):
        return f"{value + 1}{suffix} - 1", _SUM  # C has no such literal
    return f"{value}{suffix}", _ATOM


def _least(t: Type) -> int | float:
    """The number of a type with a sign whose negative is none of it."""
    return -(1 << (t.bits - 1)) if t.kind is Kind.INT else -math.inf


def _half_bits(value: float, t: Type) -> int:
    if t == FLOAT16:
        return int.from_bytes(struct.pack("<e", value), "little")
    return int.from_bytes(struct.pack("<f", value), "little") >> 16


class _Forms(dict[type, Callable[[_Speller, Any], _Text]]):
    """How each kind of node is written."""

    def __missing__(self, kind: type) -> NoReturn:
        raise InternalError(f"{kind.__name__} has no form in a kernel")


_FORMS = _Forms({
    Var: _Speller.variable, IntImm: _integer, FloatImm: _Speller.float, Binary: _Speller.binary,
    Compare: _Speller.compare, Call: _Speller.call, Not: _Speller.negation, Cast: _Speller.cast,
    Select: _Speller.select,
})  # fmt: skip
_TEMPLATES = {PAIR_IN_PANELS: 3}  # how many arguments; of the PLACES all but the last
_CALLS: dict[str, Callable[[_Speller, Call], _Text]] = {
    **dict.fromkeys((*PLACES, PAIR_IN_PANELS), _Speller.template),
    **dict.fromkeys(("bits_as", "saturate"), _Speller.typed),
    "element": _Speller.element, "behind": _Speller.behind, "shared_address": _Speller.address,
    "byte_float": _Speller.byte,
    "bitwise_not": _Speller.complement, "shuffle_xor": _Speller.shuffle,
    "first_lane": _Speller.first_lane, GIVEN: _Speller.given,
}  # fmt: skip
