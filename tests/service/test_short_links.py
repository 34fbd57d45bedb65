"""Short links: what is kept comes back, while there is room; nobody takes it from others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from service_tools import CONV, Server, renamed

from selector.service import fairness
from selector.service.fairness import Paces
from selector.service.links import BURST, LARGEST, Links, is_link, link_name

pytestmark = pytest.mark.verified

REQUEST = {"ir": CONV, "target": "sm_80", "strict": False, "rules": "", "instructions": ["wmma"]}


def kept(server: Server, source: str, name: str = "linked") -> str:
    reply = server.ask("POST", "/links", {**REQUEST, "ir": renamed(name)}, source=source)
    assert reply.status == 201, reply.body
    return str(reply.data["id"])


def test_what_is_kept_comes_back(server: Server) -> None:
    reply = server.ask("POST", "/links", REQUEST, source="127.4.0.1")
    assert (reply.status, list(reply.data)) == (201, ["id"])
    name = reply.data["id"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{10}", name)
    found = server.ask("GET", f"/links/{name}")
    assert (found.status, found.data) == (200, REQUEST)
    assert found.headers["content-type"] == "application/json"
    assert server.metric("selector_links_bytes") > 0
    assert server.ask("POST", "/v1/compile", found.body).status == 200


def test_what_the_page_shows_is_kept_with_it(server: Server) -> None:
    """It is data and nothing else; with another view, it is another link."""
    seen = {**REQUEST, "view": {"tab": "sass", "other": {"target": "sm_90a", "held": None}}}
    both = [server.ask("POST", "/links", r, source="127.4.0.6") for r in (REQUEST, seen)]
    names = [reply.data["id"] for reply in both]
    assert names[0] != names[1]
    assert server.ask("GET", f"/links/{names[1]}").data == seen
    refused = server.ask("POST", "/links", {**REQUEST, "view": "sass"}, source="127.4.0.6")
    assert refused.status == 422
    assert server.ask("POST", "/v1/compile", seen).status == 422


def test_the_same_request_has_the_same_name(server: Server) -> None:
    """Whoever asks, however it is written; another one has another."""
    first = kept(server, "127.4.0.2")
    spaced = json.dumps({**REQUEST, "ir": renamed("linked")}, indent=3, sort_keys=True).encode()
    assert server.ask("POST", "/links", spaced, source="127.4.0.3").data["id"] == first
    assert kept(server, "127.4.0.2", "linked_too") != first


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"ir": "x"}', b'{"ir": 1, "target": "sm_80"}', b"[" * 9999,
     b'{"ir": "x", "target": "sm_80", "page": "<script>"}', b'{"ir": "\xff", "target": "sm_80"}'],
)  # fmt: skip
def test_what_is_no_request_is_not_kept(server: Server, body: bytes) -> None:
    reply = server.ask("POST", "/links", body, source="127.4.0.4")
    assert reply.status == 422
    assert reply.error["kind"] == "ParseError"


def test_what_is_too_large_is_not_kept(server: Server) -> None:
    large = {"ir": "x" * LARGEST, "target": "sm_80"}
    reply = server.ask("POST", "/links", large, source="127.4.0.4")
    assert reply.status == 413
    assert reply.error["kind"] == "LimitError"
    assert server.ask("POST", "/v1/compile", large).status == 422  # it may be compiled, though


@pytest.mark.parametrize("name", ["0000000000", "short", "a" * 11, "..%2f..%2fetc", "a%00bcdefghi"])
def test_links_that_are_none(server: Server, name: str) -> None:
    reply = server.ask("GET", f"/links/{name}")
    assert reply.status == 404
    assert reply.error["what"]
    assert server.ask("GET", f"/p/{name}").status == (200 if is_link(name) else 404)


def test_the_page_of_a_link(server: Server) -> None:
    """The page itself, whose addresses are those of the root."""
    page, root = server.ask("GET", "/p/abcdefghij"), server.ask("GET", "/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "base-uri 'self'" in page.headers["content-security-policy"]
    assert page.body.replace(b'\n<base href="../">', b"") == root.body
    assert page.body.index(b"<base") < page.body.index(b"page/base.css")
    assert "base-uri 'none'" in root.headers["content-security-policy"]


def test_a_client_that_makes_many(server: Server) -> None:
    """It is told to wait; what it has made it may have again, and others are not concerned."""
    statuses = set[int]()
    for i in range(BURST + 1):
        body = {"ir": f"many {i}", "target": "sm_80"}
        reply = server.ask("POST", "/links", body, source="127.4.0.5")
        statuses.add(reply.status)
    assert statuses == {201, 429}
    assert 1 <= int(reply.headers["retry-after"]) <= 10
    assert reply.error["kind"] == "BusyError"
    first = {"ir": "many 0", "target": "sm_80"}
    assert server.ask("POST", "/links", first, source="127.4.0.5").status == 201
    assert kept(server, "127.4.0.6", "of_another")


def test_a_token_is_wanted_for_links_and_not_for_the_page(tight: Server) -> None:
    for method, path in (("POST", "/links"), ("GET", "/links/abcdefghij")):
        assert tight.ask(method, path, b"", {"Authorization": ""}).status == 401
    assert tight.ask("GET", "/p/abcdefghij", headers={"Authorization": ""}).status == 200
    for path in ("/links/abcdefghij", "/p/abcdefghij"):
        assert tight.ask("GET", path, headers={"Host": "elsewhere.example"}).status == 421


def test_links_go_when_there_is_no_room(tmp_path: Path) -> None:
    """Those that were not used for longest; one that is read is used."""
    links = Links(tmp_path, 40 * 4096)
    names = [links.put(b"request %d" % i * 9) for i in range(60)]
    assert links.get(names[0]) == b"request 0" * 9
    assert links.is_over
    for _ in links.make_room(0.9 * links.limit):
        pass
    assert links.bytes <= links.limit
    assert links.get(names[0]) is not None
    assert links.get(names[1]) is None


def test_a_link_that_has_changed_is_missing(tmp_path: Path) -> None:
    links = Links(tmp_path, 1 << 20)
    for change in (lambda data: data[:-3], lambda data: b"no", lambda data: b""):
        name = links.put(b"request")
        assert name == link_name(b"request")
        (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
        path.write_bytes(change(path.read_bytes()))
        assert links.get(name) is None
        assert not path.exists()


def test_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many at once, then one in a while; a client that rests is forgotten."""
    now = 1000.0
    monkeypatch.setattr(fairness.time, "monotonic", lambda: now)
    paces = Paces(3, 10.0)
    assert [paces.wait("a") for _ in range(5)] == [0, 0, 0, 10, 10]
    assert paces.wait("b") == 0
    now += 4
    assert paces.wait("a") == 6
    now += 6
    assert [paces.wait("a") for _ in range(2)] == [0, 10]
    now += 30
    assert paces.wait("b") == 0
    assert list(paces.due) == ["b"]
