"""Scalar and vector types of the loop IR.

A type is a kind (int, uint, float, bfloat, handle), a width in bits and a number of lanes. The text
form is Halide's: ``float32``, ``float16x256``, ``bfloat16``, ``uint8x64``; a boolean is ``uint1``.

``e4m3`` and ``e5m2``, which Halide lacks, are what bytes of operands mean while an instruction is
looked for. Memory has bytes (``stored``), and nothing is computed in them.
"""

from __future__ import annotations

import math
import re
import struct
from functools import cache, lru_cache

from selector.dataclass import dataclass
from selector.ir.kinds import Named


class IllTyped(AssertionError):  # noqa: N818
    """What is being made has no type: a defect of the pass that makes it, or of data from outside,
    whose reader says where.
    """


class Kind(Named):
    """What the bits of a scalar mean."""

    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    BFLOAT = "bfloat"
    HANDLE = "handle"
    E4M3 = "e4m3"
    E5M2 = "e5m2"


_WIDTHS = {
    Kind.INT: (8, 16, 32, 64),
    Kind.UINT: (1, 8, 16, 32, 64),
    Kind.FLOAT: (16, 32, 64),
    Kind.BFLOAT: (16,),
    Kind.HANDLE: (64,),
    Kind.E4M3: (8,),
    Kind.E5M2: (8,),
}
_TYPES: dict[tuple[Kind, int, int], Type] = {}
BYTES = (Kind.E4M3, Kind.E5M2)  # whose name says how many bits there are
_TEXT = re.compile(r"(?:(int|uint|float|bfloat|handle)(\d+)|(e4m3|e5m2))(?:x(\d+))?")


class _Facts:
    """What is asked of types all the time, and follows from their fields."""

    __slots__ = ("is_bool", "is_float", "is_integer")

    is_bool: bool
    is_float: bool
    is_integer: bool


@dataclass(frozen=True, slots=True, eq=False)
class Type(_Facts):
    """A vector of ``lanes`` scalars of one kind and width. There is one object of each type, so
    that types are compared by identity, at C speed.
    """

    kind: Kind
    bits: int
    lanes: int = 1

    def __new__(cls, kind: Kind, bits: int, lanes: int = 1) -> Type:
        return _TYPES.setdefault((kind, bits, lanes), object.__new__(cls))

    def __post_init__(self) -> None:
        if self.bits not in _WIDTHS[self.kind]:
            raise IllTyped(f"{self.kind.value}{self.bits} is not a type")
        if self.lanes < 1:
            raise IllTyped(f"a type has at least one lane, got {self.lanes}")
        kind = self.kind
        object.__setattr__(self, "is_bool", kind is Kind.UINT and self.bits == 1)
        object.__setattr__(self, "is_float", kind in (Kind.FLOAT, Kind.BFLOAT, *BYTES))
        object.__setattr__(self, "is_integer", kind in (Kind.INT, Kind.UINT))

    @property
    def bytes(self) -> int:
        """Bytes of one lane in memory."""
        return (self.bits + 7) // 8

    @property
    def element(self) -> Type:
        """The same scalar with one lane."""
        return self if self.lanes == 1 else _vector(self, 1)

    @property
    def stored(self) -> Type:
        """What memory has of it."""
        return Type(Kind.UINT, 8, self.lanes) if self.kind in BYTES else self

    def __reduce__(self) -> tuple[type[Type], tuple[Kind, int, int]]:
        return Type, (self.kind, self.bits, self.lanes)  # by its fields: the facts follow

    def with_lanes(self, lanes: int) -> Type:
        return self if lanes == self.lanes else _vector(self, lanes)

    def __str__(self) -> str:
        suffix = "" if self.lanes == 1 else f"x{self.lanes}"
        bits = "" if self.kind in BYTES else self.bits
        return f"{self.kind.value}{bits}{suffix}"

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str) -> Type:
        """Read ``float16x256`` and the like; ``bool`` stands for ``uint1``. ValueError
        otherwise."""
        if text == "bool":
            return BOOL
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a type")
        kind, bits = Kind(match[1] or match[3]), int(match[2] or 8)
        if bits not in _WIDTHS[kind]:
            raise ValueError(f"{text!r} is not a type: no {kind.value} of {bits} bits")
        return Type(kind, bits, int(match[4] or 1))


@cache
def _vector(t: Type, lanes: int) -> Type:
    return Type(t.kind, t.bits, lanes)


def limits(t: Type) -> tuple[int, int]:
    """The least and the largest value of an integer type."""
    if t.kind is Kind.INT:
        return -(1 << (t.bits - 1)), (1 << (t.bits - 1)) - 1
    return 0, (1 << t.bits) - 1


BOOL = Type(Kind.UINT, 1)
INT8 = Type(Kind.INT, 8)
INT16 = Type(Kind.INT, 16)
INT32 = Type(Kind.INT, 32)
INT64 = Type(Kind.INT, 64)
UINT8 = Type(Kind.UINT, 8)
UINT16 = Type(Kind.UINT, 16)
UINT32 = Type(Kind.UINT, 32)
UINT64 = Type(Kind.UINT, 64)
E4M3 = Type(Kind.E4M3, 8)
E5M2 = Type(Kind.E5M2, 8)
FLOAT16 = Type(Kind.FLOAT, 16)
BFLOAT16 = Type(Kind.BFLOAT, 16)
FLOAT32 = Type(Kind.FLOAT, 32)
FLOAT64 = Type(Kind.FLOAT, 64)

_PACK = {(Kind.FLOAT, 16): "<e", (Kind.FLOAT, 32): "<f", (Kind.BFLOAT, 16): "<f"}


def round_to(value: float, t: Type) -> float:
    """The nearest value of a floating-point type, ties to even; too large a value becomes
    infinite."""
    if (t.kind, t.bits) not in _PACK and t.bits < 64:
        raise IllTyped(f"there are no literals of {t}")
    if math.isnan(value):
        return math.nan
    if math.isinf(value) or t.bits == 64:
        return value
    try:
        pattern = struct.pack(_PACK[t.kind, t.bits], value)
    except OverflowError:
        return math.copysign(math.inf, value)
    if t.kind is Kind.BFLOAT:
        word = int.from_bytes(pattern, "little")
        word = (word + 0x7FFF + (word >> 16 & 1)) & 0xFFFF0000
        pattern = word.to_bytes(4, "little")
    (rounded,) = struct.unpack(_PACK[t.kind, t.bits], pattern)
    return rounded
