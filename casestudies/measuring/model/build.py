"""Candidates of the space, compiled for another machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import halide_bridge as hb
from casestudies.common.progress import say
from casestudies.common.registry import find_case
from casestudies.measuring.model.families import family_of
from casestudies.measuring.model.plan import Candidate, Trial, write
from selector.diagnostics import UserError
from selector.machine import Machine

FIRST = 5  # of the model's order, which are all tried
FAR = 3.0  # times the best one's time by the model: what is slower is not tried


def build(problems: Iterable[Any], most: int, machine: Machine, folder: Path) -> list[Trial]:
    """Compile up to ``most`` candidates of each problem into ``folder``, each program once; the
    plan lies beside them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known: dict[str, str] = {}
    trials: list[Trial] = []
    for problem in problems:
        candidates = [
            Candidate(t, file, microseconds)
            for microseconds, t in candidates_of(problem, most, machine)
            if (file := _compiled(problem, t, machine.target, folder, known))
        ]
        trials.append(Trial(dataclasses.asdict(problem), tuple(candidates), case_of(problem)))
        say(f"{problem.name}: {len(candidates)} candidates, {len(known)} programs so far")
        write(folder, machine.name, trials)
    return trials


def case_of(problem: Any) -> str:
    """The name of a problem's case study."""
    return type(problem).__module__.split(".")[1]


def candidates_of(problem: Any, most: int, machine: Machine) -> list[tuple[float, Any]]:
    """The model's best, others at equal distances in its order, and last what the case study has
    without the model.
    """
    shape, family = problem.shape, family_of(case_of(problem))
    order = family.ranked(shape, machine)
    near = [pair for pair in order if pair[0] <= FAR * order[0][0]]
    first, rest = near[:FIRST], near[FIRST:]
    room = max(0, most - len(first))
    step = max(1.0, len(rest) / room) if room else 1.0
    spread = [rest[int(i * step)] for i in range(room) if int(i * step) < len(rest)]
    chosen = first + spread
    there = [t for _, t in chosen]
    return chosen + [pair for pair in family.usual(shape, machine) if pair[1] not in there]


def _compiled(problem: Any, tiling: Any, target: str, folder: Path, known: dict[str, str]) -> str:
    """The file of a program; empty where it does not compile, which is said."""
    name = f"{problem.variant}-{tiling.label}"
    if name not in known:
        file = f"{name}.kernel"
        try:
            tuning = find_case(case_of(problem)).tuning
            assert tuning is not None
            if not (folder / file).exists():
                hb.compile(tuning.schedule(problem, tiling), target=target).save(folder / file)
        except UserError as error:
            say(f"  {name}: {error.what}")
            file = ""
        known[name] = file
    return known[name]
