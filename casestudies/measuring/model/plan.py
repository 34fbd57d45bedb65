"""What was built to try the model on, as a file beside the kernels."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from casestudies.measuring.tasks import Task
from selector.diagnostics import ArtifactError
from selector.families.contraction import Tiling

FILE = "model.json"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule, its kernel's file, and the microseconds that were foretold."""

    tiling: Tiling
    file: str
    foretold: float

    @property
    def label(self) -> str:
        return self.tiling.label


@dataclass(frozen=True, slots=True)
class Trial:
    """A problem of the matrix product and its candidates, the model's best first."""

    problem: dict[str, Any]
    candidates: tuple[Candidate, ...]

    @property
    def task(self) -> Task:
        """All candidates beside the libraries."""
        kernels = tuple((c.label, c.file) for c in self.candidates)
        return Task("gemm", self.problem, kernels, peers=True)


def write(folder: Path, machine: str, trials: Sequence[Trial]) -> None:
    data = {"machine": machine, "trials": [dataclasses.asdict(t) for t in trials]}
    Path(folder, FILE).write_text(json.dumps(data, indent=1), encoding="utf-8")


def read(folder: Path) -> list[Trial]:
    """The trials of a folder; ``ArtifactError`` if there are none."""
    path = Path(folder, FILE)
    if not path.exists():
        raise ArtifactError(f"no {FILE} in {folder}", hint="model --build writes it")
    data = json.loads(path.read_text(encoding="utf-8"))
    return [Trial(t["problem"], tuple(map(_candidate, t["candidates"]))) for t in data["trials"]]


def _candidate(data: dict[str, Any]) -> Candidate:
    return Candidate(Tiling(**data["tiling"]), data["file"], data["foretold"])
