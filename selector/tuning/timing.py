"""Timing on the GPU: CUDA graphs of calls over rotating buffers, timed by device events; medians in
microseconds. What is to be compared is timed in turn: ``selector.tuning.rounds``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, partial
from typing import Any

import numpy as np

from selector.dataclass import dataclass

Call = Callable[[], object]
WARM_UP_SECONDS = 0.02
SLOW = 0.005  # seconds of one call from which a launch gap is nothing, and repeats are few
ENOUGH = 0.5  # seconds of one call from which it is measured once


@dataclass(frozen=True, slots=True)
class Timing:
    """Median and spread of one call in microseconds; ``method`` is ``graph`` or ``events``."""

    median: float
    low: float
    high: float
    calls: int
    repeats: int
    method: str


def rotation(bytes_per_call: int, l2_bytes: int, most: int = 8) -> int:
    """How many buffer sets exceed the L2 cache twice over, so that no call finds its inputs there;
    1 to ``most``.
    """
    return int(min(most, max(1, -(-2 * l2_bytes // max(bytes_per_call, 1)))))


@dataclass(frozen=True, slots=True)
class Prepared:
    """Calls that are ready to be timed: ``launch`` does ``calls`` of them, in a graph or one after
    the other (``method``), and wants to be timed ``repeats`` times. ``seconds``: of one call, where
    that is so slow that it has been timed already.
    """

    launch: Callable[[], object]
    calls: int
    repeats: int
    method: str
    seconds: float | None = None


def time_calls(calls: Sequence[Call]) -> Timing:
    """Time calls that do the same job on different buffers, in turn: see ``prepare``."""
    prepared = prepare(calls)
    return timing_of(prepared, [time_once(prepared) for _ in range(prepared.repeats)])


def prepare(
    calls: Sequence[Call], capturable: bool = True, budget: float = 0.15, repeats: int = 15
) -> Prepared:
    """Warm up, and choose how many calls go between two events: enough for ``budget / repeats``
    seconds.

    Calls that refuse to be captured in a graph are launched one after the other, which for short
    kernels includes the launch gaps: ``method`` says so. Slow ones are called a few times only, the
    slowest once after one warm-up.
    """
    stream = timing_stream()
    with stream, _torch_on(stream):
        first = _first(calls, stream)
        if first >= ENOUGH:
            return Prepared(calls[0], 1, 1, "events", first)
        if first >= SLOW:
            calls, capturable = calls[: max(1, int(2 * SLOW / first))], False
            repeats = min(repeats, max(5, int(budget / first)))
        estimate = first if first >= SLOW else _estimate(calls, stream)
        rounds = max(1, min(400, int(budget / repeats / max(estimate * len(calls), 1e-7))))
        graph = _capture(calls, rounds, stream) if capturable else None
        launch = partial(graph.launch, stream) if graph else partial(_run, calls, rounds)
        launch()
        stream.synchronize()
    return Prepared(launch, rounds * len(calls), repeats, "graph" if graph else "events")


def time_once(prepared: Prepared) -> float:
    """Seconds of one call, over one launch."""
    if prepared.seconds is not None:
        return prepared.seconds
    stream = timing_stream()
    with stream, _torch_on(stream):
        return _between_events(prepared.launch, stream) / prepared.calls


def timing_of(prepared: Prepared, seconds: Sequence[float]) -> Timing:
    """Median and spread of what ``time_once`` said."""
    found = [s * 1e6 for s in seconds]
    return Timing(
        float(np.median(found)), min(found), max(found), prepared.calls, len(found), prepared.method
    )


@cache
def timing_stream() -> Any:
    """The one stream on which everything is timed: kernels keep intermediates by stream."""
    import cupy  # pyright: ignore

    return cupy.cuda.Stream(non_blocking=True)


def _first(calls: Sequence[Call], stream: Any) -> float:
    """Seconds of one call, the second after a warm-up by the first."""
    calls[0]()
    stream.synchronize()
    return _between_events(calls[0], stream)


def _torch_on(stream: Any) -> AbstractContextManager[Any]:
    """Make the stream torch's current one as well, if torch is in use with a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr))


def _run(calls: Sequence[Call], rounds: int) -> None:
    """Each call's result lives until the same call comes again: what allocates its output has as
    many of them in turn as what is given them, and does not write into the cache all the time.
    """
    results: list[object] = [None] * len(calls)
    for _ in range(rounds):
        for k, call in enumerate(calls):
            results[k] = call()


def _estimate(calls: Sequence[Call], stream: Any) -> float:
    """Seconds of one call, after a warm-up."""
    _run(calls, 1)
    stream.synchronize()
    rounds = 1
    seconds = _between_events(partial(_run, calls, rounds), stream)
    while seconds < WARM_UP_SECONDS and rounds < 4096:
        rounds *= 2
        seconds = _between_events(partial(_run, calls, rounds), stream)
    return seconds / (rounds * len(calls))


def _between_events(launch: Callable[[], object], stream: Any) -> float:
    """Seconds that the device spends between two events around ``launch``."""
    import cupy  # pyright: ignore

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    launch()
    end.record(stream)
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e-3


def _capture(calls: Sequence[Call], rounds: int, stream: Any) -> Any | None:
    """The calls as a CUDA graph; None if one of them does what a capture forbids."""
    try:
        stream.begin_capture()
        _run(calls, rounds)
        return stream.end_capture()
    except Exception:  # whatever a library raises when it may not synchronize or allocate
        _abandon(stream)
        return None


def _abandon(stream: Any) -> None:
    """Leave a broken capture, which is none that goes on by what the stream says."""
    with suppress(Exception):
        stream.end_capture()
