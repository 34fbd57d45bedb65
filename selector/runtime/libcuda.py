"""Functions of the CUDA driver that CuPy has no name for, found when they are first wanted."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

NAME = "libcuda.so.1"


def driver_function(name: str) -> Any | None:
    """The installed driver's function, through ctypes; None without one, or with an old one."""
    try:
        return getattr(ctypes.CDLL(NAME), name)
    except (OSError, AttributeError):
        return None


def native_module() -> ModuleType | None:
    """``_launch``; None where it was not built."""
    try:
        from selector.runtime import _launch
    except ImportError:
        return None
    return _launch
