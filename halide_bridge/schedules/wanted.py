"""What a schedule is asked for: a target, what it may use, and what is given, not chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from halide_bridge.schedules.candidates import Given
from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError
from selector.eqsat.facts import legal_instructions
from selector.families import tiles
from selector.targets import Target, find_target


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a schedule is for: a target, the instructions that are allowed (None: all), and the
    tilings that sums have to have, by the names of Funcs; where it was asked for.
    """

    target: Target
    instructions: tuple[str, ...] | None = None
    location: str = ""
    tilings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def asked(self) -> frozenset[str]:
        """Of those that have to be asked for."""
        legal = legal_instructions(self.target, self.instructions)
        return frozenset(i.asked for i in legal) - {""}


def wanted_of(
    target: str | Target,
    instructions: Iterable[str] | None,
    location: str,
    tilings: Mapping[str, Given | tiles.Tiling] | None = None,
) -> Wanted:
    """``TargetError`` for an unknown target, ``ScheduleError`` for what is no tiling for it."""
    allowed = None if instructions is None else tuple(instructions)
    given: Mapping[str, Any] = tilings or {}
    name = "sm_90a" if target == "cuda" else target
    found = find_target(name) if isinstance(name, str) else name
    kind, of = (Given, "contraction, windows or layers")
    if found.family != "cuda":
        kind, of = tiles.Tiling, "tiles"
    for label, tiling in given.items():
        if not isinstance(tiling, kind):
            raise ScheduleError(
                f"what `tilings` has for `{label}` is no tiling",
                why=f"it is {tiling!r}",
                hint=f"give a `Tiling` of `selector.families`: of {of}",
                where=location,
            )
    return Wanted(found, allowed, location, given)
