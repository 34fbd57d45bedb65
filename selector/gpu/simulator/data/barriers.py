"""Barriers in shared memory while kernels run with numbers: phases, arrivals and bytes. Who knows
what of whom is what ``protocol`` follows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.gpu.ir.nodes import Arrive, Await, Init, Retire, Sync
from selector.gpu.simulator.data.machine import Machine
from selector.gpu.simulator.data.values import Threads, per_thread

Waiting = Generator[Callable[[], bool]]
Place = tuple[int, int]  # a block, and an address there


@dataclass(slots=True)
class Phase:
    """A barrier: what its phase still waits for, and how many are over."""

    arrivals: int
    pending: int
    bytes: int = 0
    done: int = 0

    def over(self, phase: int) -> bool:
        """Whether a wait for that phase ends, by its parity."""
        return (self.done - 1) & 1 == phase & 1


@dataclass(slots=True)
class _Meeting:
    """How many have come to a barrier of threads, and how often all have met."""

    come: int = 0
    met: int = 0


class Barriers:
    """Of all blocks. ``alone``: all threads go the same way, and wait for nobody."""

    def __init__(self, machine: Machine, *, alone: bool) -> None:
        self.machine, self.alone = machine, alone
        self.phases: dict[Place, Phase] = {}
        self.meetings: dict[Any, _Meeting] = {}

    def _at(self, block: int, address: int) -> Phase | None:
        found = self.phases.get((block, address))
        if found is None:
            self.machine.memories.fault("no barrier is there")
        return found

    def _places(self, v: Threads, address: Any, block: Any) -> dict[Place, int]:
        """How many threads mean each barrier."""
        pairs = np.stack([per_thread(block, v.count), per_thread(address, v.count)], -1)
        found, counts = np.unique(pairs.astype(np.int64), axis=0, return_counts=True)
        return {(int(b), int(a)): int(n) for (b, a), n in zip(found, counts, strict=True)}

    # ------------------------------------------------------------------ arrivals

    def init(self, v: Threads, node: Init) -> None:
        m = self.machine
        arrivals = per_thread(m.place(v, node.arrivals), v.count)
        address = per_thread(m.place(v, node.barrier), v.count)
        for block, at, count in zip(v["(block)"], address, arrivals, strict=True):
            self.phases[int(block), int(at)] = Phase(int(count), int(count))

    def retire(self, v: Threads, node: Retire) -> None:
        for place in self._places(v, self.machine.place(v, node.barrier), v["(block)"]):
            self.phases.pop(place, None)

    def arrive(self, v: Threads, node: Arrive) -> None:
        m, block = self.machine, v["(block)"]
        if node.block is not None:
            block = block - v["cluster_rank"] + m.place(v, node.block)
        bytes_ = 0 if node.bytes is None else m.place(v, node.bytes)
        for place, count in self._places(v, m.place(v, node.barrier), block).items():
            phase = self._at(*place)
            if phase is not None:
                phase.bytes += count * int(np.max(bytes_))
                phase.pending -= count * (2 if node.after else 1)
                self._complete(phase)

    def expect(self, block: int, address: int, bytes_: int) -> None:
        phase = self._at(block, address)
        if phase is not None:
            phase.bytes += bytes_

    def land(self, block: int, address: int, bytes_: int) -> None:
        """Bytes of the copy engine have come."""
        phase = self._at(block, address)
        if phase is not None:
            phase.bytes -= bytes_
            self._complete(phase)

    def _complete(self, phase: Phase) -> None:
        if phase.pending <= 0 and phase.bytes == 0:
            phase.done, phase.pending = phase.done + 1, phase.pending + phase.arrivals

    # ------------------------------------------------------------------ waits

    def wait(self, v: Threads, node: Await) -> Waiting:
        m = self.machine
        address = per_thread(m.place(v, node.barrier), v.count)
        phase = per_thread(m.place(v, node.phase), v.count)
        asked = np.unique(np.stack([v["(block)"], address, phase], -1).astype(np.int64), axis=0)
        left = [(p, n) for block, at, n in asked.tolist() if (p := self._at(block, at)) is not None]

        def over() -> bool:
            return all(p.over(n) for p, n in left)

        if not over():
            yield over

    def meet(self, v: Threads, node: Sync) -> Waiting:
        if self.alone or node.scope == "warp":
            return
        kernel = self.machine.kernel
        key, threads, of = "block", kernel.threads, v["(block)"]
        if node.scope in ("cluster", "cluster_data"):
            key, threads, of = "cluster", threads * kernel.cluster, of // kernel.cluster
        elif node.barrier is not None:
            key, threads = f"named {self.machine.place(v, node.barrier)}", node.threads
        for block, count in zip(*np.unique(of, return_counts=True), strict=True):
            meeting = self.meetings.setdefault((key, int(block)), _Meeting())
            meeting.come += int(count)
            if meeting.come >= threads:
                meeting.come -= threads
                meeting.met += 1
        yield from self._met([self.meetings[key, block] for block in np.unique(of).tolist()])

    def _met(self, meetings: list[_Meeting]) -> Waiting:
        """Until nobody is missing at what these threads came to."""
        waits = [(meeting, meeting.met + 1) for meeting in meetings if meeting.come]

        def over() -> bool:
            return all(meeting.met >= times for meeting, times in waits)

        if not over():
            yield over
