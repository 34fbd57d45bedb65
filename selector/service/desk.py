"""Where requests are answered: from memory, from the store, by one that is on its way, or by a
worker.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from selector.runtime.versions import versions
from selector.service.answers import Answer, mistake
from selector.service.metrics import Metrics
from selector.service.pool import Job, Pool
from selector.service.settings import Settings
from selector.service.store import Store, StoreFullError

API = "1"
TOUCH_EVERY = 60.0
"""Seconds after which a kernel that is asked for again is marked as used."""
_T = TypeVar("_T")


@dataclass(eq=False)
class Flight:
    """A computation that any number of requests wait for."""

    answer: asyncio.Task[Answer]
    job: Job | None = None


@dataclass
class Memory:
    """The answers that were used last, up to ``limit`` bytes."""

    limit: int
    answers: OrderedDict[str, Answer] = field(default_factory=OrderedDict[str, Answer])
    touched: dict[str, float] = field(default_factory=dict[str, float])
    bytes: int = 0

    def get(self, key: str) -> Answer | None:
        found = self.answers.get(key)
        if found is not None:
            self.answers.move_to_end(key)
        return found

    def put(self, key: str, answer: Answer) -> None:
        self.drop(key)
        self.answers[key] = answer
        self.bytes += len(answer.body)
        while self.bytes > self.limit:
            self.drop(next(iter(self.answers)))

    def drop(self, key: str) -> None:
        found = self.answers.pop(key, None)
        self.touched.pop(key, None)
        if found is not None:
            self.bytes -= len(found.body)


class Desk:
    """``start`` it inside an event loop, ``close`` it at the end."""

    def __init__(self, settings: Settings) -> None:
        """``ServiceError`` if the store cannot be used."""
        self.settings = settings
        self.metrics = Metrics()
        self.store = Store(settings.store, settings.store_limit)
        self.memory = Memory(settings.answers)
        self.versions = versions()
        self.flights: dict[str, Flight] = {}
        self.files = ThreadPoolExecutor(1, "store")  # one: the store counts without locks
        self.pool: Pool

    def start(self) -> None:
        self.pool = Pool(self.settings, self.metrics)
        self.pool.start()

    async def close(self) -> None:
        await self.pool.close()
        await asyncio.gather(*(f.answer for f in self.flights.values()), return_exceptions=True)
        self.files.shutdown()

    def key(self, kind: str, request: dict[str, Any]) -> str:
        """The name of an answer: a hash of all that decides what it is."""
        parts = [API, kind, request, self.versions]
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def known(self, key: str) -> Answer | None:
        """The answer, if it is in memory and its kernel is still there."""
        found = self.memory.get(key)
        if found is None:
            return None
        if found.artifact:
            if not self.store.has_artifact(found.artifact):
                self.memory.drop(key)
                return None
            self._touch(key, found.artifact)
        self.metrics.lookups["memory"] += 1
        return found

    def begin(self, key: str, kind: str, request: dict[str, Any]) -> Flight:
        """The computation of an answer: the one that is on its way, or a new one."""
        flight = self.flights.get(key)
        if flight is not None:
            self.metrics.lookups["in flight"] += 1
            return flight
        flight = Flight(asyncio.create_task(self._find(key, kind, request)))
        self.flights[key] = flight
        flight.answer.add_done_callback(lambda _: self.flights.pop(key, None))
        return flight

    async def artifact(self, sha: str) -> bytes | None:
        return await self._in_thread(lambda: self.store.artifact(sha))

    def gauges(self) -> dict[str, tuple[str, float]]:
        """The states of the moment, with what they mean."""
        pool = self.pool
        return {
            "workers": ("Workers that are ready.", len(pool.workers)),
            "workers_busy": ("Workers that compute.", pool.busy),
            "worker_memory_bytes": ("Resident memory of all workers.", pool.memory()),
            "queue": ("Computations that wait for a worker.", len(pool.waiting)),
            "store_bytes": ("Bytes of the store.", self.store.bytes),
            "store_evicted_total": ("Entries that went for want of room.", self.store.evicted),
            "store_corrupt_total": ("Entries that were found damaged.", self.store.corrupt),
            "answers_bytes": ("Bytes of answers in memory.", self.memory.bytes),
        }

    async def _find(self, key: str, kind: str, request: dict[str, Any]) -> Answer:
        found = await self._in_thread(lambda: self.store.answer(key))
        if found is not None:
            self.metrics.lookups["store"] += 1
            self.memory.put(key, found)
            return found
        self.metrics.lookups["nowhere"] += 1
        job = await self.pool.submit(kind, request)
        if key in self.flights:
            self.flights[key].job = job
        answer, artifact = await job.done
        if not answer.keep:
            return answer
        try:
            await self._in_thread(lambda: self._keep(key, answer, artifact))
        except StoreFullError as error:
            # An answer without a kernel is whole without the store.
            return mistake(error, 507, retry_after=10) if artifact else answer
        self.memory.put(key, answer.known())
        return answer

    def _keep(self, key: str, answer: Answer, artifact: bytes) -> None:
        if artifact:
            self.store.put_artifact(artifact)
        self.store.put_answer(key, answer.known())

    def _touch(self, key: str, sha: str) -> None:
        now = time.monotonic()
        if now - self.memory.touched.get(key, -TOUCH_EVERY) >= TOUCH_EVERY:
            self.memory.touched[key] = now
            self.store.used(sha)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self.files, work)
