"""The explorer page: its files, the programs it offers, and what a browser may do there."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import Scope

from rules import program_files
from selector.service.answers import Answer, encoded
from selector.service.links import is_link

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


_LINKED = HEADERS | {
    "Content-Security-Policy": HEADERS["Content-Security-Policy"].replace(
        "base-uri 'none'", "base-uri 'self'"
    )
}


class _Files(StaticFiles):
    """The files of a folder, with our headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        found = await super().get_response(path, scope)
        found.headers.update(HEADERS)
        return found


def examples() -> dict[str, object]:
    """The programs that the page offers: those of the case studies, pipelines in Python for
    services that take them, and the programs that the rules are tried on.

    Each has a name (no two the same), a group, a target on which it is selected, its kind (as in a
    request) and its text.
    """
    groups = (
        ("case studies", "ir", _programs(".vir")),
        ("pipelines in Python", "python", _programs(".py.txt")),
        ("small programs", "ir", program_files()),
    )
    return {
        "examples": [
            {"name": n, "group": group, "target": _target(n, text), "kind": kind, "text": text}
            for group, kind, programs in groups
            for n, text in programs
        ]
    }


def _programs(ending: str) -> list[tuple[str, str]]:
    """(name, text) of the page's own programs."""
    files = sorted(PAGE.glob(f"programs/*{ending}"))
    return [(f.name.removesuffix(ending), f.read_text(encoding="utf-8")) for f in files]


def add_page(app: FastAPI) -> None:
    """``/``, ``/p/{id}``, and what they need under ``/page``; no token is asked for."""
    offered = Answer(200, encoded(examples()))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", headers=HEADERS)

    @app.get("/p/{name}", include_in_schema=False)
    async def linked(name: str) -> Response:
        """The page, with all its addresses as at ``/``; it asks for the link itself."""
        if not is_link(name):
            raise HTTPException(404, "no link has this form")
        text = (PAGE / "index.html").read_text(encoding="utf-8")
        text = text.replace("<head>", '<head>\n<base href="../">', 1)
        return Response(text, 200, _LINKED, "text/html")

    @app.get("/page/examples.json", include_in_schema=False)
    async def programs() -> Response:
        return Response(offered.body, 200, HEADERS, offered.media)

    _ = page, linked, programs
    app.mount("/page", _Files(directory=PAGE))


def _target(name: str, text: str) -> str:
    """As the first line says (``# sm_90a: ...``), or the name."""
    if text.startswith("# "):
        return text[2:].partition(":")[0]
    return "amx" if name.startswith("amx") else "sm_80"
