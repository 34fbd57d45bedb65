"""bfloat16 in NumPy, which has no such type: bit patterns in uint16, values in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def from_bits(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values of bit patterns, exactly."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bits(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The bit patterns of values, rounded to nearest with ties to even; NaN stays NaN."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (
        words + (np.uint32(0x7FFF) + ((words >> np.uint32(16)) & np.uint32(1)))
    ) >> np.uint32(16)
    quiet = (words >> np.uint32(16)) | np.uint32(0x40)
    return np.where((words & np.uint32(0x7FFFFFFF)) > 0x7F800000, quiet, rounded).astype(np.uint16)


def round_values(values: NDArray[Any]) -> NDArray[np.float32]:
    """float32 values rounded to the nearest bfloat16."""
    return from_bits(to_bits(values))
