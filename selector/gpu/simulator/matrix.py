"""Asynchronous instructions: what they have until they are drained (PTX ISA,
"wgmma.wait_group": until then nobody may touch their registers, nor write what they read).

Instructions of a group of warps are of groups of their queue, which are counted: those of number n
are complete when one of its threads has drained so many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator

import numpy as np

from selector.gpu.ir.products import Busy
from selector.gpu.simulator.threads import GROUP, Agent, Clock

Range = tuple[int, int]  # of bytes


class Instructions:
    """Those of all blocks."""

    def __init__(self, agents: list[Agent]) -> None:
        self.members: dict[tuple[int, int], list[Agent]] = defaultdict(list)
        for agent in agents:
            self.members[_group(agent)].append(agent)
        # By block: of a range of bytes, by group, the number of the last that reads it.
        self.reads: dict[int, dict[Range, dict[int, int]]] = defaultdict(dict)

    def issue(self, agent: Agent, node: Busy) -> None:
        """A thread's part in some of them."""
        agent.matrix.open.update(node.fragments)
        block, group = _group(agent)
        for name, first, last in zip(node.descriptors, node.first, node.last, strict=True):
            start = agent.descriptors[name]
            readers = self.reads[block].setdefault((start + first, start + last), {})
            readers[group] = max(readers.get(group, 0), len(agent.matrix.clocks) + 1)

    def commit(self, agent: Agent) -> None:
        """What a thread has issued is a group of the queue."""
        agent.clock[agent.number] += 1
        agent.matrix.clocks.append(agent.clock.copy())
        agent.matrix.groups.append(frozenset(agent.matrix.open))
        agent.matrix.open.clear()

    def drain(self, agent: Agent, groups: int) -> Generator[Callable[[], bool]]:
        """A thread waits until the first groups are complete: no sooner than all warps have issued
        them.
        """
        others = self.members[_group(agent)]
        while any(len(a.matrix.clocks) < groups for a in others):
            yield lambda: all(len(a.matrix.clocks) >= groups for a in others)
        for other in others if groups > 0 else ():
            agent.clock = np.maximum(agent.clock, other.matrix.clocks[groups - 1])
        agent.clock[agent.number] += 1
        agent.matrix.complete = max(agent.matrix.complete, groups)
        agent.matrix.drains.append((int(agent.clock[agent.number]), agent.matrix.complete))

    def have(self, agent: Agent, fragment: str) -> bool:
        """Whether instructions that are not complete have a thread's fragment."""
        return fragment in agent.matrix.open or any(
            fragment in names for names in agent.matrix.groups[agent.matrix.complete :]
        )

    def overwritten(self, place: tuple[int, int, int], clock: Clock) -> bool:
        """Whether who writes these bytes of a block, and knows that ``clock``, cannot know that all
        are complete that read some of them.
        """
        block, low, high = place
        reads = self.reads[block]
        over = [r for r in reads if r[0] < high and low < r[1]]
        if any(
            _known(self.members[block, g], clock) < n for r in over for g, n in reads[r].items()
        ):
            return True
        for r in over:
            del reads[r]
        return False


def _group(agent: Agent) -> tuple[int, int]:
    return agent.block, agent.first // GROUP


def _known(members: list[Agent], clock: Clock) -> int:
    """The groups of the queue that were complete for one of the threads when it was last heard
    of.
    """
    return max((n for a in members for n in _drained_by(a, int(clock[a.number]))), default=0)


def _drained_by(agent: Agent, time: int) -> Iterator[int]:
    for at, complete in reversed(agent.matrix.drains):
        if at <= time:
            yield complete
            return
