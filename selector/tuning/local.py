"""Tasks in processes of this machine: several for compiling, one for the GPU.

A process that ends, or takes too long and is stopped, costs the task that it was at; another one
takes its place. Workers are fresh interpreters: they import neither the caller's main module nor
anything that it does not ask for, and they end with the process that started them, however that
ends.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from typing import IO, Any

from selector.dataclass import dataclass
from selector.diagnostics import UserError
from selector.tuning.executor import Done, Failure, Kind, Task
from selector.tuning.frames import receive, send
from selector.tuning.worker import READY

START_SECONDS = 120.0  # a worker that is not ready by then is lost
_BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from selector.tuning.worker import main; main()"
)


@dataclass(slots=True)
class _Worker:
    """A process, and the task that it is at."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]
    kind: Kind
    deadline: float
    ready: bool = False
    task: Task | None = None
    shared: deque[str] = field(default_factory=lambda: deque[str](maxlen=2))


class LocalExecutor:
    """``workers`` processes that compile (default: one a processor), and one that times."""

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise UserError(f"{workers} workers cannot compile anything", hint="at least 1")
        self._slots = {Kind.COMPILE: workers or len(os.sched_getaffinity(0)), Kind.TIME: 1}
        self._workers: list[_Worker] = []
        self._waiting: dict[Kind, deque[Task]] = {kind: deque() for kind in Kind}
        self._ended: list[Done] = []

    def room(self, kind: Kind) -> int:
        busy = sum(w.kind is kind and w.task is not None for w in self._workers)
        return max(0, self._slots[kind] - busy - len(self._waiting[kind]))

    def submit(self, task: Task) -> None:
        self._waiting[task.kind].append(task)
        self._begin_waiting()

    def wait(self, seconds: float) -> Sequence[Done]:
        until = time.monotonic() + seconds
        while True:
            self._begin_waiting()
            self._listen(0.0 if self._ended else max(0.0, until - time.monotonic()))
            self._stop_late()
            if self._ended or time.monotonic() >= until:
                ended, self._ended = self._ended, []
                return ended

    def close(self) -> None:
        for worker in self._workers:
            self._kill(worker)
        self._workers.clear()
        for tasks in self._waiting.values():
            tasks.clear()

    @property
    def processes(self) -> tuple[int, ...]:
        """The ids of the workers that are alive."""
        return tuple(w.process.pid for w in self._workers)

    def _begin_waiting(self) -> None:
        for kind, tasks in self._waiting.items():
            while tasks:
                worker = self._free(kind)
                if worker is None:
                    break
                worker.task = tasks.popleft()
                if worker.ready:
                    self._begin(worker)

    def _free(self, kind: Kind) -> _Worker | None:
        """A worker without a task; a new one where there may be more."""
        mine = [w for w in self._workers if w.kind is kind]
        idle = next((w for w in mine if w.task is None), None)
        if idle is None and len(mine) < self._slots[kind]:
            idle = _start(kind)
            self._workers.append(idle)
        return idle

    def _begin(self, worker: _Worker) -> None:
        task = worker.task
        assert task is not None
        worker.deadline = time.monotonic() + task.seconds
        key = None if task.shared is None else task.shared.key
        pickled = None
        try:
            call = pickle.dumps((task.function, task.arguments), pickle.HIGHEST_PROTOCOL)
            if task.shared is not None and key not in worker.shared:
                pickled = pickle.dumps(task.shared.value, pickle.HIGHEST_PROTOCOL)
                worker.shared.append(task.shared.key)
        except Exception as error:  # pickle raises whatever the object's own methods do
            self._finish(worker, None, Failure("PicklingError", f"cannot be sent: {error}"))
            return
        assert worker.process.stdin is not None
        try:
            send(worker.process.stdin, (key, pickled, call))  # pyright: ignore[reportArgumentType]
        except OSError:
            self._lose(worker)

    def _listen(self, seconds: float) -> None:
        """Take the messages of workers, waiting for the first until the next deadline."""
        if not self._workers:
            time.sleep(min(seconds, 0.05))
            return
        deadlines = [w.deadline for w in self._workers if w.task is not None or not w.ready]
        left = min(deadlines, default=float("inf")) - time.monotonic()
        pipes: dict[Any, _Worker] = {w.process.stdout: w for w in self._workers}
        readable, _, _ = select.select(list(pipes), [], [], max(0.0, min(seconds, left)))
        for pipe in readable:
            self._hear(pipes[pipe])

    def _hear(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        try:
            message: Any = receive(worker.process.stdout)  # pyright: ignore[reportArgumentType]
        except (EOFError, pickle.UnpicklingError):
            self._lose(worker)
            return
        if message == READY:
            worker.ready = True
            if worker.task is not None:
                self._begin(worker)
            return
        value, failure, spoiled = message
        self._finish(worker, value, failure)
        if spoiled:  # before it is given another task
            self._discard(worker)

    def _finish(self, worker: _Worker, value: Any, failure: Failure | None) -> None:
        assert worker.task is not None
        self._ended.append(Done(worker.task.number, value, failure))
        worker.task = None

    def _lose(self, worker: _Worker) -> None:
        """A worker has ended; its task, if it was at one, has failed."""
        code = worker.process.wait()
        if worker.task is not None:
            self._finish(worker, None, Failure("lost", _why(code, worker)))
        self._discard(worker)

    def _stop_late(self) -> None:
        now = time.monotonic()
        for worker in [w for w in self._workers if w.deadline <= now]:
            if worker.task is None and worker.ready:
                continue
            if worker.task is not None:
                seconds = worker.task.seconds if worker.ready else START_SECONDS
                reason = f"stopped after {seconds:.0f} s"
                self._finish(worker, None, Failure("late", reason))
            self._discard(worker)

    def _discard(self, worker: _Worker) -> None:
        self._kill(worker)
        self._workers.remove(worker)

    def _kill(self, worker: _Worker) -> None:
        if worker.process.poll() is None:
            os.killpg(worker.process.pid, signal.SIGKILL)  # its session: what it started, too
        worker.process.wait()
        for stream in (worker.process.stdin, worker.process.stdout, worker.log):
            if stream is not None:
                with suppress(OSError):  # what was not sent to a worker that has ended
                    stream.close()


def _start(kind: Kind) -> _Worker:
    log = tempfile.TemporaryFile()  # noqa: SIM115 - the worker's, as long as it lives
    process = subprocess.Popen(
        [sys.executable, "-c", _BEGIN, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        bufsize=-1,
        start_new_session=True,  # Ctrl-C is for the caller, who ends the workers
    )
    return _Worker(process, log, kind, time.monotonic() + START_SECONDS)


def _why(code: int, worker: _Worker) -> str:
    """Why a worker ended: the signal or exit code, and what it wrote last."""
    ended = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    worker.log.seek(0, os.SEEK_END)
    worker.log.seek(max(0, worker.log.tell() - 2000))
    lines = worker.log.read().decode(errors="replace").strip().splitlines()
    return f"its process {ended}" + (f": {lines[-1][:300]}" if lines else "")
