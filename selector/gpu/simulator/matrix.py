"""Asynchronous instructions: what they have until they are drained (PTX ISA,
"wgmma.wait_group": until then nobody may touch their registers, nor write what they read).

Instructions of a group of warps are of groups of their queue, which are counted: those of number n
are complete when one of its threads has drained so many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator

from selector.gpu.ir.products import Busy
from selector.gpu.simulator.races import Who
from selector.gpu.simulator.threads import KNOWN, Agent


class Instructions:
    """Those of all blocks."""

    def __init__(self, agents: list[Agent]) -> None:
        self.members: dict[int, list[Agent]] = defaultdict(list)
        for agent in agents:
            self.members[agent.matrix.component].append(agent)

    def issue(self, agent: Agent, node: Busy) -> tuple[Who, int]:
        """A thread's part in some of them: what they do until they are complete."""
        agent.matrix.open.update(node.fragments)
        return Who(agent.matrix.component, writes=False, engine=True), len(agent.matrix.clocks) + 1

    def commit(self, agent: Agent) -> None:
        """What a thread has issued is a group of the queue."""
        agent.tick()
        agent.matrix.clocks.append(agent.clock.copy())
        agent.matrix.groups.append(frozenset(agent.matrix.open))
        agent.matrix.open.clear()

    def drain(self, agent: Agent, groups: int) -> Generator[Callable[[], bool]]:
        """A thread waits until the first groups are complete: no sooner than all warps have issued
        them.
        """
        others = self.members[agent.matrix.component]
        for other in others:
            while len(other.matrix.clocks) < groups:
                yield lambda other=other: len(other.matrix.clocks) >= groups
        for other in others if groups > 0 else ():
            agent.learn(other.matrix.clocks[groups - 1])
        agent.tick()
        agent.matrix.complete = max(agent.matrix.complete, groups)
        agent.clock[KNOWN, agent.matrix.component] = agent.matrix.complete

    def have(self, agent: Agent, fragment: str) -> bool:
        """Whether instructions that are not complete have a thread's fragment."""
        return fragment in agent.matrix.open or any(
            fragment in names for names in agent.matrix.groups[agent.matrix.complete :]
        )
