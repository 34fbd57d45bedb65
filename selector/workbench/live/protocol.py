"""Messages of the Language Server Protocol: JSON-RPC 2.0 with a header that says how long it is.

Positions there count lines from 0 and UTF-16 code units; here lines and characters from 1.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL, NOT_INITIALIZED = (
    -32700, -32600, -32601, -32602, -32603, -32002,
)  # fmt: skip
MOST = 16 << 20
"""Bytes of a message that are read."""

Json = dict[str, Any]


class ProtocolError(Exception):
    """A message that cannot be taken; ``code`` is that of JSON-RPC. ``fatal``: where the next one
    begins is not known."""

    def __init__(self, code: int, why: str, fatal: bool = False) -> None:
        super().__init__(why)
        self.code, self.fatal = code, fatal


def read_message(source: BinaryIO) -> Json | None:
    """The next message; None at the end. ``ProtocolError`` for what is none."""
    length = -1
    while (line := source.readline(1024)) not in (b"\r\n", b"\n"):
        if not line:
            return None
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
    if not 0 <= length <= MOST:
        why = f"no Content-Length, or one above {MOST}"
        raise ProtocolError(INVALID_REQUEST, why, fatal=True)
    body = source.read(length)
    if len(body) < length:
        return None
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(PARSE_ERROR, str(error)) from None
    if not isinstance(message, dict):
        raise ProtocolError(INVALID_REQUEST, "a message is an object")
    return message


def write_message(sink: BinaryIO, message: Json) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sink.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    sink.flush()


def line_of(text: str, line: int) -> str:
    """A line by its number from 1; empty behind the end."""
    lines = text.split("\n")
    return lines[line - 1] if 0 < line <= len(lines) else ""


def to_wire(text: str, line: int, column: int) -> Json:
    """A place of a text as the protocol has it."""
    before = line_of(text, line)[: column - 1]
    return {"line": line - 1, "character": len(before.encode("utf-16-le", "surrogatepass")) // 2}


def span_to_wire(text: str, line: int, column: int, length: int) -> Json:
    """So many characters of a line."""
    return {"start": to_wire(text, line, column), "end": to_wire(text, line, column + length)}


def from_wire(text: str, place: Json) -> tuple[int, int]:
    """Line and column, from 1."""
    line, character = int(place["line"]) + 1, max(0, int(place["character"]))
    units = line_of(text, line).encode("utf-16-le", "surrogatepass")[: 2 * character]
    return line, len(units.decode("utf-16-le", "ignore")) + 1
