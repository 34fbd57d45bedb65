"""What goes wrong ends in the answer that is promised, and the server goes on."""

from __future__ import annotations

import http.client
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from service_tools import CONV, EXPLODING, PROGRAMS, Server, events, renamed, running

MIB = 1 << 20


def slow(name: str) -> dict[str, object]:
    """A request that takes about a second."""
    return {"ir": renamed(name), "target": "sm_80"}


def test_a_worker_killed_in_the_middle_of_a_request(server: Server) -> None:
    lost = 'selector_workers_ended_total{reason="lost"}'
    before = server.metric(lost)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(server.ask, "POST", "/v1/explain", slow("killed"))
        other = threads.submit(server.compile, renamed("beside_the_killed"))
        end = time.monotonic() + 30
        while server.metric("selector_workers_busy") < 1 and time.monotonic() < end:
            time.sleep(0.01)
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        assert first.result().status == 200
        assert other.result().status == 200
    assert server.metric(lost) == before + 1
    assert server.workers() != [worker]


def test_an_idle_worker_is_killed(server: Server) -> None:
    server.wait_ready()
    (worker,) = server.workers()
    os.kill(worker, signal.SIGKILL)
    assert server.compile(renamed("after_an_idle_one")).status == 200


def test_rules_that_explode_the_graph(tight: Server) -> None:
    tight.wait_ready()
    start = time.monotonic()
    reply = tight.compile(rules=EXPLODING)
    assert reply.status == 422
    assert reply.error["kind"] == "LimitError", reply.body
    assert "in stage `select`" in reply.error["what"]
    assert time.monotonic() - start < 60
    assert tight.compile(PROGRAMS["matmul.vir"], "amx").status in (200, 422)
    ended = [
        tight.metric(f'selector_workers_ended_total{{reason="{r}"}}') for r in ("time", "memory")
    ]
    assert sum(ended) >= 1


def test_rules_without_an_end_are_named(server: Server) -> None:
    endless = """
; n -> n + 1
(rule ((= x (Int a)) (< a 100000000)) ((Int (+ a 1))) :ruleset supporting :name "counts")
"""
    reply = server.compile(PROGRAMS["matmul.vir"], rules=endless)
    assert reply.status == 422
    assert reply.error["what"] == "saturation does not end"
    assert "counts" in reply.error["why"]


def wait_for(server: Server, metric: str) -> None:
    """Until a gauge is not 0."""
    end = time.monotonic() + 30
    while server.metric(metric) < 1:
        assert time.monotonic() < end, f"{metric} stays 0"
        time.sleep(0.01)


def test_a_full_queue_and_progress(tight: Server) -> None:
    """The only worker is stopped, so that its request takes until the limit of 4 s."""
    tight.wait_ready()
    (worker,) = tight.workers()
    os.kill(worker, signal.SIGSTOP)
    accept = {"Accept": "text/event-stream"}
    held = {"ir": renamed("held"), "target": "sm_80"}
    with ThreadPoolExecutor(2) as threads:
        holding = threads.submit(tight.ask, "POST", "/v1/compile", held, accept)
        wait_for(tight, "selector_workers_busy")
        waiting = threads.submit(tight.compile, renamed("waiting"))
        wait_for(tight, "selector_queue")
        refused = tight.compile(renamed("refused"))
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.error["kind"] == "BusyError"
        assert waiting.result().status == 200
        found = events(holding.result().body)
    assert [name for name, _ in found] == ["progress"] * (len(found) - 1) + ["error"]
    assert len(found) >= 3
    assert {data["state"] for name, data in found if name == "progress"} == {"running"}
    assert found[-1][1]["error"]["kind"] == "LimitError"
    assert "longer than 4 s" in found[-1][1]["error"]["what"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_100_megabytes(tight: Server, chunked: bool) -> None:
    before = tight.memory()
    connection = http.client.HTTPConnection("127.0.0.1", tight.port, timeout=60)
    connection.putrequest("POST", "/v1/compile")
    connection.putheader("Authorization", f"Bearer {tight.token}")
    block = bytes(MIB)
    if chunked:
        connection.putheader("Transfer-Encoding", "chunked")
    else:
        connection.putheader("Content-Length", str(100 * MIB))
    connection.endheaders()
    for _ in range(100):
        connection.send(b"%x\r\n%b\r\n" % (MIB, block) if chunked else block)
    if chunked:
        connection.send(b"0\r\n\r\n")
    reply = connection.getresponse()
    assert reply.status == 413
    assert b'"kind":"LimitError"' in reply.read()
    connection.close()
    assert tight.memory() - before < 32 * MIB
    assert tight.ask("GET", "/v1/targets").status == 200


def test_a_body_that_is_announced_and_never_sent(tight: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", tight.port, timeout=60)
    connection.putrequest("POST", "/v1/compile")
    for name, value in (
        ("Authorization", f"Bearer {tight.token}"),
        ("Content-Length", str(100 * MIB)),
        ("Expect", "100-continue"),
    ):
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_full_disk(tmp_path: Path) -> None:
    """No file of more than 3000 bytes can be written: small answers can be kept, kernels cannot."""
    with running(tmp_path, "--workers", "1", largest_file=3000) as server:
        reply = server.compile()
        assert reply.status == 507
        assert reply.error["kind"] == "StoreFullError"
        assert int(reply.headers["retry-after"]) > 0
        assert server.ask("POST", "/v1/explain", {"ir": CONV, "target": "sm_80"}).status == 200
        assert server.compile("module x").status == 422
        assert server.ask("GET", "/healthz").status == 200
        assert not [p for p in (server.store / "artifacts").rglob("*") if p.is_file()]


def test_a_damaged_artifact_is_made_again(server: Server) -> None:
    program = renamed("damaged")
    first = server.compile(program)
    sha = first.data["artifact"]
    whole = server.ask("GET", f"/v1/artifacts/{sha}").body
    path = server.store / "artifacts" / sha[:2] / sha
    assert path.read_bytes() == whole
    path.write_bytes(whole[:100] + b"!" + whole[101:])
    missing = server.ask("GET", f"/v1/artifacts/{sha}")
    assert missing.status == 404
    assert missing.error["kind"] == "ArtifactError"
    again = server.compile(program)
    assert (again.status, again.data["cached"], again.data["artifact"]) == (200, False, sha)
    assert server.ask("GET", f"/v1/artifacts/{sha}").body == whole


def test_a_stopped_server_ends_its_workers(tmp_path: Path) -> None:
    with running(tmp_path, "--workers", "1") as server:
        (worker,) = server.workers()
        first = server.compile(renamed("kept"))
    assert not Path(f"/proc/{worker}").exists()
    assert list((tmp_path / "store" / "scratch").iterdir()) == []
    with running(tmp_path, "--workers", "1") as server:
        second = server.compile(renamed("kept"))
        assert second.data == {**first.data, "cached": True}
        (worker,) = server.workers()
        server.process.kill()
        server.process.wait()
        end = time.monotonic() + 10
        while Path(f"/proc/{worker}").exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert not Path(f"/proc/{worker}").exists()
