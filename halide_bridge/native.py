"""Loads the extension module against the Halide wheel it was built for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

from selector.diagnostics import ScheduleError
from selector.runtime.versions import version

HALIDE_VERSION = "21.0.0"


def check_version(installed: str) -> None:
    """ScheduleError unless ``installed`` is the version whose passes the extension runs."""
    if installed != HALIDE_VERSION:
        raise ScheduleError(
            f"halide {installed} is installed, and halide_bridge needs halide {HALIDE_VERSION}",
            why="it runs that version's own lowering passes, whose interfaces change",
            hint=f"pip install halide=={HALIDE_VERSION}",
        )


@cache
def native() -> ModuleType:
    """The module ``halide_bridge._native``; ScheduleError if it, or its Halide, is not there."""
    try:
        import_module("halide")  # its library has to be loaded first
        check_version(version("halide"))
        return import_module("halide_bridge._native")
    except ImportError as error:
        raise ScheduleError(
            "the native part of halide_bridge cannot be loaded",
            why=str(error),
            hint="install the package with pip, which compiles it (a C++ compiler is needed)",
        ) from error
