"""Where threads meet: barriers in shared memory, and those of the hardware."""

from __future__ import annotations

from dataclasses import dataclass, field

from selector.gpu.ir.nodes import Sync
from selector.gpu.ir.values import value_of
from selector.gpu.simulator.threads import WARP, Agent, Clock


@dataclass(slots=True)
class Barrier:
    """A barrier in shared memory: what its phase still waits for, and how many phases are over."""

    arrivals: int
    made: tuple[int, int]  # by whom, and when by that clock
    component: int  # of the clocks: how many of its phases are over
    pending: int
    coming: Clock  # what those know who have arrived
    passed: Clock
    waited: Clock  # when each thread last saw a phase end
    bytes: int = 0
    done: int = 0
    seen: int = -1  # the last phase that somebody waited for
    announced: bool = False  # to the copy engine
    users: dict[int, int] = field(default_factory=dict[int, int])


@dataclass(slots=True)
class Meeting:
    """Threads at a barrier of the block, of a warp, or of the cluster."""

    members: list[Agent] = field(default_factory=list[Agent])
    threads: int = 0
    over: bool = False


def place_of(
    agent: Agent, node: Sync, threads: int, cluster: int
) -> tuple[tuple[object, ...], int]:
    """Where threads of a block of so many meet, and how many have to come."""
    match node.scope:
        case "warp":
            warp = agent.first // WARP
            return ("warp", agent.block, warp), min(WARP, threads - WARP * warp)
        case "block":
            return ("block", agent.block), threads
        case "cluster":
            return ("cluster",), threads * cluster
        case _:
            assert node.barrier is not None
            named = value_of(node.barrier)(agent.values)
            return ("named", agent.block, named), node.threads
