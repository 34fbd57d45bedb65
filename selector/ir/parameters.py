"""Arrays of a caller as flat memory with the strides that a module expects, and the variables they
define.

NumPy's last axis is dimension 0. A buffer's memory is laid out densely, or with the constant
strides that the module declares; inputs are copied only where they are not laid out so already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError
from selector.ir.arithmetic import Array, dtype_of, poisoned, storage_dtype
from selector.ir.module import Module
from selector.ir.nodes import BufferParam, Dim, IntImm, Role, Var
from selector.ir.types import Kind, Type


@dataclass(slots=True)
class Parameter:
    """``flat`` is the memory; ``view`` sees it with the caller's shape; ``array`` is the caller's
    own."""

    element: Type
    flat: Array
    view: Array
    array: Array | None

    def finish(self) -> Array:
        """The caller's array with what was written, or the memory in the caller's shape."""
        if self.array is None:
            return self.view
        if not np.shares_memory(self.array, self.flat):
            self.array[...] = self.view.view(self.array.dtype)
        return self.array


def bind_parameters(
    module: Module,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, object],
    sizes: Mapping[str, tuple[int, ...]],
    outputs: Mapping[str, Array],
) -> tuple[dict[str, Parameter], dict[str, Array]]:
    """Memory by buffer, and variables (1, 1) by name: scalars, extents, strides and mins."""
    known = {b.name for b in module.buffers}
    for name in (*arrays, *outputs, *sizes):
        if name not in known:
            raise ArgumentError(f"`{name}` is no buffer of `{module.name}`", hint=", ".join(known))
    parameters: dict[str, Parameter] = {}
    variables: dict[str, Array] = {}
    for b in module.buffers:
        array = _given(b, arrays, outputs)
        shape = _shape(b, sizes) if array is None else array.shape
        strides = _strides(b, shape)
        parameters[b.name] = _memory(b, array, shape, strides)
        _bind_dims(b, shape, strides, variables)
    for s in module.scalars:
        if s.name not in scalars:
            raise ArgumentError(f"the scalar `{s.name}` is missing")
        variables[s.name] = np.array([[scalars[s.name]]]).astype(dtype_of(s.type))
    return parameters, variables


def _given(
    b: BufferParam, arrays: Mapping[str, Array], outputs: Mapping[str, Array]
) -> Array | None:
    array = outputs.get(b.name, arrays.get(b.name))
    if array is None:
        if b.role is Role.INPUT:
            raise ArgumentError(f"the input `{b.name}` is missing")
        return None
    expected = storage_dtype(b.type)
    same = array.dtype == expected or (b.type.is_bool and array.dtype == np.uint8)
    if not same and not (b.type.kind is Kind.BFLOAT and array.dtype.name == "bfloat16"):
        raise ArgumentError(f"`{b.name}` wants elements of {b.type}, found {array.dtype}")
    if array.ndim != len(b.dims):
        raise ArgumentError(f"`{b.name}` has {len(b.dims)} dimensions, found {array.ndim}")
    return array


def _shape(b: BufferParam, sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of an output that is not given, NumPy's order."""
    if b.name in sizes:
        shape = tuple(sizes[b.name])
        if len(shape) != len(b.dims):
            raise ArgumentError(f"`{b.name}` has {len(b.dims)} dimensions, sizes say {shape}")
        return shape
    extents = [d.extent.value for d in reversed(b.dims) if isinstance(d.extent, IntImm)]
    if len(extents) != len(b.dims):
        raise ArgumentError(
            f"the size of the output `{b.name}` is not fixed",
            hint=f"pass sizes={{'{b.name}': shape}}, or the array itself",
        )
    return tuple(extents)


def _strides(b: BufferParam, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from one index to the next, innermost dimension first."""
    strides: list[int] = []
    dense = 1
    for d, extent in zip(b.dims, reversed(shape), strict=True):
        stride = d.stride.value if isinstance(d.stride, IntImm) else dense
        strides.append(stride)
        dense = stride * extent
    return tuple(strides)


def _memory(
    b: BufferParam, array: Array | None, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Parameter:
    dtype = storage_dtype(b.type)
    raw = None if array is None else _raw(array, dtype)
    if raw is not None and raw.flags.c_contiguous and strides == _dense(shape):
        return Parameter(b.type, raw.reshape(-1), raw, array)
    extents = tuple(reversed(shape))
    size = (
        1 + sum((n - 1) * s for n, s in zip(extents, strides, strict=True))
        if raw is None or raw.size
        else 0
    )
    size = 0 if 0 in shape else size
    flat = poisoned((size,), dtype)
    steps = tuple(s * dtype.itemsize for s in reversed(strides))
    view: Array = np.lib.stride_tricks.as_strided(flat, shape, steps)
    if raw is not None:
        view[...] = raw
    return Parameter(b.type, flat, view, array)


def _raw(array: Array, dtype: np.dtype[Any]) -> Array:
    """The caller's array under the type that memory has: bfloat16 as its bits, uint8 as
    booleans."""
    return array if array.dtype == dtype else array.view(dtype)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    total = 1
    for extent in reversed(shape):
        strides.append(total)
        total *= extent
    return tuple(strides)


def _bind_dims(
    b: BufferParam, shape: tuple[int, ...], strides: tuple[int, ...], variables: dict[str, Array]
) -> None:
    for k, d in enumerate(b.dims):
        extent = shape[-1 - k]
        _check_extent(b, k, d, extent)
        low = d.min.value if isinstance(d.min, IntImm) else 0
        for field, expr, value in (
            ("min", d.min, low),
            ("extent", d.extent, extent),
            ("stride", d.stride, strides[k]),
        ):
            number = np.array([[value]], np.int32)
            variables[f"{b.name}.{field}.{k}"] = number
            if isinstance(expr, Var):
                variables[expr.name] = number


def _check_extent(b: BufferParam, k: int, d: Dim, extent: int) -> None:
    if isinstance(d.extent, IntImm) and d.extent.value != extent:
        raise ArgumentError(
            f"dimension {k} of `{b.name}` has {extent} elements, not {d.extent.value}",
            hint="the last axis of an array is dimension 0",
        )
