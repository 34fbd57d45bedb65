"""Refusals that are held back: who goes on asking after 429 hears each the later.

The first ``BURST`` are said at once, and so is what comes once in ``EVERY`` seconds: a client that
obeys ``Retry-After`` never waits here. Beyond that each is held for longer than the one before, up
to its ``Retry-After``; a client that asks again as soon as it is answered has to wait in between,
which costs the service a timer. The body is gone by then. More than ``MOST`` are not held for a
client: what is beyond is said at once, and its connection ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from starlette.requests import Request

from selector.service.answers import Answer
from selector.service.fairness import Paces
from selector.service.metrics import Metrics

BURST, EVERY = 8, 1 / 16
MOST = 64
LONGEST = 5.0
"""Seconds, whatever ``Retry-After`` is: a service that is stopped waits for what it holds."""


class Holds:
    """What is held of each client; counted in ``metrics``."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.paces = Paces(BURST, EVERY)
        self.held: Counter[str] = Counter()

    async def back(self, answer: Answer, client: str, request: Request) -> Answer:
        """The answer, when it may be said: at once if it is no 429."""
        if answer.status != 429:
            return answer
        most = min(LONGEST, answer.retry_after)
        seconds = min(most, self.paces.ahead(client))
        self.paces.count(client, most)
        if not seconds:
            return answer
        if self.held[client] >= MOST:
            self.metrics.refusals["closed"] += 1
            return replace(answer, last=True)
        self.metrics.refusals["held"] += 1
        self.held[client] += 1
        try:
            await _passed(seconds, request)
        finally:
            self.held[client] -= 1
            if not self.held[client]:
                del self.held[client]
        return replace(answer, retry_after=max(1, answer.retry_after - int(seconds)))


async def _passed(seconds: float, request: Request) -> None:
    """That time, or less if the client goes away."""
    if "expect" in request.headers:  # to ask for more would be leave to send
        await asyncio.sleep(seconds)
        return
    gone = asyncio.ensure_future(request.receive())  # after its body, nothing but its end comes
    await asyncio.wait({gone}, timeout=seconds)
    gone.cancel()
