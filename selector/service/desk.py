"""Where requests are answered: from memory, from the store, by one that is on its way, or by a
worker.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from math import ceil
from typing import TypeVar

from selector.dataclass import dataclass
from selector.runtime.versions import fingerprint, version, versions
from selector.service import links
from selector.service.answers import Answer, digest, encoded, mistake, refusal
from selector.service.bodies import Body
from selector.service.fairness import Paces, Shares
from selector.service.links import Links
from selector.service.metrics import Metrics
from selector.service.pool import Job, Pool
from selector.service.settings import Settings
from selector.service.shelf import KEEP, Shelf, StoreFullError
from selector.service.store import Store

API = "1"
TOUCH_EVERY = 60.0
"""Seconds after which a kernel that is asked for again is marked as used."""
ABANDONED = 2.0
"""Seconds that something is computed on when nobody waits any more: to begin a worker anew takes as
long."""
_ENTRY = 1024
"""Bytes that an answer takes in memory besides its own."""
_END = object()
_T = TypeVar("_T")


@dataclass(eq=False)
class Flight:
    """A computation that any number of requests wait for."""

    key: str
    kind: str
    body: Body
    answer: asyncio.Task[Answer] = field(init=False)
    waiting: int = 0
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
        self.bytes += len(answer.body) + _ENTRY
        while self.bytes > self.limit:
            self.drop(next(iter(self.answers)))

    def drop(self, key: str) -> None:
        found = self.answers.pop(key, None)
        self.touched.pop(key, None)
        if found is not None:
            self.bytes -= len(found.body) + _ENTRY


class Desk:
    """``start`` it inside an event loop, ``close`` it at the end."""

    def __init__(self, settings: Settings) -> None:
        """``ServiceError`` if the store cannot be used."""
        self.settings = settings
        self.metrics = Metrics()
        room = settings.store_limit // links.PART
        self.store = Store(settings.store, settings.store_limit - room)
        self.links = Links(settings.store, room)
        self.paces = Paces(links.BURST, links.EVERY)
        self.memory = Memory(settings.answers)
        self.bodies = Shares(settings.bodies, settings.body_limit)
        lowering = [version("halide"), fingerprint("halide_bridge")] if settings.python else []
        self.about = json.dumps([API, versions(), *lowering], sort_keys=True)
        self.flights: dict[str, Flight] = {}
        self.files = ThreadPoolExecutor(1, "store")  # one: the store counts without locks
        self.pool: Pool
        self.tidying: dict[Shelf, asyncio.Task[None]] = {}

    def start(self) -> None:
        self.pool = Pool(self.settings, self.metrics)
        self.pool.start()
        for shelf in (self.store, self.links):
            self.tidying[shelf] = asyncio.create_task(self._tidy(shelf.measure()))

    async def close(self) -> None:
        await self.pool.close()
        await asyncio.gather(*(f.answer for f in self.flights.values()), return_exceptions=True)
        for task in self.tidying.values():
            task.cancel()
        await asyncio.gather(*self.tidying.values(), return_exceptions=True)
        self.files.shutdown()

    def key(self, kind: str, sha: str) -> str:
        """The name of an answer: a hash of all that decides what it is."""
        return digest(f"{self.about} {kind} {sha}".encode())

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

    def refused(self, key: str, client: str) -> Answer | None:
        """What is said at once where a computation would have to begin, and none can: nobody waits
        for a look at the disk to be told so.
        """
        if key in self.flights or (found := self.pool.refused(client)) is None:
            return None
        return None if self.store.has_answer(key) else found

    def join(self, key: str, kind: str, body: Body) -> Flight:
        """Wait for an answer: the computation that is on its way, or a new one, which takes the
        body over. It goes on as long as somebody waits, until all have called ``leave``.
        """
        flight = self.flights.get(key)
        if flight is not None:
            self.metrics.lookups["in flight"] += 1
            body.free()
        else:
            flight = self.flights[key] = Flight(key, kind, body)
            flight.answer = asyncio.create_task(self._find(flight))
            flight.answer.add_done_callback(lambda _: self._landed(flight))
        flight.waiting += 1
        return flight

    def leave(self, flight: Flight) -> None:
        flight.waiting -= 1
        if not flight.waiting and not flight.answer.done():
            begun = flight.job is not None and flight.job.started
            loop = asyncio.get_running_loop()
            loop.call_later(ABANDONED if begun else 0, self._abandon, flight)

    def _landed(self, flight: Flight) -> None:
        flight.body.free()
        if self.flights.get(flight.key) is flight:
            del self.flights[flight.key]

    def _abandon(self, flight: Flight) -> None:
        """Give up what nobody has come to wait for since."""
        if not flight.waiting and not flight.answer.done() and flight.job is not None:
            self.flights.pop(flight.key, None)
            self.pool.cancel(flight.job)

    async def artifact(self, sha: str) -> bytes | None:
        return await self._in_thread(lambda: self.store.artifact(sha))

    def gauges(self) -> dict[str, tuple[str, float]]:
        """The states of the moment, with what they mean."""
        pool = self.pool
        return {
            "workers": ("Workers that are ready.", len(pool.workers)),
            "workers_busy": ("Workers that compute.", len(pool.busy)),
            "workers_confined": ("Workers that Landlock confines.", pool.count_confined()),
            "worker_memory_bytes": ("Resident memory of all workers.", pool.memory()),
            "queue": ("Computations that wait for a worker.", len(pool.waiting)),
            "bodies_bytes": ("Bytes of requests that are being read or wait.", self.bodies.total),
            "store_bytes": ("Bytes of the store, without links.", self.store.bytes),
            "store_evicted_total": ("Entries that went for want of room.", self.store.evicted),
            "store_corrupt_total": ("Entries that were found damaged.", self.store.corrupt),
            "links_bytes": ("Bytes of short links.", self.links.bytes),
            "links_evicted_total": ("Links that went for want of room.", self.links.evicted),
            "links_corrupt_total": ("Links that were found damaged.", self.links.corrupt),
            "answers_bytes": ("Bytes of answers in memory.", self.memory.bytes),
        }

    async def _find(self, flight: Flight) -> Answer:
        key = flight.key
        found = await self._in_thread(lambda: self.store.answer(key))
        if found is not None:
            self.metrics.lookups["store"] += 1
            self.memory.put(key, found)
            return found
        self.metrics.lookups["nowhere"] += 1
        flight.job = await self.pool.submit(flight.kind, flight.body)
        if not flight.waiting:
            self._abandon(flight)
        answer, artifact = await flight.job.done
        if not answer.keep:
            return answer
        if answer.status == 200:  # a mistake is soon found again: it takes no room on disk
            try:
                await self._in_thread(lambda: self._keep(key, answer, artifact))
            except StoreFullError as error:
                # An answer without a kernel is whole without the store.
                return mistake(error, 507, retry_after=10) if artifact else answer
            self._make_room(self.store)
        self.memory.put(key, answer.known())
        return answer

    async def keep_link(self, client: str, data: bytes) -> Answer:
        """The name of a request, from now on; one that was kept before costs its client nothing."""
        name = links.link_name(data)
        if await self.link(name) is None:
            if wait := self.paces.wait(client):
                why = f"a client makes {links.BURST} at once, and then one in {links.EVERY:g} s"
                what, hint = "too many links", "try again after the seconds of Retry-After"
                return refusal(429, "BusyError", what, why, hint, retry_after=ceil(wait))
            try:
                await self._in_thread(lambda: self.links.put(data))
            except StoreFullError as error:
                return mistake(error, 507, retry_after=10)
            self._make_room(self.links)
        return Answer(201, encoded({"id": name}))

    async def link(self, name: str) -> bytes | None:
        return await self._in_thread(lambda: self.links.get(name))

    def _make_room(self, shelf: Shelf) -> None:
        if shelf.is_over and self.tidying[shelf].done():
            steps = shelf.make_room(KEEP * shelf.limit)
            self.tidying[shelf] = asyncio.create_task(self._tidy(steps))

    async def _tidy(self, steps: Iterator[None]) -> None:
        """Go through a folder bit by bit: whoever looks something up comes in between."""
        while await self._in_thread(lambda: next(steps, _END)) is not _END:
            pass

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
