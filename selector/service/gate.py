"""What every request passes: its name in the log, the host it is for, the token, its turn.

The access log has one JSON object a line. Nothing in it is a text of the client's that is not
quoted, and no token: clients with one are called by the beginning of its hash.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selector.dataclass import dataclass
from selector.service.answers import Answer, digest, refusal
from selector.service.fairness import Turns, client_of
from selector.service.metrics import Metrics
from selector.service.tokens import Tokens

log = logging.getLogger("selector.access")
ALIVE = ("/livez", "/healthz")
"""Asked by whoever runs the service, under whatever name it has there, and without a token."""
GUARDED = ("/v1/", "/links", "/metrics")
"""Where a token is wanted, if there are tokens."""
_ROUTES = (
    "/v1/compile", "/v1/explain", "/v1/graph", "/v1/targets", "/v1/rules", "/links", *ALIVE,
    "/metrics",
)  # fmt: skip
_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)


@dataclass(slots=True)
class _Seen:
    """A request for the log."""

    id: str
    client: str
    status: int = 500
    bytes: int = 0


class Gate:
    """Refuses requests for other hosts, and those without a token where there are tokens; lets the
    others in by turns; counts and logs all. ``hosts`` are names without ports; none: any.
    """

    def __init__(
        self, app: ASGIApp, hosts: frozenset[str], tokens: Tokens, turns: Turns, metrics: Metrics
    ) -> None:
        self.app, self.hosts, self.tokens = app, hosts, tokens
        self.turns, self.metrics = turns, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        headers, path = Headers(scope=scope), str(scope["path"])
        given = headers.get("x-request-id", "")
        address = str((scope.get("client") or ("",))[0])
        seen = _Seen(given if _ID.fullmatch(given) else secrets.token_hex(8), client_of(address))

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = seen.id
            else:
                seen.bytes += len(message.get("body", b""))
            await send(message)

        try:
            refused = self._refused(path, headers, seen)
            scope["state"]["client"] = seen.client
            await self.turns.turn(seen.client)
            if refused is None:
                await self.app(scope, receive, watched)
            else:
                await _say(refused, watched)
        finally:
            seconds = time.perf_counter() - start
            self.metrics.request(_route(path), seen.status, seconds)
            _log(scope, seen, seconds)

    def _refused(self, path: str, headers: Headers, seen: _Seen) -> Answer | None:
        """What is said to a request that does not pass. One with a token is its token's."""
        if self.hosts and path not in ALIVE and _host(headers.get("host", "")) not in self.hosts:
            hint = "the operator can add a name (--allow-host)"
            return refusal(421, "RequestError", "this service has another name", hint=hint)
        if self.tokens.path is None or not path.startswith(GUARDED):
            return None
        token = self.tokens.known_token(headers.get("authorization", "").encode("latin-1"))
        if token is None:
            why = "the request has none, or one that is not known"
            hint = "send the header `Authorization: Bearer TOKEN`"
            return refusal(401, "TokenError", "this service wants a token", why, hint)
        seen.client = f"token {digest(token)[:12]}"
        return None


async def _say(answer: Answer, send: Send) -> None:
    headers = [
        (b"content-type", answer.media.encode()),
        (b"content-length", str(len(answer.body)).encode()),
    ]
    if answer.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _host(value: str) -> str:
    """The name in a ``Host`` header, without its port."""
    return re.sub(r":\d*$", "", value.strip()).lower()


def _log(scope: Scope, seen: _Seen, seconds: float) -> None:
    if log.isEnabledFor(logging.INFO):
        entry = {
            "time": round(time.time(), 3),
            "id": seen.id,
            "client": seen.client,
            "method": scope["method"],
            "path": str(scope["path"])[:200],
            "status": seen.status,
            "bytes": seen.bytes,
            "seconds": round(seconds, 6),
        }
        log.info("%s", json.dumps(entry))


def _route(path: str) -> str:
    """The name of a route for metrics: never a text that a client chose."""
    if path.startswith("/v1/artifacts/"):
        return "/v1/artifacts"
    if path.startswith("/links/"):
        return "/links"
    if path == "/" or path.startswith(("/page/", "/p/")):
        return "/"
    return path if path in _ROUTES else "other"
