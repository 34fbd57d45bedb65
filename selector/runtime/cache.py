"""The kernel cache: compiled kernels on disk, found by what went into them.

An entry is an artifact (``runtime.artifact``), named by a hash of the program's text, the target
and the versions of everything that has a say in the result. Notes beside them say where kernels are
of which more than the text is known. Entries are written in one step and checked when read, so any
number of processes may share a folder; a damaged entry counts as a miss and is removed. Entries are
code that is run without a question, so the folder is one that nobody else can write to
(``environment.cache_directory``). When the folder outgrows ``limit``, the entries that were not
used for longest go.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from selector.diagnostics import ArtifactError
from selector.runtime.artifact import Artifact, bytes_of, from_bytes, to_bytes, write_atomically

LIMIT = 512 << 20
_SUFFIX, _NOTE = ".kernel", ".note"


def key_of(parts: Mapping[str, str]) -> str:
    """The name of an entry: a hash of everything that decides what the kernel is."""
    text = json.dumps(dict(parts), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class KernelCache:
    """A folder of artifacts, up to ``limit`` bytes. Failing to write is no error: it is a cache."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}{_SUFFIX}"

    def get(self, key: str) -> Artifact | None:
        """The entry of that key, or None."""
        path = self.path(key)
        try:
            data = bytes_of(path)
        except OSError:
            return None
        try:
            found = from_bytes(data)
        except ArtifactError:
            _remove(path)
            return None
        _touch(path)
        return found

    def put(self, key: str, artifact: Artifact) -> None:
        """Store an entry, and make room if there is too much."""
        path = self.path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, to_bytes(artifact))
        except (OSError, ArtifactError):
            return
        self._evict(path)

    def note(self, key: str) -> str | None:
        """What was noted under a key, or None."""
        path = self.path(key).with_suffix(_NOTE)
        try:
            found = path.read_text()
        except (OSError, ValueError):
            return None
        _touch(path)
        return found

    def put_note(self, key: str, text: str) -> None:
        """Keep a short text beside the kernels."""
        path = self.path(key).with_suffix(_NOTE)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, text.encode())
        except OSError:
            return

    def _evict(self, newest: Path) -> None:
        entries = self._entries()
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                return
            if path != newest:
                _remove(path)
                total -= size

    def _entries(self) -> list[tuple[float, int, Path]]:
        """Time of last use, bytes and path of every entry."""
        entries: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*/*"):
            if path.suffix not in (_SUFFIX, _NOTE):
                continue
            try:
                status = path.stat()
            except OSError:
                continue  # another process removed it
            entries.append((status.st_mtime, status.st_size, path))
        return entries


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        return


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
