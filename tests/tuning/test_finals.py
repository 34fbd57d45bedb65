"""Who is measured again, and what is made of the times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from selector.tuning.course import Course
from selector.tuning.finals import CLOSE, FINALISTS, finalists, settled
from selector.tuning.results import Measurement, Status, Trial
from selector.tuning.space import Point
from selector.tuning.store import Store


def courses(folder: Path, *times: float | None) -> list[Course]:
    """One a time; None for a configuration that failed."""
    found = [Course(Point(i, i, {}), Store(folder)) for i in range(len(times))]
    for course, time in zip(found, times, strict=True):
        status = Status.FAILED if time is None else Status.TIMED
        measured = None if time is None else Measurement(time, time - 1, time + 1)
        course.trial = Trial(course.point.index, {}, status, measured)
    return found


def test_the_close_ones_are_measured_again_the_best_first(tmp_path: Path) -> None:
    found = courses(tmp_path, 20.0 * CLOSE, 20.0, None, 20.1 * CLOSE, 21.0)
    assert [c.point.index for c in finalists(found)] == [1, 4, 0]


def test_there_are_few_of_them(tmp_path: Path) -> None:
    assert len(finalists(courses(tmp_path, *[20.0] * (FINALISTS + 3)))) == FINALISTS


def test_one_without_a_rival_is_not_measured_again(tmp_path: Path) -> None:
    assert finalists(courses(tmp_path, 20.0, 40.0, None)) == []
    assert finalists(courses(tmp_path, None)) == []


def test_what_an_earlier_run_settled_stays(tmp_path: Path) -> None:
    found = courses(tmp_path, 20.0, 21.0)
    assert found[0].trial is not None
    found[0].trial = replace(found[0].trial, cached=True)
    assert [c.point.index for c in finalists(found)] == [1]


def test_the_median_of_all_rounds_counts(tmp_path: Path) -> None:
    (course,) = courses(tmp_path, 20.0)
    trial = settled(course.trial, [Measurement(30.0, 25.0, 50.0), Measurement(22.0, 18.0, 23.0)])
    assert trial.measurement == Measurement(22.0, 18.0, 50.0, rounds=3)
    assert settled(course.trial, []).measurement == Measurement(20.0, 19.0, 21.0)
