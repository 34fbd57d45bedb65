"""The folder that the workers of a server write in: one for each server, locked while it lives.

Servers that share a store have theirs side by side. What a killed one has left is what nobody holds
a lock on (flock(2): the kernel gives it back when the process ends, however that happens).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path


class Scratch:
    """A new folder in ``parent``; those of servers that are gone are removed."""

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        around = os.open(parent, os.O_RDONLY)  # nobody tidies between a folder and its lock
        try:
            fcntl.flock(around, fcntl.LOCK_EX)
            for left in parent.iterdir():
                _remove_unless_held(left)
            self.folder = Path(tempfile.mkdtemp(prefix="server-", dir=parent))
            self._lock = os.open(self.folder, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            os.close(around)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _remove_unless_held(folder: Path) -> None:
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return
    finally:
        os.close(lock)
