"""The timed jobs of a run, as the tables and plots take them; and how a time is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from casestudies.common.case import COPY
from casestudies.measuring.record import OURS, STOCK

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Result:
    """One job: microseconds of ours, of stock Halide's schedules and of the libraries; the limit,
    None where the GPU's ceilings are not known; and the error of ours. ``ratios``: how many times
    as long as ours others took in the same rounds, the median and half of the way between the
    quartiles.
    """

    case: str
    problem: str
    limit: float | None
    bound: str
    ours: float
    stock: dict[str, float]
    libraries: dict[str, float]
    error: float
    ratios: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    @property
    def share(self) -> float | None:
        return None if self.limit is None else self.limit / self.ours

    @property
    def best_stock(self) -> float | None:
        return min(self.stock.values(), default=None)

    @property
    def best_library(self) -> str | None:
        return min(self.libraries, key=lambda name: self.libraries[name], default=None)


def read(name: str = "h200.json") -> dict[str, Any]:
    """The data of a run; ``name`` is its file here."""
    data: dict[str, Any] = json.loads((HERE / name).read_text(encoding="utf-8"))
    return data


def results_of(data: dict[str, Any]) -> list[Result]:
    """The timed jobs that ours did right, in the order of the run."""
    jobs: dict[str, list[dict[str, Any]]] = {}
    for row in data["rows"]:
        if row["timing"] is not None and row["passed"]:
            jobs.setdefault(row["problem"], []).append(row)
    return [_result(rows) for rows in jobs.values() if any(r["contender"] == OURS for r in rows)]


def _result(rows: Sequence[dict[str, Any]]) -> Result:
    own = next(r for r in rows if r["contender"] == OURS)
    times = {str(r["contender"]): float(r["timing"]["median"]) for r in rows}
    known = {r["contender"] for r in rows if r["ours"]} | {COPY}  # the others are libraries
    return Result(
        own["case"],
        own["problem"],
        own["limit"],
        own["bound"],
        times[OURS],
        {name: time for name, time in times.items() if name.startswith(STOCK)},
        {name: time for name, time in times.items() if name not in known},
        float(own["error"]),
        {} if own.get("ratio") else _ratios(rows),
    )


def _ratios(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Ours is the first of the rounds: ratios are to its times."""
    found = {str(r["contender"]): r.get("ratio") for r in rows}
    return {n: (r["median"], (r["high"] - r["low"]) / 2) for n, r in found.items() if r}


def named(results: Sequence[Result], name: str) -> Result | None:
    """The first job of that name; ``*`` stands for what blocks do, which some names say."""
    return next((r for r in results if fnmatchcase(r.problem, name)), None)


def digits(value: float) -> str:
    """Three digits or more: 0.51, 2.17, 28.5, 139, 2130."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"
