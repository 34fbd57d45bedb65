"""Messages between the server and a worker: a JSON header and byte strings, with their lengths.

Nothing is pickled: a worker that has gone wrong can send bytes, and no code.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

from selector.dataclass import dataclass

_LENGTHS = struct.Struct(">III")
LONGEST = 32 << 20
"""Bytes of a message: the server holds it, and what it is made into."""


@dataclass(frozen=True, slots=True)
class Frame:
    """``body`` and ``artifact`` are empty where a message has none."""

    header: Mapping[str, Any]
    body: bytes = b""
    artifact: bytes = b""

    def parts(self) -> tuple[bytes, ...]:
        """What it is over a pipe, one after the other: long ones are not copied."""
        header = json.dumps(self.header, separators=(",", ":")).encode()
        lengths = _LENGTHS.pack(len(header), len(self.body), len(self.artifact))
        return tuple(part for part in (lengths + header, self.body, self.artifact) if part)

    def to_bytes(self) -> bytes:
        return b"".join(self.parts())


def write(file: BinaryIO, frame: Frame) -> None:
    file.write(frame.to_bytes())
    file.flush()


def read(file: BinaryIO) -> Frame | None:
    """The next message; None at the end."""
    head = file.read(_LENGTHS.size)
    if len(head) < _LENGTHS.size:
        return None
    lengths = _LENGTHS.unpack(head)
    return _frame(file.read(sum(lengths)), lengths)


def standard_pipes() -> tuple[BinaryIO, BinaryIO]:
    """What a process reads and writes messages with: its standard input and output, which are out
    of reach of whatever prints from then on.
    """
    requests, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return os.fdopen(requests, "rb"), os.fdopen(answers, "wb")


async def receive(stream: asyncio.StreamReader) -> Frame:
    """The next message. ``IncompleteReadError`` at the end, ValueError for what is no message."""
    lengths = _LENGTHS.unpack(await stream.readexactly(_LENGTHS.size))
    if sum(lengths) > LONGEST:
        raise ValueError("a message that is too long")
    return _frame(await stream.readexactly(sum(lengths)), lengths)


def _frame(data: bytes, lengths: tuple[int, ...]) -> Frame:
    header, body, _ = lengths
    try:
        found = json.loads(data[:header].decode())
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("a message without a header")
    return Frame(dict(found), data[header : header + body], data[header + body :])  # pyright: ignore
