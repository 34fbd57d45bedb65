"""Values of threads: an array of one for each, or a number for all; pointers, and descriptors.

Registers and shared memory begin as what nobody wrote. What is made of that is told apart from
numbers by masks beside the values, not by NaN: integers have none, and zero times it is not zero
either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.gpu.cuda.expressions import TYPES
from selector.ir.types import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Type,
)

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]

BOOLEAN = np.dtype("?")

DTYPES: dict[Type, np.dtype[Any]] = {
    FLOAT16: np.dtype("f2"), BFLOAT16: np.dtype("u2"), FLOAT32: np.dtype("f4"),
    FLOAT64: np.dtype("f8"), INT8: np.dtype("i1"), INT16: np.dtype("i2"), INT32: np.dtype("i4"),
    INT64: np.dtype("i8"), BOOL: np.dtype("?"), UINT8: np.dtype("u1"), UINT16: np.dtype("u2"),
    UINT32: np.dtype("u4"), UINT64: np.dtype("u8"),
}  # fmt: skip

# A chunk of any alignment on its way: its bytes, and the memory and the byte that it goes to.
SHIFTED = np.dtype([("bytes", "u1", (16,)), ("space", "i2"), ("to", "i8")])

# By their names in C.
KINDS: dict[str, np.dtype[Any]] = {
    **{TYPES[t]: dtype for t, dtype in DTYPES.items()},
    "unsigned char": np.dtype("u1"),
    "Shifted": SHIFTED,
}


@dataclass(slots=True)
class Space:
    """Memory: its bytes; which ones nobody wrote (0: somebody did; None: all are written); how many
    each block has of its own (0: all blocks have the same).
    """

    name: str
    data: npt.NDArray[np.uint8]
    unwritten: npt.NDArray[np.uint8] | None
    size: int
    each: int = 0

    def typed(self, element: np.dtype[Any]) -> Array:
        return self.data.view(np.uint8 if element == BOOLEAN else element)

    def marks(self, bytes_: int) -> Array:
        """Of elements of so many bytes, whether some of one is unwritten: what is not 0."""
        assert self.unwritten is not None
        return self.unwritten.view(f"u{bytes_}")


@dataclass(frozen=True, slots=True)
class Pointer:
    """To elements of a memory: bytes from its begin, of that of a thread's own block."""

    space: Space
    element: np.dtype[Any]
    byte: Any

    def __add__(self, elements: Any) -> Pointer:
        step = np.int64(self.element.itemsize)
        return Pointer(self.space, self.element, self.byte + step * elements)

    def moved(self, bytes_: Any) -> Pointer:
        return Pointer(self.space, self.element, self.byte + bytes_)

    def of(self, chosen: Index) -> Pointer:
        return Pointer(self.space, self.element, part_of(self.byte, chosen))


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand of wgmma: the byte of shared memory that it starts at, and its steps."""

    start: Any
    leading: int
    stride: int
    swizzle: int

    def of(self, chosen: Index) -> Matrix:
        start = part_of(self.start, chosen)
        return Matrix(start, self.leading, self.stride, self.swizzle)


def part_of(value: Any, chosen: Index) -> Any:
    """That of some threads."""
    match value:
        case Pointer() | Matrix():
            return value.of(chosen)
        case _:
            return value[chosen] if value.ndim else value


class Threads(dict[str, Any]):
    """Some threads, in order, and the values of names; ``unwritten``: which of these are made of
    what nobody wrote. A part of others (``within``), those that are ``chosen`` of them, has their
    values until it sets its own.
    """

    def __init__(self, count: int, within: Threads | None = None, chosen: Any = None) -> None:
        super().__init__()
        self.count, self.within, self.chosen = count, within, chosen
        self.unwritten: dict[str, Mask] = {}
        self.own: set[str] = set()  # names that these threads have set, not only asked for

    def __missing__(self, name: str) -> Any:
        if self.within is None:
            raise InternalError(f"`{name}` has no value")
        value = self[name] = part_of(self.within[name], self.chosen)
        mask = self.within.mask(name)
        if mask is not None:
            self.unwritten[name] = mask[self.chosen]
        return value

    def mask(self, name: str) -> Mask | None:
        """Whose value of a name is made of what nobody wrote; None: nobody's."""
        _ = self[name]
        return self.unwritten.get(name)

    def put(self, name: str, value: Any, mask: Any = None) -> None:
        self[name] = value
        self.own.add(name)
        if mask is None:
            self.unwritten.pop(name, None)
        else:
            shape = np.shape(value) or (self.count,)
            same = np.shape(mask) == shape
            self.unwritten[name] = mask if same else np.array(np.broadcast_to(mask, shape))

    def changed(self, name: str) -> tuple[Array, Mask | None]:
        """An array of these threads' own, and its mask, to be changed where they are."""
        if name not in self.own:
            mask = self.mask(name)
            self.put(name, np.array(self[name]), None if mask is None else np.array(mask))
        return self[name], self.unwritten.get(name)

    def kept(self, name: str) -> tuple[Any, Mask | None] | None:
        """What these threads have set it to so far, for ``restore``."""
        return (self[name], self.unwritten.get(name)) if name in self.own else None

    def restore(self, name: str, kept: tuple[Any, Mask | None] | None) -> None:
        self.pop(name, None)
        self.unwritten.pop(name, None)
        self.own.discard(name)
        if kept is not None:
            self.put(name, *kept)

    def part(self, mask: Mask) -> Threads:
        chosen = np.flatnonzero(mask)
        return Threads(chosen.size, self, chosen)

    def join(self, part: Threads, names: Iterable[str]) -> None:
        """Take over what a part has set of those names."""
        for name in names:
            if name in part.own:
                self._take(name, part)

    def _take(self, name: str, part: Threads) -> None:
        value, mask = part[name], part.unwritten.get(name)
        old, old_mask = self[name], self.mask(name)
        shape = (self.count, *np.shape(value)[1:])
        whole = np.array(np.broadcast_to(old, shape))
        whole[part.chosen] = value
        if mask is not None or old_mask is not None:
            marks = np.zeros(shape, bool) if old_mask is None else np.array(old_mask)
            marks[part.chosen] = False if mask is None else mask
            old_mask = marks if marks.any() else None
        self.put(name, whole, old_mask)

    def places_in(self, outer: Threads) -> Index:
        """Which of others these are a part of."""
        places, at = np.arange(self.count), self
        while at is not outer:
            assert at.within is not None
            places, at = at.chosen[places], at.within
        return places


def per_thread(value: Any, count: int) -> Array:
    """One for each."""
    return np.broadcast_to(value, (count,)) if np.ndim(value) == 0 else value
