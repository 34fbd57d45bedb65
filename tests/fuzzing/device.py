"""Kernels on a GPU whose memory holds poison; needs NumPy and CuPy only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from casestudies.measuring.poison import NAN, poison

Array = np.ndarray[Any, Any]
CHUNK = 16  # bytes


def run_on_device(
    kernel: Any, arrays: Mapping[str, Array], scalars: Mapping[str, Any], shape: Any,
    byte: int | None = NAN,
) -> list[Array]:  # fmt: skip
    """The outputs of a kernel, after poison (``byte`` None: without it)."""
    import cupy

    if byte is not None:
        cupy.get_default_memory_pool().free_all_blocks()
        poison(byte)
    held = {name: _held(np.ascontiguousarray(a)) for name, a in arrays.items()}
    found = kernel(**held, **scalars, sizes=shape)
    cupy.cuda.runtime.deviceSynchronize()
    return [one.get() for one in outputs(found)]


def outputs(found: Any) -> list[Any]:
    """One array, several, or several by name, as several in their order."""
    if isinstance(found, Mapping):
        return list(found.values())
    return found if isinstance(found, list) else [found]


def _held(array: Array) -> Any:
    """An array on the device whose memory is whole chunks, all of which is written: kernels read
    the chunk that holds its last element as one and drop what lies behind, which is no more than
    any allocation has, but memcheck counts bytes and initcheck asks who wrote them.
    """
    import cupy

    size = -(-array.nbytes // CHUNK) * CHUNK
    room = cupy.cuda.alloc(size)
    room.memset(0xFF, size)
    made = cupy.ndarray(array.shape, array.dtype, room)
    made.set(array)
    return made
