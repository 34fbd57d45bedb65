"""GPU memory that holds NaN before a kernel that is to be checked.

What a kernel reads without having written it is otherwise mostly what a run before it left there,
and what it makes of that mostly right.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

NAN = 0xFF  # bytes of which every float type makes NaN
_POOL_BYTES = 256 << 20  # at most, and a quarter of what is free
_SOURCE = r"""
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

    attributes = cupy.cuda.Device().attributes
    size = int(attributes["MaxSharedMemoryPerBlockOptin"])
    kernel = cupy.RawKernel(_SOURCE, "poison")
    kernel.max_dynamic_shared_size_bytes = size
    return kernel, size, 4 * int(attributes["MultiProcessorCount"])


def poison(byte: int = NAN) -> None:
    """Fill all shared memory, and what the memory pool gives out next, with a byte."""
    import cupy

    kernel, size, blocks = _kernel()
    free, _ = cupy.cuda.Device().mem_info
    held = cupy.empty(min(_POOL_BYTES, free // 4), cupy.uint8)
    held.fill(byte)
    word = int.from_bytes(bytes([byte] * 4), "little")
    kernel((blocks,), (256,), (np.uint32(word), np.uint32(size // 4)), shared_mem=size)
    cupy.cuda.runtime.deviceSynchronize()
    del held
