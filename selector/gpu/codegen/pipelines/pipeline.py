"""Pipelines: memory in stages, and barriers that say of each when it is full and when it is free.

Who fills a stage acquires it (until it is free) and commits what is on its way there; who reads it
waits (until it is full) and releases it. These verbs are written here and nowhere else. Who says
them, and when, are policies: all threads of a block (``mainloop``, ``box_mainloop``), a group of
its own (``warpgroups.feeding``, ``.warp_specialised``) or the groups that multiply
(``.multistage``), in pieces of a stage (``.window_mainloop``), over all turns of a block and by
teams (``.persistent``), for all blocks of a cluster (``.clusters``), one thread for tensor memory
(``.tensor_mainloop``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.ir import nodes as ir
from selector.gpu.ir.expressions import (
    BARRIER_BYTES,
    Number,
    barrier,
    minus,
    number,
    plus,
    shared_address,
)
from selector.ir.nodes import Expr


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``stages``, each of ``parts`` that come and go by themselves. What the text calls the arrays
    of barriers (``free`` empty: that a stage is free is known otherwise), the stage at hand (empty:
    there is one) and how often it came around; ``how`` threads wait. ``part``: which one of the
    stage is meant, where all come and go together.
    """

    context: KernelContext
    stages: int
    how: str = "asleep"
    parts: int = 1
    full: str = "full"
    free: str = "free_"
    slot: str = "slot"
    phase: str = "round"
    part: int = 0

    @property
    def count(self) -> int:
        """Barriers of each array."""
        return self.stages * self.parts

    def _add(self, *nodes: ir.Node) -> None:
        for node in nodes:
            self.context.writer.add(node)

    def _at(self, barriers: str, slot: Number | None) -> Expr:
        if not self.slot:
            return number(barriers)
        at = self.slot if slot is None else slot
        return barrier(barriers, plus(at, self.part * self.stages) if self.part else at)

    def filled(self, slot: Number | None = None) -> Expr:
        """The barrier that says when a stage, the one at hand, is full."""
        return self._at(self.full, slot)

    def freed(self, slot: Number | None = None) -> Expr:
        """The one that says when it is free."""
        return self._at(self.free, slot)

    def make(
        self,
        by: Expr,
        full: Expr,
        free: Expr,
        what: str = "barriers",
        before: ir.Node | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Declare the barriers, and have the thread that is asked for (``by``) make them, whose
        phases end with so many arrivals (``before`` those of a free one, a declaration), and go on
        with what comes ``then``.
        """
        c, w, bytes_ = self.context, self.context.writer, BARRIER_BYTES * self.count
        offset = c.shared.allocate(2 * bytes_, what)
        self._add(ir.Let("u32", (self.full,), (shared_address(offset),)))
        if self.free:
            self._add(ir.Let("u32", (self.free,), (plus(self.full, bytes_),)))
        with w.when(by):
            with w.loop("i", number(0), number(self.count)) if self.slot else nullcontext():
                self._add(ir.Init(self.filled("i"), full))
                self._add(*(() if before is None else (before,)))
                if self.free:
                    self._add(ir.Init(self.freed("i"), free))
            then()

    def announce(self) -> None:
        """The barriers, to the copy engine."""
        self._add(ir.Fence("barriers"))

    def retire(self, by: Expr) -> None:
        """Nobody waits any more: others may be made in their place."""
        w, count = self.context.writer, self.count * (2 if self.free else 1)
        with w.when(by), w.loop("i", number(0), number(count)):
            self._add(ir.Retire(barrier(self.full, "i")))

    def begin(self, slot: Expr | None = None, phase: Expr | None = None) -> None:
        """At a stage, which came around so often."""
        first = (number(0) if e is None else e for e in (slot, phase))
        self._add(ir.State("int", (self.slot, self.phase), tuple(first)))

    def advance(self, how: str = "branch", by: Expr | None = None) -> None:
        """On to the next stage."""
        self._add(ir.Advance(how, self.phase, self.stages, by))

    def acquire(self, slot: Number | None = None, phase: Expr | None = None) -> None:
        """Until a stage is free: its readers have released it after that phase."""
        before = minus(self.phase, 1) if phase is None else phase
        self._add(ir.Await(self.how, self.freed(slot), before))

    def expect(self, bytes_: int, slot: Number | None = None) -> None:
        """The copy engine brings so many bytes, and commits them itself."""
        self._add(ir.Arrive(self.filled(slot), number(bytes_)))

    def commit(self, after: str, slot: Number | None = None) -> None:
        """When this thread's copies (or, ``after`` matrix, products in tensor memory) are there."""
        self._add(ir.Arrive(self.filled(slot), after=after))

    def commit_stores(self, full: Expr | None = None) -> None:
        """What this thread has stored and copied is complete, for all to see: the copy engine and
        wgmma, too.
        """
        self._add(ir.Commit("copies"), ir.Drain("copies", 0), ir.Fence("proxy"))
        self._add(ir.Arrive(self.filled() if full is None else full))

    def wait(self, slot: Number | None = None, phase: Number | None = None) -> None:
        """Until a stage, the one at hand, is full, for the so manieth time."""
        times = self.phase if phase is None else phase
        self._add(ir.Await(self.how, self.filled(slot), number(times)))

    def release(self, after: str = "", free: Expr | None = None, block: Expr | None = None) -> None:
        """This thread does not need it any more, or will not ``after`` its products; or another
        one, by its barrier (``free``), of which a ``block`` of the cluster is told.
        """
        self._add(ir.Arrive(self.freed() if free is None else free, after=after, block=block))
