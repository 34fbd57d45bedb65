"""Timing contenders in turn. A GPU at its power limit slows down as it warms up, and one kernel's
heat is the next one's clock: of two that are timed one after the other as a whole, the ratio is off
by several percent. So each is timed once a round, in an order that changes from round to round, and
ratios are taken round by round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from selector.dataclass import dataclass
from selector.tuning.timing import Prepared, Timing, time_once, timing_of


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as long as another one takes: the median of the rounds that both were in, and
    the quartiles.
    """

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Half of the way between the quartiles."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of one contender: its timing and, but for the first one, the ratio to the first; or
    why there is none.
    """

    index: int
    timing: Timing | None
    ratio: Ratio | None = None
    failure: Exception | None = None


def order_of_round(number: int, count: int) -> tuple[int, ...]:
    """Who comes when: everyone is first equally often, and behind either neighbour."""
    begin, backwards = number % count, number // count % 2
    order = tuple((begin + i) % count for i in range(count))
    return order[::-1] if backwards else order


def takes_part(prepared: Prepared, number: int, rounds: int) -> bool:
    """Slow ones are in some of the rounds only, evenly spread."""
    wanted = prepared.repeats
    return (number + 1) * wanted // rounds > number * wanted // rounds


def time_in_turn(
    contenders: Sequence[Prepared],
    around: Callable[[int], AbstractContextManager[object]] = lambda _: nullcontext(),
) -> Iterator[Turn]:
    """Time each contender ``repeats`` times, in rounds: a ``Turn`` for each, at once for one that
    fails, which is then left out, else at the end. ``around(index)`` is entered for each launch.
    """
    rounds = max((p.repeats for p in contenders), default=0)
    seconds: list[dict[int, float]] = [{} for _ in contenders]
    failed: set[int] = set()
    for number in range(rounds):
        for index in order_of_round(number, len(contenders)):
            if index in failed or not takes_part(contenders[index], number, rounds):
                continue
            try:
                with around(index):
                    seconds[index][number] = time_once(contenders[index])
            except Exception as failure:
                failed.add(index)
                yield Turn(index, None, failure=failure)
    for index, contender in enumerate(contenders):
        if index not in failed:
            timing = timing_of(contender, list(seconds[index].values()))
            first = index == 0 or 0 in failed
            yield Turn(index, timing, None if first else ratio(seconds[index], seconds[0]))


def ratio(seconds: dict[int, float], others: dict[int, float]) -> Ratio | None:
    """Of the rounds that both were in; None if there are none."""
    found = [seconds[number] / others[number] for number in seconds if number in others]
    if not found:
        return None
    low, median, high = (float(q) for q in np.quantile(found, (0.25, 0.5, 0.75)))
    return Ratio(median, low, high)
