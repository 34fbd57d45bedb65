"""Kernels on a GPU whose memory holds NaN; needs NumPy and CuPy only.

What a kernel reads of shared memory and of arrays without having written it is otherwise mostly
zero, and what it makes of that mostly right.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
POOL_BYTES = 256 << 20
POISON = r"""
extern "C" __global__ void poison(unsigned value, unsigned words) {
    extern __shared__ volatile unsigned memory[];
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) memory[i] = value;
    __syncthreads();
    // A block takes all of a multiprocessor's shared memory, and stays until the others are there.
    for (long long start = clock64(); clock64() - start < 20000;) {}
}
"""


@cache
def _kernel() -> tuple[Any, int, int]:
    """(kernel, bytes of shared memory of a block, blocks that reach every multiprocessor)."""
    import cupy

    device = cupy.cuda.Device()
    bytes_ = int(device.attributes["MaxSharedMemoryPerBlockOptin"])
    kernel = cupy.RawKernel(POISON, "poison")
    kernel.max_dynamic_shared_size_bytes = bytes_
    return kernel, bytes_, 4 * int(device.attributes["MultiProcessorCount"])


def poison(byte: int = 0xFF) -> None:
    """Fill all shared memory and the memory pool with a byte; 0xFF is NaN of every float type."""
    import cupy

    kernel, bytes_, blocks = _kernel()
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    held = cupy.empty(POOL_BYTES, cupy.uint8)
    held.fill(byte)
    word = int.from_bytes(bytes([byte] * 4), "little")
    kernel((blocks,), (256,), (np.uint32(word), np.uint32(bytes_ // 4)), shared_mem=bytes_)
    cupy.cuda.runtime.deviceSynchronize()
    del held


def run_on_device(
    kernel: Any, arrays: Mapping[str, Array], scalars: Mapping[str, Any], shape: tuple[int, ...],
    byte: int | None = 0xFF,
) -> Array:  # fmt: skip
    """The result of a kernel, after poison (``byte`` None: without it)."""
    import cupy

    if byte is not None:
        poison(byte)
    held = {name: cupy.asarray(np.ascontiguousarray(a)) for name, a in arrays.items()}
    found = kernel(**held, **scalars, sizes=shape)
    cupy.cuda.runtime.deviceSynchronize()
    return found.get()
