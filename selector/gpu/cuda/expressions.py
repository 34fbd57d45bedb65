"""Scalar expressions of a kernel as C, with the brackets that they need: the only place where they
become text. It decides nothing.

An expression is *legal* when every node of it is something that C has, of the type that it has
there: ``Var`` is a variable of the kernel (of type ``POINTER``, one that is an array or a pointer),
``DIV`` and ``MOD`` are C's, arithmetic is of ints and wider types, halves are only moved, compared
with nothing, and cast to and from float32 (``to_f32``, ``to_f16``). ``Load`` is none: an element of
an array or of memory is ``element(pointer, further ..., index)``. Other calls are those of C's
functions by their names, but for ``shared_address``, the ``PLACES``, the operators of bits and what
is named by a type (``bits_as``, ``saturate``). The emitter's ``legalize_scalars`` makes legal
expressions of the program's; control is made of them to begin with (``gpu.ir.expressions``).

``spell`` and its kin print for CUDA; another language has ``Words`` of its own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from selector.diagnostics import InternalError
from selector.gpu.ir.expressions import PAIR_IN_PANELS, PLACES
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

Numbers = Mapping[str, str]
"""The texts of numbers that are no variables of C."""

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


class _Text(NamedTuple):
    text: str
    binds: int  # how closely its outermost operator does

    def inside(self, binds: int, apart: tuple[int, ...] = ()) -> str:
        """As an operand of an operator that binds so closely; ``apart``: in brackets whatever C
        says, for readers and compilers that warn them.
        """
        clear = self.binds >= binds and self.binds not in apart
        return self.text if clear else f"({self.text})"


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
_TYPED = frozenset(("bits_as", "saturate"))
_CHOICE, _OR, _SUM, _PRODUCT, _UNARY, _ATOM = 1, 2, 10, 11, 12, 13
_PLACES = {name: f"(int){name}" for name in ("blockIdx.x", "blockIdx.y", "blockIdx.z", "gridDim.x")}


def spell(e: Expr, numbers: Numbers, words: Words = CUDA) -> str:
    """The text of an expression."""
    return _Speller(numbers, words).spell(e).text


def operand(e: Expr, numbers: Numbers, words: Words = CUDA) -> str:
    """The same in brackets, unless it needs none before any operator."""
    return _Speller(numbers, words).spell(e).inside(_UNARY)


def parity(phase: Expr, numbers: Numbers) -> str:
    """That of a phase's number."""
    return f"{operand(phase, numbers)} & 1"


def summand(e: Expr, numbers: Numbers) -> str:
    """The same for what is added."""
    return _Speller(numbers, CUDA).spell(e).inside(_PRODUCT)


class _Speller:
    __slots__ = ("numbers", "words")

    def __init__(self, numbers: Numbers, words: Words) -> None:
        self.numbers, self.words = numbers, words

    def spell(self, e: Expr) -> _Text:
        match e:
            case Var(name):
                return _Text(self.numbers.get(name) or _PLACES.get(name, name), _ATOM)
            case IntImm(value, t):
                return _integer(value, t)
            case Binary(op, a, b) if op in _EXTREMA:
                least = self.words.minima.get(e.type, "min")
                return self.called(least.replace("min", _EXTREMA[op]), (a, b))
            case Binary(BinaryOp.ADD, a, IntImm(value, t)) if value < 0:
                return self.infix("-", _SUM, a, IntImm(-value, t))
            case Binary(op, a, b) | Compare(op, a, b):
                return self.infix(*_SIGNS[op], a, b)
            case Call(t, name, arguments):
                return self.call(t, name, arguments)
            case Not(value):
                return _Text(f"!{self.spell(value).inside(_UNARY)}", _UNARY)
            case Cast(t, value):
                return self.cast(t, value)
            case Select(c, a, b):
                test, one, other = self.spell(c), self.spell(a), self.spell(b)
                text = f"{test.inside(_OR)} ? {one.inside(_OR)} : {other.inside(_CHOICE)}"
                return _Text(text, _CHOICE)
            case FloatImm(value, t):
                return self.float(value, t)
            case _:
                raise InternalError(f"{e} has no form in a kernel")

    def float(self, value: float, t: Type) -> _Text:
        if t.bits == 16:
            code = _half_bits(value, t)
            form = self.words.half if code else self.words.no_half
            return _Text(form.format(type=TYPES[t], bits=code), _UNARY)
        if math.isnan(value):
            return _Text(self.words.nan[t], _UNARY)
        if math.isinf(value):
            sign = "-" if value < 0 else ""
            return _Text(f"{sign}{self.words.infinity[t]}", _UNARY)
        return _Text(f"{value!r}{'f' if t.bits == 32 else ''}", _ATOM)

    def cast(self, t: Type, value: Expr) -> _Text:
        source, text = value.type, self.spell(value)
        if t is source or t == source or (source.is_bool and t == INT32):
            return text
        if source.is_float and source.bits == 16:
            return _Text(f"to_f32({text.text})", _ATOM)
        if t.is_float and t.bits == 16:
            return _Text(f"to_{TYPES[t]}({text.text})", _ATOM)
        return _Text(f"({TYPES[t]}){text.inside(_UNARY)}", _UNARY)

    def call(self, t: Type, name: str, arguments: tuple[Expr, ...]) -> _Text:
        match arguments:
            case (a, b) if name in _BITS:
                return self.infix(*_BITS[name], a, b)
            case (value,) if name == "bitwise_not":
                return _Text(f"~{self.spell(value).inside(_UNARY)}", _UNARY)
            case (pointer, *further, index) if name == "element":
                text = self.pointer(pointer, further)
                return _Text(f"{text}[{self.spell(index).text}]", _ATOM)
            case (IntImm(value),) if name == "shared_address":
                return _Text(f"{name}(smem + {value})", _ATOM)
            case (pointer, *further) if name == "shared_address":
                return _Text(f"{name}({self.pointer(pointer, further, bare=True)})", _ATOM)
            case (*sizes, index) if name in PLACES:
                texts = ", ".join(self.spell(x).text for x in sizes)
                return _Text(f"{name}<{texts}>({self.spell(index).text})", _ATOM)
            case (pointer, *further) if name == "behind":
                return _Text(self.pointer(pointer, further, bare=True), _SUM)
            case _ if name == "shuffle_xor":
                return _Text(f"__shfl_xor_sync(0xffffffffu, {self.listed(arguments)})", _ATOM)
            case (rows, row_bytes, down, *rest) if name == PAIR_IN_PANELS:
                sizes, values = self.listed((rows, row_bytes, down)), self.listed(tuple(rest))
                return _Text(f"{name}<{sizes}>({values})", _ATOM)
            case _ if name in _TYPED:
                values = self.listed(arguments)
                text = self.words.typed.format(name=name, type=TYPES[t], values=values)
                return _Text(text, _ATOM)
            case _:
                return self.called(name, arguments)

    def called(self, name: str, arguments: tuple[Expr, ...]) -> _Text:
        return _Text(f"{name}({self.listed(arguments)})", _ATOM)

    def listed(self, arguments: tuple[Expr, ...]) -> str:
        return ", ".join([self.spell(x).text for x in arguments])

    def pointer(self, pointer: Expr, further: list[Expr], *, bare: bool = False) -> str:
        """A pointer moved on, step by step; ``bare``: brackets are around it."""
        text = self.spell(pointer).text
        for n, part in enumerate(further):
            text = f"{f'({text})' if n else text} + {self.spell(part).inside(_PRODUCT)}"
        return text if bare or not further else f"({text})"

    def infix(self, sign: str, binds: int, a: Expr, b: Expr) -> _Text:
        apart = _APART.get(binds, ())
        left, right = self.spell(a).inside(binds, apart), self.spell(b).inside(binds + 1, apart)
        return _Text(f"{left} {sign} {right}", binds)


_SUFFIXES = {INT64: "ll", UINT64: "ull", UINT32: "u"}


def _integer(value: int, t: Type) -> _Text:
    if t.is_bool:
        return _Text("true" if value else "false", _ATOM)
    suffix = "" if t is INT32 else _SUFFIXES.get(t, "")
    if t.kind is Kind.INT and t.bits >= 32 and value == -(1 << (t.bits - 1)):
        return _Text(f"{value + 1}{suffix} - 1", _SUM)  # C has no such literal
    return _Text(f"{value}{suffix}", _ATOM)


def _half_bits(value: float, t: Type) -> int:
    if t == FLOAT16:
        return int.from_bytes(struct.pack("<e", value), "little")
    return int.from_bytes(struct.pack("<f", value), "little") >> 16
