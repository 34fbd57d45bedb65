"""Counters in the text format of Prometheus (exposition format 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import field

from selector.dataclass import dataclass

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds."""


@dataclass
class Histogram:
    """How many observations fell below each bound, how many there were, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self.sum:.6f}"
        yield f"{name}_count{{{labels}}} {total}"


@dataclass
class Metrics:
    """What happened since the server started."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    seconds: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    computations: Counter[str] = field(default_factory=Counter[str])
    computing: Histogram = field(default_factory=Histogram)
    lookups: Counter[str] = field(default_factory=Counter[str])
    workers_ended: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])

    def request(self, route: str, status: int, seconds: float) -> None:
        self.requests[route, status] += 1
        self.seconds.setdefault(route, Histogram()).observe(seconds)

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """All of it; ``gauges`` are the states of the moment, with what they mean."""
        return "\n".join((*self._counters(), *_gauges(gauges), ""))

    def _counters(self) -> Iterator[str]:
        yield from _head("requests_total", "counter", "Requests by route and status.")
        for (route, status), n in sorted(self.requests.items()):
            yield f'selector_requests_total{{route="{route}",status="{status}"}} {n}'
        yield from _head("request_seconds", "histogram", "Time from request to answer.")
        for route, histogram in sorted(self.seconds.items()):
            yield from histogram.lines("selector_request_seconds", f'route="{route}"')
        yield from _head("computation_seconds", "histogram", "Time of a worker for a request.")
        yield from self.computing.lines("selector_computation_seconds", 'by="worker"')
        for name, label, counter, what in (
            ("computations_total", "outcome", self.computations, "What workers did."),
            ("lookups_total", "found", self.lookups, "Where answers were found."),
            ("workers_ended_total", "reason", self.workers_ended, "Why workers were ended."),
            ("refusals_total", "how", self.refusals, "429s that were not said at once."),
        ):
            yield from _head(name, "counter", what)
            for value, n in sorted(counter.items()):
                yield f'selector_{name}{{{label}="{value}"}} {n}'


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP selector_{name} {what}"
    yield f"# TYPE selector_{name} {kind}"


def _gauges(gauges: dict[str, tuple[str, float]]) -> Iterator[str]:
    for name, (what, value) in gauges.items():
        yield from _head(name, "counter" if name.endswith("_total") else "gauge", what)
        yield f"selector_{name} {value}"
