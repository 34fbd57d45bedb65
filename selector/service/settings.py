"""What an operator can set."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path

from selector.dataclass import dataclass

MIB = 1 << 20


def default_workers() -> int:
    """One for each CPU that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


def default_store() -> Path:
    """``tensor-selector/service`` in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tensor-selector" / "service"


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes are bytes, times seconds.

    ``time_limit`` and ``memory_limit`` are for one request: the worker that exceeds one is ended.
    ``read_limit`` is what a client has for sending its headers, and again for its body.
    ``queue`` is how many computations may wait, ``patience`` for how long; ``bodies`` how much of
    requests is held at a time, ``connections`` how many there may be (of each of the three, a
    client has a part: ``fairness``); ``answers`` how much of the store is kept in memory as well.
    A worker is replaced after ``jobs_per_worker`` requests. ``hosts`` are the names that requests
    may be for (none: any), ``proxies`` the addresses whose ``X-Forwarded-For`` is believed.
    ``confined``: workers that cannot be confined are not used. ``python``: programs in Python are
    taken, each within half of ``time_limit`` and of ``memory_limit``.
    """

    store: Path = field(default_factory=default_store)
    workers: int = field(default_factory=default_workers)
    token_file: Path | None = None
    store_limit: int = 1024 * MIB
    body_limit: int = 4 * MIB
    time_limit: float = 20.0
    memory_limit: int = 1024 * MIB
    queue: int = 64
    patience: float = 30.0
    read_limit: float = 30.0
    bodies: int = 64 * MIB
    connections: int = 1024
    hosts: frozenset[str] = frozenset()
    proxies: frozenset[str] = frozenset()
    confined: bool = False
    python: bool = False
    answers: int = 64 * MIB
    jobs_per_worker: int = 2000
