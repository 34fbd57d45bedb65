"""What was built to try the model on, as a file beside the kernels."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from casestudies.measuring.model.families import family_of
from casestudies.measuring.tasks import Task
from selector.diagnostics import ArtifactError

FILE = "model.json"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule, its kernel's file, and the microseconds that were foretold."""

    tiling: Any
    file: str
    foretold: float

    @property
    def label(self) -> str:
        return self.tiling.label


@dataclass(frozen=True, slots=True)
class Trial:
    """A problem of a case and its candidates, the model's best first."""

    problem: dict[str, Any]
    candidates: tuple[Candidate, ...]
    case: str = "gemm"

    @property
    def task(self) -> Task:
        """All candidates beside the libraries."""
        kernels = tuple((c.label, c.file) for c in self.candidates)
        return Task(self.case, self.problem, kernels, peers=True, quick=len(kernels) > MANY)

    @property
    def instance(self) -> Any:
        """The problem of the case."""
        return self.task.instance()


MANY = 14  # candidates, which are timed in less time each


def write(folder: Path, machine: str, trials: Sequence[Trial]) -> None:
    data = {"machine": machine, "trials": [dataclasses.asdict(t) for t in trials]}
    Path(folder, FILE).write_text(json.dumps(data, indent=1), encoding="utf-8")


def read(folder: Path) -> list[Trial]:
    """The trials of a folder; ``ArtifactError`` if there are none."""
    path = Path(folder, FILE)
    if not path.exists():
        raise ArtifactError(f"no {FILE} in {folder}", hint="model --build writes it")
    data = json.loads(path.read_text(encoding="utf-8"))
    return [_trial(t) for t in data["trials"]]


def _trial(data: dict[str, Any]) -> Trial:
    tiling = family_of(data["case"]).tiling
    candidates = (
        Candidate(tiling(**c["tiling"]), c["file"], c["foretold"]) for c in data["candidates"]
    )
    return Trial(data["problem"], tuple(candidates), data["case"])
