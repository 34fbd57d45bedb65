"""The zip archive of a saved kernel, member by member: written whole, read within bounds.

A file from elsewhere may be made to harm whoever reads it: small, and gigabytes once unpacked; with
two members of one name, of which tools see one each; with JSON so deep that its reader runs out of
stack. So nothing is unpacked before what the archive says of itself fits the limits, no member
gives more bytes than it announced, and only what ``pack`` writes is taken.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

MOST_BYTES = 128 << 20
"""Of a file, and of all its members unpacked."""
MOST_JSON_BYTES = 4 << 20
"""Of a JSON member: parsed, it takes some twenty times as much."""
MOST_DEPTH = 32
"""Lists and objects in one another in a JSON member."""
_MOST_MEMBERS = 650  # of 65 programs
_MOST_DIRECTORY_BYTES = 64 << 10
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_END = struct.Struct("<4s4H2LH")  # end of central directory, APPNOTE.TXT 4.3.16
_END_64 = b"PK\x06\x07"  # APPNOTE.TXT 4.3.15, before it
_ENCRYPTED = 1
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest a zip knows: equal kernels are equal files
_JSON_PARTS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.S)


def pack(members: Mapping[str, bytes]) -> bytes:
    """An archive of these members, the same for equal ones. ``ValueError`` if it is so large that
    ``unpack`` would not take it."""
    for name, data in members.items():
        _check_size(name, len(data))
    _check_total(map(len, members.values()))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def unpack(data: bytes) -> dict[str, bytes]:
    """The members of an archive. ``ValueError``, or what ``zipfile`` raises, for one that is
    damaged or not within the limits."""
    _check_directory(data)
    members: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        for info in infos:
            if info.compress_type not in _KINDS or info.flag_bits & _ENCRYPTED:
                raise ValueError(f"{info.filename} is packed in a way that is never used here")
            if info.filename in members:
                raise ValueError(f"{info.filename} is there twice")
            _check_size(info.filename, info.file_size)
            members[info.filename] = b""
        _check_total(info.file_size for info in infos)
        for info in infos:
            with archive.open(info) as file:  # a read without a size unpacks all there is
                members[info.filename] = file.read(info.file_size + 1)
            if len(members[info.filename]) != info.file_size:
                raise ValueError(f"{info.filename} is not as long as announced")
    return members


def parse_json(name: str, data: bytes) -> Any:
    """The value of a JSON member; ``ValueError`` if it is none, or too deep."""
    depth = 0
    for part in _JSON_PARTS.finditer(data):
        match part[0]:
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
            case _:
                continue
        if depth > MOST_DEPTH:
            raise ValueError(f"{name} is nested deeper than {MOST_DEPTH}")
    return json.loads(data)


def _check_directory(data: bytes) -> None:
    """Look at the directory of an archive before anything reads it."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    if len(data) < _END.size:
        raise ValueError("it is cut off")
    mark, disk, first, here, count, size, offset, comment = _END.unpack_from(
        data, len(data) - _END.size
    )
    if mark != b"PK\x05\x06" or disk or first or here != count or comment:
        raise ValueError("it does not end with the directory of its members")
    if data[-_END.size - 20 : -_END.size].startswith(_END_64):
        raise ValueError("its directory is of a kind that is never used here")
    if count > _MOST_MEMBERS or size > _MOST_DIRECTORY_BYTES:
        raise ValueError("it has too many members")
    if offset + size + _END.size != len(data):
        raise ValueError("there is more in it than its members")


def _check_size(name: str, size: int) -> None:
    most = MOST_JSON_BYTES if name.endswith(".json") else MOST_BYTES
    if size > most:
        raise ValueError(f"{name} has {size} bytes, more than {most}")


def _check_total(sizes: Iterable[int]) -> None:
    total = sum(sizes)
    if total > MOST_BYTES:
        raise ValueError(f"its members have {total} bytes, more than {MOST_BYTES}")
