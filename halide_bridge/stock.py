"""The few names of stock Halide that the bridge uses, with types: its wheel has no stubs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard, cast

import halide

_hl: Any = halide


def _know_float16() -> None:
    """Halide 21 keeps what it knows of reductions by the number of bits: whichever of float16 and
    bfloat16 a process reduces in first makes the other one fail. Tensor units have float16
    accumulators and no bfloat16 ones, so float16 goes first.
    """
    sums, x, r = _hl.Func("sums"), _hl.Var("x"), _hl.RDom([(0, 2)])
    sums[x] = _hl.cast(_hl.Float(16), 0)
    sums[x] += _hl.cast(_hl.Float(16), r.x)
    sums.update().atomic().vectorize(r.x)


_know_float16()


class Named(Protocol):
    """An ``hl.ImageParam`` or ``hl.Param``."""

    def name(self) -> str: ...


class Func(Named, Protocol):
    """An ``hl.Func``."""

    def defined(self) -> bool: ...
    def args(self) -> Sequence[Named]: ...
    def dimensions(self) -> int: ...
    def split(self, old: Named, outer: Named, inner: Named, factor: int, /) -> Func: ...


class Pipeline(Protocol):
    """An ``hl.Pipeline``."""

    def outputs(self) -> Sequence[Func]: ...


HalideError = cast("type[Exception]", _hl.HalideError)


def is_func(value: object) -> TypeGuard[Func]:
    """Whether ``value`` is an ``hl.Func``; an ImageParam is not."""
    return isinstance(value, _hl.Func)


def is_pipeline(value: object) -> TypeGuard[Pipeline]:
    return isinstance(value, _hl.Pipeline)


def is_image_param(value: object) -> TypeGuard[Named]:
    return isinstance(value, _hl.ImageParam)


def is_input(value: object) -> TypeGuard[Named]:
    """Whether ``value`` is an ``hl.ImageParam`` or an ``hl.Param``."""
    return isinstance(value, _hl.ImageParam | _hl.Param)


def deserialized(data: bytes) -> Any:
    """A Pipeline of what Halide has serialized; data that are damaged may end the process."""
    found = _hl.deserialize_pipeline(data)
    if not found.defined():
        raise HalideError("the pipeline is empty")
    return found


def serialized(outputs: Sequence[Any], pipeline: Any = None) -> bytes:
    """All that is defined and scheduled of some outputs, and what a ``pipeline`` requires of them,
    if that is one. Names count. ``HalideError`` for what Halide cannot write.
    """
    found = b""
    for one in (_hl.Pipeline([*outputs]), *([] if pipeline is None else [pipeline])):
        data, parameters = _hl.serialize_pipeline(one, get_params=True)
        said = [_said(p) for _, p in sorted(parameters.items())]
        text = repr(said).encode()
        found += len(data).to_bytes(8, "little") + bytes(data) + len(text).to_bytes(8, "little")
        found += text
    return found


def _said(p: Any) -> tuple[object, ...]:
    """What Halide's serialization leaves out of a parameter."""
    if not p.is_buffer():
        ends = (p.min_value(), p.max_value(), p.estimate())
        return (p.name(), str(p.type()), *map(str, ends))
    dims = tuple(
        str(said(d))
        for d in range(p.dimensions())
        for said in (
            p.min_constraint, p.extent_constraint, p.stride_constraint,
            p.min_constraint_estimate, p.extent_constraint_estimate,
        )
    )  # fmt: skip
    return (p.name(), str(p.type()), p.host_alignment(), str(p.memory_type()), *dims)


GPU_SHARED: Any = _hl.MemoryType.GPUShared
REGISTER: Any = _hl.MemoryType.Register
GUARD: Any = _hl.TailStrategy.GuardWithIf


def is_variable(value: object) -> bool:
    return isinstance(value, _hl.Var)


def is_rvar(value: object) -> bool:
    return isinstance(value, _hl.RVar)


def text_of(value: object) -> str:
    """A number or an enumerator of Halide's or ours, in Python."""
    kind = type(value).__name__
    if isinstance(value, _hl.MemoryType | _hl.TailStrategy):
        return f"hl.{kind}.{cast('Any', value).name}"
    return f"hb.{kind}.{cast('Any', value).name}" if hasattr(value, "name") else repr(value)


def variables(*names: str) -> tuple[Any, ...]:
    """An ``hl.Var`` of each name."""
    return tuple(_hl.Var(name) for name in names)


def outermost() -> Any:
    """The ``hl.Var`` around all loops of a stage."""
    return _hl.Var.outermost()


def rvars(*names: str) -> tuple[Any, ...]:
    """An ``hl.RVar`` of each name."""
    return tuple(_hl.RVar(name) for name in names)
