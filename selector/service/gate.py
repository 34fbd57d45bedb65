"""What every request passes: the token, and the clock."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selector.service.answers import refusal
from selector.service.metrics import Metrics
from selector.service.tokens import Tokens

_GUARDED = ("/v1/", "/metrics")
_ROUTES = (
    "/v1/compile", "/v1/explain", "/v1/graph", "/v1/targets", "/v1/rules", "/healthz", "/metrics",
)  # fmt: skip


class Gate:
    """Refuses requests without a token, where there are tokens, and counts all."""

    def __init__(self, app: ASGIApp, tokens: Tokens, metrics: Metrics) -> None:
        self.app, self.tokens, self.metrics = app, tokens, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if self._allowed(scope):
                await self.app(scope, receive, watched)
            else:
                await _refuse(watched)
        finally:
            route = _route(str(scope["path"]))
            self.metrics.request(route, status, time.perf_counter() - start)

    def _allowed(self, scope: Scope) -> bool:
        if not str(scope["path"]).startswith(_GUARDED):
            return True
        return self.tokens.allow(bytes(dict(scope["headers"]).get(b"authorization", b"")))


async def _refuse(send: Send) -> None:
    answer = refusal(
        401,
        "TokenError",
        "this service wants a token",
        "the request has none, or one that is not known",
        "send the header `Authorization: Bearer TOKEN`",
    )
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(answer.body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _route(path: str) -> str:
    """The name of a route for metrics: never a text that a client chose."""
    if path.startswith("/v1/artifacts/"):
        return "/v1/artifacts"
    if path == "/" or path.startswith("/page/"):
        return "/"
    return path if path in _ROUTES else "other"
