"""The worker processes: each takes the next request, and one that fails is replaced.

A request that exceeds its time or memory costs its worker and is told so; a request whose worker
was ended by something else is done again, once, by another. Clients take turns. Of several workers
the first is kept: it has the processors before the others, and where others have asked lately, the
client for which most was computed does not get it. So who asks for more than there is waits behind
its own requests, and who asks now and then finds a worker free, as fast as if alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from selector.dataclass import dataclass
from selector.diagnostics import LimitError, ParseError
from selector.service.answers import Answer, defect, mistake, refusal
from selector.service.bodies import Body
from selector.service.fairness import Recent, Rounds, Shares
from selector.service.metrics import Metrics
from selector.service.processes import WorkerEndedError, WorkerProcess
from selector.service.scratch import Scratch
from selector.service.settings import MIB, Settings

log = logging.getLogger(__name__)
RESTART_PAUSE = 1.0
KEPT = 0
"""The number of the worker that is kept for others."""
RESERVED = 60.0
"""Seconds for which it is kept after a client has asked, and until half of what was computed for
one is forgotten."""
ATTEMPTS = 2
NICE, NICER = 5, 15
"""Workers compute what is left of the CPUs: known answers come first, then the kept worker, which
has nine times the weight of another (sched(7))."""


@dataclass(eq=False)
class Job:
    """A request on its way; ``stage`` is what the worker said last, ``rules`` whether it found
    rules in the request.
    """

    kind: str
    body: Body
    done: asyncio.Future[tuple[Answer, bytes]]
    queued: float = field(default_factory=time.monotonic)
    started: float = 0.0
    stage: str = ""
    rules: bool = False
    attempts: int = 0
    timer: asyncio.TimerHandle | None = None
    worker: WorkerProcess | None = None

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
        self.waiting: Rounds[Job] = Rounds()
        self.places = Shares(settings.queue + settings.workers, settings.workers + 1)
        self.busy: dict[int, tuple[str, float]] = {}  # for whom each worker computes, since when
        self.recent = Recent(RESERVED)
        self.wake = asyncio.Condition()
        self.workers: dict[int, WorkerProcess] = {}
        self.mean = 0.2
        self.tasks: list[asyncio.Task[None]] = []
        self.scratch: Scratch

    def start(self) -> None:
        self.scratch = Scratch(Path(self.settings.store) / "scratch")
        slots = range(self.settings.workers)
        self.tasks = [asyncio.create_task(self._slot(i), name=f"worker {i}") for i in slots]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        while (job := self.waiting.take()) is not None:
            job.finish(_stopping())
        self.scratch.close()

    async def submit(self, kind: str, body: Body) -> Job:
        """Put a request in the queue; a job that is refused is done at once."""
        job = Job(kind, body, asyncio.get_running_loop().create_future())
        if status := self.places.take(body.client):
            job.finish(self._full(status))
            return job
        job.done.add_done_callback(lambda _: self.places.give(body.client))
        self.recent.note(body.client)
        self._wait(job)
        await self._wake()
        return job

    def refused(self, client: str) -> Answer | None:
        """What would be said to a request of a client now, if nothing would be begun for it."""
        status = self.places.refused(client)
        return self._full(status) if status else None

    def _full(self, status: int) -> Answer:
        why = "this client has its part of it" if status == 429 else ""
        return self._busy(f"the queue is full{why and ': '}{why}")

    async def _wake(self) -> None:
        async with self.wake:
            self.wake.notify_all()

    def _wait(self, job: Job) -> None:
        loop, patience = asyncio.get_running_loop(), self.settings.patience
        job.timer = loop.call_later(patience, self._give_up, job)
        self.waiting.put(job.body.client, job)

    def cancel(self, job: Job) -> None:
        """Nobody waits for it any more: it is not begun, or its worker is ended."""
        if self.waiting.drop(job.body.client, job):
            job.finish(_abandoned())
        elif job.worker is not None and not job.done.done():
            job.worker.kill("abandoned")

    def count_confined(self) -> int:
        """How many of the workers are."""
        return sum(w.confined for w in self.workers.values())

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
        if self.waiting.drop(job.body.client, job):
            why = f"no worker was free for {self.settings.patience:g} s"
            job.finish(self._busy(why))

    async def _slot(self, number: int) -> None:
        """Keep one worker going, for ever."""
        while True:
            worker = await self._started(number)
            if worker is None:
                continue
            self.workers[number] = worker
            try:
                await self._serve(number, worker)
            finally:
                del self.workers[number]
                await self._wake()  # what this one would have taken
                await worker.end()

    async def _started(self, number: int) -> WorkerProcess | None:
        """A new process; None, after a pause, if it does not start."""
        try:
            nice = NICE if number == KEPT else NICER
            return await WorkerProcess.start(self.settings, self.scratch.folder, nice)
        except (WorkerEndedError, OSError, TimeoutError) as error:
            log.error("worker %d does not start: %r", number, error)
            self.metrics.workers_ended["start"] += 1
            await asyncio.sleep(RESTART_PAUSE)
            return None

    async def _serve(self, number: int, worker: WorkerProcess) -> None:
        """Requests until the worker has to go."""
        answered = True
        while answered:
            job = await self._next(number)
            self.busy[number] = job.body.client, time.monotonic()
            try:
                answered = await self._perform(worker, job)
            except asyncio.CancelledError:
                job.finish(_stopping())
                raise
            except Exception as error:  # costs the request and the worker, not all that follow
                log.exception("worker %d", number)
                job.finish(defect("the service failed", repr(error)))
                answered = False
            finally:
                await self._free(number, job)
            if answered and (reason := self._worn(worker)):
                self.metrics.workers_ended[reason] += 1
                return

    async def _next(self, number: int) -> Job:
        async with self.wake:
            while not self.waiting or (job := self.waiting.take(self._may(number))) is None:
                await self.wake.wait()
        if job.timer is not None:
            job.timer.cancel()
        return job

    def _may(self, number: int) -> Callable[[str], bool]:
        """Whether a client may have this worker: who may have the kept one has that, if it is free,
        and no other.
        """
        heaviest = self.recent.heaviest() if self.settings.workers > 1 else None
        if number == KEPT:
            return lambda client: client != heaviest
        if KEPT in self.busy or KEPT not in self.workers:
            return lambda client: True
        return lambda client: client == heaviest

    async def _free(self, number: int, job: Job) -> None:
        """A worker has done with a job, for good or for now."""
        job.worker = None
        client, since = self.busy.pop(number)
        self.recent.used(client, time.monotonic() - since)
        await self._wake()

    async def _perform(self, worker: WorkerProcess, job: Job) -> bool:
        """Have a request done; whether the worker answered."""
        job.started, job.stage, job.worker = time.monotonic(), "", worker
        job.attempts += 1
        limits = self.settings

        def watch(stage: str, rules: bool) -> None:
            job.stage, job.rules = stage, rules

        try:
            answer, artifact = await worker.perform(
                job.kind, job.body.data, limits.time_limit, limits.memory_limit, watch
            )
        except WorkerEndedError as end:
            self._ended(job, end)
            return False
        seconds = time.monotonic() - job.started
        self.mean += 0.1 * (seconds - self.mean)
        self.metrics.computing.observe(seconds)
        self.metrics.computations[str(answer.status)] += 1
        job.finish(answer, artifact)
        return True

    def _ended(self, job: Job, end: WorkerEndedError) -> None:
        """What is said of a request whose worker is gone, if it is not tried again."""
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
            case "abandoned":
                job.finish(_abandoned())
            case _ if job.rules:
                job.finish(mistake(ParseError("these rules stop the rule engine", f"{end}{stage}")))
            case _ if job.attempts >= ATTEMPTS:
                job.finish(defect("the compiler ended twice", f"{end}{stage}"))
            case _:
                job.started = 0.0
                self._wait(job)

    def _worn(self, worker: WorkerProcess) -> str:
        """Why a worker is replaced though nothing went wrong; empty if it is not."""
        if worker.fate or worker.process.returncode is not None:
            return worker.fate or "lost"  # ended as it answered: it may not be gone yet
        if worker.served >= self.settings.jobs_per_worker:
            return "served"
        return "grown" if worker.memory() > self.settings.memory_limit // 2 else ""


def _limit(what: str) -> LimitError:
    return LimitError(
        what,
        "every request has a limit of time and one of memory",
        "make the program or the rules smaller, or compile it without a service",
    )


def _stopping() -> Answer:
    return refusal(503, "StoppingError", "the service is being stopped", retry_after=5)


def _abandoned() -> Answer:
    """To who asks again in the moment in which it is given up."""
    return refusal(503, "BusyError", "nobody waited for this any more", retry_after=1)
