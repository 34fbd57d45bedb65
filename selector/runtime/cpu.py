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

from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError, ArtifactError, InternalError, TargetError
from selector.runtime import host
from selector.runtime.arrays import HOST, Library, is_array, view
from selector.runtime.driver import Function, Grid, Making, Recorded, StreamKey, T
from selector.runtime.execute import CALLS_AT_MOST, Executable
from selector.runtime.launches import remember
from selector.runtime.plan import Plan, ValueArgument
from selector.runtime.prepare import Prepared
from selector.runtime.tensor_map import TensorMap

_CACHE_LINE = 64
_C_TYPES: dict[str, Any] = {
    "uint1": ctypes.c_bool, "float16": ctypes.c_uint16, "bfloat16": ctypes.c_uint16,
    "float32": ctypes.c_float, "float64": ctypes.c_double,
    **{f"{sign}int{bits}": getattr(ctypes, f"c_{sign}int{bits}")
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_MEMORY = (
    "there is not enough memory for the kernel's temporaries",
    "",
    "split the call along an outer axis, or compute intermediates in tiles",
)


class CpuDriver:
    """``Driver`` over host memory. A module is a loaded shared object."""

    def capability(self, device: int) -> int:
        return 0

    def multiprocessors(self, device: int) -> int:
        return 1

    def current_device(self) -> int:
        return HOST

    def signature(self, value: Any) -> Hashable:
        """None for what has to be copied, or is no array at all."""
        if type(value) is np.ndarray:
            flags = value.flags
            if not (
                (flags.c_contiguous and value.size)
                or _rows_in_order(value.shape, value.strides, value.itemsize)
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

    def stream_key(self, stream: Any) -> StreamKey:
        return (0, 0)

    def capturing(self, stream: Any) -> bool:
        return False

    def relaxed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def capture_key(self, stream: Any) -> Hashable:
        raise AssertionError("calls on the CPU are not recorded")

    def hold(self, stream: Any, owner: object) -> None:
        raise AssertionError("calls on the CPU are not recorded")

    def active(self, device: int, stream: Any) -> AbstractContextManager[Any]:
        return nullcontext()

    def allocation(
        self, shape: tuple[int, ...], dtype: str, library: Library, device: int
    ) -> Making:
        return self.empty, (shape, dtype), {}

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """NumPy's own arrays lie at multiples of 16 bytes, where every row of a tile would cross a
        cache line.
        """
        kind = np.dtype(np.uint16) if dtype == "bfloat16" else np.dtype(dtype)
        count = math.prod(shape) * kind.itemsize
        room = np.empty(count + _CACHE_LINE, np.uint8)
        first = -room.ctypes.data % _CACHE_LINE
        return room[first : first + count].view(kind).reshape(shape)

    def zeros(self, size: int, library: Library, device: int) -> Any:
        return np.zeros(size, np.uint8)

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        copy = self.empty(array.shape, array.dtype.name)
        copy[...] = array
        return copy

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        return host.to_upload(value)

    def tensor_map(self, shape: TensorMap, address: int) -> Any | None:
        return None

    def apart(self, device: int, work: Callable[[Any], T]) -> T:
        raise AssertionError("calls on the CPU are not recorded")

    def capture(self, device: int, record: Callable[[Any], None]) -> Recorded:
        raise AssertionError("Kernel.graph refuses kernels for the CPU")

    def native(self) -> None:
        return None  # ctypes converts the arguments

    def failed(self, status: int) -> Exception:
        return InternalError(f"a kernel on the CPU ended with status {status}")

    def failure(self, stream: Any) -> str:
        return ""  # calls return when they are done

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
        return HostFunction(function)

    def early(self, function: Function) -> Function:
        return function


class HostFunction:
    """An entry point, called with addresses and plain numbers; ``raw`` is ctypes'."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __call__(
        self, grid: Grid, block: Grid, args: Sequence[Any], shared_bytes: int, stream: Any
    ) -> None:
        if self.raw(*args):
            raise TargetError(*_MEMORY)


def _plain(value: Any) -> Any:
    """A NumPy scalar as a number that ctypes converts; float16 as its bits."""
    return int(value.view(np.uint16)) if type(value) is np.float16 else value.item()


def _rows_in_order(shape: Sequence[int], strides: Sequence[int], unit: int) -> bool:
    """Whether the last axis is dense and all others run forwards."""
    steps = [(n, s) for n, s in zip(shape, strides, strict=True) if n > 1]
    if any(s < 0 for _, s in steps):
        return False
    return not shape or shape[-1] <= 1 or strides[-1] == unit


@dataclass(frozen=True, slots=True)
class HostCall:
    """What all calls of one signature share: values with holes for ``addresses`` and
    ``scalars`` (position, index).
    """

    prepared: Prepared
    function: Any
    values: list[Any]
    addresses: tuple[tuple[int, int], ...]
    scalars: tuple[tuple[int, int], ...]


class CpuExecutable(Executable):
    """A plan with its shared object. ``library`` is asked once."""

    def __init__(self, plan: Plan, library: Callable[[], bytes]) -> None:
        super().__init__(plan, library, CpuDriver())
        self._calls: dict[Hashable, HostCall] = {}

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
        for buffer, value in zip(self._signature.arrays, arrays + (outs or []), strict=False):
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
        """As for a device, with the arguments of a signature converted once."""
        plain = [_plain(n) for n in numbers]
        key = (signatures, outs is None, None if sizes is None else repr(sizes), tuple(plain)
               if self._sizes_use_scalars else None)  # fmt: skip
        call = self._calls.get(key)
        if call is None:
            call = self._call(self._prepare(arrays, numbers, outs, sizes))
            remember(self._calls, key, call, CALLS_AT_MOST)
        if stream is not None:
            self._driver.stream(stream, arrays)
        results = self._allocate(call.prepared) if outs is None else outs
        addresses = list(map(self._driver.pointer, arrays + results))
        if outs is not None:
            self._check_overlap(call.prepared.spans, addresses)
        values = list(call.values)
        for position, index in call.addresses:
            values[position] = addresses[index]
        for position, index in call.scalars:
            values[position] = plain[index]
        if call.function(*values):
            raise TargetError(*_MEMORY)
        if outs is not None:
            return outs
        pairs = zip(self._signature.outputs, results, strict=True)
        return [host.to_result(buffer, value, arrays) for buffer, value in pairs]

    def _call(self, prepared: Prepared) -> HostCall:
        """The one launch of a plan, ready for addresses and scalars."""
        (launch,), (planned,) = prepared.launches, self.plan.launches
        function = launch.function
        assert isinstance(function, HostFunction)
        function.raw.argtypes = [
            _C_TYPES[str(a.type)] if isinstance(a, ValueArgument) else ctypes.c_void_p
            for a in planned.arguments
        ]
        values = [v if type(v) is int else _plain(v) for v in launch.template]
        return HostCall(prepared, function.raw, values, launch.addresses, launch.scalars)
