"""The tokens that clients have to send: a file with one a line, read again when it changes."""

from __future__ import annotations

import hmac
import logging
import time
from pathlib import Path

from selector.dataclass import dataclass
from selector.diagnostics import UserError

log = logging.getLogger(__name__)
LOOK_EVERY = 1.0
"""Seconds between two looks at the file."""


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """The lines of a token file; ``UserError`` if it cannot be read or has none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the token file {path}", str(error)) from None
    tokens = tuple(line.strip() for line in lines if line.strip() and line[0] != "#")
    if not tokens or any(not t.isascii() or " " in t for t in tokens):
        raise UserError(
            f"{path} is no token file", "it has one token a line, without blanks, and at least one"
        )
    return tuple(t.encode() for t in tokens)


@dataclass
class Tokens:
    """Those of a file that can be read (``UserError``); without a file, everybody may pass."""

    path: Path | None = None
    known: tuple[bytes, ...] = ()
    _seen: tuple[int, int, int] | None = None
    _looked: float = 0.0

    def __post_init__(self) -> None:
        if self.path is not None:
            self.known = read_tokens(self.path)
            self._seen = _state(self.path)
            self._looked = time.monotonic()

    def known_token(self, authorization: bytes) -> bytes | None:
        """The token in the value of an ``Authorization`` header, if it is one of the file's."""
        if self.path is not None:
            self._look(self.path)
        kind, _, token = authorization.partition(b" ")
        matches = [hmac.compare_digest(token.strip(), t) for t in self.known]
        return token.strip() if kind.lower() == b"bearer" and any(matches) else None

    def _look(self, path: Path) -> None:
        """Take over a file that has changed; one that is no token file changes nothing."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        state = _state(path)
        if state == self._seen:
            return
        self._seen = state
        try:
            self.known = read_tokens(path)
        except UserError as error:
            log.error("the tokens stay as they were: %s", error)


def _state(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
