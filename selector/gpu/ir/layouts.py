"""Layouts: where the elements of a memory or a fragment lie, as values.

A layout takes an index to named coordinates: a ``byte`` of a memory; a ``lane`` and ``register`` of
a fragment. Every dimension of the index is taken apart into digits, the fastest first, and each
digit adds its steps along the coordinates: lane maps, rows, panels and core matrices are one
constructor, ``strided``. What goes from a byte to another one stands before it: ``outer . inner``.

    swizzle(128) . strided(128, digits(64, 2, 8192))
    strided(digits(8, 4 * lane, 2 * register), digits(2, register, lane))

Padding is no layout: it is what no element lies in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selector.dataclass import dataclass
from selector.diagnostics import InternalError

CHUNK = 16  # bytes that stay together in whatever way rows are swizzled or dealt out
LINE = 128  # bytes after which a swizzle turns the chunks of a row by one more
GROUP_ROWS = 8  # rows after which every swizzle repeats
BYTE = "byte"

Place = dict[str, Any]  # numbers or arrays of them, by coordinate
Digit = tuple[int, tuple[tuple[str, int], ...]]  # how many values (0: all others); its steps


@dataclass(frozen=True, slots=True)
class Strided:
    """Mixed radix: the digits of each dimension."""

    dims: tuple[tuple[Digit, ...], ...]

    def __call__(self, *index: Any) -> Place:
        place: Place = {name: 0 for digits in self.dims for _, steps in digits for name, _ in steps}
        for rest, digits in zip(index, self.dims, strict=True):
            for extent, steps in digits:
                rest, value = divmod(rest, extent) if extent else (0, rest)
                for name, step in steps:
                    place[name] = place[name] + value * step
        return place

    def __str__(self) -> str:
        return f"strided({', '.join(map(_digits_text, self.dims))})"


@dataclass(frozen=True, slots=True)
class Swizzle:
    """Rows of 32, 64 or 128 bytes: the chunk c of the row that starts at byte s lies at chunk
    ``c ^ (s / 128)``, modulo the chunks of a row. So the copy engine writes, and the descriptors of
    wgmma read (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout").
    """

    row: int

    def __call__(self, byte: Any) -> Place:
        return {BYTE: byte ^ byte // LINE % (self.row // CHUNK) * CHUNK}

    def __str__(self) -> str:
        return f"swizzle({self.row})"


@dataclass(frozen=True, slots=True)
class Dealt:
    """Rows of ``pitch`` elements, each in ``step`` strips: of the chunks of ``per`` elements the
    first strip holds numbers 0, step, 2 * step ..., the second one 1, step + 1 ... So ``ldmatrix``
    reads windows an even number of chunks apart, which would meet in the same banks, side by side.
    """

    pitch: int
    step: int
    per: int

    def place(self, index: Any) -> Any:
        """The element where the program's element ``index`` lies."""
        row, x = divmod(index, self.pitch)
        chunk, inside = divmod(x, self.per)
        turn, strip = divmod(chunk, self.step)
        length, longer = divmod(self.pitch // self.per, self.step)
        start = strip * length + strip - (strip - longer) * (strip > longer)
        return row * self.pitch + (start + turn) * self.per + inside

    def __call__(self, index: Any) -> Place:
        return {BYTE: self.place(index)}

    def __str__(self) -> str:
        return f"dealt({self.pitch}, {self.step}, {self.per})"


@dataclass(frozen=True, slots=True)
class Composed:
    """``outer . inner``: from the one number that ``inner`` gives to another."""

    outer: Layout
    inner: Layout

    def __call__(self, *index: Any) -> Place:
        return self.outer(*self.inner(*index).values())

    def __str__(self) -> str:
        return f"{self.outer} . {self.inner}"


Layout = Strided | Swizzle | Dealt | Composed


def places(layout: Layout, *extents: int) -> dict[str, NDArray[np.int64]]:
    """Of every index, by coordinate."""
    found = layout(*np.indices(extents))
    return {name: np.broadcast_to(x, extents) for name, x in found.items()}


def is_injective(layout: Layout, *extents: int) -> bool:
    """Whether no two elements lie at the same place."""
    key = np.zeros(extents, np.int64)
    for x in places(layout, *extents).values():
        key = key * (x.max() + 1) + x
    return np.unique(key).size == key.size


def sizes(layout: Layout, *extents: int) -> Mapping[str, int]:
    """How far the elements reach along each coordinate."""
    return {name: int(x.max()) + 1 for name, x in places(layout, *extents).items()}


# ------------------------------------------------------------------ text


def _digits_text(digits: tuple[Digit, ...]) -> str:
    parts = [f"{extent}, {_steps_text(s)}" if extent else _steps_text(s) for extent, s in digits]
    return parts[0] if len(digits) == 1 and not digits[0][0] else f"digits({', '.join(parts)})"


def _steps_text(steps: tuple[tuple[str, int], ...]) -> str:
    return " + ".join(
        str(step) if name == BYTE else name if step == 1 else f"{step} * {name}"
        for name, step in steps
    )


def parse_layout(text: str) -> Layout:
    """The layout that prints so; ``InternalError`` where none does."""
    outer, dot, inner = text.partition(" . ")
    if dot:
        return Composed(parse_layout(outer), parse_layout(inner))
    word, _, inside = text.removesuffix(")").partition("(")
    match word:
        case "strided":
            return strided(inside)
        case "swizzle":
            return Swizzle(int(inside))
        case "dealt":
            return Dealt(*map(int, inside.split(",")))
        case _:
            raise InternalError(f"`{text}` is no layout")


def strided(text: str) -> Strided:
    """The mixed radix of the dimensions that print so."""
    dims = re.findall(r" *(?:digits\((.*?)\)|([^,]+))", text)
    return Strided(tuple(_parsed_digits(a or b) for a, b in dims))


def in_bytes(*dims: tuple[int, ...]) -> Strided:
    """Of dimensions in shared memory: the bytes of a step, between extents where there are several
    digits.
    """
    return strided(", ".join(f"digits({', '.join(map(str, d))})" for d in dims))


@cache
def core_matrices(along: int, across: int) -> Strided:
    """Of a row and a byte of depth of an operand of wgmma without a swizzle: core matrices of 8
    rows x 16 bytes, so many bytes to the next ones along the depth, and to the next rows.
    """
    return in_bytes((8, CHUNK, across), (CHUNK, 1, along))


def _parsed_digits(text: str) -> tuple[Digit, ...]:
    parts = text.split(",")
    if len(parts) % 2:
        parts.insert(-1, "0")
    return tuple((int(n), _parsed_steps(s)) for n, s in zip(parts[::2], parts[1::2], strict=True))


def _parsed_steps(text: str) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for term in text.split("+"):
        step, _, name = term.strip().rpartition(" * ")
        found.append((BYTE, int(name)) if name.isdecimal() else (name, int(step or 1)))
    return tuple(found)
