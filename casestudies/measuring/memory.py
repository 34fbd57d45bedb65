"""GPU memory of contenders that are measured in turn.

A library may put what it allocates for a moment into a CUDA graph; torch then takes that memory for
free, and the next library would keep its arrays where the graph of the first one writes.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class Room:
    """Where torch allocates while it is entered: ``apart``, in a pool that lasts as long as this
    object.
    """

    def __init__(self, apart: bool) -> None:
        self._apart = apart
        self._pool: Any = None

    @contextmanager
    def entered(self) -> Generator[None]:
        torch = sys.modules.get("torch")
        if not self._apart or torch is None or not torch.cuda.is_available():
            yield
            return
        if self._pool is None:
            self._pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self._pool):
            yield


def free_memory() -> None:
    """Give CuPy's and torch's pools back, so that each problem finds the whole memory."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    if (torch := sys.modules.get("torch")) is not None:
        torch.cuda.empty_cache()
