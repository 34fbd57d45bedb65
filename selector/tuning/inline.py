"""Tasks in the calling process, one after the other: for a debugger, and for machines on which no
process may be started. Nothing is isolated, nothing is stopped when it takes too long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from selector.tuning.executor import Done, Kind, SpoiledWorkerError, Task
from selector.tuning.worker import failure_of


class InlineExecutor:
    """Runs a task when its result is waited for."""

    def __init__(self) -> None:
        self._tasks: deque[Task] = deque()

    def room(self, kind: Kind) -> int:
        return 1 - any(task.kind is kind for task in self._tasks)

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def wait(self, seconds: float) -> Sequence[Done]:
        if not self._tasks:
            return ()
        task = self._tasks.popleft()
        first = () if task.shared is None else (task.shared.value,)
        try:
            return (Done(task.number, task.function(*first, *task.arguments)),)
        except SpoiledWorkerError as error:
            return (Done(task.number, failure=failure_of(error.__cause__ or error)),)
        except Exception as error:
            return (Done(task.number, failure=failure_of(error)),)

    def close(self) -> None:
        self._tasks.clear()
