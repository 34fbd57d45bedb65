"""Answers and saved kernels on disk, each under the hash of what it is or of what was asked.

    artifacts/ab/abcd...     a saved kernel, named by the SHA-256 of its bytes
    answers/12/1234...       an answer, named by the key of its request

Files are checked when they are read; one that has changed counts as missing and is removed. When
the folder outgrows its limit, what was not used for longest goes; a compile answer whose kernel has
gone counts as missing too.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from selector.service.answers import Answer, digest
from selector.service.shelf import Shelf


class Store(Shelf):
    """A folder of up to ``limit`` bytes on disk."""

    def __init__(self, folder: Path, limit: int) -> None:
        """``ServiceError`` if the folder cannot be used."""
        super().__init__(folder, limit, ("artifacts", "answers"))

    def has_artifact(self, sha: str) -> bool:
        return self._path("artifacts", sha).exists()

    def artifact(self, sha: str) -> bytes | None:
        """The saved kernel of that hash, or None."""
        path = self._path("artifacts", sha)
        data = self._whole(path, lambda data: data if digest(data) == sha else None)
        if data is not None:
            self._touch(path)
        return data

    def put_artifact(self, data: bytes) -> str:
        """Store a saved kernel; its hash. ``StoreFullError`` if there is no room."""
        sha = digest(data)
        self._write(self._path("artifacts", sha), data)
        return sha

    def has_answer(self, key: str) -> bool:
        """Whether there may be one: it is not looked into."""
        return self._path("answers", key).exists()

    def answer(self, key: str) -> Answer | None:
        """The answer to a request, or None; one that speaks of a kernel that has gone is None."""
        path = self._path("answers", key)
        found = self._whole(path, _unpacked)
        if found is None or (found.artifact and not self.has_artifact(found.artifact)):
            return None
        self._touch(path)
        return found

    def put_answer(self, key: str, answer: Answer) -> None:
        """Store an answer. ``StoreFullError`` if there is no room."""
        self._write(self._path("answers", key), _packed(answer))

    def used(self, sha: str) -> None:
        """A kernel is spoken of again: it goes later."""
        self._touch(self._path("artifacts", sha))


def _packed(answer: Answer) -> bytes:
    """The hash of all that follows, a line of JSON, and the body, compressed."""
    header = {"status": answer.status, "media": answer.media, "artifact": answer.artifact}
    rest = json.dumps(header).encode() + b"\n" + zlib.compress(answer.body, 1)
    return digest(rest).encode() + b"\n" + rest


def _unpacked(data: bytes) -> Answer | None:
    """The inverse of ``_packed``; None for anything else."""
    sha, _, rest = data.partition(b"\n")
    if digest(rest).encode() != sha:
        return None
    head, _, packed = rest.partition(b"\n")
    h = json.loads(head)
    return Answer(
        int(h["status"]), zlib.decompress(packed), str(h["media"]), str(h["artifact"]), True
    )
