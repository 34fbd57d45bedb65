"""What threads load and store, and what is told of it: bytes outside of an array, addresses that an
access cannot have, and what nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from selector.gpu.ir.layouts import CHUNK
from selector.gpu.simulator.data.values import (
    BOOLEAN,
    Array,
    Index,
    Mask,
    Pointer,
    Space,
    Threads,
    per_thread,
)

WORDS = CHUNK // 4


class Fences:
    """Who stored each chunk of shared memory last, and when; when each thread last made what it
    has stored visible to asynchronous work (PTX ISA, "Async Proxy"). Whether who does that work
    knows of the fence is what ``protocol`` follows.
    """

    def __init__(self, shared: Space) -> None:
        self.chunk = np.zeros(-(-shared.data.size // CHUNK), np.int64)
        self.by = np.zeros(self.chunk.size, np.int64)
        self.fenced = np.zeros(0, np.int64)
        self.time = 0
        self.checked, self.clean = -1, True  # when all was looked at, and whether all is seen

    def of(self, threads: int) -> None:
        """For so many threads."""
        self.fenced = np.zeros(threads, np.int64)

    def stored(self, v: Threads, chunks: Index, active: Any) -> None:
        self.time += 1
        self.chunk[chunks] = self.time
        self.by[chunks] = v["(thread)"] if active is None else v["(thread)"][active]

    def fence(self, v: Threads) -> None:
        self.time += 1
        self.fenced[v["(thread)"]] = self.time

    def seen(self, chunks: Index) -> bool:
        """Whether asynchronous work sees what is there."""
        if self.checked < self.time:
            self.clean = bool((self.chunk <= self.fenced[self.by]).all())
            self.checked = self.time
        return self.clean or bool((self.chunk[chunks] <= self.fenced[self.by[chunks]]).all())


class Memories:
    """Of a launch: ``shared`` memory of its blocks, and how a thread comes to its block's; the
    ``faults`` that are found, each once, where ``here`` is the node that is run. ``active``: of the
    threads whose expression is evaluated those who come to this part of it (None: all). ``met``:
    somebody has loaded what nobody wrote.
    """

    def __init__(self, shared: Space, here: Callable[[], str]) -> None:
        self.shared, self.here = shared, here
        self.faults: dict[str, None] = {}
        self.spaces = [shared]  # that chunks are on their way to
        self.active: Mask | None = None
        self.met = False
        self.first = ""  # who read first what nobody wrote
        self.fences = Fences(shared)

    def number(self, space: Space) -> int:
        """Of a memory among all that something goes to."""
        if not any(x is space for x in self.spaces):
            self.spaces.append(space)
        return next(i for i, x in enumerate(self.spaces) if x is space)

    def fault(self, text: str) -> None:
        self.faults.setdefault(f"{text}: {self.here()}")

    # ------------------------------------------------------------------ places

    def places(self, v: Threads, p: Pointer, bytes_: int, active: Any = None) -> Index:
        """Elements of so many bytes from the begin of all blocks' memory on; 0 for who does not
        come here.
        """
        byte = per_thread(p.byte, v.count).astype(np.int64)
        if active is None:
            active = self.active
        outside = (byte < 0) | (byte > p.space.size - bytes_)
        astray = byte & (min(bytes_, CHUNK) - 1)
        wrong = outside | (astray != 0)
        if wrong.any():
            really = wrong if active is None else wrong & active
            if really.any():
                what = "outside of" if (outside & really).any() else "between elements of"
                self.fault(f"{what} `{p.space.name}`")
            byte = np.where(wrong, 0, byte)
        if p.space.each:
            byte = byte + v["(block)"] * p.space.each
        return byte // bytes_

    def _meet(self, marks: Array) -> None:
        """Somebody loads what has such marks."""
        if marks.any():
            self.met = True
            if not self.first:
                self.first = self.here()

    # ------------------------------------------------------------------ elements

    def load(self, v: Threads, p: Pointer) -> Array:
        """The element of each thread."""
        at = self.places(v, p, p.element.itemsize)
        if p.space.unwritten is not None:
            marks = p.space.marks(p.element.itemsize)[at]
            self._meet(marks if self.active is None else marks * self.active)
        found = p.space.typed(p.element)[at]
        return found.astype(bool) if p.element == BOOLEAN else found

    def loaded(self, v: Threads, p: Pointer) -> tuple[Array, Mask | None]:
        """The same, and whose nobody wrote."""
        self.met = False
        found = self.load(v, p)
        return found, self.marks(v, p) if self.met else None

    def marks(self, v: Threads, p: Pointer) -> Mask | None:
        """Whose element nobody wrote."""
        if p.space.unwritten is None:
            return None
        marks = p.space.marks(p.element.itemsize)[self.places(v, p, p.element.itemsize)] != 0
        return marks if marks.any() else None

    def store(self, v: Threads, p: Pointer, value: Any, mask: Any = None, active: Any = None):
        """Each thread's element, for those that are ``active``."""
        at = self.places(v, p, p.element.itemsize, active)
        value = np.broadcast_to(value, at.shape)
        mask = None if mask is None else np.broadcast_to(mask, at.shape)
        if active is not None:
            at, value = at[active], value[active]
            mask = None if mask is None else mask[active]
        p.space.typed(p.element)[at] = value
        if p.space.unwritten is not None:
            self._mark(p.space, p.element.itemsize, at, mask)
        if p.space is self.shared:
            self.fences.stored(v, at * p.element.itemsize // CHUNK, active)

    def _mark(self, space: Space, bytes_: int, at: Index, mask: Mask | None) -> None:
        marks = space.marks(bytes_)
        if mask is None or not mask.any():
            marks[at] = 0
            return
        marks[at] = np.where(mask, np.iinfo(marks.dtype).max, 0)
        if not space.each:
            self.report(f"`{space.name}` gets what nobody wrote")

    def report(self, what: str) -> None:
        """Something is done with what nobody wrote."""
        self.fault(f"{what}, first read by {{{self.first or 'nobody'}}}")

    # ------------------------------------------------------------------ chunks

    def load_chunk(self, v: Threads, p: Pointer, active: Any = None) -> tuple[Array, Mask | None]:
        """16 bytes of each thread, as words, and which of them nobody wrote."""
        at = self._words(self.places(v, p, CHUNK, active))
        words = p.space.typed(np.dtype("u4"))[at]
        if p.space.unwritten is None:
            return words, None
        marks = p.space.marks(4)[at] != 0
        self._meet(marks if active is None else marks & active[:, None])
        return words, marks if marks.any() else None

    def store_chunk(
        self, v: Threads, p: Pointer, words: Array, mask: Any = None, active: Any = None
    ):
        """16 bytes of each thread that is ``active``."""
        chunk = self.places(v, p, CHUNK, active)
        at = self._words(chunk)
        if active is not None:
            at, words, chunk = at[active], words[active], chunk[active]
            mask = None if mask is None else mask[active]
        p.space.typed(np.dtype("u4"))[at] = words
        if p.space.unwritten is not None:
            self._mark(p.space, 4, at, mask)
        if p.space is self.shared:
            self.fences.stored(v, chunk, active)

    def asynchronous(self, byte: Index) -> None:
        """Asynchronous work touches bytes of all blocks' shared memory."""
        if not self.fences.seen(byte // CHUNK):
            self.fault("was stored without a fence for the asynchronous proxy")

    def _words(self, chunks: Index) -> Index:
        return chunks[:, None] * WORDS + np.arange(WORDS)

    # ------------------------------------------------------------------ bytes

    def read_bytes(self, p: Pointer, at: Index) -> tuple[Array, Array | None]:
        """Bytes of all blocks' memory, and the marks of those that nobody wrote."""
        if p.space.unwritten is None:
            return p.space.data[at], None
        marks = p.space.unwritten[at]
        self._meet(marks)
        return p.space.data[at], marks if marks.any() else None
