"""Floats of eight bits, a type that Halide does not have: what the bytes of a buffer mean is part
of the algorithm.
"""

from __future__ import annotations

import halide as hl

_HALF, _WORD = hl.Float(16), hl.UInt(16)
_NAN = 0x7E00  # of halves, quiet


def e4m3(byte: hl.Expr) -> hl.Expr:
    """The float of 4 bits of exponent and 3 of mantissa that a ``uint8`` is the bits of, as a
    float16: exactly, subnormals too. There are no infinities, ``0x7f`` and ``0xff`` are NaN (the
    format ``E4M3`` of OCP's 8-bit floating point specification; ``torch.float8_e4m3fn``).

    ``TypeError`` for an expression of another type.
    """
    bits = _word(byte, "e4m3")
    rest = bits & 0x7F
    # The exponent of halves has one bit more and a bias of 15 instead of 7: a factor of 2**8.
    moved = ((bits & 0x80) << _word_of(8)) | (rest << _word_of(7))
    held = hl.select(rest == 0x7F, _word_of(_NAN), moved)
    return hl.reinterpret(_HALF, held) * hl.cast(_HALF, 256)


def e5m2(byte: hl.Expr) -> hl.Expr:
    """The float of 5 bits of exponent and 2 of mantissa that a ``uint8`` is the bits of, as a
    float16, of which it is the upper half: infinities and NaN are where halves have them (the
    format ``E5M2`` of OCP's 8-bit floating point specification; ``torch.float8_e5m2``).

    ``TypeError`` for an expression of another type.
    """
    return hl.reinterpret(_HALF, _word(byte, "e5m2") << _word_of(8))


def _word(byte: hl.Expr, name: str) -> hl.Expr:
    byte = byte if isinstance(byte, hl.Expr) else hl.Expr(byte)  # what a Func holds
    if byte.type() != hl.UInt(8):
        raise TypeError(f"hb.{name} reads the bits of a uint8, not of {byte.type()}")
    return hl.cast(_WORD, byte)


def _word_of(value: int) -> hl.Expr:
    return hl.cast(_WORD, value)
