"""Tasks on a Ray cluster (extra ``ray``): those that compile wherever a processor is free, those
that time where a GPU is, each with a GPU to itself.

Results are kept by the caller, as with any executor. A worker or a node that is lost costs its task
an attempt, and the task is begun again elsewhere: only what loses ``attempts`` workers has failed.
This package has to be installed on every node, Halide only where schedules are lowered.

A task says when it begins (it is a generator, and that is its first value), and its worker ends
itself when the time is over. So a limit counts from the beginning, and a worker that is silent for
longer is one whose node is gone, whether Ray has noticed or not.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from selector.dataclass import dataclass
from selector.diagnostics import UserError
from selector.tuning.executor import Done, Failure, Kind, Task
from selector.tuning.worker import attempt

START_SECONDS = 60.0  # for a worker to be started, or a node to come, before a task begins
SILENT_SECONDS = 10.0  # between a task's limit and the word of it
EXIT_SECONDS = 0.5  # between the answer of a spoiled worker and its end
_NEEDED = {Kind.COMPILE: "CPU", Kind.TIME: "GPU"}
_known: dict[str, Any] = {}  # the shared values of a worker process


@dataclass(slots=True)
class _Running:
    """A task that was sent: its attempts so far, when it began (0: not yet), and when its worker is
    taken for lost.
    """

    task: Task
    attempts: int
    deadline: float
    begun: float = 0.0


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
        self._running: dict[Any, _Running] = {}  # by the generators of their values
        # When the cluster last had any. One that never had a GPU is not waited for.
        self._seen = {Kind.COMPILE: time.monotonic(), Kind.TIME: float("-inf")}
        self._values: dict[str, Any] = {}  # references of shared values, by their keys
        self._ended: list[Done] = []

    def room(self, kind: Kind) -> int:
        tasks = [r.task for r in self._running.values()] + [t for t, _ in self._waiting]
        slots = max(1, self._slots(kind))  # where there is none, the first task is told so
        return max(0, slots - sum(t.kind is kind for t in tasks))

    def submit(self, task: Task) -> None:
        self._waiting.append((task, 0))

    def wait(self, seconds: float) -> Sequence[Done]:
        until = time.monotonic() + seconds
        while True:
            self._begin_waiting()
            left = 0.0 if self._ended else max(0.0, until - time.monotonic())
            self._collect(min(left, 0.5))
            self._miss_silent()
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
        slots = int(self._ray.cluster_resources().get(_NEEDED[kind], 0))
        if slots:
            self._seen[kind] = time.monotonic()
        return slots

    def _begin_waiting(self) -> None:
        """Begin what there is room for, so that limits count from a task's beginning."""
        busy = {k: sum(r.task.kind is k for r in self._running.values()) for k in Kind}
        for _ in range(len(self._waiting)):
            task, attempts = self._waiting.popleft()
            if busy[task.kind] < self._slots(task.kind):
                busy[task.kind] += 1
                self._begin(task, attempts)
            elif time.monotonic() - self._seen[task.kind] > START_SECONDS:
                reason = f"the cluster has no {_NEEDED[task.kind]}"
                self._ended.append(Done(task.number, failure=Failure("TargetError", reason)))
            else:
                self._waiting.append((task, attempts))

    def _begin(self, task: Task, attempts: int) -> None:
        needs = {"num_cpus": 1} if task.kind is Kind.COMPILE else {"num_cpus": 0, "num_gpus": 1}
        # Retries are ours: Ray's own would not count against a limit. Workers are kept for the next
        # task, which Ray does not do by itself where there are GPUs.
        options = {"max_retries": 0, "max_calls": 0, "num_returns": "streaming", **needs}
        remote = self._ray.remote(**options)(_run)
        key, value = None, None
        if task.shared is not None:
            key = f"{self._session} {task.shared.key}"
            if key not in self._values:
                self._values[key] = self._ray.put(task.shared.value)
            value = [self._values[key]]  # in a list: fetched by workers that lack it
        values = remote.remote(key, value, task.seconds, task.function, task.arguments)
        self._running[values] = _Running(task, attempts + 1, time.monotonic() + START_SECONDS)

    def _collect(self, seconds: float) -> None:
        if not self._running:
            time.sleep(min(seconds, 0.05))
            return
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        for values in ready:
            running = self._running.pop(values)
            try:
                found = self._ray.get(next(values))
            except (self._ray.exceptions.RayError, StopIteration) as error:
                self._lost(running, str(error))
                continue
            if found is None:
                running.begun = time.monotonic()
                running.deadline = running.begun + running.task.seconds + SILENT_SECONDS
                self._running[values] = running
            else:
                self._ended.append(Done(running.task.number, *found))

    def _lost(self, running: _Running, why: str) -> None:
        """A worker or its node has ended: again, unless its time was over or it was the last
        attempt.
        """
        task, first = running.task, (why.strip().splitlines() or [""])[0]
        spent = time.monotonic() - running.begun if running.begun else 0.0
        if task.seconds <= spent < task.seconds + SILENT_SECONDS:
            failure = Failure("late", f"stopped after {task.seconds:.0f} s")
        elif running.attempts < self._attempts:
            self._waiting.append((task, running.attempts))
            return
        else:
            failure = Failure("lost", f"lost {running.attempts} workers: {first}")
        self._ended.append(Done(task.number, failure=failure))

    def _miss_silent(self) -> None:
        """What says nothing when it should have ended, or begun, is lost with its node."""
        now = time.monotonic()
        for values, running in list(self._running.items()):
            if running.deadline <= now:
                self._ray.cancel(values, force=True)
                del self._running[values]
                self._lost(running, "its node is silent")


def _run(
    key: str | None,
    value: list[Any] | None,
    seconds: float,
    function: Any,
    arguments: tuple[Any, ...],
) -> Iterator[Any]:
    """A task on a worker: None when it begins, then its value and its failure."""
    import pickle

    yield None
    # Not caught by anyone, so that it ends the process even where that is deep in a library.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)

    if key is not None and key not in _known:
        import ray  # pyright: ignore

        assert value is not None
        _known.clear()
        _known[key] = ray.get(value[0])
    result, failure, spoiled = attempt(_known, key, None, pickle.dumps((function, arguments)))
    signal.setitimer(signal.ITIMER_REAL, 0)
    if spoiled:
        threading.Timer(EXIT_SECONDS, os._exit, (1,)).start()
    yield result, failure
