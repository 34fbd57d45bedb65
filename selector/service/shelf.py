"""A folder of files up to a limit: written in one step, counted, the longest unused removed.

Any number of servers may share one. What it takes on disk is known by its parts (256 of each kind,
``kind/??``). Each write measures one of them again, in turn, as other servers write too: nothing
ever waits for the whole folder to be read.
"""

from __future__ import annotations

import errno
import os
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import TypeVar

from selector.dataclass import dataclass
from selector.diagnostics import ServiceError
from selector.runtime.artifact import write_atomically

T = TypeVar("T")
KEEP = 0.9
"""Share of the limit that is left after making room."""
_OLD = 3600.0
"""Seconds after which a leftover of a write is removed."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_BLOCK = 512
"""Bytes of what ``st_blocks`` counts, whatever the file system's own are."""


class StoreFullError(ServiceError):
    """There is no room, and none can be made."""


@dataclass(eq=False)
class Shelf:
    """Files of some kinds in ``folder``, up to ``limit`` bytes on disk together."""

    folder: Path
    limit: int
    kinds: tuple[str, ...]
    corrupt: int = 0
    evicted: int = 0
    _parts: dict[Path, int] = field(default_factory=dict[Path, int], repr=False)
    _next: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        """``ServiceError`` if the folder cannot be used."""
        try:
            for kind in self.kinds:
                (self.folder / kind).mkdir(parents=True, exist_ok=True)
                for number in range(256):
                    self._parts[self.folder / kind / f"{number:02x}"] = 0
        except OSError as error:
            raise ServiceError(
                f"{self.folder} cannot be used as a store", error.strerror or str(error)
            ) from None

    @property
    def bytes(self) -> int:
        return sum(self._parts.values())

    @property
    def is_over(self) -> bool:
        """Whether it has outgrown its limit: ``make_room`` is due."""
        return self.bytes > self.limit

    def measure(self) -> Iterator[None]:
        """Measure everything, a part at a time."""
        for part in self._parts:
            self._measure(part)
            yield

    def make_room(self, limit: float) -> Iterator[None]:
        """Remove what was not used for longest until ``limit`` bytes are left, a part at a time."""
        used, sizes = array("d"), array("q")
        for part in self._parts:
            for when, size, _ in self._measure(part):
                used.append(when)
                sizes.append(size)
            yield
        excess, cut = self.bytes - limit, 0.0
        for index in sorted(range(len(used)), key=used.__getitem__):
            if excess <= 0:
                break
            excess -= sizes[index]
            cut = used[index]
        for part in self._parts:
            for when, size, path in self._entries(part):
                if when <= cut and self.bytes > limit and _remove(path):
                    self._parts[part] -= size
                    self.evicted += 1
            yield

    def _path(self, kind: str, name: str) -> Path:
        return self.folder / kind / name[:2] / name

    def _read(self, path: Path) -> bytes | None:
        """The bytes of a file, or None."""
        try:
            return path.read_bytes()
        except OSError:
            return None

    def _whole(self, path: Path, unpacked: Callable[[bytes], T | None]) -> T | None:
        """What was written to a file; one that holds something else is dropped."""
        data = self._read(path)
        found = None if data is None else unpacked(data)
        if data is not None and found is None:
            self._drop(path)
        return found

    def _touch(self, path: Path) -> None:
        """It was used: it goes later."""
        try:
            os.utime(path)
        except OSError:
            return

    def _write(self, path: Path, data: bytes) -> None:
        try:
            self._try_write(path, data)
        except OSError as error:
            if error.errno not in FULL:
                raise unusable(error) from None
            for _ in self.measure():
                pass
            for _ in self.make_room(self.bytes // 2):
                pass
            try:
                self._try_write(path, data)
            except OSError as again:
                raise unusable(again) from None
        self._parts[path.parent] += _on_disk(path.stat())
        parts = list(self._parts)
        self._next = (self._next + 1) % len(parts)
        self._measure(parts[self._next])

    def _try_write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)

    def _measure(self, part: Path) -> list[tuple[float, int, Path]]:
        """The entries of a part, whose size is known from then on."""
        found = list(self._entries(part))
        self._parts[part] = sum(size for _, size, _ in found)
        return found

    def _entries(self, part: Path) -> Iterator[tuple[float, int, Path]]:
        """Time of last use, bytes on disk and path of the entries of a part; leftovers of broken
        writes are removed.
        """
        old = time.time() - _OLD
        try:
            entries = list(os.scandir(part))
        except OSError:
            return
        for entry in entries:
            try:
                status = entry.stat()
            except OSError:
                continue  # another server removed it
            if not entry.name.startswith("."):
                yield status.st_mtime, _on_disk(status), Path(entry.path)
            elif status.st_mtime < old:
                _remove(Path(entry.path))

    def _drop(self, path: Path) -> None:
        self.corrupt += 1
        _remove(path)


def unusable(error: OSError) -> StoreFullError:
    """What is said of a disk that cannot be written."""
    return StoreFullError(
        "the result cannot be stored",
        error.strerror or str(error),
        "try again later, or tell the operator of this service",
    )


def _on_disk(status: os.stat_result) -> int:
    """Bytes that a file takes: whole blocks, and its entry in a folder (an inode) at least."""
    return max(status.st_blocks * _BLOCK, _BLOCK)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
