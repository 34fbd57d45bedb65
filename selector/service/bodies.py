"""Reading the bodies of requests, within limits: of each, of a client, of all together.

A body stays what it is, bytes, until a worker parses it: JSON takes up to a hundred times as much
memory as its text, and time that other requests wait for.
"""

from __future__ import annotations

import asyncio
import hashlib

from starlette.requests import ClientDisconnect, Request

from selector.dataclass import dataclass
from selector.service.answers import Answer, refusal
from selector.service.fairness import Shares, Turns
from selector.service.settings import MIB

DRAIN_LIMIT = 256 * MIB
"""Bytes that are read and thrown away so that a client, which first sends, sees the answer."""


@dataclass(eq=False, slots=True)
class Body:
    """The bytes of a request, their SHA-256 and whose they are; ``free`` when they are gone."""

    client: str
    shares: Shares
    held: int = 0
    data: bytes = b""
    sha: str = ""

    def hold(self, length: int) -> int:
        """The status to refuse with; 0 if there is room for that many bytes."""
        status = self.shares.take(self.client, length - self.held) if length > self.held else 0
        if not status:
            self.held = max(length, self.held)
        return status

    def free(self) -> None:
        self.shares.give(self.client, self.held)
        self.held, self.data = 0, b""


class Reader:
    """Reads bodies of up to ``limit`` bytes, each within ``seconds``."""

    def __init__(self, limit: int, seconds: float, turns: Turns) -> None:
        self.limit, self.seconds, self.turns = limit, seconds, turns

    async def read(self, request: Request, body: Body) -> Answer | None:
        """Fill ``body``; or what is wrong: there is too much, or it takes too long.

        What is refused is known from its length, and held by nobody. It is read all the same, as
        fast as its client has turns: a client that first sends would not see the answer otherwise.
        """
        declared = request.headers.get("content-length", "0")
        refused = self._refused(body, int(declared) if declared.isdigit() else 0)
        if refused is not None and "expect" in request.headers:
            return refused  # the client waits for leave to send
        try:
            async with asyncio.timeout(self.seconds):
                return await self._parts(request, body, refused)
        except TimeoutError:
            why = f"it was not complete after {self.seconds:g} s"
            return refusal(408, "RequestError", "the request did not arrive", why)
        except ClientDisconnect:
            return refusal(400, "RequestError", "the client went away")

    async def _parts(self, request: Request, body: Body, refused: Answer | None) -> Answer | None:
        """As they come, between the turns of others; hashed one by one."""
        parts: list[bytes] = []
        length, sha = 0, hashlib.sha256()
        async for part in request.stream():
            if length:
                await self.turns.turn(body.client)
            length += len(part)
            refused = refused or self._refused(body, length)
            if refused is None:
                parts.append(part)
                sha.update(part)
            elif length > DRAIN_LIMIT:
                break
            else:
                parts.clear()
        if refused is None:
            body.data, body.sha = b"".join(parts), sha.hexdigest()
        return refused

    def _refused(self, body: Body, length: int) -> Answer | None:
        """What is said to a body of that many bytes; if nothing, they are held for it."""
        if length > self.limit:
            return self._too_long()
        status = body.hold(length)
        return _no_room(status) if status else None

    def _too_long(self) -> Answer:
        return refusal(
            413,
            "LimitError",
            "the request is too large",
            f"this service reads up to {self.limit / MIB:g} MiB",
            "the JSON form shares equal expressions, and is the smaller one for large programs",
        )


def _no_room(status: int) -> Answer:
    whose = "of this client" if status == 429 else "of all clients"
    why = f"the requests {whose} that are being read or wait come to too many bytes"
    hint = "try again after the seconds of Retry-After"
    return refusal(status, "BusyError", "the service is busy", why, hint, retry_after=1)
