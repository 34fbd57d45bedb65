"""The constants of the cost, fitted to times: a random walk from those that are there, one constant
at a time, that keeps what is better and goes no further than ``FAR``: constants have a meaning.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from casestudies.measuring.model.families import Constants, Foretelling
from casestudies.measuring.model.verdict import spearman

FAR = 4.0  # times a constant, or a part of it
SHARP = 25.0  # how fast a schedule that is foretold to be slower stops being chosen
NEAR = 8.0  # and how fast the error of one that is slower stops to matter


@dataclass(frozen=True, slots=True)
class Sample:
    """A schedule of a shape that took so many microseconds."""

    shape: Any
    tiling: Any
    microseconds: float


Problems = Mapping[str, Sequence[Sample]]


def loss(problems: Problems, foretelling: Foretelling) -> float:
    """Of a problem: what the choice loses, what choosing at random among those that are foretold to
    be nearly as good loses, how far the times of good ones are off beside each other and in the
    mean, and what is missing in the correlation of ranks. The mean over all.
    """
    return fmean(_loss(samples, foretelling) for samples in problems.values())


def _loss(samples: Sequence[Sample], foretelling: Foretelling) -> float:
    foretold = [foretelling(s.tiling, s.shape) for s in samples]
    times = [s.microseconds for s in samples]
    best, first = min(times), min(foretold)
    lost = [t / best - 1 for t in times]
    chance = [math.exp(-SHARP * (f / first - 1)) for f in foretold]
    weight = [math.exp(-NEAR * x) + 0.02 for x in lost]
    error = [math.log(f / t) for f, t in zip(foretold, times, strict=True)]
    mean = _weighted(error, weight)
    apart = _weighted([abs(e - mean) for e in error], weight)
    rank = spearman(foretold, times)
    choice = lost[foretold.index(first)]
    missing = 0.0 if math.isnan(rank) else 1 - rank
    return 0.5 * choice + _weighted(lost, chance) + apart + 0.3 * abs(mean) + 0.1 * missing


def _weighted(values: Iterable[float], weights: Sequence[float]) -> float:
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)


def fit(
    problems: Problems,
    constants: Constants,
    model: Callable[[Constants], Foretelling],
    turns: int,
    seed: int,
) -> tuple[dict[str, float], float]:
    """The constants and their loss after so many turns."""
    draw = random.Random(seed)
    found, best = dict(constants), loss(problems, model(constants))
    step = dict.fromkeys(found, 0.3)
    for _ in range(turns):
        name = draw.choice(list(step))
        value = found[name] * math.exp(draw.gauss(0, step[name]))
        other = found | {name: min(max(value, constants[name] / FAR), constants[name] * FAR)}
        lost = loss(problems, model(other))
        better = lost < best
        if better:
            best, found = lost, other
        step[name] = min(0.6, step[name] * 1.3) if better else max(0.03, step[name] * 0.95)
    return found, best
