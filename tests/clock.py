"""Processor time of a job, as a quiet machine of reference speed would need it.

Two test workers on two cores that share caches, or a slower machine, stretch every job. A yardstick
of fixed work is timed right beside each attempt, and stretches with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

YARDSTICK_SECONDS = (
    0.0090  # on a quiet core of the machine that the CPU figures of the README are from
)


def processor_seconds(job: Callable[[], object], limit: float, attempts: int = 12) -> float:
    """The shortest of at most ``attempts`` runs of ``job``, in seconds of the reference machine;
    stops at the first run that is shorter than ``limit``.
    """
    shortest = float("inf")
    for _ in range(attempts):
        before = _timed(_yardstick)
        spent = _timed(job)
        stretch = (before + _timed(_yardstick)) / (2 * YARDSTICK_SECONDS)
        shortest = min(shortest, spent / max(1.0, stretch))
        if shortest < limit:
            break
    return shortest


def _timed(job: Callable[[], object]) -> float:
    start = time.process_time()
    job()
    return time.process_time() - start


def _yardstick() -> int:
    """Work of the kind that a compiler does: small objects, dictionaries, comparisons."""
    seen: dict[tuple[int, str], int] = {}
    for i in range(12_000):
        key = (i * 7919 % 1009, str(i % 97))
        seen[key] = seen.get(key, 0) + i
    return len(sorted(seen))
