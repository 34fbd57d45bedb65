"""What tensor units make of single floats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_tf32(values: NDArray[Any], *, even: bool = False) -> NDArray[np.float32]:
    """float32 rounded to 11 significant bits, ties away from zero (PTX ISA, ``cvt.rna.tf32``) or to
    ``even`` ones (``cvt.rn.tf32``; the copy engine by a map of CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, as
    seen on an H100).
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    finite = bits & 0x7F800000 != 0x7F800000
    half = 0xFFF + (bits >> 13 & 1) if even else 0x1000
    return np.where(finite, bits + half & 0xFFFFE000, bits).astype(np.uint32).view(np.float32)
