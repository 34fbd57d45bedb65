"""Floats of eight bits in NumPy, which has no such type: bytes in memory, values in float32."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selector.ir.types import E4M3, E5M2, Type

FORMATS = (E4M3, E5M2)


@cache
def values(t: Type) -> NDArray[np.float32]:
    """What each of the 256 bytes is, by the formats of OCP's 8-bit floating point specification:
    E4M3 has no infinities, and NaN is 0x7f and 0xff; E5M2 is the upper half of a half.
    """
    assert t in FORMATS, t
    bits = np.arange(256, dtype=np.uint16)
    if t == E5M2:
        halves, scale, none = bits << 8, 1, bits & 0x7F > 0x7C
    else:  # the exponent of halves has one bit more and a bias of 15 instead of 7: 2**8
        halves, scale, none = (bits & 0x80) << 8 | (bits & 0x7F) << 7, 256, bits & 0x7F == 0x7F
    found = np.where(none, 0, halves).astype(np.uint16).view(np.float16).astype(np.float32)
    return np.where(none, np.float32(np.nan), found * scale)


def from_bytes(stored: NDArray[Any], t: Type) -> NDArray[np.float32]:
    """The values of bytes, exactly."""
    return values(t)[np.asarray(stored).view(np.uint8)]
