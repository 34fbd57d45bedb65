"""Shared memory of a block: who touched which bytes, and who can know that it is over.

An access is of a component of the clocks, at a time: of a thread, or of a queue of its asynchronous
work (``copies``, ``stores``, ``matrix``), or of the phases of a barrier that the copy engine
reports to. What is asynchronous and waits for ordinary stores needs them fenced for its proxy, too
(PTX ISA, "Async Proxy"): that is the second row of the clocks.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from selector.dataclass import dataclass
from selector.gpu.simulator.threads import Clock


class Who(NamedTuple):
    """Of which component an access is. ``engine``: it is asynchronous work, of another proxy than
    ordinary loads and stores; ``part``: only some of it, others may do that beside it.
    """

    component: int
    writes: bool
    engine: bool = False
    part: bool = False


@dataclass(slots=True)
class Races:
    """The accesses of one block's memory: the chunks that they touch, by whose they are and by the
    time that ends them.
    """

    past: dict[Who, dict[int, int]] = field(default_factory=dict[Who, "dict[int, int]"])

    def touch(self, who: Who, time: int, chunks: int, clock: Clock) -> str:
        """Somebody who knows that ``clock`` does that; what is wrong with it."""
        known, fenced, *_ = clock.tolist()
        for other, times in self.past.items():
            if not (other.writes or who.writes) or (other.part and who.part):
                continue
            unfenced = who.engine and other.writes and not other.engine
            seen = (fenced if unfenced else known)[other.component]
            for at, touched in times.items():
                if seen < at and touched & chunks:
                    return _fault(other, who, told=known[other.component] >= at)
        if who.writes and not who.part:
            for times in self.past.values():
                _forget(times, chunks)
        times = self.past.setdefault(who, {})
        _forget(times, chunks & ~times.get(time, 0))
        times[time] = times.get(time, 0) | chunks
        return ""


def _forget(times: dict[int, int], chunks: int) -> None:
    """What a later access says as well: who knows of that knows of all that it came after."""
    for time, touched in tuple(times.items()):
        if touched & chunks:
            left = touched & ~chunks
            if left:
                times[time] = left
            else:
                del times[time]


def _fault(before: Who, who: Who, *, told: bool) -> str:
    if told:
        return "was stored without a fence for the asynchronous proxy"
    if not before.writes:
        return "may still be read"
    return "is being written by others" if who.writes else "is still being written"
