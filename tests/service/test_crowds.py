"""Many clients, large requests, and one client that wants everything: memory stays bounded, the
others are answered, and who asks for too much is told to come back.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from service_tools import Reply, Server, renamed, stopped, until

pytestmark = pytest.mark.verified

MIB = 1 << 20
ABUSER, OTHER = "127.0.0.2", "127.0.0.3"
COMPUTED = 'selector_computations_total{outcome="200"}'


def request(program: str, address: str) -> http.client.HTTPConnection:
    """A connection on which a program was sent, and no answer read."""
    client = http.client.HTTPConnection(
        "127.0.0.1", int(address), timeout=60, source_address=(ABUSER, 0)
    )
    client.request("POST", "/v1/compile", json.dumps({"ir": program, "target": "sm_80"}))
    return client


def nested(number: int) -> bytes:
    """A request of 4 MiB, a quarter of which takes 25 times as much once it is parsed."""
    lists = b",".join([b"[]"] * (MIB // 3))
    text = b'{"target":"sm_80","ir":{"number":%d,"body":[' % number + lists + b"]}}"
    return text.ljust(4 * MIB)


def test_large_bodies_neither_fill_the_server_nor_stop_it(server: Server) -> None:
    """Ten of them at once: some are read, the others refused early; a small request of another
    client is answered as ever."""
    server.compile(renamed("known_before"))
    bodies = [nested(i) for i in range(10)]
    peak, slowest, done = [server.memory()], [0.0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            start = time.monotonic()
            assert server.ask("GET", "/healthz", source=OTHER).status in (200, 503)
            known = server.ask(
                "POST", "/v1/compile", {"ir": renamed("known_before"), "target": "sm_80"},
                source=OTHER,
            )  # fmt: skip
            assert known.status == 200
            slowest.append(time.monotonic() - start)
            peak.append(server.memory())

    with ThreadPoolExecutor(11) as threads:
        watching = threads.submit(watch)
        replies = list(
            threads.map(lambda b: server.ask("POST", "/v1/explain", b, source=ABUSER), bodies)
        )
        done.set()
        watching.result()
    statuses = Counter(r.status for r in replies)
    assert set(statuses) <= {422, 429}
    assert statuses[429] >= 1
    assert all(int(r.headers["retry-after"]) > 0 for r in replies if r.status == 429)
    assert max(peak) < 300 * MIB, [p // MIB for p in peak]
    assert max(slowest) < 2.0, sorted(slowest)[-5:]
    assert server.metric("selector_bodies_bytes") == 0


def test_bytes_of_all_clients_are_bounded(server: Server) -> None:
    """Bodies that are announced and not sent: each client has its part, together they have all."""
    with ExitStack() as stack:
        refused: list[Reply] = []
        for number in range(24):
            client = stack.enter_context(
                socket.create_connection(
                    ("127.0.0.1", server.port), 60, (f"127.0.1.{number // 4}", 0)
                )
            )
            head = f"POST /v1/compile HTTP/1.1\r\nHost: localhost\r\nContent-Length: {4 * MIB}\r\n"
            client.sendall(head.encode() + b"\r\n")
        until(lambda: server.metric("selector_bodies_bytes") == 64 * MIB)
        refused = [
            server.ask("POST", "/v1/compile", b" " * MIB, source=f"127.0.1.{n}") for n in (0, 9)
        ]
        assert [r.status for r in refused] == [429, 503]
        assert {r.error["kind"] for r in refused} == {"BusyError"}
    until(lambda: server.metric("selector_bodies_bytes") == 0)
    assert server.ask("POST", "/v1/compile", b" " * MIB).status == 422


def test_what_nobody_waits_for_is_not_computed(server: Server) -> None:
    """Seventy requests of a client that goes away: its part of the queue is left, the rest was
    refused, and another client that came later is next."""
    before = server.metric(COMPUTED)
    with ThreadPoolExecutor(1) as threads:
        with stopped(server):
            clients = [request(renamed(f"gone_{i}"), str(server.port)) for i in range(70)]
            until(lambda: server.metric("selector_queue") >= 15)
            mine = threads.submit(
                server.ask, "POST", "/v1/compile",
                {"ir": renamed("patient"), "target": "sm_80"}, source=OTHER,
            )  # fmt: skip
            until(lambda: server.metric("selector_queue") >= 16)
            for client in clients:
                client.close()
            until(lambda: server.metric("selector_queue") == 1)
        assert mine.result().status == 200
    assert server.metric(COMPUTED) <= before + 2  # the one that was begun


def test_clients_take_turns(server: Server) -> None:
    """One that comes after ten of another is next, not last."""
    before = server.metric(COMPUTED)
    with ThreadPoolExecutor(1) as threads:
        with stopped(server):
            clients = [request(renamed(f"many_{i}"), str(server.port)) for i in range(10)]
            until(lambda: server.metric("selector_queue") == 9)
            mine = threads.submit(
                server.ask, "POST", "/v1/compile",
                {"ir": renamed("single"), "target": "sm_80"}, source=OTHER,
            )  # fmt: skip
            until(lambda: server.metric("selector_queue") == 10)
        assert mine.result().status == 200
        assert server.metric(COMPUTED) <= before + 5
    for client in clients:
        assert client.getresponse().status == 200
        client.close()


def test_a_client_has_a_part_of_the_connections(server: Server) -> None:
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                socket.create_connection(("127.0.0.1", server.port), 60, (ABUSER, 0))
            )
            for _ in range(260)
        ]
        refused = clients[-1].recv(1 << 16)
        assert refused.startswith(b"HTTP/1.1 429 ")
        assert b'"kind":"RequestError"' in refused
        assert server.ask("GET", "/healthz", source=OTHER).status == 200
    until(lambda: server.ask("GET", "/healthz", source=ABUSER).status == 200)


@pytest.mark.parametrize("count", [1, 50])
def test_turns_are_fair(count: int) -> None:
    """Whoever asks most waits most: the others are next after the few that begin at once."""
    import asyncio

    from selector.service.fairness import Turns

    async def order() -> list[str]:
        turns, found = Turns(), list[str]()

        async def ask(client: str) -> None:
            await turns.turn(client)
            found.append(client)

        await asyncio.gather(*(ask("many") for _ in range(count)), ask("one"), ask("other"))
        return found

    found = asyncio.run(order())
    assert len(found) == count + 2
    assert {"one", "other"} <= set(found[:8])


def test_a_worker_is_kept_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others have asked lately, the client for which most was computed does not get it."""
    from selector.service import fairness
    from selector.service.metrics import Metrics
    from selector.service.pool import KEPT, Pool
    from selector.service.settings import Settings

    now = 1000.0
    monkeypatch.setattr(fairness.time, "monotonic", lambda: now)
    pool = Pool(Settings(workers=3), Metrics())
    pool.workers = dict.fromkeys(range(3))  # type: ignore[arg-type]
    pool.recent.note("many")
    pool.recent.used("many", 9.0)
    assert pool._may(KEPT)("many")  # nobody else is there
    pool.recent.note("one")
    pool.recent.used("one", 1.0)
    assert not pool._may(KEPT)("many")
    assert pool._may(KEPT)("one")
    assert pool._may(1)("many")
    assert not pool._may(1)("one")  # it has the kept one, which is free
    pool.busy[KEPT] = "one", now
    assert pool._may(1)("one")
    pool.recent.used("one", 20.0)
    assert pool._may(KEPT)("many")
    now += 120
    pool.recent.note("many")
    assert pool._may(KEPT)("many")
    assert set(pool.recent.uses) == {"many"}


def test_for_whom_most_was_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found without a look at all clients, of whom there may be thousands; and the same."""
    from selector.service import fairness

    now, rng = 1000.0, random.Random(4)
    monkeypatch.setattr(fairness, "time", SimpleNamespace(monotonic=lambda: now))
    recent = fairness.Recent(10.0)
    done = dict[str, list[tuple[float, float]]]()  # of those that are there: seconds, and when
    asked, found = dict[str, float](), Counter[bool]()
    for _ in range(3000):
        now += rng.choice((0.0, 0.1, 1.0, 1.0, 15.0 * (rng.random() < 0.05)))
        client = f"client {rng.randrange(30)}"
        if rng.random() < 0.6:
            recent.note(client)
            asked[client] = now
            done.setdefault(client, [])
        elif client in asked:
            seconds = rng.random() * 3
            recent.used(client, seconds)
            done[client].append((seconds, now))
        asked = {c: t for c, t in asked.items() if t >= now - 10.0}
        done = {c: d for c, d in done.items() if c in asked}
        left = {c: sum(s * 0.5 ** ((now - t) / 10.0) for s, t in d) for c, d in done.items() if d}
        most = max(left, key=left.__getitem__) if left and len(asked) > 1 else None
        assert recent.heaviest() == most
        found[most is None] += 1
    assert min(found.values()) > 50


def test_the_only_worker_is_everybodys() -> None:
    from selector.service.metrics import Metrics
    from selector.service.pool import KEPT, Pool
    from selector.service.settings import Settings

    pool = Pool(Settings(workers=1), Metrics())
    for client in ("many", "one"):
        pool.recent.note(client)
        pool.recent.used(client, 9.0 if client == "many" else 1.0)
        assert pool._may(KEPT)(client)


@pytest.mark.parametrize("fate", ["abandoned", "memory", "time"])
def test_a_worker_that_was_ended_as_it_answered(fate: str) -> None:
    """It is not gone yet and gets no other request: that one would hear what it was ended for."""
    from selector.service.answers import Answer
    from selector.service.bodies import Body
    from selector.service.metrics import Metrics
    from selector.service.pool import Job, Pool
    from selector.service.processes import WorkerEndedError
    from selector.service.settings import Settings

    async def perform(*_: object) -> tuple[Answer, bytes]:
        if worker.fate:
            raise WorkerEndedError(fate, -9)
        worker.fate = fate
        return Answer(200, b"{}"), b""

    async def serve() -> None:
        body = Body("one", pool.places)
        pool.waiting.put("one", job := Job("compile", body, asyncio.Future()))
        pool.waiting.put("one", other := Job("compile", body, asyncio.Future()))
        await pool._serve(0, worker)  # type: ignore[arg-type]
        assert job.done.result()[0].status == 200
        assert not other.done.done()
        assert pool.waiting.take() is other

    worker = SimpleNamespace(
        perform=perform,
        fate="",
        served=0,
        memory=lambda: 0,
        process=SimpleNamespace(returncode=None),
    )
    pool = Pool(Settings(workers=1), Metrics())
    asyncio.run(serve())
    assert pool.metrics.workers_ended[fate] == 1
