"""Arrays that emulated kernels work on: shared with a child process, poison around them, and pages
that cannot be touched before and behind.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

ARRAY_GRAIN = 512  # device arrays are allocated in multiples of it
SHARED_GRAIN = 128  # shared memory too

_libc = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """``size`` bytes at a multiple of ``grain`` bytes; the rest of the last grain can be read."""

    def __init__(
        self,
        name: str,
        size: int,
        poison: int,
        fill: int | None = None,
        grain: int = ARRAY_GRAIN,
    ) -> None:
        page = mmap.PAGESIZE
        held = -(-max(size, 1) // grain) * grain
        pages = -(-held // page) * page
        self.name = name
        self._map = mmap.mmap(-1, pages + 2 * page, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        whole = np.frombuffer(self._map, np.uint8)
        start = whole.ctypes.data
        whole[:] = poison
        for guard in (start, start + page + pages):
            if _libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        first = page + pages - held
        self._around = whole[page : page + pages]
        self._first, self._poison = first - page, poison
        self.data = whole[first : first + size]
        if fill is not None:
            self.data[:] = fill
        self.address = start + first
        self.size = size

    def stray(self) -> int | None:
        """Where something was written beside the bytes, counted from the first; None if nowhere."""
        around = self._around != self._poison
        around[self._first : self._first + self.size] = False
        found = np.flatnonzero(around)
        return int(found[0]) - self._first if found.size else None

    def where(self, address: int) -> str | None:
        """What lies at an address in or near the pages, in words."""
        page = mmap.PAGESIZE
        at = address - self.address
        if not -self._first - page <= at < self._around.size - self._first + page:
            return None
        return f"byte {at} of the {self.size} of {self.name}"
