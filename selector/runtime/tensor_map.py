"""Tensor maps: what the copy engine of a GPU has to know of an array, made by the CUDA driver.

A map holds the address; who launches keeps one for each address. Source: CUDA Driver API, "Tensor
Map Object Management", ``cuTensorMapEncodeTiled``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from selector.dataclass import dataclass
from selector.ir.types import BFLOAT16, FLOAT16, FLOAT32, INT8, INT32, UINT8, Type
from selector.runtime.libcuda import driver_function
from selector.targets import LARGEST_BOX

BYTES = 128
_ALIGNMENT = 64  # of the map in host memory
_DATA_TYPES = {UINT8: 0, INT8: 0, INT32: 3, FLOAT16: 6, FLOAT32: 7, BFLOAT16: 9}
_TF32 = 11
_SWIZZLES = {32: 1, 64: 2, 128: 3}  # by the bytes of a box's rows
_PROMOTE_64, _PROMOTE_128, _PROMOTE_256 = 1, 2, 3
_LINE, _FETCH = 128, 256
Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorMap:
    """Boxes of ``box`` elements of an array of ``extents`` elements, innermost first; ``strides``
    in bytes, of all dimensions but the innermost, whose elements lie side by side. Rows of 32, 64
    or 128 bytes are swizzled in shared memory. ``stored``: boxes are stored to the array, not read.
    ``rounds``: single floats are read as tf32. ``steps``: a box has every so many elements along
    each dimension, all where there are none.
    """

    type: Type
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    stored: bool = False
    rounds: bool = False
    steps: tuple[int, ...] = ()

    @property
    def reach(self) -> Ints:
        """Elements from the first of a box to the last, whole steps."""
        return tuple(n * step for n, step in zip(self.box, self.apart, strict=True))

    @property
    def apart(self) -> Ints:
        return self.steps or (1,) * len(self.box)

    @property
    def promotion(self) -> int:
        """How much of memory the L2 cache fetches at once: no more than is asked for where rows are
        short and lie apart. 32 bytes of pixels of 256 would else wait for all of them (a layer of
        128 channels on an H200: 19.0 us with 256 bytes at once, 17.8 with 64). One line where rows
        lie apart and begin within lines, since a box's row has parts of two of them (5000^3 in f16
        on an H100: 493 us with 256 bytes, 452 with 128; where rows begin at lines, 128 takes up to
        3 % longer).
        """
        row = self.box[0] * self.type.bytes
        if row <= 64 and all(stride > row for stride in self.strides):
            return _PROMOTE_64
        within = any(stride % _LINE for stride in self.strides)
        apart = all(stride > _FETCH for stride in self.strides)
        return _PROMOTE_128 if within and apart else _PROMOTE_256

    def possible(self, address: int) -> bool:
        """Whether the copy engine can read such an array, or store to it: 16-byte alignment, sizes
        in range. It reads zeros behind the end of a row, wherever that is, but stores 16 bytes at a
        time (seen on an H200: 67 elements of 4 bytes are stored as 68).
        """
        return (
            address % 16 == 0
            and self.type in _DATA_TYPES
            and all(0 < s < 1 << 40 and s % 16 == 0 for s in self.strides)
            and all(0 < n <= 1 << 32 for n in self.extents)
            and all(0 < n <= LARGEST_BOX for n in self.reach)
            and not (self.stored and self.extents[0] * self.type.bytes % 16)
        )

    def described(self) -> tuple[bool, int, Ints, Ints, Ints, Ints, int, int]:
        """What the driver is told besides the address: whether one that is a multiple of 16 will
        do, type, extents, strides, box and steps in it, swizzle and promotion.
        """
        if not self.possible(0):
            return (False, 0, (), (), (), (), 0, 0)
        swizzle = _SWIZZLES.get(self.box[0] * self.type.bytes, 0)
        kind = _TF32 if self.rounds else _DATA_TYPES[self.type]
        return (
            True, kind, self.extents, self.strides, self.reach, self.apart, swizzle, self.promotion
        )  # fmt: skip

    def encode(self, address: int) -> bytes | None:
        """The map of the array at ``address``; None if there is none, or no driver that makes
        one.
        """
        function = _encoder()
        if function is None or not self.possible(address):
            return None
        room = ctypes.create_string_buffer(BYTES + _ALIGNMENT)
        start = -ctypes.addressof(room) % _ALIGNMENT
        rank = len(self.extents)
        _, kind, extents, strides, box, steps, swizzle, promotion = self.described()
        status = function(
            ctypes.c_void_p(ctypes.addressof(room) + start),
            kind,
            rank,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*extents),
            (ctypes.c_uint64 * max(rank - 1, 1))(*strides),
            (ctypes.c_uint32 * rank)(*box),
            (ctypes.c_uint32 * rank)(*steps),
            0,  # elements are not interleaved
            swizzle,
            promotion,
            0,  # zeros outside
        )
        return None if status else room.raw[start : start + BYTES]


@cache
def _encoder() -> Callable[..., int] | None:
    """``cuTensorMapEncodeTiled`` of the installed driver; None without one, or with an old one."""
    function = driver_function("cuTensorMapEncodeTiled")
    if function is None:
        return None
    unsigned, pointer = ctypes.c_uint32, ctypes.c_void_p
    arrays = [ctypes.POINTER(ctypes.c_uint64)] * 2 + [ctypes.POINTER(ctypes.c_uint32)] * 2
    function.argtypes = [
        pointer, ctypes.c_int, unsigned, pointer, *arrays, *[ctypes.c_int] * 4
    ]  # fmt: skip
    function.restype = ctypes.c_int
    return function
