"""Answers and saved kernels on disk, each under the hash of what it is or of what was asked.

    artifacts/ab/abcd...     a saved kernel, named by the SHA-256 of its bytes
    answers/12/1234...       an answer, named by the key of its request

Files appear in one step and are checked when they are read; one that has changed counts as missing
and is removed. Any number of servers may share a folder. When it outgrows its limit, what was not
used for longest goes; a compile answer whose kernel has gone counts as missing too.
"""

from __future__ import annotations

import errno
import json
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from selector.diagnostics import ServiceError
from selector.runtime.artifact import write_atomically
from selector.service.answers import Answer, digest

KEEP = 0.9
"""Share of the limit that is left after making room."""
_RECOUNT = 256
"""Writes after which the folder is measured again: other servers write too."""
_OLD = 3600.0
"""Seconds after which a leftover of a write is removed."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class StoreFullError(ServiceError):
    """There is no room, and none can be made."""


@dataclass
class Store:
    """A folder of up to ``limit`` bytes."""

    folder: Path
    limit: int
    bytes: int = 0
    corrupt: int = 0
    evicted: int = 0
    _writes: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        """``ServiceError`` if the folder cannot be used."""
        try:
            for kind in ("artifacts", "answers"):
                (self.folder / kind).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ServiceError(
                f"{self.folder} cannot be used as a store", error.strerror or str(error)
            ) from None
        self._recount()

    def has_artifact(self, sha: str) -> bool:
        return self._path("artifacts", sha).exists()

    def artifact(self, sha: str) -> bytes | None:
        """The saved kernel of that hash, or None."""
        path = self._path("artifacts", sha)
        data = _read(path)
        if data is None:
            return None
        if digest(data) != sha:
            self._drop(path)
            return None
        _touch(path)
        return data

    def put_artifact(self, data: bytes) -> str:
        """Store a saved kernel; its hash. ``StoreFullError`` if there is no room."""
        sha = digest(data)
        self._write(self._path("artifacts", sha), data)
        return sha

    def answer(self, key: str) -> Answer | None:
        """The answer to a request, or None; one that speaks of a kernel that has gone is None."""
        path = self._path("answers", key)
        data = _read(path)
        if data is None:
            return None
        found = _unpacked(data)
        if found is None:
            self._drop(path)
            return None
        if found.artifact and not self.has_artifact(found.artifact):
            return None
        _touch(path)
        return found

    def put_answer(self, key: str, answer: Answer) -> None:
        """Store an answer. ``StoreFullError`` if there is no room."""
        self._write(self._path("answers", key), _packed(answer))

    def used(self, sha: str) -> None:
        """A kernel is spoken of again: it goes later."""
        _touch(self._path("artifacts", sha))

    def _path(self, kind: str, name: str) -> Path:
        return self.folder / kind / name[:2] / name

    def _write(self, path: Path, data: bytes) -> None:
        self._writes += 1
        if self._writes % _RECOUNT == 0:
            self._recount()
        try:
            self._try_write(path, data)
        except OSError as error:
            if error.errno not in _FULL:
                raise _unusable(error) from None
            self._evict(self.bytes // 2)
            try:
                self._try_write(path, data)
            except OSError as again:
                raise _unusable(again) from None
        self.bytes += len(data)
        if self.bytes > self.limit:
            self._evict(int(self.limit * KEEP), path)

    def _try_write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)

    def _evict(self, limit: int, newest: Path | None = None) -> None:
        """Remove what was not used for longest, until no more than ``limit`` bytes are left."""
        self._recount()
        for _, size, path in sorted(self._entries()):
            if self.bytes <= limit:
                return
            if path != newest and _remove(path):
                self.bytes -= size
                self.evicted += 1

    def _recount(self) -> None:
        self.bytes = sum(size for _, size, _ in self._entries())

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Time of last use, bytes and path of every entry; leftovers of broken writes are
        removed."""
        old = time.time() - _OLD
        for path in self.folder.glob("a*/??/*"):
            try:
                status = path.stat()
            except OSError:
                continue  # another server removed it
            if not path.name.startswith("."):
                yield status.st_mtime, status.st_size, path
            elif status.st_mtime < old:
                _remove(path)

    def _drop(self, path: Path) -> None:
        self.corrupt += 1
        _remove(path)


def _unusable(error: OSError) -> StoreFullError:
    return StoreFullError(
        "the result cannot be stored",
        error.strerror or str(error),
        "try again later, or tell the operator of this service",
    )


def _packed(answer: Answer) -> bytes:
    """A line of JSON with the hash of the body, and the body, compressed."""
    header = {
        "status": answer.status,
        "media": answer.media,
        "artifact": answer.artifact,
        "sha256": digest(answer.body),
    }
    return json.dumps(header).encode() + b"\n" + zlib.compress(answer.body, 1)


def _unpacked(data: bytes) -> Answer | None:
    """The inverse of ``_packed``; None for anything else."""
    head, _, packed = data.partition(b"\n")
    try:
        h = json.loads(head)
        body = zlib.decompress(packed)
        if digest(body) != h["sha256"]:
            return None
        return Answer(int(h["status"]), body, str(h["media"]), str(h["artifact"]), True)
    except (ValueError, KeyError, TypeError, zlib.error):
        return None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        return


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
