"""NVIDIA GPUs through CuPy. The only module that imports CuPy.

CuPy loads cubins, launches kernels and owns memory; nothing is compiled here. torch is used only
for tensors that are torch's, and only if the user has imported it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import cache
from typing import Any

import numpy as np

from selector.diagnostics import ArgumentError, TargetError
from selector.runtime.arrays import Library, is_torch
from selector.runtime.driver import Driver, Function, Recorded
from selector.runtime.early import early_function
from selector.runtime.tensor_map import BYTES, TensorMap

_INTERPRET = "kernel.interpret(...) runs the selected program on any machine"
_MAP = np.dtype((np.void, BYTES))  # CuPy passes such a scalar by value
_PER_THREAD = 2  # the handle that stands for another default stream in each thread
_STATIC_SHARED_LIMIT = 48 * 1024  # more dynamic shared memory than this has to be asked for


class _Stream:
    """A stream given by its handle, in the one form that CuPy's launches look at."""

    __slots__ = ("ptr",)

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.ptr)


@cache
def driver() -> Driver:
    """The driver; ``TargetError`` without CuPy or without a GPU."""
    try:
        import cupy  # pyright: ignore
    except ImportError as error:
        raise TargetError(
            "a CUDA kernel cannot be run here",
            why=f"CuPy cannot be imported ({error})",
            hint=f"pip install tensor-selector[cuda13] (or [cuda12]); {_INTERPRET}",
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        count, why = 0, str(error)
    else:
        why = "CUDA sees no device"
    if count == 0:
        raise TargetError("there is no CUDA GPU here", why=why, hint=_INTERPRET)
    return CupyDriver(cupy)


class CupyDriver:
    """``Driver`` over CuPy's modules, streams and memory pool."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._ndarray: type[Any] = cupy.ndarray

    def capability(self, device: int) -> int:
        return int(self._cupy.cuda.Device(device).compute_capability)

    def multiprocessors(self, device: int) -> int:
        return int(self._cupy.cuda.Device(device).attributes["MultiProcessorCount"])

    def current_device(self) -> int:
        return self._cupy.cuda.runtime.getDevice()

    def signature(self, value: Any) -> Hashable:
        if type(value) is self._ndarray:
            return (value.shape, value.strides, value.dtype, value.data.device_id)
        if is_torch(value):
            if not value.is_cuda:
                return None
            return (value.shape, value.stride(), value.dtype, value.device.index, "torch")
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is None:
            return None
        pointer, read_only = interface["data"]
        layout = (interface["shape"], interface.get("strides"), interface["typestr"])
        return (type(value), layout, read_only, self._device_at(pointer))

    def pointer(self, value: Any) -> int:
        if type(value) is self._ndarray:
            return value.data.ptr
        if is_torch(value):
            return value.data_ptr()
        return value.__cuda_array_interface__["data"][0]

    def stream(self, given: Any, arrays: Sequence[Any]) -> Any:
        if given is None:
            if any(is_torch(a) for a in arrays):
                return _Stream(sys.modules["torch"].cuda.current_stream().cuda_stream)
            return self._cupy.cuda.get_current_stream()
        if hasattr(given, "ptr"):
            return given
        if isinstance(given, int):
            return _Stream(given)
        if hasattr(given, "cuda_stream"):  # torch
            return _Stream(given.cuda_stream)
        if hasattr(given, "__cuda_stream__"):
            return _Stream(given.__cuda_stream__()[1])
        raise ArgumentError(
            f"stream=: expected a stream, got {type(given).__name__}",
            hint="pass a CuPy or torch stream, anything with __cuda_stream__, or its handle",
        )

    def stream_key(self, stream: Any) -> Hashable:
        if stream.ptr == _PER_THREAD:
            return (stream.ptr, threading.get_ident())
        return stream.ptr

    def capturing(self, stream: Any) -> bool:
        return bool(self._cupy.cuda.runtime.streamIsCapturing(stream.ptr))

    def active(self, device: int, stream: Any) -> AbstractContextManager[Any]:
        current = self._cupy.cuda.get_current_stream().ptr
        if current == stream.ptr and self.current_device() == device:
            return nullcontext()
        stack = ExitStack()
        stack.enter_context(self._cupy.cuda.Device(device))
        stack.enter_context(self._cupy.cuda.Stream.from_external(_Stream(stream.ptr)))
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            stack.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr, device)))
        return stack

    def empty(self, shape: tuple[int, ...], dtype: str, library: Library, device: int) -> Any:
        if library is Library.TORCH:
            torch = sys.modules["torch"]
            return torch.empty(shape, dtype=getattr(torch, dtype), device=f"cuda:{device}")
        return self._cupy.empty(shape, np.dtype(dtype))

    def zeros(self, size: int, device: int) -> Any:
        return self._cupy.zeros((size,), np.uint8)

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        return self._cupy.asarray(array)

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        return self._cupy.asnumpy(value)

    def capture(
        self, device: int, before: Callable[[Any], None], record: Callable[[Any], None]
    ) -> Recorded:
        with self._cupy.cuda.Device(device):
            stream = self._cupy.cuda.Stream(non_blocking=True)
            before(stream)
            stream.synchronize()
            stream.begin_capture()
            try:
                record(stream)
            except BaseException:
                with suppress(Exception):
                    stream.end_capture()
                raise
            return stream.end_capture()

    def failure(self, stream: Any) -> str:
        try:
            self._cupy.cuda.runtime.streamSynchronize(stream.ptr)
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            return str(error)
        return ""

    def load(self, cubin: bytes) -> Any:
        module = self._cupy.cuda.function.Module()
        module.load(cubin)
        return module

    def function(self, module: Any, entry: str, shared_bytes: int) -> Function:
        function = module.get_function(entry)
        if shared_bytes > _STATIC_SHARED_LIMIT:
            driver = self._cupy.cuda.driver
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function.ptr, attribute, shared_bytes)
        return function

    def early(self, function: Function) -> Function:
        handle: Any = function
        return early_function(handle.ptr) or function

    def tensor_map(self, shape: TensorMap, address: int) -> Any | None:
        made = shape.encode(address)
        return None if made is None else np.frombuffer(made, _MAP)[0]

    def _device_at(self, pointer: int) -> int:
        """The device that an address lies on; 0 for none."""
        return self._cupy.cuda.runtime.pointerGetAttributes(pointer).device if pointer else 0
