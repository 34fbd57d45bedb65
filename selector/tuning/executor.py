"""What tuning asks of whatever runs its tasks: processes of this machine (``tuning.local``), or a
cluster.

A task is an importable function with arguments that can be pickled. Those of kind ``compile`` need
a processor, those of kind ``time`` a GPU to themselves. An executor owes an answer for every task:
its value, or a ``Failure`` with the reason why there is none, a lost worker included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol

from selector.dataclass import dataclass


class Kind(StrEnum):
    """What a task needs."""

    COMPILE = "compile"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Shared:
    """A value that many tasks have as their first argument: sent to a worker once. ``key`` is
    unique in a process.
    """

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Task:
    """``function(*arguments)``, or ``function(shared.value, *arguments)``; given up after
    ``seconds``.
    """

    number: int
    kind: Kind
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    seconds: float
    shared: Shared | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task has no value: one line, then details. ``kind`` names the exception's class,
    ``lost`` for a worker that ended, ``late`` for one that was stopped.
    """

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to the task of that number."""

    number: int
    value: Any = None
    failure: Failure | None = None


class SpoiledWorkerError(Exception):
    """Raised by a task that leaves its process unfit for others, such as one with a lost CUDA
    context: the task has failed, and the process is replaced.
    """


class Executor(Protocol):
    """Runs tasks. One thread calls it."""

    def room(self, kind: Kind) -> int:
        """How many tasks of a kind would be begun at once if they were submitted now."""
        ...

    def submit(self, task: Task) -> None:
        """Begin a task, or keep it until there is room."""
        ...

    def wait(self, seconds: float) -> Sequence[Done]:
        """The tasks that have ended since the last call; waits at most that long for the first."""
        ...

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        ...
