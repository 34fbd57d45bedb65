"""Kernels of hand-written CUDA text, for tests of the emulation itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from emulation import run
from selector.ir.nodes import BufferParam, Dim, IntImm, Role
from selector.ir.types import FLOAT16, FLOAT32, INT8, INT32, UINT8, UINT16, UINT32, Type
from selector.runtime.plan import BufferArgument, Launch, MapArgument, Plan

Array = np.ndarray[Any, Any]
_TYPES: dict[str, tuple[Type, str]] = {
    "float16": (FLOAT16, "f16"),
    "float32": (FLOAT32, "float"),
    "int8": (INT8, "s8"),
    "uint8": (UINT8, "u8"),
    "uint16": (UINT16, "u16"),
    "uint32": (UINT32, "u32"),
    "int32": (INT32, "int"),
}
_TYPEDEFS = """\
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8; typedef short s16; typedef long long s64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct alignas(64) TensorMap { u64 parts[16]; };
__device__ __forceinline__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
"""


@dataclass(frozen=True)
class TextKernel:
    """What the emulation needs of a kernel."""

    plan: Plan

    @property
    def source(self) -> str:
        return self.plan.source


def text_kernel(
    body: str,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    *,
    threads: int = 32,
    shared: int = 0,
    blocks: int = 1,
    cluster: int = 1,
    boxes: Mapping[str, tuple[int, ...]] | None = None,
) -> TextKernel:
    """A kernel of one launch with pointers to its arrays by their names, and maps ``map_NAME`` of
    those in ``boxes`` (innermost first). Shared memory is called ``memory``.
    """
    arrays = {**inputs, **outputs}
    buffers = tuple(_buffer(n, a, Role.INPUT) for n, a in inputs.items())
    buffers += tuple(_buffer(n, a, Role.OUTPUT) for n, a in outputs.items())
    parameters = [f"{_TYPES[str(a.dtype)][1]}* {n}" for n, a in arrays.items()]
    given: list[BufferArgument | MapArgument] = [BufferArgument(n) for n in arrays]
    for name, box in (boxes or {}).items():
        parameters.append(f"const __grid_constant__ TensorMap map_{name}")
        given.append(_map(name, arrays[name], box))
    place = "extern __shared__ __align__(1024) unsigned char memory[];" if shared else ""
    bounds = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
    source = (
        f'{_TYPEDEFS}extern "C" __global__ void {bounds}__launch_bounds__({threads}) '
        f"text({', '.join(parameters)}) {{\n{place}\n"
        f"const int thread = threadIdx.x, lane = thread & 31, g = lane >> 2, q = lane & 3;\n"
        f"{body}\n}}\n"
    )
    grid = (IntImm(blocks), IntImm(1), IntImm(1))
    launch = Launch("text", grid, threads, shared, tuple(given), cluster=cluster)
    return TextKernel(Plan("text", "sm_90a", source, buffers, (), (), (), (launch,)))


def run_text(body: str, inputs: Mapping[str, Array], output: Array, **options: Any) -> Array:
    """What a kernel leaves in ``out``, which has the shape and type of ``output``."""
    order = options.pop("order", 0)
    poison = options.pop("poison", 0xFF)
    kernel = text_kernel(body, inputs, {"out": output}, **options)
    return run(kernel, order=order, poison=poison, timeout=20, **inputs)


def _buffer(name: str, array: Array, role: Role) -> BufferParam:
    dims = tuple(
        Dim(IntImm(0), IntImm(n), IntImm(s // array.itemsize))
        for n, s in zip(reversed(array.shape), reversed(array.strides), strict=True)
    )
    return BufferParam(name, _TYPES[str(array.dtype)][0], dims, role)


def _map(name: str, array: Array, box: tuple[int, ...]) -> MapArgument:
    extents = tuple(IntImm(n) for n in reversed(array.shape))
    strides = tuple(IntImm(s // array.itemsize) for s in reversed(array.strides[:-1]))
    return MapArgument(name, _TYPES[str(array.dtype)][0], extents, strides, box)
