"""What goes wrong ends in the answer that is promised, and the server goes on."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from service_tools import (
    CONV,
    DOUBLING,
    EXPLODING,
    PROGRAMS,
    Server,
    events,
    renamed,
    running,
    stopped,
    until,
)

from selector.ir.parser import parse_module
from selector.ir.serialize import to_json
from selector.service.processes import starved

pytestmark = pytest.mark.verified

MIB = 1 << 20


def test_a_worker_killed_in_the_middle_of_a_request(server: Server) -> None:
    lost = 'selector_workers_ended_total{reason="lost"}'
    before = server.metric(lost)
    with ThreadPoolExecutor(9) as threads, stopped(server):
        first = threads.submit(server.compile, renamed("killed"))
        wait_for(server, "selector_workers_busy")
        others = [threads.submit(server.compile, renamed(f"beside_{i}")) for i in range(8)]
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        assert first.result().status == 200
        assert {other.result().status for other in others} == {200}
    assert server.metric(lost) == before + 1
    assert server.workers() != [worker]


def test_an_idle_worker_is_killed(server: Server) -> None:
    """The service is not ready then, and alive all the same."""
    server.wait_ready()
    (worker,) = server.workers()
    os.kill(worker, signal.SIGKILL)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(server.compile, renamed("after_an_idle_one"))
        until(lambda: server.ask("GET", "/healthz").status == 503)
        assert server.ask("GET", "/livez").status == 200
        assert asked.result().status == 200
    assert server.ask("GET", "/healthz").status == 200


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


def strided_updates(count: int) -> str:
    """A program whose graph grows with every update: equal ones are selected once, and of these
    each reads its image at a stride of its own.
    """
    lines = CONV.split("\n")
    at = next(i for i, line in enumerate(lines) if "vector_reduce_add" in line)
    unit = "x64(1), 256)]"
    assert lines[at].count(unit) == 1
    lines[at : at + 1] = [lines[at].replace(unit, f"x64({n + 2}), 256)]") for n in range(count)]
    return "\n".join(lines)


def test_a_program_that_explodes_the_graph(tight: Server) -> None:
    """Beside it, others are answered as soon as there is a worker again."""
    tight.wait_ready()
    with ThreadPoolExecutor(2) as threads:
        large = threads.submit(tight.compile, strided_updates(1000))
        wait_for(tight, "selector_workers_busy")
        other = threads.submit(tight.compile, renamed("beside_large"))
        assert large.result().status == 422
        assert large.result().error["kind"] == "LimitError", large.result().body
        assert "in stage `select`" in large.result().error["what"]
        assert other.result().status == 200


def test_memory_beyond_the_limit(poor: Server) -> None:
    """What ends the process, the guard or its own allocator, the answer is the same."""
    reply = poor.compile(rules=DOUBLING)
    assert reply.status == 422
    assert reply.error["kind"] == "LimitError", reply.body
    assert "more than 512 MiB" in reply.error["what"] or "memory" in reply.error["what"]
    assert poor.ask("POST", "/v1/explain", {"ir": CONV, "target": "sm_80"}).status == 200


def test_who_ended_for_want_of_memory() -> None:
    limit = 512 * MIB
    assert starved(-signal.SIGABRT, 300 * MIB, limit)
    assert not starved(-signal.SIGABRT, 200 * MIB, limit)
    assert not starved(-signal.SIGKILL, 500 * MIB, limit)
    assert not starved(1, 500 * MIB, limit)


@pytest.mark.parametrize("depth", [1000, 10_000])
@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("1+", ""), ("min(1, ", ")"),
                                                  ("-", ""), ("x1(", ")")])  # fmt: skip
def test_expressions_without_a_bottom(
    server: Server, depth: int, opening: str, closing: str
) -> None:
    deep = CONV.replace("K[ramp(0,", f"K[ramp({opening * depth}0{closing * depth},")
    for ir in (deep, deep.replace("\n", "\n\n")):
        reply = server.compile(ir)
        assert reply.status == 422
        assert reply.error["kind"] == "ParseError", reply.body


@pytest.mark.parametrize("depth", [150, 5000, 100_000])
def test_json_without_a_bottom(server: Server, depth: int) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        nested = opening * depth + b"1" + closing * depth
        for body in (
            nested,
            b'{"target":"sm_80","ir":' + nested + b"}",
            b'{"target":"sm_80","ir":{"format":"selector-ir","body":' + nested + b"}}",
        ):
            reply = server.ask("POST", "/v1/compile", body)  # fmt: skip
            assert reply.status == 422
            assert reply.error["kind"] == "ParseError", reply.body


@pytest.mark.parametrize("operator", ["+", "*", "min"])
def test_expressions_that_share_themselves(server: Server, operator: str) -> None:
    """Each is the last one twice: 2 to the power of 100 nodes in the text of a few."""
    data: dict[str, Any] = to_json(parse_module(CONV))
    expressions = data["exprs"]
    last = expressions.index(["var", "int32", "output.s0.x.xo.block_id_x"])
    for _ in range(100):
        expressions.append(["binary", operator, last, last])
        last = len(expressions) - 1
    expressions.append(["ramp", last, expressions.index(["int", "int32", 1]), 2304])
    body = json.dumps(data)
    stored = re.sub(r'(\["store", "I_im_in_conv", )\d+', rf"\g<1>{last + 1}", body)
    assert stored != body
    reply = server.compile(stored)
    assert reply.status == 422
    assert "too many nodes" in reply.error["what"]


def test_rules_without_an_end_are_named(server: Server) -> None:
    endless = """
; n -> n + 1
(rule ((= x (Int a)) (< a 100000000)) ((Int (+ a 1))) :ruleset supporting :name "counts")
"""
    reply = server.compile(PROGRAMS["matmul.vir"], rules=endless)
    assert reply.status == 422
    assert reply.error["what"] == "saturation does not end"
    assert "counts" in reply.error["why"]


@pytest.mark.parametrize("depth", [300, 14_000])
def test_rules_without_a_bottom(server: Server, depth: int) -> None:
    """They are refused where they are read, and cost no worker."""
    lost = 'selector_workers_ended_total{reason="lost"}'
    before = server.metric(lost)
    deep = '(Bop "+" ' * depth + "x" + " (Int 0))" * depth
    reply = server.compile(rules=f'; a -> a\n(rewrite {deep} x :ruleset axioms :name "deep")')
    assert reply.status == 422
    assert reply.error["kind"] == "ParseError"
    assert "inside one another" in reply.error["why"]
    assert server.metric(lost) == before


def test_a_worker_that_rules_have_ended(server: Server) -> None:
    """Whatever the way: a worker that dies of a request with rules is laid to them, and the request
    is not tried on another."""
    lost = 'selector_workers_ended_total{reason="lost"}'
    before = server.metric(lost)
    rule = '; b -> b\n(rewrite (Bop "*" x (Int 1)) x :ruleset axioms :name "slow-{}")'
    server.wait_ready()
    with ThreadPoolExecutor(1) as threads:
        many = "\n".join(rule.format(i) for i in range(300))
        asked = threads.submit(server.compile, renamed("with_rules"), rules=many)
        wait_for(server, "selector_workers_busy")
        time.sleep(0.2)
        os.kill(server.workers()[0], signal.SIGSEGV)
        reply = asked.result()
    assert reply.status == 422
    assert "stop the rule engine" in reply.error["what"]
    assert server.metric(lost) == before + 1


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
        streamed = {"ir": renamed("refused_too"), "target": "sm_80"}
        ((name, data),) = events(tight.ask("POST", "/v1/compile", streamed, accept).body)
        assert (name, data["status"], data["error"]["kind"]) == ("error", 429, "BusyError")
        assert data["retry_after"] >= 1
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
    for number in range(100):
        if number == 50:
            assert tight.compile(PROGRAMS["amx_matmul.vir"], "amx").status == 200
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


def test_a_full_disk(poor: Server) -> None:
    """No file of more than 3000 bytes can be written: small answers can be kept, kernels cannot."""
    reply = poor.compile()
    assert reply.status == 507
    assert reply.error["kind"] == "StoreFullError"
    assert int(reply.headers["retry-after"]) > 0
    assert poor.ask("POST", "/v1/explain", {"ir": CONV, "target": "sm_80"}).status == 200
    assert poor.compile("module x").status == 422
    assert poor.ask("GET", "/healthz").status == 200
    assert not [p for p in (poor.store / "artifacts").rglob("*") if p.is_file()]


@pytest.mark.nvrtc
def test_a_disk_without_room(small_disk: Path) -> None:
    """A real one: others have filled it while the server runs; with room, all is as before. What a
    worker writes on the way (a file for the disassembler) has no room, either.
    """
    with running(small_disk, "--workers", "1") as server:
        assert server.compile(renamed("before")).status == 200
        for path in server.store.glob("a*/??/*"):
            path.unlink()  # there is nothing that could make room
        filler = small_disk / "other"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        replies = [server.compile(renamed(f"full_{i}")) for i in range(3)]
        replies.append(server.compile(renamed("full_0"), sass=True))
        assert {r.status for r in replies} == {507}
        assert replies[0].error["kind"] == "StoreFullError"
        filler.unlink()
        again = server.compile(renamed("full_0"))
        assert again.status == 200
        assert server.ask("GET", f"/v1/artifacts/{again.data['artifact']}").status == 200


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


def test_a_server_that_is_stopped_while_it_computes(tmp_path: Path) -> None:
    """All of its processes are told to stop, as a terminal does and systemd may: what is being
    computed is answered, nothing is left but the store, and the next server goes on from there.
    """
    explained = {"ir": renamed("damaged_answer"), "target": "sm_80"}
    with running(tmp_path, "--workers", "1") as server:
        (worker,) = server.workers()
        first = server.compile(renamed("kept"))
        assert server.ask("POST", "/v1/explain", explained).status == 200
        (path,) = (p for p in (tmp_path / "store" / "answers").rglob("*") if p.is_file()
                   and b'"artifact": ""' in p.read_bytes())  # fmt: skip
        damaged = path.read_bytes()
        path.write_bytes(damaged[:-20] + bytes(20))
        with ThreadPoolExecutor(1) as threads:
            with stopped(server):
                last = threads.submit(server.compile, renamed("stopping"))
                wait_for(server, "selector_workers_busy")
                for process in (worker, server.process.pid):
                    os.kill(process, signal.SIGINT)
            assert last.result().status == 200
        server.process.wait(40)
    assert not Path(f"/proc/{worker}").exists()
    with pytest.raises(OSError, match="refused"):
        server.ask("GET", "/healthz")
    assert list((tmp_path / "store" / "scratch").iterdir()) == []
    with running(tmp_path, "--workers", "1") as server:
        second = server.compile(renamed("kept"))
        assert second.data == {**first.data, "cached": True}
        assert server.ask("POST", "/v1/explain", explained).status == 200
        assert server.metric("selector_store_corrupt_total") == 1
