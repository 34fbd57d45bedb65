"""One launch of a kernel in one world: what all that follow it share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from selector.gpu.ir.nodes import Body, For, Init, Kernel, children
from selector.gpu.ir.values import value_of
from selector.gpu.simulator.threads import Agent, agents_of
from selector.gpu.simulator.worlds import World
from selector.ir.nodes import Expr, IntImm


@dataclass(slots=True)
class Launch:
    """``eager``: the first threads first, and copies at once; else the last threads first, and
    copies (``under_way``) when nothing else can go on.
    """

    kernel: Kernel
    world: World
    eager: bool
    agents: list[Agent] = field(init=False)
    barriers: int = field(init=False)  # at most, of all blocks
    faults: dict[str, None] = field(default_factory=dict[str, None])
    under_way: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def __post_init__(self) -> None:
        self.barriers = self.kernel.cluster * sum(_made(self.kernel.body, 1))
        self.agents = agents_of(self.kernel, self.world, self.barriers)

    def fault(self, text: str) -> None:
        self.faults.setdefault(text)

    def later(self, event: Callable[[], None]) -> None:
        if self.eager:
            event()
        else:
            self.under_way.append(event)


MOST_TIMES = 64  # that a loop whose end is unknown makes barriers


def _made(body: Body, times: int) -> Iterator[int]:
    """How often each node makes a barrier, at most."""
    for node in body:
        match node:
            case Init():
                yield times
            case For(start=IntImm(start), stop=IntImm(stop), body=inner):
                yield from _made(inner, times * max(0, stop - start))
            case For(body=inner):
                yield from _made(inner, times * MOST_TIMES)
            case _:
                yield from _made(children(node), times)


def value(agent: Agent, e: Expr) -> int:
    return value_of(e)(agent.values)
