"""``service=``: the kernel is the one that compiling here makes, and whatever answers at the
address, the outcome is a kernel or a ``UserError``.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from service_tools import CONV, PROGRAMS, Server

import selector
from selector.diagnostics import ArtifactError, SelectionError, ServiceError, UserError
from selector.ir.module import Module
from selector.ir.parser import parse_module
from selector.service import client

pytestmark = pytest.mark.verified

MODULE = parse_module(CONV)
MISS = parse_module(CONV.replace("*x256(float32x64(K", "/x256(float32x64(K"))


def compiled(service: object, module: Module = MODULE, **more: object) -> selector.Kernel:
    return selector.compile(module, "sm_80", service=service, **more)  # type: ignore[arg-type]


def test_the_same_kernel(server: Server) -> None:
    here = selector.compile(MODULE, "sm_80", cache=False)
    there = compiled(server.url)
    assert there.source == here.source
    assert str(there.module) == str(here.module)
    assert set(there.stages) == {"service"}
    assert [s.rules for s in there.report.statements] == [s.rules for s in here.report.statements]
    rows = np.random.default_rng(1).random((4, 327)).astype(np.float16)
    taps = np.random.default_rng(2).random(64).astype(np.float16)
    assert np.array_equal(
        there.interpret(I=rows, K=taps, sizes=(4, 264)),
        here.interpret(I=rows, K=taps, sizes=(4, 264)),
    )


def test_a_pipeline_of_halide(server: Server) -> None:
    pytest.importorskip("halide")
    import halide as hl

    import halide_bridge as hb

    image, output = hl.ImageParam(hl.Float(32), 1, "I"), hl.Func("doubled")
    x, xo, xi = hl.Var("x"), hl.Var("xo"), hl.Var("xi")
    output[x] = image[x] * 2.0
    output.gpu_tile(x, xo, xi, 32)
    kernel = hb.compile(output, target="sm_80", service=server.url)
    values = np.arange(50, dtype=np.float32)
    assert np.array_equal(kernel.interpret(I=values, sizes=(50,)), 2 * values)


def test_errors_are_those_of_compiling_here(server: Server) -> None:
    errors: list[UserError] = []
    for service in (None, server.url):
        with pytest.raises(SelectionError) as caught:
            compiled(service, MISS, cache=False)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    with pytest.warns(UserWarning, match="not everything was selected"):
        assert compiled(server.url, MISS, strict=False).report.misses
    families = compiled(server.url, instructions=("mma",))
    assert "mma" in str(families.report)


def test_what_came_back_is_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELECTOR_CACHE_DIR", str(tmp_path))
    assert set(compiled(server.url).stages) == {"service"}
    assert set(compiled("http://127.0.0.1:1").stages) == {"cached"}


def test_tokens(tight: Server) -> None:
    with pytest.raises(ServiceError) as caught:
        compiled(tight.url)
    assert "answers 401" in str(caught.value)
    service = selector.Service(tight.url, token=tight.token)
    assert tight.token not in repr(service)
    module = parse_module(PROGRAMS["amx_matmul.vir"])
    assert selector.compile(module, "amx", service=service).source
    with_token = tight.url.replace("//", f"//:{tight.token}@")
    assert selector.compile(module, "amx", service=with_token).source
    with pytest.raises(ServiceError) as caught:
        compiled(tight.url.replace("//", "//:not-the-token@"))
    assert "not-the-token" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "x", "ftp://a", "http://", "http://a:x", "http://a:0", 7])
def test_what_is_no_address(url: object) -> None:
    with pytest.raises(ServiceError, match="is no address"):
        compiled(url)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_FIRST_PAUSE", 0.001)


def test_a_server_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServiceError, match="cannot be reached") as caught:
        compiled(f"http://127.0.0.1:{port}")
    assert "selector serve" in caught.value.hint


def test_a_server_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServiceError, match="cannot be reached"):
            compiled(selector.Service(url, timeout=0.3))


Say = Callable[[int], tuple[int, dict[str, str], bytes]]


@pytest.fixture
def saying() -> Iterator[Callable[[Say], str]]:
    """A server that says what a function of the number of the request says."""
    servers: list[ThreadingHTTPServer] = []

    def start(say: Say) -> str:
        count = iter(range(1000))

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, headers, body = say(next(count))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer  # noqa: N815 - the names of http.server

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


SHA = "0" * 64


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b""),
        (200, {}, b"<html>"),
        (200, {}, b"[]"),
        (200, {}, b'{"artifact": 1}'),
        (200, {}, b'{"artifact": "../../x"}'),
        (200, {}, b'{"artifact": "' + SHA.encode() + b'"}'),
        (200, {"Content-Length": "99999"}, b"short"),
        (302, {"Location": "http://127.0.0.1:1/"}, b""),
        (404, {}, b"not here"),
        (422, {}, b'{"error": 1}'),
        (
            422,
            {},
            b'{"error": {"kind": "SystemExit", "what": "", "why": "", "hint": "", "where": {}}}',
        ),
        (503, {}, b"down"),
        (429, {}, b"{}"),
        (200, {}, b"\xff" * 100),
        (200, {}, b"[" * 100_000),
    ],
)
def test_nonsense(saying: Callable[[Say], str], answer: tuple[int, dict[str, str], bytes]) -> None:
    with pytest.raises(ServiceError):
        compiled(selector.Service(saying(lambda _: answer), timeout=5))


def test_an_artifact_that_was_changed_on_the_way(
    saying: Callable[[Say], str], server: Server
) -> None:
    made = server.compile()
    whole = server.ask("GET", f"/v1/artifacts/{made.data['artifact']}").body
    changed = whole[:50] + b"!" + whole[51:]

    def say(number: int) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, made.body if number == 0 else changed

    with pytest.raises(ServiceError, match="nonsense"):
        compiled(saying(say))


def test_a_kernel_for_something_else(saying: Callable[[Say], str], server: Server) -> None:
    made = server.compile(target="sm_90a")
    whole = server.ask("GET", f"/v1/artifacts/{made.data['artifact']}").body
    with pytest.raises(ServiceError, match="sm_90a"):
        compiled(saying(lambda n: (200, {}, made.body if n == 0 else whole)))


def test_busy_servers_are_asked_again(saying: Callable[[Say], str], server: Server) -> None:
    """429 and 503 first; then the artifact is gone once, and the program is compiled anew."""
    made = server.compile()
    whole = server.ask("GET", f"/v1/artifacts/{made.data['artifact']}").body
    answers = [
        (429, b"{}"),
        (503, b""),
        (200, made.body),
        (404, b""),
        (200, made.body),
        (200, whole),
    ]

    def say(number: int) -> tuple[int, dict[str, str], bytes]:
        status, body = answers[number]
        return status, {"Retry-After": "0"}, body

    assert compiled(saying(say)).source == made.data["source"]


def test_a_file_that_is_no_kernel(saying: Callable[[Say], str]) -> None:
    import hashlib

    junk = b"PK not a kernel"
    named = b'{"artifact": "%b"}' % hashlib.sha256(junk).hexdigest().encode()
    with pytest.raises(ArtifactError):
        compiled(saying(lambda n: (200, {}, named if n == 0 else junk)))
