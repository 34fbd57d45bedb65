"""The swizzle of ``gpu.ir.layouts`` in C."""

from __future__ import annotations

from selector.gpu.ir.layouts import CHUNK, LINE, Swizzle

TURN = f"row * row_bytes / {LINE} & row_bytes / {CHUNK} - 1"
"""By how many chunks a ``row`` is turned, of whichever swizzle has rows of ``row_bytes``."""


def turn(row: str, swizzle: Swizzle) -> str:
    """The same for one swizzle; ``row``: a number that is no sum."""
    shift = (LINE // swizzle.row).bit_length() - 1
    number = f"{row} >> {shift}" if shift else row
    return f"{number} & {swizzle.row // CHUNK - 1}"
