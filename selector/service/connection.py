"""A connection: uvicorn's, with limits on their number, on the part of a request that comes before
its body, and on how long a client may leave an answer unread.

Without them a client that sends a header a minute, one that does not end, or that never reads holds
a connection and memory for ever. Bodies have limits of their own (``bodies``). What comes is read
when it comes, and parsed when it is its client's turn: a client whose seventy connections speak all
at once would otherwise have them all parsed before anybody else's.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from selector.service.answers import Answer, refusal
from selector.service.fairness import Shares, Turns, client_of

HEAD_LIMIT = 64 << 10
"""Bytes of a request line and headers, and of the trailers of a body in chunks."""
_REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Connection(HttpToolsProtocol):
    """The head of a request takes up to ``seconds`` and ``HEAD_LIMIT``, reading what the buffers of
    the network do not hold of an answer up to ``seconds``. ``shares`` are connections; ``proxies``
    are addresses that have them for many clients; ``turns`` are those of reading requests.
    """

    seconds: float = 30.0
    shares: Shares
    turns: Turns
    proxies: frozenset[str] = frozenset()
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _holder: str | None = None
    _head: int = 0
    _began: bool = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # what the network does not take is said at once
        address = str((self.client or ("",))[0])
        # Those of a proxy are one each: its own limits are what keeps its clients apart.
        holder = f"{address} {id(self)}" if address in self.proxies else client_of(address)
        if status := self.shares.take(holder):
            whose = "of this client" if status == 429 else "of all clients"
            self._refuse(status, "there are too many connections", whose)
            return
        self._holder = holder
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._holder is not None:
            self.shares.give(self._holder)
        self._end()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def data_received(self, data: bytes) -> None:
        if self._holder is None:
            return
        self.flow.pause_reading()  # nothing more, while this waits
        self.turns.call(self._holder, partial(self._take, data))

    def _take(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        head = self._timer
        super().data_received(data)
        if head is not None and head is self._timer:  # no other request began in these bytes
            self._head += len(data)
            if self._head > HEAD_LIMIT:
                self._refuse(431, "the headers are too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._began = True
        self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._timer is None:  # a trailer
            self._head += len(name) + len(value)
            if self._head > 2 * HEAD_LIMIT:
                raise ValueError("the trailers are too large")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._end()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is no HTTP request", msg)

    def _begin(self) -> None:
        self._end()
        self._head = 0
        self._timer = self.loop.call_later(self.seconds, self._late)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        if self._began:
            self._refuse(408, "the request did not arrive")
        else:
            self._end()
            self.transport.close()

    def _refuse(self, status: int, what: str, why: str = "") -> None:
        self._end()
        if self.transport.is_closing():
            return
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        if cycle is None or cycle.response_complete:
            self.transport.write(_bytes(refusal(status, "RequestError", what, why)))
        self.transport.close()


def connections(limit: float, most: Shares, trusted: frozenset[str]) -> type[Connection]:
    """Those with limits and turns of their own."""

    class Limited(Connection):
        seconds, shares, turns, proxies = limit, most, Turns(), trusted

    return Limited


def _bytes(answer: Answer) -> bytes:
    """An answer as it goes over the wire, and the last one of its connection."""
    later = "retry-after: 1\r\n" if answer.status in (429, 503) else ""
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n{later}"
        f"content-type: {answer.media}\r\ncontent-length: {len(answer.body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + answer.body
