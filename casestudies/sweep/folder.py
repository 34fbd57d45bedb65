"""What the two halves of the sweep share: a folder with a saved kernel for each program, and
``sweep.json``, which has a line for every row.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selector.diagnostics import ArtifactError

FILE = "sweep.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the sweep and what became of it: a ``problem`` (its name and fields) of a case study
    with its kernel's ``file``, or the ``reason`` why there is none. ``schedule``: ``auto`` where
    the compiler made it, and then why its sums are not on tensor units (``cores``).
    """

    family: str
    group: str
    name: str
    case: str = ""
    problem: str = ""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    file: str = ""
    reason: str = ""
    schedule: str = ""
    cores: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
    """All rows, compiled for ``target``."""

    target: str
    entries: tuple[Entry, ...]

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def sweep_of(data: Mapping[str, Any]) -> Sweep:
    """The sweep of ``Sweep.as_dict``."""
    return Sweep(data["target"], tuple(Entry(**entry) for entry in data["entries"]))


def write(folder: Path, sweep: Sweep) -> None:
    Path(folder, FILE).write_text(json.dumps(sweep.as_dict(), indent=1), encoding="utf-8")


def read(folder: Path) -> Sweep:
    """The sweep of a folder; ``ArtifactError`` if there is none."""
    path = Path(folder, FILE)
    if not path.exists():
        hint = "python -m casestudies sweep build FOLDER writes it"
        raise ArtifactError(f"no {FILE} in {folder}", hint=hint)
    return sweep_of(json.loads(path.read_text(encoding="utf-8")))
