"""Clients that send slowly, too much, nonsense, or go away: each gets its answer or is left, and
the server goes on answering the others.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from service_tools import CONV, Server, renamed, running, until

from selector.service import tokens

pytestmark = pytest.mark.verified

MIB = 1 << 20


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits for half a second only."""
    with running(
        tmp_path_factory.mktemp("hasty"), "--workers", "1", "--read-limit", "0.5"
    ) as found:
        yield found


def connect(server: Server, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 60, (source, 0))


def answer(client: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    while part := client.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def error(text: bytes) -> dict[str, str]:
    head, _, body = text.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return {"status": head.split()[1].decode(), **json.loads(body)["error"]}


def test_headers_that_never_end(hasty: Server) -> None:
    clients = [connect(hasty) for _ in range(50)]
    start = time.monotonic()
    for number, client in enumerate(clients):
        client.sendall((b"P", b"POST /v1/compile HTTP/1.1\r\nHost: localhost\r\nX-A: ")[number % 2])
    assert hasty.compile(renamed("beside_slow_headers")).status == 200
    for client in clients:
        assert error(answer(client))["status"] == "408"
        client.close()
    assert time.monotonic() - start < 30


def test_headers_that_trickle(hasty: Server) -> None:
    """A byte now and then does not help: the limit is that of all headers together."""
    with connect(hasty) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        start = time.monotonic()
        client.settimeout(0.1)
        text = b""
        while not text:
            assert time.monotonic() - start < 30
            client.sendall(b"a")
            try:
                text = client.recv(1 << 16)
            except TimeoutError:
                continue
        assert error(text)["status"] == "408"


def test_a_silent_connection_is_closed(hasty: Server) -> None:
    with connect(hasty) as client:
        assert answer(client) == b""


def test_a_body_that_never_comes(hasty: Server) -> None:
    with connect(hasty) as client, connect(hasty) as other:
        head = b"POST /v1/compile HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n"
        for each in (client, other):
            each.sendall(head + b"{")
        assert hasty.compile(renamed("beside_slow_bodies")).status == 200
        for each in (client, other):
            found = error(answer(each))
            assert (found["status"], found["kind"]) == ("408", "RequestError")
            assert "after 0.5 s" in found["why"]


def test_answers_that_are_not_read(hasty: Server) -> None:
    """Each of the connections is closed, and what was to be sent is given up."""
    whole = len(hasty.ask("GET", "/v1/rules").body)
    opened, clients = Path(f"/proc/{hasty.process.pid}/fd"), []
    before = len(list(opened.iterdir()))
    for _ in range(5):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", hasty.port))
        client.sendall(b"GET /v1/rules HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        clients.append(client)
    until(lambda: len(list(opened.iterdir())) > before)
    until(lambda: len(list(opened.iterdir())) <= before)
    for client in clients:
        read = 0
        with suppress(ConnectionResetError):
            while part := client.recv(1 << 20):
                read += len(part)
        assert read < 100 * whole
        client.close()


def test_the_next_request_of_a_connection_has_the_same_limit(hasty: Server) -> None:
    with connect(hasty) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /hea")
        assert error(answer(client))["status"] == "408"


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nX-A: ", b"GET /", b"GET / HTTP/1.1\r\n"])
def test_headers_without_a_limit(server: Server, start: bytes) -> None:
    before = server.memory()
    line = b"X-B: c\r\n" if start.endswith(b"\n") else b"abcdefgh"
    with connect(server) as client:
        client.sendall(start)
        try:
            for _ in range(64):
                client.sendall(line * (MIB // 8))
        except OSError:
            pass  # closed in the middle: what it said is gone
        else:
            assert error(answer(client))["status"] in ("431", "400")
    assert server.memory() - before < 16 * MIB
    assert server.compile().status == 200


@pytest.mark.parametrize(
    "text",
    [b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET /\xff HTTP/1.1\r\n\r\n", b"\0" * 100,
     b"GET http://[ HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_http(server: Server, text: bytes) -> None:
    with connect(server) as client:
        client.sendall(text)
        found = error(answer(client))
    assert (found["status"], found["kind"]) == ("400", "RequestError")


def request(program: str, more: bytes = b"") -> bytes:
    body = json.dumps({"ir": program, "target": "sm_80"}).encode()
    head = b"POST /v1/compile HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%b\r\n"
    return head % (len(body), more) + body


@pytest.mark.parametrize("more", [b"", b"Accept: text/event-stream\r\n"])
def test_a_client_that_goes_away(server: Server, more: bytes) -> None:
    """Its program is compiled all the same, once, and the next who asks gets it."""
    name = 'selector_computations_total{outcome="200"}'
    program = renamed(f"abandoned{len(more)}")
    before = server.metric(name)
    for _ in range(5):
        with connect(server) as client:
            client.sendall(request(program, more))
            time.sleep(0.05)
    reply = server.compile(program)
    assert reply.status == 200
    assert server.metric(name) == before + 1
    assert server.metric('selector_requests_total{route="/v1/compile",status="500"}') == 0


def test_clients_that_go_away_in_the_middle_of_a_body(server: Server) -> None:
    for _ in range(20):
        with connect(server) as client:
            client.sendall(request(CONV)[:-10])
    assert server.compile().status == 200


def test_tokens_that_change(tight: Server) -> None:
    """Taken over without a restart."""
    path, new = tight.folder / "tokens", tight.folder / "new"

    def status(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return tight.ask("GET", "/v1/targets", headers=headers).status

    assert status(tight.token) == 200
    new.write_text("second-token\n")
    os.replace(new, path)
    until(lambda: status("second-token") == 200)
    assert status(tight.token) == 401
    path.write_text(f"{tight.token}\nother-token\n")
    until(lambda: status(tight.token) == 200)
    assert status("second-token") == 401


def test_a_token_file_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is unfinished, or has gone, changes nothing."""
    monkeypatch.setattr(tokens, "LOOK_EVERY", 0.0)
    path = tmp_path / "tokens"
    path.write_text("first-token\n")
    found = tokens.Tokens(path)
    for wrong in ("", "# nothing\n", "two words\n"):
        path.write_text(wrong)
        assert found.known_token(b"Bearer first-token") == b"first-token"
    path.unlink()
    assert found.known_token(b"Bearer first-token") == b"first-token"
    path.write_text("second-token\n")
    assert found.known_token(b"Bearer second-token") == b"second-token"
    assert found.known_token(b"Bearer first-token") is None
