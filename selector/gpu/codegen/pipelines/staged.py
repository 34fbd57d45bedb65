"""Loops that stage what they read: who fills the buffers in an iteration, and who reads them."""

from __future__ import annotations

from dataclasses import replace

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.warpgroups.iterations import only_if
from selector.gpu.ir.expressions import moved
from selector.ir.contents import loaded
from selector.ir.nodes import Allocate, Expr, For, Stmt
from selector.lowering.normalize import sequence
from selector.lowering.structure import loaded_names, stored_names


@dataclass(frozen=True, slots=True)
class StagedLoop:
    """A loop whose ``producers`` fill the ``staged`` buffers, and whose ``consumers`` are all else
    that it does; its ``variable`` goes from ``low`` to before ``stop``. ``counts``: what has to
    hold for an iteration to be one, None where all are.
    """

    loop: For
    staged: list[Allocate]
    producers: list[Stmt]
    consumers: list[Stmt]
    variable: str
    low: Expr
    stop: Expr
    counts: Expr | None = None

    @property
    def names(self) -> set[str]:
        """The staged buffers."""
        return {a.name for a in self.staged}

    def counted(self, exchanged: set[str]) -> StagedLoop:
        """The same with the condition that all of an iteration stands under as what has to hold for
        it to count, if all threads know it: it reads nothing that the kernel writes.
        """
        found = only_if(self.consumers)
        if found is None or loaded(found.condition) & exchanged:
            return self
        return replace(self, counts=found.condition, consumers=[*sequence(found.then)])


def staged_loop(
    loop: For, body: list[Stmt], staged: list[Allocate], context: KernelContext
) -> StagedLoop:
    """A loop of statements as one of these. ``ScheduleError`` for buffers that do not go together,
    and what cannot be filled ahead.
    """
    names = {a.name for a in staged}
    producers = [x for x in body if stored_names(x) & names]
    if len({a.stages for a in staged}) > 1 or not producers:
        raise ScheduleError(
            "buffers staged in one loop need one number of pipeline stages",
            ", ".join(f"`{a.name}` has {a.stages}" for a in staged),
            "give pipeline_stages(...) the same number for all of them",
        )
    refuse_chains(producers, body)
    consumers = [x for x in body if not stored_names(x) & names]
    variable = context.names.get(loop.name)
    low, extent = context.number(loop.min), context.number(loop.extent)
    return StagedLoop(loop, staged, producers, consumers, variable, low, moved(low, extent))


def refuse_chains(producers: list[Stmt], body: list[Stmt]) -> None:
    """``ScheduleError`` for what is to be filled ahead and is computed from what the same loop
    fills: that has not arrived by then, or belongs to an earlier iteration.
    """
    filled = set[str]().union(*map(stored_names, body))
    for x in producers:
        if early := sorted(loaded_names(x) & filled):
            name = min(stored_names(x))
            raise ScheduleError(
                f"`{name}` cannot be produced ahead of its use",
                f"it is computed from `{early[0]}`, which the same loop fills",
                f"drop its pipeline_stages(...), or compute `{early[0]}` elsewhere",
                Where(func=name),
            )
