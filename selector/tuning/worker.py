"""A worker process of ``tuning.local``: runs one task after the other until its input ends.

Its standard output carries messages only: what tasks print goes to standard error.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from typing import Any

from selector.diagnostics import UserError
from selector.tuning.executor import Failure, SpoiledWorkerError
from selector.tuning.frames import receive, send

READY = "ready"
_PR_SET_PDEATHSIG = 1  # prctl(2)
_MOST_SHARED = 2


def main() -> None:
    """Answer tasks: ``(shared key, shared or None, pickled (function, arguments))`` gets ``(value,
    None, False)`` or ``(None, failure, whether this process ends)``.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed parent takes us along
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    send(replies, READY)
    known: dict[str, Any] = {}
    while True:
        try:
            key, pickled, call = receive(requests)
        except EOFError:
            os._exit(0)
        value, failure, spoiled = attempt(known, key, pickled, call)
        send(replies, (value, failure, spoiled))
        if spoiled:
            os._exit(0)


def attempt(
    known: dict[str, Any], key: str | None, pickled: bytes | None, call: bytes
) -> tuple[Any, Failure | None, bool]:
    """A task's value or failure, and whether the process is unfit for others."""
    try:
        if key is not None and pickled is not None:
            while len(known) >= _MOST_SHARED:
                known.pop(next(iter(known)))
            known[key] = pickle.loads(pickled)
        function, arguments = pickle.loads(call)
        first = () if key is None else (known[key],)
        return function(*first, *arguments), None, False
    except SpoiledWorkerError as error:
        return None, failure_of(error.__cause__ or error), True
    except BaseException as error:  # SystemExit of a user's function is a failure like any other
        return None, failure_of(error), False


def failure_of(error: BaseException) -> Failure:
    """An exception as a failure: a user's error as its text, others with their class."""
    if isinstance(error, UserError):
        return Failure(type(error).__name__, str(error))
    return Failure(type(error).__name__, f"{type(error).__name__}: {error}"[:2000])


if __name__ == "__main__":
    sys.exit("started by selector.tuning.local")
