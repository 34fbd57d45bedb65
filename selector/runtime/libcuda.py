"""Functions of the CUDA driver that CuPy has no name for, found when they are first wanted."""

from __future__ import annotations

import ctypes
from typing import Any


def driver_function(name: str) -> Any | None:
    """The installed driver's function, through ctypes; None without one, or with an old one."""
    try:
        return getattr(ctypes.CDLL("libcuda.so.1"), name)
    except (OSError, AttributeError):
        return None
