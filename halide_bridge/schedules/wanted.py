"""What a schedule is asked for: a GPU, what it may use, and what is given in place of a choice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from halide_bridge.schedules.candidates import Given
from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError
from selector.eqsat.facts import legal_instructions
from selector.targets import Target, find_target


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a schedule is for: a GPU, the instructions that are allowed (None: all), and the tilings
    that sums have to have, by the names of Funcs; where it was asked for.
    """

    target: Target
    instructions: tuple[str, ...] | None = None
    location: str = ""
    tilings: Mapping[str, Given] = field(default_factory=dict[str, Given])

    @property
    def asked(self) -> frozenset[str]:
        """Of those that have to be asked for."""
        legal = legal_instructions(self.target, self.instructions)
        return frozenset(i.asked for i in legal) - {""}


def wanted_of(
    target: str | Target,
    instructions: Iterable[str] | None,
    location: str,
    tilings: Mapping[str, Given] | None = None,
) -> Wanted:
    """``ScheduleError`` for another target than a GPU and for what is no tiling."""
    allowed = None if instructions is None else tuple(instructions)
    given: Mapping[str, Any] = tilings or {}
    for label, tiling in given.items():
        if not isinstance(tiling, Given):
            raise ScheduleError(
                f"what `tilings` has for `{label}` is no tiling",
                why=f"it is {tiling!r}",
                hint="give a `Tiling` of `selector.families`: of contraction, windows or layers",
                where=location,
            )
    return Wanted(_gpu(target, location), allowed, location, given)


def _gpu(target: str | Target, location: str) -> Target:
    name = "sm_90a" if target == "cuda" else target
    found = find_target(name) if isinstance(name, str) else name
    if found.family != "cuda":
        raise ScheduleError(
            f"there are no schedules for {found.name} yet",
            why="autoschedule knows GPUs",
            hint="a GPU's target such as sm_90a",
            where=location,
        )
    return found
