"""The HTTP face of the service: routes, limits on what comes in, errors in one shape.

Bodies are read by hand, within limits, and looked up by their hash; only a worker parses them: most
requests of a build are ones that came before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from selector.diagnostics import UserError
from selector.runtime.versions import versions
from selector.service import links, metrics
from selector.service.answers import JSON, Answer, defect, encoded, mistake, refusal
from selector.service.bodies import Body, Reader
from selector.service.catalogue import rules_answer, targets_answer
from selector.service.desk import API, Desk, Flight
from selector.service.explorer import add_page
from selector.service.fairness import Turns
from selector.service.gate import Gate
from selector.service.holds import Holds
from selector.service.openapi import ROUTES, describe
from selector.service.requests import read_link
from selector.service.settings import Settings
from selector.service.tokens import Tokens

PROGRESS_EVERY = 1.0
"""Seconds between two events of a job that someone watches."""


class Service:
    """The answers of the routes; one for each application."""

    def __init__(self, settings: Settings, turns: Turns) -> None:
        self.settings = settings
        self.desk = Desk(settings)
        self.holds = Holds(self.desk.metrics)
        most, seconds = settings.body_limit, settings.read_limit
        self.reader = Reader(most, seconds, turns)
        self.links = Reader(min(most, links.LARGEST), seconds, turns)
        self.targets = Answer(200, encoded(targets_answer(settings.python)))
        self.rules = Answer(200, encoded(rules_answer()))

    async def job(self, kind: str, request: Request) -> Response:
        """A request for something to be computed."""
        watched = "text/event-stream" in request.headers.get("accept", "")
        body = Body(request.state.client, self.desk.bodies)
        try:
            refused = await self.reader.read(request, body)
        except BaseException:
            body.free()
            raise
        key = self.desk.key(kind, body.sha)
        found = refused or self.desk.known(key) or self.desk.refused(key, body.client)
        if found is not None:
            body.free()
        else:
            flight = self.desk.join(key, kind, body)
            if watched:
                return _stream(self._events(flight), lambda: self.desk.leave(flight))
            try:
                found = await _answer(flight, request)
            finally:
                self.desk.leave(flight)
        found = await self.holds.back(found, body.client, request)
        return _stream(_only(found)) if watched and not refused else response(found)

    async def _events(self, flight: Flight) -> AsyncIterator[bytes]:
        """Progress, once a second, and the answer."""
        while True:
            done, _ = await asyncio.wait({flight.answer}, timeout=PROGRESS_EVERY)
            if done:
                break
            waiting = len(self.desk.pool.waiting)
            state = flight.job.progress(waiting) if flight.job else {"state": "queued"}
            yield _event("progress", encoded(state))
        yield _last(flight.answer.result())

    async def artifact(self, sha: str) -> Response:
        data = await self.desk.artifact(sha) if _is_sha(sha) else None
        if data is None:
            what, hint = f"there is no artifact {sha[:80]!r}", "compile the program again"
            why = "it was never made here, or it was removed to make room"
            return response(refusal(404, "ArtifactError", what, why, hint))
        headers = {"ETag": f'"{sha}"', "Cache-Control": "private, max-age=31536000, immutable"}
        return Response(data, 200, headers, "application/octet-stream")

    async def keep_link(self, request: Request) -> Response:
        """A request for a short name of a request."""
        body = Body(request.state.client, self.desk.bodies)
        try:
            refused = await self.links.read(request, body)
            kept = b"" if refused else read_link(body.data)
        except UserError as error:
            refused, kept = mistake(error), b""
        finally:
            body.free()
        made = refused or await self.desk.keep_link(body.client, kept)
        return response(await self.holds.back(made, body.client, request))

    async def link(self, name: str) -> Response:
        data = await self.desk.link(name) if links.is_link(name) else None
        if data is None:
            what, hint = f"there is no link {name[:80]!r}", "ask who gave it to you for the program"
            why = "it was never made here, or it was removed to make room"
            return response(refusal(404, "NotFoundError", what, why, hint))
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return Response(data, 200, headers | {"X-Content-Type-Options": "nosniff"}, JSON)

    def health(self) -> Response:
        pool = self.desk.pool
        ready = len(pool.workers)
        state = {
            "status": "ok" if ready else "starting",
            "version": versions()["selector"],
            "api": API,
            "workers": ready,
            "of": self.settings.workers,
            "queue": len(pool.waiting),
            "confined": pool.count_confined() == ready if ready else None,
        }
        return response(Answer(200 if ready else 503, encoded(state)))

    def metrics(self) -> Response:
        held = "Refusals that are held back.", self.holds.held.total()
        text = self.desk.metrics.text({**self.desk.gauges(), "refusals_held": held})
        return Response(text, 200, media_type=metrics.MEDIA)


def make_app(settings: Settings) -> FastAPI:
    """The application. ``UserError`` if its store or its token file cannot be used."""
    turns = Turns()
    service = Service(settings, turns)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncGenerator[None]:
        service.desk.start()
        yield
        await service.desk.close()

    # The usual pages for people come with assets from elsewhere.
    app = FastAPI(lifespan=life, docs_url=None, redoc_url=None)
    app.state.service = service
    _add_routes(app, service)
    _add_errors(app)
    add_page(app)
    tokens, counted = Tokens(settings.token_file), service.desk.metrics
    app.add_middleware(Gate, hosts=settings.hosts, tokens=tokens, turns=turns, metrics=counted)
    document = describe(app)
    app.openapi = lambda: document
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/compile", **ROUTES["compile"])
    async def compile_(request: Request) -> Response:
        return await service.job("compile", request)

    @app.post("/v1/explain", **ROUTES["explain"])
    async def explain(request: Request) -> Response:
        return await service.job("explain", request)

    @app.post("/v1/graph", **ROUTES["graph"])
    async def graph(request: Request) -> Response:
        return await service.job("graph", request)

    @app.get("/v1/artifacts/{sha}", **ROUTES["artifact"])
    async def artifact(sha: str) -> Response:
        return await service.artifact(sha)

    @app.get("/v1/targets", **ROUTES["targets"])
    async def targets() -> Response:
        return response(service.targets)

    @app.get("/v1/rules", **ROUTES["rules"])
    async def rules() -> Response:
        return response(service.rules)

    @app.post("/links", status_code=201, **ROUTES["link"])
    async def keep_link(request: Request) -> Response:
        return await service.keep_link(request)

    @app.get("/links/{id}", **ROUTES["linked"])
    async def link(id: str) -> Response:  # noqa: A002 - the name in the description
        return await service.link(id)

    @app.get("/livez", **ROUTES["alive"])
    async def alive() -> Response:
        return response(Answer(200, b'{"status":"ok"}'))

    @app.get("/healthz", **ROUTES["health"])
    async def health() -> Response:
        return service.health()

    @app.get("/metrics", **ROUTES["metrics"])
    async def metrics_() -> Response:
        return service.metrics()

    _ = compile_, explain, graph, artifact, keep_link, link, targets, rules, alive, health, metrics_


def _add_errors(app: FastAPI) -> None:
    """Errors of the framework in our shape."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        what = f"{request.method} {request.url.path[:200]}: {error.detail}"
        kind = {404: "NotFoundError", 405: "MethodError"}.get(error.status_code, "RequestError")
        made = response(
            refusal(error.status_code, kind, what, "", "/openapi.json lists the routes")
        )
        made.headers.update(error.headers or {})
        return made

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return response(defect("the service failed", type(error).__name__))

    _ = refused, failed


def response(answer: Answer) -> Response:
    headers = {"Retry-After": str(answer.retry_after)} if answer.retry_after else {}
    if answer.last or answer.status in (408, 413):  # what is left of the body is no request
        headers["Connection"] = "close"
    return Response(answer.body, answer.status, headers, answer.media)


async def _answer(flight: Flight, request: Request) -> Answer:
    """The answer, while the client is there."""
    gone = asyncio.ensure_future(request.receive())  # after its body, nothing but its end comes
    await asyncio.wait({flight.answer, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if not flight.answer.done():
        return refusal(499, "RequestError", "the client went away")
    return flight.answer.result()


class _Stream(StreamingResponse):
    """Events; ``left`` is called when the last is sent, or nobody is there to read them."""

    left: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.left()


def _stream(events: AsyncIterator[bytes], left: Callable[[], None] = lambda: None) -> Response:
    # A proxy must not collect the events before it hands them on.
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    made = _Stream(events, 200, headers, "text/event-stream")
    made.left = left
    return made


async def _only(answer: Answer) -> AsyncIterator[bytes]:
    yield _last(answer)


def _last(answer: Answer) -> bytes:
    """The last event: ``result`` with the JSON of the answer, or ``error`` with what its status
    line and ``Retry-After`` would have said.
    """
    if answer.status != 200:
        about = {"status": answer.status, "retry_after": answer.retry_after}
        return _event("error", encoded(about | json.loads(answer.body)))
    if answer.media.startswith("image/"):
        return _event("result", encoded({"svg": answer.body.decode()}))
    return _event("result", answer.body)


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _is_sha(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)
