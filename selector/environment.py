"""The environment variables, all of them. Each is read when it is needed, not at import.

- ``SELECTOR_DUMP``: a folder, to which every compilation writes its stages as numbered files.
- ``SELECTOR_CHECK``: ``1`` verifies the program after every stage that changes it; by default
  ``0``.
- ``SELECTOR_CACHE_DIR``: the folder of the kernel cache, by default ``~/.cache/tensor-selector``;
  empty: no cache.
- ``SELECTOR_PATIENCE``: seconds that a thread of a GPU kernel waits at a barrier before the launch
  ends in an error; by default for ever.
- ``SELECTOR_NVRTC_SECONDS``: seconds of the processor that NVRTC has for a large kernel, by default
  10.

``XDG_CACHE_HOME`` moves the default of the kernel cache, and ``CC`` names the C compiler (for
target ``amx``), as for every program.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from selector.diagnostics import UserError

_SWITCH = {"": False, "0": False, "1": True}


def dump_directory() -> Path | None:
    """Where stages are written; created if needed. ``UserError`` if that cannot be a folder."""
    value = os.environ.get("SELECTOR_DUMP", "")
    return _folder("SELECTOR_DUMP", Path(value)) if value else None


def checks_enabled() -> bool:
    """Whether to verify after every stage; ``UserError`` if the value is neither 0 nor 1."""
    value = os.environ.get("SELECTOR_CHECK", "")
    if value not in _SWITCH:
        raise UserError(f"SELECTOR_CHECK is {value!r}", hint="set it to 1 or 0")
    return _SWITCH[value]


def patience() -> float | None:
    """Seconds that kernels compiled now wait at a barrier; None for ever. ``UserError`` if the
    value is no positive number.
    """
    return _seconds("SELECTOR_PATIENCE")


def nvrtc_seconds() -> float:
    """Seconds of the processor that NVRTC has for a kernel; ``UserError`` if the value is no
    positive number.
    """
    return _seconds("SELECTOR_NVRTC_SECONDS") or 10.0


def _seconds(variable: str) -> float | None:
    value = os.environ.get(variable, "")
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UserError(f"{variable} is {value!r}", hint="seconds, such as 2 or 0.5")
    return seconds


def cache_directory() -> Path | None:
    """The folder of the kernel cache, or None for no cache.

    ``UserError`` if ``SELECTOR_CACHE_DIR`` names something that cannot be a folder to write to, or
    that others can write to: what lies there is run. A default that is so means no cache.
    """
    value = os.environ.get("SELECTOR_CACHE_DIR")
    if value is not None:
        return _own_folder("SELECTOR_CACHE_DIR", Path(value)) if value else None
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return _own_folder("XDG_CACHE_HOME", Path(base) / "tensor-selector")
    except (UserError, RuntimeError):  # RuntimeError: no home
        return None


def _own_folder(variable: str, path: Path) -> Path:
    """A folder that belongs to this user, and that nobody else can write to."""
    status = _folder(variable, path, 0o700).stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UserError(
            f"{variable}: others can write to {path}",
            why="the kernels that lie in it are run",
            hint=f"chmod go-w {path}, or name a folder of your own",
        )
    return path


def _folder(variable: str, path: Path, mode: int = 0o777) -> Path:
    try:
        path.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{variable}: {path} cannot be used as a folder", why=error.strerror or str(error)
        ) from error
    if not os.access(path, os.W_OK):
        raise UserError(f"{variable}: {path} cannot be written to")
    return path
