"""The description of the service that OpenAPI shows: every route, every status, examples."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response

from selector.service.desk import API
from selector.service.gate import GUARDED
from selector.service.metrics import MEDIA
from selector.service.requests import (
    EXAMPLE_IR,
    REQUESTS,
    AliveAnswer,
    CompileAnswer,
    ErrorAnswer,
    ExplainAnswer,
    HealthAnswer,
    LinkAnswer,
    LinkRequest,
    RulesAnswer,
    TargetsAnswer,
)

_MEANINGS = {
    401: "No token, where the service wants one.",
    404: "No such artifact or link here (any more): compile the program again.",
    408: "The request did not arrive in time.",
    413: "The request is too large.",
    421: "The request is for a host that this service does not know.",
    422: "A request or program that is wrong, a statement that cannot be selected, or a program "
    "that exceeds its limits.",
    429: "The queue is full, or this client has its part: try again after `Retry-After` seconds.",
    500: "A defect of the compiler.",
    503: "The service is starting, being stopped, or has too much to read: try again after "
    "`Retry-After` seconds.",
    507: "The store is full.",
}
_JOB = (401, 408, 413, 421, 422, 429, 500, 503, 507)
_EVENTS = {
    "text/event-stream": {
        "schema": {"type": "string"},
        "example": 'event: progress\ndata: {"state":"running","stage":"select","seconds":1.0}\n\n'
        "event: result\ndata: {}\n\n",
    }
}


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": ErrorAnswer, "description": _MEANINGS[code]} for code in codes}


def _body(kind: str, **more: object) -> dict[str, Any]:
    """The schema of a request's body, with an example that works."""
    content = {
        "schema": (REQUESTS | {"link": LinkRequest})[kind].model_json_schema(),
        "examples": {
            "product": {
                "summary": "a matrix product on WMMA",
                "value": {"ir": EXAMPLE_IR, "target": "sm_80", **more},
            }
        },
    }
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def _route(
    summary: str,
    about: str,
    answers: dict[int | str, dict[str, Any]],
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": about,
        "responses": answers,
        "openapi_extra": extra,
        "response_class": Response,
    }


_STREAM = (
    " With `Accept: text/event-stream` the answer is a stream of events: `progress` once a second "
    "while it lasts, and at last `result` (the JSON of the answer) or `error` (with its `status`, "
    "and `retry_after` in seconds)."
)
_PICTURE = {
    "image/svg+xml": {"schema": {"type": "string"}},
    "application/json": {"schema": {"type": "object"}},
}
_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

ROUTES: dict[str, dict[str, Any]] = {
    "compile": _route(
        "Select instructions and emit code",
        "The same request is answered with the same artifact. `cached` says whether it was found; "
        "`stages` are the times of when it was made." + _STREAM,
        {200: {"model": CompileAnswer, "content": _EVENTS}, **_errors(*_JOB)},
        _body("compile", strict=True),
    ),
    "explain": _route(
        "Explain a selection",
        "What went to which instruction by which rules, with their laws; what did not, and why."
        + _STREAM,
        {200: {"model": ExplainAnswer, "content": _EVENTS}, **_errors(*_JOB)},
        _body("explain"),
    ),
    "graph": _route(
        "Draw the e-graph of a statement",
        "As SVG, or as data with `format` `json`." + _STREAM,
        {200: {"description": "The picture.", "content": _PICTURE | _EVENTS}, **_errors(*_JOB)},
        _body("graph", nodes=3),
    ),
    "artifact": _route(
        "A saved kernel",
        "The file that `selector.load` reads.",
        {200: {"description": "The file.", "content": _FILE}, **_errors(401, 404, 421)},
    ),
    "targets": _route(
        "The targets and their instructions",
        "Shared memory is bytes of a block.",
        {200: {"model": TargetsAnswer}, **_errors(401, 421)},
    ),
    "rules": _route(
        "The rules and their laws",
        "In loading order.",
        {200: {"model": RulesAnswer}, **_errors(401, 421)},
    ),
    "link": _route(
        "Keep a request under a short name",
        "The body is one of `/v1/compile`, up to 256 KiB, and what the explorer page shows of it "
        "(`view`). The same request always has the same "
        "name; `/p/{id}` is the explorer page with it.",
        {
            201: {"model": LinkAnswer, "description": "Its name."},
            **_errors(401, 408, 413, 421, 422, 429, 503, 507),
        },
        _body("link", view={"tab": "sass"}),
    ),
    "linked": _route(
        "A request that was kept",
        "The fields that were given. A link that was not used for long may be gone.",
        {200: {"model": LinkRequest}, **_errors(401, 404, 421)},
    ),
    "alive": _route(
        "Whether the process answers (liveness)",
        "Needs no token; no worker is asked.",
        {200: {"model": AliveAnswer}},
    ),
    "health": _route(
        "Whether there are workers (readiness), and whether they are confined",
        "Needs no token.",
        {200: {"model": HealthAnswer}, 503: {"model": HealthAnswer, "description": "Not yet."}},
    ),
    "metrics": _route(
        "Counters for Prometheus",
        "Text exposition format.",
        {
            200: {
                "description": "The counters.",
                "content": {MEDIA: {"schema": {"type": "string"}}},
            },
            **_errors(401, 421),
        },
    ),
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document."""
    document = get_openapi(
        title="tensor-selector",
        version=API,
        description="Instruction selection for tensor units: serialized loop IR in, source, "
        "machine code and reasons out.",
        routes=app.routes,
    )
    document.setdefault("components", {})["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"}
    }
    for path, methods in document["paths"].items():
        if path.startswith(GUARDED):
            for operation in methods.values():
                operation["security"] = [{"token": []}, {}]
    return document
