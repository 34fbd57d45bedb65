"""Arrays of the host on their way to a device and back: NumPy arrays and torch tensors on the CPU.

Host arrays are copied anyway, so any strides will do. bfloat16 travels as its uint16 bits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from selector.ir.nodes import BufferParam
from selector.ir.types import Kind
from selector.runtime.arrays import HOST, ArrayView, Library, is_torch, of_dlpack, view

Array = np.ndarray[Any, Any]


def to_upload(array: Any) -> Array:
    """The values of a host array as a contiguous NumPy array of a plain dtype."""
    if is_torch(array):
        torch = sys.modules["torch"]
        tensor = array.detach().contiguous()
        if tensor.dtype is torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(np.uint16)
        return tensor.numpy()
    if not hasattr(array, "__array_interface__"):
        array = of_dlpack("", array)
    values = np.ascontiguousarray(array)
    return values.view(np.uint16) if values.dtype.name == "bfloat16" else values


def to_host(name: str, array: Any) -> Array:
    """The values of any array as a contiguous NumPy array; device arrays are copied back."""
    if is_torch(array):
        return to_upload(array.detach().cpu())
    if hasattr(array, "__cuda_array_interface__") and hasattr(array, "get"):  # CuPy
        return to_upload(array.get())
    view(name, array)
    return to_upload(array)


def result_library(views: Iterable[ArrayView]) -> Library:
    """Whose arrays the results of a call are: torch's if any argument is, else CuPy's, else
    NumPy's.
    """
    libraries = {v.library for v in views}
    for library in (Library.TORCH, Library.CUPY):
        if library in libraries:
            return library
    return Library.NUMPY


def to_result(buffer: BufferParam, values: Array, inputs: Sequence[Any]) -> Any:
    """Downloaded values as the kind of array that host inputs were."""
    if any(is_torch(a) for a in inputs):
        return _as_tensor(buffer, values)
    if buffer.type.kind is Kind.BFLOAT:
        for array in inputs:
            dtype = getattr(array, "dtype", None)
            if dtype is not None and dtype.name == "bfloat16":
                return values.view(dtype)
    return values


def assign(buffer: BufferParam, out: Any, values: Array) -> None:
    """Write downloaded values into the user's host array, whatever its strides."""
    if is_torch(out):
        out.copy_(_as_tensor(buffer, values))
    else:
        target = np.asarray(out)
        target[...] = values.view(target.dtype)


def all_on_host(views: Iterable[ArrayView]) -> bool:
    return all(v.device == HOST for v in views)


def views_of(buffers: Sequence[BufferParam], arrays: Sequence[Any]) -> dict[str, ArrayView]:
    """What the runtime sees of arrays, by the names of their buffers."""
    return {b.name: view(b.name, a) for b, a in zip(buffers, arrays, strict=True)}


def _as_tensor(buffer: BufferParam, values: Array) -> Any:
    torch = sys.modules["torch"]
    if buffer.type.kind is Kind.BFLOAT:
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)
