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
from typing import TYPE_CHECKING, Any

import numpy as np

from selector.diagnostics import ArgumentError, TargetError
from selector.runtime import capture, libcuda
from selector.runtime.arrays import Library, is_torch
from selector.runtime.driver import Driver, Function, Making, Recorded, StreamKey, T
from selector.runtime.early import early_function
from selector.runtime.libcuda import native_module
from selector.runtime.tensor_map import BYTES, TensorMap

if TYPE_CHECKING:
    from selector.runtime import _launch

_INTERPRET = "kernel.interpret(...) runs the selected program on any machine"
_MAP = np.dtype((np.void, BYTES))  # CuPy passes such a scalar by value
_CAPTURE_IMPLICIT = 906  # cudaErrorStreamCaptureImplicit
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
    return CupyDriver(cupy, native_libraries(cupy))


def native_libraries(cupy: Any) -> _launch.Libraries | None:
    """How ``_launch`` reads CuPy's arrays; None where it was not built, or this driver is too old
    for it.
    """
    module = native_module()
    if module is None:
        return None
    current = cupy.cuda.get_current_stream
    try:
        return module.Libraries(libcuda.NAME, cupy.ndarray, current, np.floating, np.integer)
    except OSError:
        return None


class CupyDriver:
    """``Driver`` over CuPy's modules, streams and memory pool."""

    def __init__(self, cupy: Any, native: _launch.Libraries | None = None) -> None:
        self._cupy = cupy
        self._ndarray: type[Any] = cupy.ndarray
        self._native = native

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
            for array in arrays:
                if is_torch(array) and array.is_cuda:
                    current = sys.modules["torch"].cuda.current_stream(array.device)
                    return _Stream(current.cuda_stream)
            return self._cupy.cuda.get_current_stream(self._device_of(arrays))
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

    def stream_key(self, stream: Any) -> StreamKey:
        return (stream.ptr, threading.get_ident() if stream.ptr == _PER_THREAD else 0)

    def capturing(self, stream: Any) -> bool:
        runtime = self._cupy.cuda.runtime
        try:
            return bool(runtime.streamIsCapturing(stream.ptr))
        except runtime.CUDARuntimeError as error:
            if error.status != _CAPTURE_IMPLICIT:
                raise
            raise ArgumentError(
                "the call is on the default stream, and another stream is being captured",
                why="work on the default stream waits for all others, which a graph cannot hold",
                hint="pass the stream that is captured as stream=, or make it the current one "
                "of the arrays' library",
            ) from error

    def relaxed(self) -> AbstractContextManager[None]:
        return capture.relaxed()

    def capture_key(self, stream: Any) -> Hashable:
        return (capture.number_of(stream.ptr), self.stream_key(stream))

    def hold(self, stream: Any, owner: object) -> None:
        capture.hold(stream.ptr, owner)

    def active(self, device: int, stream: Any) -> AbstractContextManager[Any]:
        current = self._cupy.cuda.get_current_stream().ptr
        if current == stream.ptr and self.current_device() == device:
            return nullcontext()
        stack = ExitStack()
        stack.enter_context(self._cupy.cuda.Device(device))
        stack.enter_context(self._cupy.cuda.Stream.from_external(_Stream(stream.ptr)))
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            now = torch.cuda.current_stream(device)
            if now.cuda_stream != stream.ptr:
                now = torch.cuda.ExternalStream(stream.ptr, device)
            stack.enter_context(torch.cuda.stream(now))
        return stack

    def allocation(
        self, shape: tuple[int, ...], dtype: str, library: Library, device: int
    ) -> Making:
        if library is Library.TORCH:
            torch = sys.modules["torch"]
            named = {"dtype": getattr(torch, dtype), "device": torch.device("cuda", device)}
            return torch.empty, (shape,), named
        return self._ndarray, (shape, np.dtype(dtype)), {}

    def zeros(self, size: int, library: Library, device: int) -> Any:
        if library is Library.TORCH:
            torch = sys.modules["torch"]
            return torch.zeros(size, dtype=torch.uint8, device=torch.device("cuda", device))
        return self._cupy.zeros((size,), np.uint8)

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        return self._cupy.asarray(array)

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        return self._cupy.asnumpy(value)

    def apart(self, device: int, work: Callable[[Any], T]) -> T:
        with self._cupy.cuda.Device(device):
            stream = self._cupy.cuda.Stream(non_blocking=True)
            with self.active(device, stream):
                result = work(stream)
            stream.synchronize()
        return result

    def capture(self, device: int, record: Callable[[Any], None]) -> Recorded:
        with self._cupy.cuda.Device(device):
            stream = self._cupy.cuda.Stream(non_blocking=True)
            stream.begin_capture()
            try:
                record(stream)
            except BaseException:
                with suppress(Exception):
                    stream.end_capture()
                raise
            return stream.end_capture()

    def native(self) -> _launch.Libraries | None:
        if self._native is None:
            return None
        torch = sys.modules.get("torch")
        current = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        if torch is not None and current is not None:
            self._native.torch(torch.Tensor, current)
        return self._native

    def failed(self, status: int) -> Exception:
        return self._cupy.cuda.driver.CUDADriverError(status)

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
        return early_function(handle.ptr, self.failed) or function

    def tensor_map(self, shape: TensorMap, address: int) -> Any | None:
        made = shape.encode(address)
        return None if made is None else np.frombuffer(made, _MAP)[0]

    def _device_of(self, arrays: Sequence[Any]) -> int:
        """The device of the first array that is on one; else the current one."""
        for array in arrays:
            if type(array) is self._ndarray:
                return array.data.device_id
            interface = getattr(array, "__cuda_array_interface__", None)
            if interface is not None:
                return self._device_at(interface["data"][0])
        return self.current_device()

    def _device_at(self, pointer: int) -> int:
        """The device that an address lies on; 0 for none."""
        return self._cupy.cuda.runtime.pointerGetAttributes(pointer).device if pointer else 0
