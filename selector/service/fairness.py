"""Who comes next, and how much anyone may hold: no client takes what others need.

A client is a token where the service wants one, and else an address (``client_of``). Three things
are shared out here: what is held (``Shares``: connections, bytes of bodies, computations), the
workers (``Rounds``, by the pool), and the event loop itself (``Turns``).
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

from selector.dataclass import dataclass

PART = 4
"""No client holds more than one part in so many."""
LOOPS = 2
"""Turns that a request waits for: one to be parsed, one to be answered."""
HERE, SAVED = 2.0, 0.25
"""Seconds for which a client is there after it has asked; in which it saves time that it does not
use."""
_T = TypeVar("_T")


@lru_cache(maxsize=4096)
def client_of(address: str) -> str:
    """The client behind an address: of IPv6 the network, since one client has all of its 2^64."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found if isinstance(found, ipaddress.IPv4Address) else found.ipv4_mapped)


class Shares:
    """Up to ``limit`` of something, and for each client a part of it, at least ``least``."""

    def __init__(self, limit: int, least: int = 1) -> None:
        self.limit, self.each = limit, max(least, limit // PART)
        self.held: Counter[str] = Counter()
        self.total = 0

    def take(self, client: str, amount: int = 1) -> int:
        """0 and it is held, or the status to refuse with: 429 if the client has its part, 503 if
        there is no more.
        """
        status = self.refused(client, amount)
        if not status:
            self.held[client] += amount
            self.total += amount
        return status

    def refused(self, client: str, amount: int = 1) -> int:
        """The status that ``take`` would have; nothing is held."""
        if self.held.get(client, 0) + amount > self.each:
            return 429
        return 503 if self.total + amount > self.limit else 0

    def give(self, client: str, amount: int = 1) -> None:
        self.total -= amount
        self.held[client] -= amount
        if not self.held[client]:
            del self.held[client]


class Paces:
    """How often each client may do what leaves something behind: ``burst`` times at once, and then
    once in ``every`` seconds (the generic cell rate algorithm, ITU-T I.371).
    """

    def __init__(self, burst: int, every: float) -> None:
        self.burst, self.every = burst, every
        self.due: OrderedDict[str, float] = OrderedDict()  # when what was done is worked off

    def wait(self, client: str) -> float:
        """0 and it counts, or the seconds until it may be done."""
        wait = self.ahead(client)
        if not wait:
            self.count(client)
        return wait

    def ahead(self, client: str) -> float:
        """The seconds until it may be done once more."""
        now = time.monotonic()
        return max(0.0, self._worked_off(client, now) + self.every - now)

    def count(self, client: str, most: float = 0.0) -> None:
        """It is done; the client is no more than ``most`` seconds ahead of its pace by that."""
        now = time.monotonic()
        self.due[client] = min(self._worked_off(client, now) + self.every, now + most)
        self.due.move_to_end(client)
        while next(iter(self.due.values())) <= now - self.burst * self.every:
            self.due.popitem(last=False)

    def _worked_off(self, client: str, now: float) -> float:
        rested = now - self.burst * self.every
        return max(self.due.get(client, rested), rested)


@dataclass(slots=True)
class _Use:
    """When a client asked last, and what was computed for it until ``when``, in seconds."""

    asked: float
    seconds: float = 0.0
    when: float = 0.0


class Recent:
    """The clients that have asked in the last ``period`` seconds, and what was computed for each;
    half of that is forgotten in the same time.
    """

    def __init__(self, period: float) -> None:
        self.period = period
        self.uses: OrderedDict[str, _Use] = OrderedDict()
        self.most: str | None = None  # for whom most was computed: all forget at the same rate

    def note(self, client: str) -> None:
        """It asks now."""
        now = time.monotonic()
        self.uses.setdefault(client, _Use(now)).asked = now
        self.uses.move_to_end(client)
        self._forget(now)

    def used(self, client: str, seconds: float) -> None:
        """So much was computed for it."""
        if (use := self.uses.get(client)) is not None:
            now = time.monotonic()
            use.seconds = self._left(use, now) + seconds
            use.when = now
            if self.most is None or use.seconds > self._left(self.uses[self.most], now):
                self.most = client

    def heaviest(self) -> str | None:
        """The one of several that have asked for which most was computed."""
        self._forget(time.monotonic())
        return self.most if len(self.uses) > 1 else None

    def _forget(self, now: float) -> None:
        """Those that have not asked for a while."""
        while self.uses and next(iter(self.uses.values())).asked < now - self.period:
            client, _ = self.uses.popitem(last=False)
            if client == self.most:
                left = {c: self._left(use, now) for c, use in self.uses.items() if use.seconds}
                self.most = max(left, key=left.__getitem__, default=None)

    def _left(self, use: _Use, now: float) -> float:
        return use.seconds * 0.5 ** ((now - use.when) / self.period)


class Rounds(Generic[_T]):
    """Things that wait, a queue for each client; they are taken from the clients in turn."""

    def __init__(self) -> None:
        self.queues: OrderedDict[str, deque[_T]] = OrderedDict()
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def put(self, client: str, item: _T) -> None:
        self.queues.setdefault(client, deque()).append(item)
        self.count += 1

    def take(self, may: Callable[[str], bool] = lambda client: True) -> _T | None:
        """The next one of the client that waits for longest, of those that ``may``."""
        client = next(filter(may, self.queues), None)
        if client is None:
            return None
        item = self.queues[client].popleft()
        self.queues.move_to_end(client)
        self._counted(client)
        return item

    def drop(self, client: str, item: _T) -> bool:
        """Whether it waited; it no longer does."""
        if item not in self.queues.get(client, ()):
            return False
        self.queues[client].remove(item)
        self._counted(client)
        return True

    def _counted(self, client: str) -> None:
        self.count -= 1
        if not self.queues[client]:
            del self.queues[client]


class Turns:
    """The event loop, shared out: one thing is done, then the network is looked at, then the next
    one is done, of all clients in turn. Who sends most waits most, and nobody else does.

    Beside others a client has its part of the loop's time, after what it has saved, and the loop
    rests rather than give it more: who comes then finds the loop free.
    """

    def __init__(self) -> None:
        self.waiting: Rounds[tuple[str, Callable[[], None]]] = Rounds()
        self.free = True  # nothing was done since the network was looked at
        self.asked: OrderedDict[str, float] = OrderedDict()  # when, by those who are there
        self.due: dict[str, float] = {}  # from when on they have had less than their part
        self.timer: asyncio.TimerHandle | None = None

    async def turn(self, client: str) -> None:
        """Wait for it."""
        mine = asyncio.get_running_loop().create_future()
        self.call(client, lambda: None if mine.done() else mine.set_result(None))
        await mine

    def call(self, client: str, then: Callable[[], None]) -> None:
        """``then`` is called at once, or when its turn comes; those of a client in their order."""
        now = time.monotonic()
        self.asked[client] = now
        self.asked.move_to_end(client)
        while next(iter(self.asked.values())) < now - HERE:
            gone, _ = self.asked.popitem(last=False)
            self.due.pop(gone, None)
        self.waiting.put(client, (client, then))
        if self.free:
            self._next()

    def _next(self) -> None:
        """The next thing, now or when somebody may."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        now, alone = time.monotonic(), len(self.asked) < 2
        found = self.waiting.take(lambda client: alone or self.due.get(client, now) <= now)
        if found is not None:
            self._do(*found)
        elif self.waiting:
            soonest = min(self.due.get(client, now) for client in self.waiting.queues)
            self.timer = asyncio.get_running_loop().call_later(soonest - now, self._next)

    def _do(self, client: str, then: Callable[[], None]) -> None:
        """What it leads to at once, in the next round of the loop, is its time as well."""
        self.free, began = False, time.thread_time()
        try:
            then()
        finally:
            asyncio.get_running_loop().call_soon(self._done, client, began)

    def _done(self, client: str, began: float) -> None:
        now, used = time.monotonic(), time.thread_time() - began
        rested = min(max(self.due.get(client, 0.0), now - SAVED), now)
        self.due[client] = rested + LOOPS * PART * used
        self.free = True
        self._next()
