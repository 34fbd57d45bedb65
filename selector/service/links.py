"""Short links: requests that an address can name.

    links/3f/3fa29c1d07b5e48     a request, compressed, named by the first 60 bits of its SHA-256

In an address these bits are ten characters. The same request always has the same name; what has
changed on disk no longer has its own, and counts as missing. Nothing makes a link again that has
gone, as a computation does an answer: so links have room of their own, for which only they compete.
"""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path

from selector.service.answers import digest
from selector.service.shelf import Shelf

PART = 8
"""Links take up to one part in so many of the store."""
LARGEST = 256 << 10
"""Bytes of a request that can be kept."""
BURST, EVERY = 20, 10.0
"""A client makes so many links at once, and then one in so many seconds."""
_ID = re.compile(r"[A-Za-z0-9_-]{10}", re.ASCII)


def is_link(name: str) -> bool:
    """Whether a link could have that name."""
    return _ID.fullmatch(name) is not None


def link_name(data: bytes) -> str:
    """The name of a request: ten characters that an address takes as they are."""
    return base64.urlsafe_b64encode(bytes.fromhex(digest(data)[:16]))[:10].decode()


def _request(data: bytes, name: str) -> bytes | None:
    """What was compressed; None for anything but the request of that name."""
    try:
        found = zlib.decompress(data)
    except zlib.error:
        return None
    return found if link_name(found) == name else None


class Links(Shelf):
    """The requests that were kept, in up to ``limit`` bytes on disk."""

    def __init__(self, folder: Path, limit: int) -> None:
        """``ServiceError`` if the folder cannot be used."""
        super().__init__(folder, limit, ("links",))

    def get(self, name: str) -> bytes | None:
        """The request of that name, or None."""
        path = self._place(name)
        found = self._whole(path, lambda data: _request(data, name))
        if found is not None:
            self._touch(path)
        return found

    def put(self, data: bytes) -> str:
        """Keep a request; its name. ``StoreFullError`` if there is no room."""
        name = link_name(data)
        self._write(self._place(name), zlib.compress(data, 6))
        return name

    def _place(self, name: str) -> Path:
        """In hexadecimal digits: some file systems take `a` and `A` for the same."""
        return self._path("links", base64.urlsafe_b64decode(name + "A=").hex()[:15])
