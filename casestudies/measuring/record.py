"""The file that a measurement leaves, kept up to date while it goes on, and its summary."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from casestudies.measuring.limits import ceilings_of
from casestudies.measuring.measure import HEAD, Row, line

OURS, STOCK = "tensor", "stock Halide"


@dataclass(slots=True)
class Record:
    """Rows as they come: each is printed, and the file, if there is one, is written anew."""

    path: Path | None
    seed: int
    rows: list[Row] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    stream: TextIO = field(default_factory=lambda: sys.stdout)

    def add(self, row: Row) -> None:
        if not self.rows:
            print(HEAD, file=self.stream)
        self.rows.append(row)
        print(line(row), file=self.stream, flush=True)
        self.write()

    def as_dict(self) -> dict[str, Any]:
        """All that is known so far, as data."""
        ceilings = ceilings_of(str(self.about.get("device", "")))
        return {
            "date": datetime.date.today().isoformat(),
            **self.about,
            "ceilings": None if ceilings is None else dataclasses.asdict(ceilings),
            "seed": self.seed,
            "rows": [row.as_dict() for row in self.rows],
        }

    def write(self) -> None:
        """Write all that is known so far; a reader never sees half a file."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text(json.dumps(self.as_dict(), indent=1), encoding="utf-8")
        unfinished.replace(self.path)

    @property
    def wrong(self) -> list[Row]:
        return [row for row in self.rows if not row.passed]


def speed_ups(rows: Sequence[Row]) -> str:
    """For each timed problem: our time, the share of the limit, and how much faster that is than
    stock Halide, than other schedules of ours, and than the best library.
    """
    by_problem: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.timing is not None and not row.failure:
            by_problem.setdefault(row.problem, {})[row.contender] = row
    return "\n".join(_summary(found) for found in by_problem.values() if OURS in found)


def ratios(rows: Sequence[Row]) -> str:
    """How long each other variant takes beside the first one of its problem, from the rounds that
    both were in: the median and the quartiles, and which is faster where these are on one side of
    1. Then the geometric mean of all medians by the variant's last name.
    """
    timed = [row for row in rows if row.timing is not None and not row.failure]
    first = {row.problem: _last(row) for row in timed if row.ratio is None}
    medians_of: dict[str, list[float]] = {}
    lines: list[str] = []
    for row in timed:
        if row.ratio is None:
            continue
        low, median, high = row.ratio.low, row.ratio.median, row.ratio.high
        word = "the same" if low <= 1 <= high else "slower" if median > 1 else "faster"
        said = f"{_last(row)} / {first[row.problem]}"
        lines.append(f"{row.problem:36} {said} {median:.4f} ({low:.4f} ... {high:.4f})  {word}")
        medians_of.setdefault(said, []).append(median)
    for said, medians in medians_of.items():
        mean = math.exp(sum(map(math.log, medians)) / len(medians))
        lines.append(f"{said}: geometric mean {mean:.4f} of {len(medians)}, "
                     f"{min(medians):.4f} ... {max(medians):.4f}")  # fmt: skip
    return "\n".join(lines)


def _last(row: Row) -> str:
    return row.contender.rpartition("/")[2]


def _summary(found: dict[str, Row]) -> str:
    times = {name: row.timing.median for name, row in found.items() if row.timing is not None}
    ours = times.pop(OURS)
    row = found[OURS]
    text = f"{row.problem:36} {ours:9.2f} us"
    text += " " * 7 if row.share is None else f" {100 * row.share:4.0f} %"
    for kind in ("stock Halide", "another schedule", "library"):
        rivals = {name: time for name, time in times.items() if _kind(found[name]) == kind}
        if rivals:
            best = min(rivals, key=lambda name: rivals[name])
            text += f"  {_speed_up(rivals[best] / ours, found[best], row):>10}x {best}"
    return text


def _speed_up(usual: float, rival: Row, ours: Row) -> str:
    """The median of the rounds' ratios and half of the way between the quartiles; the ratio of
    medians where they were not in the same rounds.
    """
    if rival.ratio is None or ours.ratio is not None:  # ours was not the first of the rounds
        return f"{usual:.2f}"
    return f"{rival.ratio.median:.3f}+-{rival.ratio.spread:.3f}"


def _kind(row: Row) -> str:
    if row.contender.startswith(STOCK):
        return "stock Halide"
    return "another schedule" if row.ours else "library"
