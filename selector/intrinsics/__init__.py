"""Tensor instructions and functions with their executable meaning; importing this fills the
interpreter's registry.

Files in reading order: ``records`` (tensor instructions), ``functions`` (Toeplitz operands and pure
math), ``calls`` (name of a ``Call`` -> meaning).
"""

from selector.intrinsics.calls import (
    CALLS,
    TILE_FILL,
    TILE_READ,
    TOEPLITZ,
    TOEPLITZ_TRANSPOSED,
    VNNI,
    register_all,
)
from selector.intrinsics.functions import PureFunction, find_function, toeplitz, toeplitz_rows
from selector.intrinsics.records import INSTRUCTIONS, TensorInstruction, find, for_target

__all__ = [
    "CALLS",
    "INSTRUCTIONS",
    "TILE_FILL",
    "TILE_READ",
    "TOEPLITZ",
    "TOEPLITZ_TRANSPOSED",
    "VNNI",
    "PureFunction",
    "TensorInstruction",
    "find",
    "find_function",
    "for_target",
    "toeplitz",
    "toeplitz_rows",
]

register_all()
