"""Contenders are timed in turn, on a device whose clock follows what was done before."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from selector.tuning import rounds, timing
from selector.tuning.rounds import Ratio, order_of_round, takes_part, time_in_turn
from selector.tuning.timing import Prepared


class Device:
    """A clock that slows down by half a percent with each launch until it has lost a fifth."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launched: list[str] = []
        monkeypatch.setattr(rounds, "time_once", self.time_once)

    def time_once(self, prepared: Prepared) -> float:
        name, seconds = prepared.launch()  # type: ignore[misc]
        slower = 1 + min(0.2, 0.005 * len(self.launched))
        self.launched.append(name)
        return seconds * slower


def contender(name: str, seconds: float, repeats: int = 20) -> Prepared:
    return Prepared(lambda: (name, seconds), 3, repeats, "graph")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_orders_change(count: int) -> None:
    orders = [order_of_round(number, count) for number in range(2 * count)]
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert [sum(o[0] == i for o in orders) for i in range(count)] == [2] * count
    assert [sum(o[-1] == i for o in orders) for i in range(count)] == [2] * count


def test_a_ratio_holds_while_the_clock_does_not(device: Device) -> None:
    first, second = time_in_turn([contender("a", 1e-3), contender("b", 0.98e-3)])
    assert (first.index, first.ratio) == (0, None)
    assert second.ratio is not None
    assert second.ratio.median == pytest.approx(0.98, abs=0.002)
    assert 0 < second.ratio.spread < 0.01
    assert first.timing is not None
    assert first.timing.high > 1.15 * first.timing.low  # one after the other, they are not the same
    assert (first.timing.calls, first.timing.repeats, first.timing.method) == (3, 20, "graph")
    assert device.launched[:6] == ["a", "b", "b", "a", "b", "a"]


def test_slow_ones_are_in_some_rounds_only(device: Device) -> None:
    assert [n for n in range(20) if takes_part(contender("slow", 1, 5), n, 20)] == [
        3,
        7,
        11,
        15,
        19,
    ]
    turns = list(time_in_turn([contender("fast", 1e-3), contender("slow", 1e-2, 5)]))
    assert device.launched.count("slow") == 5
    assert device.launched.count("fast") == 20
    assert turns[1].timing is not None
    assert turns[1].timing.repeats == 5
    assert turns[1].ratio is not None
    assert turns[1].ratio.median == pytest.approx(10, rel=0.01)


def test_one_that_fails_is_said_at_once_and_left_out(device: Device) -> None:
    def fail() -> object:
        if device.launched.count("bad") == 2:
            raise RuntimeError("odd")
        return "bad", 1e-3

    bad = Prepared(fail, 1, 20, "events")
    turns = time_in_turn([contender("a", 1e-3), bad, contender("b", 2e-3)])
    failed = next(turns)
    assert (failed.index, failed.timing, str(failed.failure)) == (1, None, "odd")
    assert device.launched == ["a", "bad", "b", "bad", "b", "a", "b", "a"]
    a, b = turns
    assert (a.index, b.index) == (0, 2)
    assert device.launched.count("b") == 20
    assert b.ratio is not None


def test_without_the_first_there_are_no_ratios(device: Device) -> None:
    def fail() -> object:
        raise RuntimeError("odd")

    bad, good = time_in_turn([Prepared(fail, 1, 20, "events"), contender("b", 2e-3)])
    assert bad.failure is not None
    assert good.timing is not None
    assert good.ratio is None


def test_each_launch_is_announced(device: Device) -> None:
    heard: list[int] = []

    @contextmanager
    def around(index: int) -> Generator[None]:
        heard.append(index)
        yield

    list(time_in_turn([contender("a", 1e-3, 3), contender("b", 1e-3, 3)], around))
    assert [("a", "b")[i] for i in heard] == device.launched


def test_what_was_timed_on_the_way_is_not_launched_again() -> None:
    slowest = Prepared(lambda: pytest.fail("launched"), 1, 1, "events", seconds=2.0)
    (turn,) = time_in_turn([slowest])
    assert turn.timing == timing.Timing(2e6, 2e6, 2e6, 1, 1, "events")


def test_ratios_are_of_common_rounds() -> None:
    assert rounds.ratio({0: 2.0, 1: 4.0, 2: 9.0}, {1: 2.0, 2: 3.0, 3: 1.0}) == Ratio(
        2.5, 2.25, 2.75
    )
    assert rounds.ratio({0: 1.0}, {1: 1.0}) is None
