"""Tasks on a Ray cluster (extra ``ray``): those that compile wherever a processor is free, those
that time where a GPU is, each with a GPU to itself.

Results are kept by the caller, as with any executor. A worker or a node that is lost costs its task
an attempt, and the task is begun again elsewhere: only what loses ``attempts`` workers has failed.
This package has to be installed on every node, Halide only where schedules are lowered.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from selector.diagnostics import UserError
from selector.tuning.executor import Done, Failure, Kind, Task
from selector.tuning.worker import attempt

START_SECONDS = 60.0  # for a worker to be started, beside a task's own limit
EXIT_SECONDS = 0.5  # between the answer of a spoiled worker and its end
_known: dict[str, Any] = {}  # the shared values of a worker process


@dataclass(slots=True)
class _Running:
    """A task that was begun: its attempts so far, and when it is given up."""

    task: Task
    attempts: int
    deadline: float


class RayExecutor:
    """Runs tasks on the Ray cluster at ``address``, on the one that this process is connected to,
    or (None, and not connected) on one of this machine alone.

    ``attempts``: how many workers a task may lose. ``UserError`` where Ray is not installed.
    """

    def __init__(self, address: str | None = None, attempts: int = 3) -> None:
        try:
            import ray  # pyright: ignore
        except ImportError as error:
            raise UserError(
                "there is no Ray here", why=str(error), hint="pip install tensor-selector[ray]"
            ) from error
        self._ray: Any = ray
        self._started = not ray.is_initialized()
        if self._started:
            ray.init(address=address, log_to_driver=False)
        self._attempts = attempts
        self._session = uuid.uuid4().hex
        self._waiting: deque[tuple[Task, int]] = deque()
        self._running: dict[Any, _Running] = {}
        self._values: dict[str, Any] = {}  # references of shared values, by their keys
        self._ended: list[Done] = []

    def room(self, kind: Kind) -> int:
        tasks = [r.task for r in self._running.values()] + [t for t, _ in self._waiting]
        return max(0, self._slots(kind) - sum(t.kind is kind for t in tasks))

    def submit(self, task: Task) -> None:
        self._waiting.append((task, 0))

    def wait(self, seconds: float) -> Sequence[Done]:
        until = time.monotonic() + seconds
        while True:
            self._begin_waiting()
            left = 0.0 if self._ended else max(0.0, until - time.monotonic())
            self._collect(min(left, 0.5))
            self._stop_late()
            if self._ended or time.monotonic() >= until:
                ended, self._ended = self._ended, []
                return ended

    def close(self) -> None:
        """Cancel what runs; the cluster is left as it is, unless it was started here."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()
        self._waiting.clear()
        self._values.clear()
        self._session = uuid.uuid4().hex
        if self._started and self._ray.is_initialized():
            self._ray.shutdown()

    def _slots(self, kind: Kind) -> int:
        """Processors or GPUs of the nodes that are alive."""
        resource = "CPU" if kind is Kind.COMPILE else "GPU"
        return int(self._ray.cluster_resources().get(resource, 0))

    def _begin_waiting(self) -> None:
        """Begin what there is room for, so that limits count from a task's beginning."""
        busy = {k: sum(r.task.kind is k for r in self._running.values()) for k in Kind}
        for _ in range(len(self._waiting)):
            task, attempts = self._waiting.popleft()
            if busy[task.kind] < self._slots(task.kind):
                busy[task.kind] += 1
                self._begin(task, attempts)
            elif task.kind is Kind.TIME and not self._slots(Kind.TIME):
                reason = "the cluster has no GPU"
                self._ended.append(Done(task.number, failure=Failure("TargetError", reason)))
            else:
                self._waiting.append((task, attempts))

    def _begin(self, task: Task, attempts: int) -> None:
        needs = {"num_cpus": 1} if task.kind is Kind.COMPILE else {"num_cpus": 0, "num_gpus": 1}
        # Retries are ours: Ray's own would not count against a limit. Workers are kept for the next
        # task, which Ray does not do by itself where there are GPUs.
        remote = self._ray.remote(max_retries=0, max_calls=0, **needs)(_run)
        key, value = None, None
        if task.shared is not None:
            key = f"{self._session} {task.shared.key}"
            if key not in self._values:
                self._values[key] = self._ray.put(task.shared.value)
            value = [self._values[key]]  # in a list: fetched by workers that lack it
        reference = remote.remote(key, value, task.function, task.arguments)
        deadline = time.monotonic() + task.seconds + START_SECONDS
        self._running[reference] = _Running(task, attempts + 1, deadline)

    def _collect(self, seconds: float) -> None:
        if not self._running:
            time.sleep(min(seconds, 0.05))
            return
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        for reference in ready:
            running = self._running.pop(reference)
            try:
                value, failure = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                self._lost(running, error)
            else:
                self._ended.append(Done(running.task.number, value, failure))

    def _lost(self, running: _Running, error: Exception) -> None:
        """A worker or its node has ended: again, unless it was the last attempt."""
        if running.attempts < self._attempts:
            self._waiting.append((running.task, running.attempts))
            return
        reason = f"lost {running.attempts} workers: {str(error).strip().splitlines()[0]}"
        self._ended.append(Done(running.task.number, failure=Failure("lost", reason)))

    def _stop_late(self) -> None:
        now = time.monotonic()
        for reference, running in list(self._running.items()):
            if running.deadline <= now:
                self._ray.cancel(reference, force=True)
                del self._running[reference]
                reason = f"stopped after {running.task.seconds:.0f} s"
                self._ended.append(Done(running.task.number, failure=Failure("late", reason)))


def _run(
    key: str | None, value: list[Any] | None, function: Any, arguments: tuple[Any, ...]
) -> Any:
    """A task on a worker: its value and its failure."""
    import pickle

    if key is not None and key not in _known:
        import ray  # pyright: ignore

        assert value is not None
        _known.clear()
        _known[key] = ray.get(value[0])
    result, failure, spoiled = attempt(_known, key, None, pickle.dumps((function, arguments)))
    if spoiled:
        threading.Timer(EXIT_SECONDS, os._exit, (1,)).start()
    return result, failure
