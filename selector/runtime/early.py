"""Launches that may start while the kernel before them on the stream still runs.

By themselves, launches of a stream follow each other with an idle GPU in between: the last blocks
of one end, then the first of the next are brought up. With programmatic stream serialization
(CUDA C++ Programming Guide, "Programmatic Dependent Launch") the blocks of a launch come up as soon
as all of the one before have started and there is room; a kernel then waits by itself for what that
one leaves in memory. CUDA graphs keep it. Source: CUDA Driver API, ``cuLaunchKernelEx``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from selector.runtime.driver import Function, Grid
from selector.runtime.libcuda import driver_function

_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CUlaunchAttributeID


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: its value is a union of 64 bytes, here one flag."""

    _fields_ = (
        ("id", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("value", ctypes.c_int32),
        ("rest", ctypes.c_uint8 * 60),
    )


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint32),
    )


_EARLY = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)


class EarlyFunction:
    """An entry point by its handle. Arguments are addresses and NumPy scalars; ``failed`` makes the
    exception for a status of the driver.
    """

    def __init__(self, handle: int, launch: Any, failed: Callable[[int], Exception]) -> None:
        self._handle = ctypes.c_void_p(handle)
        self._launch = launch
        self._failed = failed

    def __call__(
        self, grid: Grid, block: Grid, args: Sequence[Any], shared_bytes: int, stream: Any
    ) -> None:
        held = [np.uint64(a) if isinstance(a, int) else a for a in args]
        rooms = [np.frombuffer(bytearray(a.tobytes()), np.uint8) for a in held]
        pointers = (ctypes.c_void_p * len(rooms))(*(r.ctypes.data for r in rooms))
        config = _Config(
            (ctypes.c_uint32 * 3)(*grid),
            (ctypes.c_uint32 * 3)(*block),
            shared_bytes,
            stream.ptr,
            ctypes.pointer(_EARLY),
            1,
        )
        status = self._launch(ctypes.byref(config), self._handle, pointers, None)
        if status:
            raise self._failed(status)


def early_function(handle: int, failed: Callable[[int], Exception]) -> Function | None:
    """The entry point with that handle (CUfunction); None if the driver cannot launch it so."""
    launch = _launcher()
    return None if launch is None else EarlyFunction(handle, launch, failed)


@cache
def _launcher() -> Any | None:
    function = driver_function("cuLaunchKernelEx")
    if function is not None:
        function.argtypes = [ctypes.c_void_p] * 4
        function.restype = ctypes.c_int
    return function
