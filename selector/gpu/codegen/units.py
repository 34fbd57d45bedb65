"""Units of threads that execute statements together, and when they must wait for each other.

A statement that touches memory which the unit has written since its last barrier, or overwrites
what it has read, is preceded by a barrier. At the entry of a loop everything that the loop touches
counts as touched, so that the state is the same for every iteration.
"""

from __future__ import annotations

from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.gpu.codegen.scalars.storage import Storage
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    THREAD,
    THREAD_OF_GROUP,
    Number,
    element,
    number,
    plus,
    pointer,
    remainder,
    signed,
)
from selector.gpu.ir.nodes import Commit, Drain, Fence, Sync
from selector.ir.nodes import Call, Expr
from selector.lowering.row_folds import WARP


@dataclass(slots=True)
class Unit:
    """The number of a thread within the unit, how many there are, and their barrier."""

    thread: Expr
    size: int
    barrier: Sync
    written: set[str] = field(default_factory=set[str])
    read: set[str] = field(default_factory=set[str])
    copying: bool = False  # asynchronous copies are in flight
    copied: set[str] = field(default_factory=set[str])  # what they write
    panels: bool = False  # wgmma reads what was written: it has to be told before the barrier
    unrounded: dict[str, Storage] = field(default_factory=dict[str, Storage])  # panels, as written

    def touch(self, reads: set[str], writes: set[str]) -> None:
        self.read |= reads
        self.written |= writes

    def forget(self) -> None:
        """After a barrier nothing is pending."""
        self.read.clear()
        self.written.clear()

    def state(self) -> Unit:
        """A copy, for what may or may not be executed."""
        return replace(
            self, written=set(self.written), read=set(self.read), copied=set(self.copied),
            unrounded=dict(self.unrounded),
        )  # fmt: skip

    def join(self, other: Unit) -> None:
        """Control comes from here or from ``other``: what is pending in either is pending."""
        self.touch(other.read, other.written)
        self.copying |= other.copying
        self.copied |= other.copied
        self.panels |= other.panels
        self.unrounded |= other.unrounded

    def must_wait(self, reads: set[str], writes: set[str]) -> bool:
        """Whether a statement that touches these needs a barrier before it."""
        return bool(reads & self.written or writes & (self.written | self.read))

    def wait(self, writer: Builder, touched: set[str] | None = None) -> None:
        """The barrier. Asynchronous copies arrive before it, unless the statement after it is known
        to touch nothing that they write: they stay pending.
        """
        pending: set[str] = set()
        if touched is None or touched & self.copied or self.unrounded:
            self.finish_copies(writer)
        else:
            pending = set(self.copied)
        if self.unrounded:
            writer.add(self.barrier)
            for name in sorted(self.unrounded):
                self.round(writer, self.unrounded[name])
            self.unrounded.clear()
        if self.panels:
            writer.add(Fence("proxy"))
        writer.add(self.barrier)
        self.forget()
        self.written |= pending

    def round(self, writer: Builder, staged: Storage) -> None:
        """Single floats that wgmma is to read, each word by one thread, as the copy engine rounds
        them: to the nearest of tf32, where wgmma itself would cut.
        """
        panels, kind = staged.panels, staged.type
        assert panels is not None
        words = panels.size // kind.bytes
        with writer.loop("word", self.thread, number(words), "rolled", number(self.size)):
            to = element(kind, pointer(staged.base), "word", staged.start)
            writer.store(to, Call(kind, "to_tf32", (to,)))

    def finish_copies(self, writer: Builder) -> None:
        if self.copying:
            writer.add(Commit("copies"))
            writer.add(Drain("copies", 0))
            self.copying = False
        self.copied.clear()


def named_sync(barrier: Number, threads: int, note: str = "") -> Sync:
    """Of so many threads of the block, at one of its barriers."""
    return Sync("named", number(barrier), threads, note)


def block_unit(threads: int) -> Unit:
    return Unit(signed(THREAD), threads, Sync("warp" if threads == WARP else "block"))


def warp_unit() -> Unit:
    return Unit(number("lane"), WARP, Sync("warp"))


def group_unit() -> Unit:
    return Unit(signed(THREAD_OF_GROUP), 128, named_sync(plus(2, "group"), 128))


def consumer_unit(threads: int) -> Unit:
    """All groups, without the one that feeds them."""
    return Unit(signed(THREAD), threads, named_sync(1, threads), panels=True)


def team_unit(threads: int) -> Unit:
    """One of several teams of groups: no more than eight groups have barriers before theirs."""
    thread = signed(remainder(THREAD, threads))
    return Unit(thread, threads, named_sync(plus(10, "team"), threads), panels=True)
