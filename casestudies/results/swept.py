"""The rows of the public sweep that a run measured, as its tables and plots take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from casestudies.common.case import COPY
from casestudies.results.jobs import Result, results_of
from casestudies.sweep.folder import Entry, sweep_of


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of the sweep with what was measured of it; ``multiply_adds`` is its size, ``copy`` what
    moving its bytes takes, where that was measured.
    """

    entry: Entry
    result: Result
    multiply_adds: int
    copy: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as long as ours the fastest library takes; None where there is none."""
        best = self.result.best_library
        return None if best is None else self._ratio(best)

    @property
    def alike(self) -> float | None:
        """The same of libraries that have the arrays as they lie here; None where all have."""
        name = self.entry.name
        other = "NHWC" if "NCHW" in name else "NCHW" if "NHWC" in name else ""
        libraries = self.result.libraries
        own = [n for n in libraries if not other or other not in n]
        if not own or len(own) == len(libraries):
            return None
        return self._ratio(min(own, key=lambda n: libraries[n]))

    def _ratio(self, library: str) -> float:
        usual = self.result.libraries[library] / self.result.ours
        return self.result.ratios.get(library, (usual, 0.0))[0]


def measured(data: dict[str, Any]) -> list[Measured]:
    """The rows that ours did right, in the order of the list."""
    results = {result.problem: result for result in results_of(data)}
    sizes = {row["problem"]: int(row["multiply_adds"]) for row in data["rows"]}
    copies = {
        row["problem"]: float(row["timing"]["median"])
        for row in data["rows"]
        if row["contender"] == COPY and row["timing"] is not None
    }
    return [
        Measured(entry, results[entry.problem], sizes[entry.problem], copies.get(entry.problem))
        for entry in sweep_of(data["sweep"]).entries
        if entry.file and entry.problem in results
    ]


def families(rows: Sequence[Measured]) -> dict[str, list[Measured]]:
    """The rows by family, in their order."""
    found: dict[str, list[Measured]] = {}
    for row in rows:
        found.setdefault(row.entry.family, []).append(row)
    return found
