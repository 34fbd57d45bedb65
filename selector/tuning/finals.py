"""The last rounds: which configurations are measured again, and what becomes of their times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from selector.tuning.course import Course
from selector.tuning.results import Measurement, Status, Trial

CLOSE = 1.15  # times of the best: others may be it, as a GPU is faster while it is cool
FINALISTS, ROUNDS = 5, 3


def finalists(courses: Iterable[Course]) -> list[Course]:
    """Those whose times are close to the best one's, the best first, unless it has no rival.

    Those of an earlier run that have been through this keep what they have.
    """
    ranked = sorted(
        (c for c in courses if c.trial is not None and c.trial.status is Status.TIMED),
        key=lambda c: (_time_of(c), c.point.index),
    )
    close = [c for c in ranked if _time_of(c) <= CLOSE * _time_of(ranked[0])][:FINALISTS]
    if len(close) < 2:
        return []
    return [c for c in close if c.trial and c.trial.measurement and not c.trial.cached]


def settled(trial: Trial | None, more: Sequence[Measurement]) -> Trial:
    """A finalist's trial with the rounds that followed its first one."""
    assert trial is not None
    assert trial.measurement is not None
    rounds = [trial.measurement, *more]
    measured = replace(
        trial.measurement,
        microseconds=median(m.microseconds for m in rounds),
        low=min(m.low for m in rounds),
        high=max(m.high for m in rounds),
        rounds=len(rounds),
    )
    return replace(trial, measurement=measured)


def _time_of(course: Course) -> float:
    return float("inf") if course.trial is None else course.trial.microseconds
