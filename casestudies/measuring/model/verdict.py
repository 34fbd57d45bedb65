"""How far the model's order is that of the times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from casestudies.measuring.measure import Row


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate of a problem: microseconds by the model and by the clock."""

    label: str
    foretold: float
    measured: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one problem. ``correlation`` of the ranks (Spearman); ``regret``: what the model's first
    choice takes over the best candidate, 0 at best; ``of_three``: the same of the best of its first
    three. ``library``: the best library's microseconds, None where none was timed.
    """

    problem: str
    timed: tuple[Timed, ...]
    library: float | None

    @property
    def best(self) -> Timed:
        return min(self.timed, key=lambda t: t.measured)

    @property
    def choice(self) -> Timed:
        return min(self.timed, key=lambda t: t.foretold)

    @property
    def regret(self) -> float:
        return self.choice.measured / self.best.measured - 1

    @property
    def of_three(self) -> float:
        first = sorted(self.timed, key=lambda t: t.foretold)[:3]
        return min(t.measured for t in first) / self.best.measured - 1

    @property
    def correlation(self) -> float:
        return spearman([t.foretold for t in self.timed], [t.measured for t in self.timed])


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Correlation of the ranks of two sequences of equal length, equal values at their mean rank;
    nan where all of one are equal.
    """
    a, b = _ranks(one), _ranks(other)
    mean_a, mean_b = fmean(a), fmean(b)
    spread = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    if not spread:
        return math.nan
    return sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / spread


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [order.index(v) + (order.count(v) - 1) / 2 for v in values]


def verdicts(foretold: dict[str, dict[str, float]], rows: Sequence[Row]) -> list[Verdict]:
    """By problem and label what was foretold, and the rows that were measured: a verdict for each
    problem with at least two candidates that are right.
    """
    found: list[Verdict] = []
    for problem, labels in foretold.items():
        good = [r for r in rows if r.problem == problem and r.timing is not None and not r.failure]
        timed = tuple(
            Timed(r.contender, labels[r.contender], r.timing.median)
            for r in good
            if r.passed and r.timing is not None and r.contender in labels
        )
        rivals = [r.timing.median for r in good if not r.ours and r.timing is not None]
        if len(timed) > 1:
            found.append(Verdict(problem, timed, min(rivals, default=None)))
    return found


def report(found: Sequence[Verdict]) -> str:
    """A line for each problem, and what holds of all."""
    if not found:
        return "no problem has two candidates that were timed"
    lines = [
        f"{'problem':34} {'of':>3} {'rank':>5} {'regret':>7} {'of 3':>6} {'choice':>8} {'best':>8} "
        f"{'library':>8}  schedules"
    ]
    for v in found:
        library = f"{v.library:8.2f}" if v.library is not None else f"{'-':>8}"
        lines.append(
            f"{v.problem:34} {len(v.timed):3} {v.correlation:5.2f} {100 * v.regret:6.1f}% "
            f"{100 * v.of_three:5.1f}% {v.choice.measured:8.2f} {v.best.measured:8.2f} {library}  "
            f"{v.choice.label} | {v.best.label}"
        )
    regrets = [v.regret for v in found]
    errors = [abs(math.log(t.foretold / t.measured)) for v in found for t in v.timed]
    near = sum(r <= 0.05 for r in regrets)
    lines.append(
        f"{len(found)} problems, {sum(len(v.timed) for v in found)} schedules: rank correlation "
        f"{fmean(v.correlation for v in found):.2f} in the mean; the choice loses "
        f"{100 * fmean(regrets):.1f} % in the mean, {100 * median(regrets):.1f} % in the middle, "
        f"{100 * max(regrets):.0f} % at most, and is within 5 % at {near}; the best of its first "
        f"three loses {100 * fmean(v.of_three for v in found):.1f} %; times are off by "
        f"{100 * (math.exp(median(errors)) - 1):.0f} % in the middle"
    )
    return "\n".join(lines)
