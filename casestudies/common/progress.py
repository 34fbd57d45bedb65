"""Progress of long work: lines on standard error, so that standard output stays data."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Generator[None]:
    """Announce a step when it begins, and its seconds when it ends."""
    print(f"  {what} ...", end="", file=sys.stderr, flush=True)
    begin = time.perf_counter()
    try:
        yield
    except BaseException:
        print(" failed", file=sys.stderr, flush=True)
        raise
    print(f" {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
