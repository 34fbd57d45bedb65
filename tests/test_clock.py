"""The clock of the time limits: what counts as seconds of the reference machine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import clock
import pytest
from clock import Part, Yardstick, assert_within


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job takes the seconds that it returns."""
    monkeypatch.setattr(clock, "_timed", lambda job: job())


def takes(*seconds: float) -> Callable[[], float]:
    """A job that takes so long in turn."""
    turns = cycle(seconds)
    return lambda: next(turns)


def part(job: tuple[float, ...], yardstick: tuple[float, ...]) -> Part:
    """A job beside a yardstick of one second."""
    return Part(Yardstick("fixed", takes(*yardstick), 1.0), takes(*job))


@pytest.mark.parametrize(
    ("job", "yardstick"),
    [
        ((1.4,), (9.0,)),  # within the limit here
        ((2.9,), (2.0,)),  # on a machine that is half as fast
        ((9.0, 2.9), (2.0,)),  # disturbed once
    ],
)
def test_within_the_limit(job: tuple[float, ...], yardstick: tuple[float, ...]) -> None:
    assert_within(1.5, part(job, yardstick))


@pytest.mark.parametrize(
    ("job", "yardstick", "said"),
    [
        ((3.1,), (2.0,), "1.550 s .* 3.100 s here / 2.00"),
        ((3.1,), (9.0, 2.0, 2.0), "1.550 s .* 3.100 s here / 2.00"),  # the yardstick was disturbed
        ((1.6,), (0.5,), "1.600 s .* 1.600 s here / 1.00"),  # a quick machine gains nothing
    ],
)
def test_too_long(job: tuple[float, ...], yardstick: tuple[float, ...], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_within(1.5, part(job, yardstick))


def test_each_part_has_its_own_yardstick() -> None:
    parts = part((2.0,), (4.0,)), part((2.0,), (2.0,))
    with pytest.raises(AssertionError, match=r"1\.500 s of .* / 4\.00; .* / 2\.00"):
        assert_within(1.5, *parts)
    assert_within(1.51, *parts)
