"""Calling a stock Halide library (``casestudies.common.stock``) on GPU arrays, with ctypes alone.

Device pointers are wrapped in ``halide_buffer_t`` (HalideRuntime.h of Halide 21), and Halide's
runtime is given CuPy's context and current stream, so that its launches can be timed by events and
captured in a CUDA graph.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from casestudies.common.case import Arrays, Problem

Call = Callable[[], None]
_LIMIT = "HL_CUDA_JIT_MAX_REGISTERS"
DEVICE_DIRTY = 1 << 1
# halide_type_code_t and bits of an element.
_TYPES = {
    "f16": (2, 16), "bf16": (4, 16), "f32": (2, 32), "s8": (0, 8), "u8": (1, 8), "s32": (0, 32),
}  # fmt: skip


class Dimension(ctypes.Structure):
    _fields_ = (
        ("min", ctypes.c_int32),
        ("extent", ctypes.c_int32),
        ("stride", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


class ElementType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Buffer(ctypes.Structure):
    """``halide_buffer_t``."""

    _fields_ = (
        ("device", ctypes.c_uint64),
        ("device_interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("type", ElementType),
        ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(Dimension)),
        ("padding", ctypes.c_void_p),
    )


_ACQUIRE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_bool
)
_RELEASE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_STREAM = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
)
_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)


def _describe(array: Any, element: str) -> Buffer:
    """A buffer with the extents and strides of an array, without its address."""
    size = array.dtype.itemsize
    dims = (Dimension * array.ndim)(
        *(
            Dimension(0, extent, stride // size, 0)
            for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True)
        )
    )
    code, bits = _TYPES[element]
    return Buffer(type=ElementType(code, bits, 1), dimensions=array.ndim, dim=dims)


class StockLibrary:
    """A loaded baseline. ``RuntimeError`` with Halide's message if a call fails."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._errors: list[str] = []
        self._kept: list[Any] = []
        self._called = False
        self.registers = ctypes.c_int.in_dll(self._library, "stock_registers").value
        self._install("halide_set_error_handler", _ERROR(self._record))

    def _record(self, _: int | None, message: bytes) -> None:
        self._errors.append(message.decode(errors="replace"))

    def use_cupy(self) -> None:
        """Make Halide's runtime launch in CuPy's context, on CuPy's current stream."""
        import cupy

        cupy.zeros(1)
        context = cupy.cuda.driver.ctxGetCurrent()

        def acquire(_: int | None, out: Any, create: bool) -> int:
            out[0] = context
            return 0

        def stream(_: int | None, ctx: int | None, out: Any) -> int:
            out[0] = cupy.cuda.get_current_stream().ptr
            return 0

        self._install("halide_set_cuda_acquire_context", _ACQUIRE(acquire))
        self._install("halide_set_cuda_release_context", _RELEASE(lambda _: 0))
        self._install("halide_set_cuda_get_stream", _STREAM(stream))

    def _install(self, setter: str, handler: Any) -> None:
        """Set one of the runtime's handlers; its own comes back before Python ends, and with it
        ours.
        """
        function = getattr(self._library, setter)
        function.restype, function.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
        before = function(ctypes.cast(handler, ctypes.c_void_p))
        self._kept.append(handler)
        atexit.register(function, before)

    def bind(self, order: Sequence[str], problem: Problem, inputs: Arrays, output: Any) -> Call:
        """A call without arguments over CuPy or NumPy arrays; ``order`` names the inputs as they
        are passed.
        """
        arrays = [*(inputs[name] for name in order), output]
        elements = {spec.name: spec.element for spec in problem.inputs}
        kinds = [*(elements[name] for name in order), problem.output.element]
        buffers = [_describe(a, kind) for a, kind in zip(arrays, kinds, strict=True)]
        for array, buffer in zip(arrays, buffers, strict=True):
            if hasattr(array, "ctypes"):
                buffer.host = array.ctypes.data
            else:
                wrap = self._library.halide_cuda_wrap_device_ptr
                self._check(wrap(None, ctypes.byref(buffer), ctypes.c_uint64(array.data.ptr)))
                buffer.flags = DEVICE_DIRTY
        references = [ctypes.byref(buffer) for buffer in buffers]
        entry = self._library.stock_pipeline

        def call() -> None:
            if not self._called:
                self._limit_registers()
            self._check(entry(*references))

        call.keep = (arrays, buffers)  # type: ignore[attr-defined]
        return call

    def _limit_registers(self) -> None:
        """Before the first call, in which the library's own copy of Halide's runtime compiles its
        kernels and reads the limit.

        Halide's own 64 registers a thread would spill what schedules keep in registers; more than
        blocks of this library have room for would keep them from being launched.
        """
        os.environ[_LIMIT] = str(self.registers)
        self._called = True

    def _check(self, code: int) -> None:
        if code:
            message = "; ".join(self._errors) or f"error {code}"
            self._errors.clear()
            raise RuntimeError(f"stock Halide: {message}")
