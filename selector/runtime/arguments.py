"""Binding a call's arrays and scalars to the parameters of a plan, with every check that a wrong
call needs.

Nothing here knows a device: the functions work on ``ArrayView``s. Axis order is reversed once, in
``size_of``: the last axis of an array is dimension 0 of a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError
from selector.ir.affine import overrun
from selector.ir.nodes import BufferParam, IntImm, Role, ScalarParam
from selector.ir.types import Kind
from selector.runtime.arrays import (
    HOST,
    ArrayView,
    Library,
    accepted_dtypes,
    dense_strides,
    is_array,
    numpy_dtype,
)
from selector.runtime.plan import Plan
from selector.runtime.sizes import LARGEST, Environment, Size, axis_of, constant_extents

Scalar = np.generic


def parameter_names(plan: Plan) -> tuple[str, ...]:
    """Names of what a call takes, in order: input buffers, then scalars."""
    inputs = (b.name for b in plan.buffers if b.role is Role.INPUT)
    return (*inputs, *(s.name for s in plan.scalars))


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call of a plan takes, by name and in order; the arrays that it reads and writes."""

    names: tuple[str, ...]
    inputs: tuple[BufferParam, ...]
    outputs: tuple[BufferParam, ...]

    @property
    def arrays(self) -> tuple[BufferParam, ...]:
        return self.inputs + self.outputs


def signature_of(plan: Plan) -> Signature:
    return Signature(parameter_names(plan), inputs_of(plan), outputs_of(plan))


def inputs_of(plan: Plan) -> tuple[BufferParam, ...]:
    return tuple(b for b in plan.buffers if b.role is Role.INPUT)


def outputs_of(plan: Plan) -> tuple[BufferParam, ...]:
    return tuple(b for b in plan.buffers if b.role is Role.OUTPUT)


def inputs_then_outputs(plan: Plan) -> tuple[BufferParam, ...]:
    return inputs_of(plan) + outputs_of(plan)


def match_names(plan: Plan, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by parameter name; ``ArgumentError`` for too many, unknown, doubled and missing
    ones.
    """
    names = parameter_names(plan)
    listing = ", ".join(names) or "nothing"
    if len(args) > len(names):
        raise ArgumentError(
            f"{plan.name} takes {len(names)} arguments, got {len(args)}", why=f"it takes {listing}"
        )
    values = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if any(b.name == name for b in outputs_of(plan)):
            raise ArgumentError(
                f"{name} is an output of {plan.name}", hint="pass the array to write as out="
            )
        if name not in names:
            raise ArgumentError(f"{plan.name} has no parameter {name!r}", why=f"it takes {listing}")
        if name in values:
            raise ArgumentError(f"{name} is given twice", why="once by position, once by name")
        values[name] = value
    missing = [name for name in names if name not in values]
    if missing:
        raise ArgumentError(f"missing: {', '.join(missing)}", why=f"{plan.name} takes {listing}")
    return values


def match_outputs(plan: Plan, out: Any) -> dict[str, Any]:
    """Output arrays by name, from ``out=``: one array if there is one output, else a dict by
    name.
    """
    if out is None:
        return {}
    outputs = outputs_of(plan)
    names = ", ".join(b.name for b in outputs)
    if not isinstance(out, Mapping):
        if len(outputs) != 1:
            raise ArgumentError(
                f"{plan.name} has {len(outputs)} outputs", hint=f"pass out= as a dict: {names}"
            )
        return {outputs[0].name: out}
    for name in out:
        if not any(b.name == name for b in outputs):
            raise ArgumentError(f"{plan.name} has no output {name!r}", why=f"it has {names}")
    missing = [b.name for b in outputs if b.name not in out]
    if missing:
        raise ArgumentError(f"out= lacks {', '.join(missing)}", hint=f"outputs: {names}")
    return dict(out)


def match_sizes(plan: Plan, sizes: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of outputs by name, from ``sizes=``: a tuple if there is one output, else a dict."""
    if sizes is None:
        return {}
    outputs = outputs_of(plan)
    if not isinstance(sizes, Mapping):
        if len(outputs) != 1:
            names = ", ".join(b.name for b in outputs)
            raise ArgumentError(
                f"{plan.name} has {len(outputs)} outputs", hint=f"pass sizes= as a dict: {names}"
            )
        sizes = {outputs[0].name: sizes}
    return {name: _shape(plan, name, shape) for name, shape in sizes.items()}


def check_array(buffer: BufferParam, array: ArrayView) -> None:
    """``ArgumentError`` unless an array has the buffer's element type, rank and fixed extents."""
    accepted = accepted_dtypes(buffer.type)
    if array.dtype not in accepted:
        raise ArgumentError(
            f"{buffer.name}: expected {' or '.join(accepted)}, got {array.dtype}",
            hint=_conversion(buffer, array.library),
        )
    if len(array.shape) != len(buffer.dims):
        raise ArgumentError(
            f"{buffer.name}: expected {len(buffer.dims)} axes, got {len(array.shape)}",
            why=f"its shape is {array.shape}",
        )
    for d, fixed in enumerate(constant_extents(buffer)):
        axis = axis_of(buffer, d)
        if fixed is not None and array.shape[axis] != fixed:
            raise ArgumentError(
                f"{buffer.name}: axis {axis} must have {fixed} elements, has {array.shape[axis]}",
                why="the pipeline was compiled for that size",
            )


def strides_fit(buffer: BufferParam, array: ArrayView) -> str:
    """Why a kernel cannot read the array in place; empty if it can."""
    strides = tuple(reversed(array.strides))
    shape = tuple(reversed(array.shape))
    for d, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        if extent <= 1:
            continue
        wanted = buffer.dims[d].stride
        axis = axis_of(buffer, d)
        if stride < 0:
            return f"axis {axis} runs backwards (stride {stride})"
        if isinstance(wanted, IntImm) and stride != wanted.value:
            return f"axis {axis} must have stride {wanted.value}, has {stride} (in elements)"
    return ""


def check_in_place(buffer: BufferParam, array: ArrayView) -> None:
    """``ArgumentError`` with the way to a copy unless the kernel can use the array as it lies."""
    why = strides_fit(buffer, array)
    if why:
        copy = f"{array.library.value}.ascontiguousarray({buffer.name})"
        if array.library.value == "torch":
            copy = f"{buffer.name}.contiguous()"
        raise ArgumentError(f"{buffer.name}: {why}", hint=f"pass a contiguous copy: {copy}")


def check_output(buffer: BufferParam, array: ArrayView) -> None:
    """``ArgumentError`` unless an ``out=`` array can be written, each element being its own."""
    if not array.writable:
        raise ArgumentError(f"{buffer.name}: the out= array is read-only")
    axes = sorted((abs(s), n) for n, s in zip(array.shape, array.strides, strict=True) if n > 1)
    reach = 1
    for stride, extent in axes:
        if stride < reach:
            raise ArgumentError(
                f"{buffer.name}: elements of the out= array share memory",
                why=f"strides are {array.strides} for shape {array.shape}",
                hint="pass an array of its own",
            )
        reach = stride * (extent - 1) + 1


def check_overlap(name: str, out: tuple[int, int], other: str, theirs: tuple[int, int]) -> None:
    """``ArgumentError`` if two address ranges overlap, one of which is written."""
    if out[0] < theirs[1] and theirs[0] < out[1]:
        raise ArgumentError(
            f"{name}: the out= array shares memory with {other}",
            why="blocks of a kernel run in any order, so a result could be read as an input",
            hint="write to another array",
        )


def check_devices(arrays: Mapping[str, ArrayView]) -> int:
    """The one device that all device arrays are on, or ``HOST``; ``ArgumentError`` if there are
    two.
    """
    first: tuple[str, int] | None = None
    for name, array in arrays.items():
        if array.device == HOST:
            continue
        if first is not None and first[1] != array.device:
            raise ArgumentError(
                f"{name} is on GPU {array.device}, {first[0]} on GPU {first[1]}",
                hint="move all arrays to one GPU",
            )
        first = (name, array.device)
    return HOST if first is None else first[1]


def size_of(buffer: BufferParam, array: ArrayView) -> Size:
    """Extents and strides, innermost first; ``ArgumentError`` if an index would not fit into
    int32.
    """
    return checked_size(buffer, tuple(reversed(array.shape)), tuple(reversed(array.strides)))


def dense_size(buffer: BufferParam, shape: tuple[int, ...]) -> Size:
    """The size of a contiguous array of that shape."""
    return checked_size(buffer, shape[::-1], dense_strides(shape)[::-1])


def checked_size(buffer: BufferParam, extents: tuple[int, ...], strides: tuple[int, ...]) -> Size:
    """``ArgumentError`` if an index would not fit into int32, or if rows are longer than declared
    strides: an index beyond the end of one would be taken for one of the next.
    """
    reach = sum((n - 1) * s for n, s in zip(extents, strides, strict=True) if n > 0)
    if reach > LARGEST or max(extents, default=0) > LARGEST:
        raise ArgumentError(
            f"{buffer.name}: {reach + 1} elements from first to last are too many",
            why="indices are 32 bits wide: at most 2147483648 elements",
            hint="split the call along an outer axis",
        )
    if 0 not in extents and (found := overrun(buffer.dims, extents)) is not None:
        inner, outer, most = found
        axis, after = axis_of(buffer, inner), axis_of(buffer, outer)
        raise ArgumentError(
            f"{buffer.name}: axis {axis} has {extents[inner]} elements, and axis {after} goes on "
            f"after {most}",
            why="the pipeline declares their strides: rows that share elements have others",
            hint=f"declare no stride of dimension {outer} (`set_stride`)",
        )
    return Size(extents, tuple(min(s, LARGEST) for s in strides))


def check_scalar(scalar: ScalarParam, value: Any) -> Scalar:
    """A NumPy scalar of the parameter's type; bfloat16 as its uint16 bits. ``ArgumentError``
    otherwise.
    """
    if is_array(value) and not isinstance(value, np.generic):
        raise ArgumentError(
            f"{scalar.name}: expected a number, got an array", hint=f"pass float({scalar.name})"
        )
    if not isinstance(value, (int, float, np.number, np.bool_)):
        raise ArgumentError(f"{scalar.name}: expected a number, got {type(value).__name__}")
    if not scalar.type.is_float:
        return _integer(scalar, value)
    number = float(value)
    if scalar.type.kind is Kind.BFLOAT:
        return _bfloat16_bits(number)
    with np.errstate(over="ignore"):
        converted = numpy_dtype(scalar.type).type(number)
    if math.isfinite(number) and not np.isfinite(converted):
        raise ArgumentError(f"{scalar.name}: {value} is too large for {scalar.type}")
    return converted


def numbers(plan: Plan, scalars: Mapping[str, Scalar]) -> Environment:
    """The scalars as size expressions use them: what is no integer may be converted to one."""
    found = {n: number(plan, n, v) for n, v in scalars.items()}
    return {n: v if isinstance(v, np.floating) else int(v) for n, v in found.items()}


def number(plan: Plan, name: str, value: Scalar) -> Scalar:
    """A scalar as the interpreter takes it: a number, also where a device takes bfloat16 bits."""
    scalar = next(s for s in plan.scalars if s.name == name)
    if scalar.type.kind is not Kind.BFLOAT:
        return value
    return np.uint32(int(value) << 16).view(np.float32)


def _integer(scalar: ScalarParam, value: Any) -> Scalar:
    if not math.isfinite(value) or int(value) != value:
        raise ArgumentError(f"{scalar.name}: expected an integer ({scalar.type}), got {value}")
    dtype = numpy_dtype(scalar.type)
    low, high = (0, 1) if scalar.type.is_bool else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not low <= int(value) <= high:
        raise ArgumentError(
            f"{scalar.name}: {int(value)} does not fit into {scalar.type}",
            why=f"it holds {low} to {high}",
        )
    return dtype.type(int(value))


def _bfloat16_bits(value: float) -> Scalar:
    """The upper half of the float32, rounded to nearest even; NaN stays one."""
    if math.isnan(value):
        return np.uint16(0x7FC0)
    with np.errstate(over="ignore"):
        bits = int(np.float32(value).view(np.uint32))
    return np.uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


def _shape(plan: Plan, name: str, shape: Any) -> tuple[int, ...]:
    buffer = next((b for b in outputs_of(plan) if b.name == name), None)
    if buffer is None:
        names = ", ".join(b.name for b in outputs_of(plan))
        raise ArgumentError(f"sizes=: {plan.name} has no output {name!r}", why=f"it has {names}")
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    if len(extents) != len(buffer.dims):
        raise ArgumentError(f"sizes=: {name} has {len(buffer.dims)} axes, got {extents}")
    for d, fixed in enumerate(constant_extents(buffer)):
        given = extents[axis_of(buffer, d)]
        if not isinstance(given, (int, np.integer)) or given < 0:
            raise ArgumentError(f"sizes=: {name}: {given!r} is not a size")
        if fixed is not None and given != fixed:
            raise ArgumentError(
                f"sizes=: axis {axis_of(buffer, d)} of {name} is fixed to {fixed}, got {given}",
                why="the pipeline was compiled for that size",
            )
    return tuple(int(e) for e in extents)


def _conversion(buffer: BufferParam, library: Library) -> str:
    if library is Library.TORCH:
        return f"convert it: {buffer.name}.to(torch.{accepted_dtypes(buffer.type)[0]})"
    if buffer.type.kind is Kind.BFLOAT:
        return "pass torch.bfloat16, ml_dtypes.bfloat16, or its bits as uint16"
    return f"convert it: {buffer.name}.astype({accepted_dtypes(buffer.type)[0]!r})"
