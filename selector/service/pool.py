"""The worker processes: each takes the next request, and one that fails is replaced.

A request that exceeds its time or memory costs its worker and is told so; a request whose worker
was ended by something else is done again, once, by another.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selector.diagnostics import LimitError
from selector.service.answers import Answer, defect, mistake, refusal
from selector.service.metrics import Metrics
from selector.service.processes import WorkerEndedError, WorkerProcess
from selector.service.settings import MIB, Settings

log = logging.getLogger(__name__)
RESTART_PAUSE = 1.0
_OLD = 86400.0
ATTEMPTS = 2


@dataclass(eq=False)
class Job:
    """A request on its way; ``stage`` is what the worker said last."""

    kind: str
    request: dict[str, Any]
    done: asyncio.Future[tuple[Answer, bytes]]
    queued: float = field(default_factory=time.monotonic)
    started: float = 0.0
    stage: str = ""
    attempts: int = 0
    timer: asyncio.TimerHandle | None = None

    def progress(self, waiting: int) -> dict[str, object]:
        """The state of the moment, for who waits."""
        now = time.monotonic()
        if not self.started:
            return {"state": "queued", "waiting": waiting, "seconds": round(now - self.queued, 1)}
        seconds = round(now - self.started, 1)
        return {"state": "running", "stage": self.stage, "seconds": seconds}

    def finish(self, answer: Answer, artifact: bytes = b"") -> None:
        if not self.done.done():
            self.done.set_result((answer, artifact))


class Pool:
    """``start`` it, ``submit`` requests, ``close`` it."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.scratch = Path(settings.store) / "scratch"
        self.waiting: deque[Job] = deque()
        self.wake = asyncio.Condition()
        self.workers: dict[int, WorkerProcess] = {}
        self.busy = 0
        self.mean = 0.2
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        _tidy(self.scratch)
        slots = range(self.settings.workers)
        self.tasks = [asyncio.create_task(self._slot(i), name=f"worker {i}") for i in slots]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        while self.waiting:
            self.waiting.popleft().finish(_stopping())

    async def submit(self, kind: str, request: dict[str, Any]) -> Job:
        """Put a request in the queue; a job that is refused is done at once."""
        job = Job(kind, request, asyncio.get_running_loop().create_future())
        if len(self.waiting) >= self.settings.queue:
            job.finish(self._busy("the queue is full"))
            return job
        patience = self.settings.patience
        job.timer = asyncio.get_running_loop().call_later(patience, self._give_up, job)
        async with self.wake:
            self.waiting.append(job)
            self.wake.notify()
        return job

    def memory(self) -> int:
        """Resident bytes of all workers."""
        return sum(w.memory() for w in self.workers.values())

    def _busy(self, why: str) -> Answer:
        seconds = self.mean * (len(self.waiting) + 1) / self.settings.workers
        hint = "try again after the seconds of Retry-After"
        wait = min(60, max(1, round(seconds)))
        return refusal(429, "BusyError", "the service is busy", why, hint, retry_after=wait)

    def _give_up(self, job: Job) -> None:
        """A request that waited too long."""
        if job in self.waiting:
            self.waiting.remove(job)
            why = f"no worker was free for {self.settings.patience:g} s"
            job.finish(self._busy(why))

    async def _slot(self, number: int) -> None:
        """Keep one worker going, for ever."""
        again: Job | None = None
        try:
            while True:
                worker = await self._started(number)
                if worker is None:
                    if again is not None:
                        again.finish(
                            refusal(503, "WorkerError", "no worker can be started", retry_after=5)
                        )
                    again = None
                    continue
                self.workers[number] = worker
                try:
                    again = await self._serve(worker, again)
                finally:
                    del self.workers[number]
                    await worker.end()
        finally:
            if again is not None:
                again.finish(_stopping())

    async def _started(self, number: int) -> WorkerProcess | None:
        """A new process; None, after a pause, if it does not start."""
        try:
            return await WorkerProcess.start(self.settings.memory_limit, self.scratch)
        except (WorkerEndedError, OSError, TimeoutError) as error:
            log.error("worker %d does not start: %r", number, error)
            self.metrics.workers_ended["start"] += 1
            await asyncio.sleep(RESTART_PAUSE)
            return None

    async def _serve(self, worker: WorkerProcess, again: Job | None) -> Job | None:
        """Requests until the worker has to go; the one that has to be done again, if any."""
        while True:
            job = again if again is not None else await self._next()
            again = None
            self.busy += 1
            try:
                healthy = await self._perform(worker, job)
            except asyncio.CancelledError:
                job.finish(_stopping())
                raise
            finally:
                self.busy -= 1
            if not healthy:
                return None if job.done.done() else job
            if reason := self._worn(worker):
                self.metrics.workers_ended[reason] += 1
                return None

    async def _next(self) -> Job:
        async with self.wake:
            while not self.waiting:
                await self.wake.wait()
            job = self.waiting.popleft()
        if job.timer is not None:
            job.timer.cancel()
        return job

    async def _perform(self, worker: WorkerProcess, job: Job) -> bool:
        """Have a request done; whether the worker can go on."""
        job.started, job.stage = time.monotonic(), ""
        job.attempts += 1
        limits = self.settings

        def watch(stage: str) -> None:
            job.stage = stage

        request = {"kind": job.kind, "request": job.request}
        try:
            answer, artifact = await worker.perform(
                request, limits.time_limit, limits.memory_limit, watch
            )
        except WorkerEndedError as end:
            self._ended(job, end)
            return False
        seconds = time.monotonic() - job.started
        self.mean += 0.1 * (seconds - self.mean)
        self.metrics.computing.observe(seconds)
        self.metrics.computations[str(answer.status)] += 1
        job.finish(answer, artifact)
        return worker.process.returncode is None

    def _ended(self, job: Job, end: WorkerEndedError) -> None:
        """What is said of a request whose worker is gone; nothing if it is tried again."""
        self.metrics.workers_ended[end.fate or "lost"] += 1
        log.warning("a worker ended (%s) in stage %r of %s", end, job.stage, job.kind)
        stage = f" (in stage `{job.stage}`)" if job.stage else ""
        match end.fate:
            case "time":
                most = f"{self.settings.time_limit:g} s"
                job.finish(mistake(_limit(f"the program takes longer than {most}{stage}")))
            case "memory":
                most = f"{self.settings.memory_limit // MIB} MiB"
                job.finish(mistake(_limit(f"the program takes more than {most}{stage}")))
            case _ if job.attempts >= ATTEMPTS:
                job.finish(defect("the compiler ended twice", f"{end}{stage}"))
            case _:
                job.started = 0.0

    def _worn(self, worker: WorkerProcess) -> str:
        """Why a worker is replaced though nothing went wrong; empty if it is not."""
        if worker.process.returncode is not None:
            return "lost"
        if worker.served >= self.settings.jobs_per_worker:
            return "served"
        return "grown" if worker.memory() > self.settings.memory_limit // 2 else ""


def _tidy(scratch: Path) -> None:
    """Remove what servers left behind that were killed."""
    for folder in scratch.iterdir():
        with suppress(OSError):
            if folder.stat().st_mtime < time.time() - _OLD:
                shutil.rmtree(folder, ignore_errors=True)


def _limit(what: str) -> LimitError:
    return LimitError(
        what,
        "every request has a limit of time and one of memory",
        "make the program or the rules smaller, or compile it without a service",
    )


def _stopping() -> Answer:
    return refusal(503, "StoppingError", "the service is being stopped", retry_after=5)
