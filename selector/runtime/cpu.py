"""Running a plan on the CPU: the shared object through ctypes, arrays in place.

``CpuDriver`` is a ``Driver`` whose device is the host, so that ``execute.Executable`` does the
checks and keeps the prepared calls. An array that a kernel cannot read where it lies (it runs
backwards, its last axis is not the innermost) is copied on the way in, and on the way out.
"""

from __future__ import annotations

import ctypes
import math
import os
import tempfile
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from selector.diagnostics import ArgumentError, ArtifactError, TargetError
from selector.runtime import host
from selector.runtime.arrays import HOST, Library, is_array, view
from selector.runtime.driver import Function, Grid
from selector.runtime.execute import Executable
from selector.runtime.plan import Plan
from selector.runtime.prepare import Prepared

_CACHE_LINE = 64
_C_TYPES: dict[type[Any], Any] = {
    np.bool_: ctypes.c_bool, np.float32: ctypes.c_float, np.float64: ctypes.c_double,
    np.int8: ctypes.c_int8, np.int16: ctypes.c_int16, np.int32: ctypes.c_int32,
    np.int64: ctypes.c_int64, np.uint8: ctypes.c_uint8, np.uint16: ctypes.c_uint16,
    np.uint32: ctypes.c_uint32, np.uint64: ctypes.c_uint64,
}  # fmt: skip


class CpuDriver:
    """``Driver`` over host memory. A module is a loaded shared object."""

    def capability(self, device: int) -> int:
        return 0

    def current_device(self) -> int:
        return HOST

    def signature(self, value: Any) -> Hashable:
        """None for what has to be copied, or is no array at all."""
        if type(value) is np.ndarray:
            flags = value.flags
            if not (
                flags.c_contiguous or _rows_in_order(value.shape, value.strides, value.itemsize)
            ):
                return None
            return (value.shape, value.strides, value.dtype, flags.writeable)
        if not is_array(value):
            return None
        seen = view("", value)
        if seen.device != HOST or not _rows_in_order(seen.shape, seen.strides, 1):
            return None
        return (seen.library, seen.shape, seen.strides, seen.dtype, seen.writable)

    def pointer(self, value: Any) -> int:
        if type(value) is np.ndarray:
            return value.__array_interface__["data"][0]
        return view("", value).pointer

    def stream(self, given: Any, arrays: Sequence[Any]) -> Any:
        if given is not None:
            raise ArgumentError(
                "stream= has no meaning for a kernel that runs on the CPU",
                hint="leave it out: the call returns when the result is there",
            )
        return None

    def stream_key(self, stream: Any) -> Hashable:
        return None

    def active(self, device: int, stream: Any) -> AbstractContextManager[Any]:
        return nullcontext()

    def empty(self, shape: tuple[int, ...], dtype: str, library: Library, device: int) -> Any:
        """NumPy's own arrays lie at multiples of 16 bytes, where every row of a tile would cross a
        cache line.
        """
        kind = np.dtype(np.uint16) if dtype == "bfloat16" else np.dtype(dtype)
        count = math.prod(shape) * kind.itemsize
        room = np.empty(count + _CACHE_LINE, np.uint8)
        first = -room.ctypes.data % _CACHE_LINE
        return room[first : first + count].view(kind).reshape(shape)

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        copy = self.empty(array.shape, array.dtype.name, Library.NUMPY, HOST)
        copy[...] = array
        return copy

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        return host.to_upload(value)

    def load(self, cubin: bytes) -> Any:
        """A shared object of this process; ``ArtifactError`` if it is none."""
        handle, path = tempfile.mkstemp(prefix="tensor-selector-", suffix=".so")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(cubin)
            return ctypes.CDLL(path)
        except OSError as error:
            raise ArtifactError(
                "the machine code of a kernel cannot be loaded", why=str(error)
            ) from error
        finally:
            os.unlink(path)  # it stays mapped

    def function(self, module: Any, entry: str, shared_bytes: int) -> Function:
        function = getattr(module, entry)
        function.restype = ctypes.c_int

        def run(
            grid: Grid, block: Grid, args: Sequence[Any], shared_bytes: int, stream: Any
        ) -> None:
            if function(*map(_argument, args)):
                raise TargetError(
                    f"{entry}: there is not enough memory for the kernel's temporaries",
                    hint="split the call along an outer axis, or compute intermediates in tiles",
                )

        return run


def _argument(value: Any) -> Any:
    """An address or a NumPy scalar as C takes it; float16 as its bits."""
    kind = type(value)
    if kind is int:
        return ctypes.c_void_p(value)
    if kind is np.float16:
        return ctypes.c_uint16(int(value.view(np.uint16)))
    return _C_TYPES[kind](value.item())


def _rows_in_order(shape: Sequence[int], strides: Sequence[int], unit: int) -> bool:
    """Whether the last axis is dense and all others run forwards."""
    steps = [(n, s) for n, s in zip(shape, strides, strict=True) if n > 1]
    if any(s < 0 for _, s in steps):
        return False
    return not shape or shape[-1] <= 1 or strides[-1] == unit


class CpuExecutable(Executable):
    """A plan with its shared object. ``library`` is asked once."""

    def __init__(self, plan: Plan, library: Callable[[], bytes]) -> None:
        super().__init__(plan, library, CpuDriver())

    def _prepare(
        self, arrays: list[Any], numbers: list[Any], outs: list[Any] | None, sizes: Any
    ) -> Prepared:
        self._refuse_gpu(arrays, outs)
        return super()._prepare(arrays, numbers, outs, sizes)

    def _run_from_host(
        self, arrays: list[Any], numbers: list[Any], outs: list[Any] | None, stream: Any, sizes: Any
    ) -> list[Any]:
        self._refuse_gpu(arrays, outs)
        return super()._run_from_host(arrays, numbers, outs, stream, sizes)

    def _refuse_gpu(self, arrays: list[Any], outs: list[Any] | None) -> None:
        for buffer, value in zip(self._inputs + self._outputs, arrays + (outs or []), strict=False):
            if hasattr(value, "__cuda_array_interface__"):
                raise ArgumentError(
                    f"{buffer.name} is on a GPU; {self.plan.name} runs on the CPU",
                    hint=f"copy it first: {buffer.name}.get(), or {buffer.name}.cpu() of torch",
                )

    def _run(
        self,
        arrays: list[Any],
        numbers: list[Any],
        outs: list[Any] | None,
        stream: Any,
        sizes: Any,
        signatures: Hashable,
    ) -> list[Any]:
        results = super()._run(arrays, numbers, outs, stream, sizes, signatures)
        if outs is not None:
            return results
        pairs = zip(self._outputs, results, strict=True)
        return [host.to_result(buffer, value, arrays) for buffer, value in pairs]
