"""The explorer page: its files, the programs it offers, and what a browser may do there."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

from rules import program_files
from selector.service.answers import Answer, encoded

PAGE = Path(__file__).parent / "page"
HEADERS = {
    # Scripts and styles from our own files alone; pictures also from memory (the e-graph).
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    """The files of a folder, with our headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        found = await super().get_response(path, scope)
        found.headers.update(HEADERS)
        return found


def examples() -> dict[str, object]:
    """The programs that the page offers: those of the case studies and those of the rules.

    Each has a name (no two the same), a group, a target on which it is selected, and its text.
    """
    cases = [(f.stem, f.read_text(encoding="utf-8")) for f in sorted(PAGE.glob("programs/*.vir"))]
    return {
        "examples": [
            {"name": name, "group": group, "target": _target(name, text), "ir": text}
            for group, programs in (("case studies", cases), ("small programs", program_files()))
            for name, text in programs
        ]
    }


def add_page(app: FastAPI) -> None:
    """``/``, and what it needs under ``/page``; no token is asked for."""
    offered = Answer(200, encoded(examples()))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", headers=HEADERS)

    @app.get("/page/examples.json", include_in_schema=False)
    async def programs() -> Response:
        return Response(offered.body, 200, HEADERS, offered.media)

    _ = page, programs
    app.mount("/page", _Files(directory=PAGE))


def _target(name: str, text: str) -> str:
    """As the first line says (``# sm_90a: ...``), or the name."""
    if text.startswith("# "):
        return text[2:].partition(":")[0]
    return "amx" if name.startswith("amx") else "sm_80"
