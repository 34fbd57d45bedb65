"""Reading the body of a request, within limits."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.requests import ClientDisconnect

from selector.service.answers import Answer, refusal
from selector.service.settings import MIB

DRAIN_LIMIT = 256 * MIB
"""Bytes that are read and thrown away so that a client, which first sends, sees the answer."""


async def read_body(request: Request, limit: int, seconds: float) -> bytes | Answer:
    """The body, or what is wrong with it: it may have ``limit`` bytes and take ``seconds``."""
    declared = request.headers.get("content-length", "0")
    too_long = declared.isdigit() and int(declared) > limit
    if too_long and "expect" in request.headers:
        return _too_long(limit)  # the client waits for leave to send
    parts: list[bytes] = []
    length = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                length += len(part)
                if length > DRAIN_LIMIT:
                    break
                if length > limit or too_long:
                    too_long = True
                    parts.clear()
                else:
                    parts.append(part)
    except TimeoutError:
        what, why = "the request did not arrive", f"it was not complete after {seconds:g} s"
        return refusal(408, "RequestError", what, why)
    except ClientDisconnect:
        return refusal(400, "RequestError", "the client went away")
    return _too_long(limit) if too_long else b"".join(parts)


def _too_long(limit: int) -> Answer:
    return refusal(
        413,
        "LimitError",
        "the request is too large",
        f"this service reads up to {limit / MIB:g} MiB",
        "the JSON form shares equal expressions, and is the smaller one for large programs",
    )
