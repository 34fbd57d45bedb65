"""What the runtime sees of a user's array: kind, element type, shape, strides and address.

NumPy, CuPy and torch arrays, and everything else with ``__cuda_array_interface__`` or
``__array_interface__``, are read through attributes, others of the CPU through DLPack; neither CuPy
nor torch is imported here.
Shapes and strides are in the library's order (last axis innermost); strides are in elements.
"""

from __future__ import annotations

import sys
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError
from selector.ir.types import Kind, Type

HOST = -1
_DLPACK_CPU = 1  # of DLPack's kinds of devices
_INTERFACES = ("__cuda_array_interface__", "__array_interface__", "__dlpack_device__")


class Library(Enum):
    """Whose array it is; results come back as the same kind."""

    NUMPY = "numpy"
    CUPY = "cupy"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class ArrayView:
    """One array. ``device`` is the index of its GPU, or ``HOST``; ``dtype`` is a name such as
    ``float16``.
    """

    library: Library
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: int
    device: int
    writable: bool = True

    @property
    def elements(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def byte_range(self, itemsize: int) -> tuple[int, int]:
        """The half-open range of addresses that the elements lie in; empty for an empty array."""
        if self.elements == 0:
            return (self.pointer, self.pointer)
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = sum(min(s, 0) for s in steps)
        high = sum(max(s, 0) for s in steps) + 1
        return (self.pointer + low * itemsize, self.pointer + high * itemsize)


def is_array(value: object) -> bool:
    """Whether ``value`` is something that ``view`` can read."""
    return is_torch(value) or any(hasattr(value, name) for name in _INTERFACES)


def is_torch(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def view(name: str, array: Any) -> ArrayView:
    """Read one array; ``ArgumentError`` naming the parameter if it is none."""
    if isinstance(array, np.ndarray):
        return _numpy_view(name, array)
    if is_torch(array):
        return _torch_view(array)
    if hasattr(array, "__cuda_array_interface__"):
        return _cuda_view(name, array)
    if hasattr(array, "__array_interface__"):
        return _numpy_view(name, np.asarray(array))
    if hasattr(array, "__dlpack_device__"):
        return _numpy_view(name, of_dlpack(name, array))
    raise ArgumentError(
        f"{name}: expected an array, got {type(array).__name__}",
        why="NumPy, CuPy and torch arrays, and what has __cuda_array_interface__ or DLPack, are "
        "understood",
        hint=f"convert it first: numpy.asarray({name}, dtype=...)",
    )


def of_dlpack(name: str, array: Any) -> np.ndarray:
    """An array of another library, on the CPU and in place; types that NumPy has no name for as
    that library converts them. ``ArgumentError`` if it is elsewhere.
    """
    if array.__dlpack_device__()[0] != _DLPACK_CPU:
        raise ArgumentError(
            f"{name}: {type(array).__name__} is on a device, and has no __cuda_array_interface__",
            hint=f"convert it first: cupy.from_dlpack({name})",
        )
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError):
        return np.asarray(array)


@cache
def accepted_dtypes(element: Type) -> tuple[str, ...]:
    """The dtype names that may carry elements of that type; bfloat16 may come as uint16 bits."""
    if element.kind is Kind.BFLOAT:
        return ("bfloat16", "uint16")
    return ("bool",) if element.is_bool else (str(element.element),)


@cache
def numpy_dtype(element: Type) -> np.dtype[Any]:
    """The NumPy dtype that carries elements of that type; bfloat16 is uint16."""
    return np.dtype(accepted_dtypes(element)[-1])


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous array of that shape, last axis innermost, in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _numpy_view(name: str, array: np.ndarray[Any, Any]) -> ArrayView:
    strides = _element_strides(name, array.shape, array.strides, array.dtype.itemsize)
    dtype = array.dtype.name if array.dtype.isnative else f"byte-swapped {array.dtype.name}"
    pointer = array.__array_interface__["data"][0]
    return ArrayView(
        Library.NUMPY, dtype, array.shape, strides, pointer, HOST, array.flags.writeable
    )


def _torch_view(tensor: Any) -> ArrayView:
    shape = tuple(tensor.shape)
    return ArrayView(
        Library.TORCH,
        str(tensor.dtype).removeprefix("torch."),
        shape,
        _element_strides("", shape, tuple(tensor.stride()), 1),
        tensor.data_ptr(),
        tensor.device.index if tensor.device.type == "cuda" else HOST,
    )


def _cuda_view(name: str, array: Any) -> ArrayView:
    interface = array.__cuda_array_interface__
    shape = tuple(interface["shape"])
    named = getattr(array, "dtype", None)  # bfloat16 has no code in the interface
    dtype = named if isinstance(named, np.dtype) else np.dtype(interface["typestr"])
    strides = interface.get("strides")
    if strides is None:
        steps = dense_strides(shape)
    else:
        steps = _element_strides(name, shape, tuple(strides), dtype.itemsize)
    pointer, read_only = interface["data"]
    return ArrayView(
        Library.CUPY, dtype.name, shape, steps, pointer, _device_index(array), not read_only
    )


def _device_index(array: Any) -> int:
    device = getattr(array, "device", None)
    return int(getattr(device, "id", 0))


def _element_strides(
    name: str, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, ...]:
    """Byte strides in elements; an axis of one element or none has no stride of its own."""
    dense = dense_strides(shape)
    result: list[int] = []
    for extent, stride, normal in zip(shape, strides, dense, strict=True):
        if extent <= 1:
            result.append(normal)
        elif stride % itemsize:
            raise ArgumentError(
                f"{name}: its rows lie {stride} bytes apart, no multiple of {itemsize} bytes",
                hint="pass a contiguous copy",
            )
        else:
            result.append(stride // itemsize)
    return tuple(result)
