"""Who goes on asking after 429 hears it later each time, and has its part of the event loop; nobody
else notices.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from service_tools import Reply, Server, renamed, running, stopped, until
from test_connections import connect, request

from selector.service import fairness, holds
from selector.service.answers import Answer, refusal
from selector.service.fairness import HERE, LOOPS, PART, SAVED, Turns
from selector.service.holds import BURST, EVERY, LONGEST, MOST, Holds
from selector.service.metrics import Metrics

MIB = 1 << 20
GREEDY, POLITE = "127.0.0.4", "127.0.0.5"
HELD = 'selector_refusals_total{how="held"}'
BUSY = refusal(429, "BusyError", "the service is busy", retry_after=3)


class Asked:
    """A request without a body; its client goes away after ``seconds``."""

    def __init__(self, seconds: float = 60.0, **headers: str) -> None:
        self.seconds, self.headers = seconds, headers

    async def receive(self) -> dict[str, Any]:
        assert "expect" not in self.headers  # that would be leave to send
        await asyncio.sleep(self.seconds)
        return {"type": "http.disconnect"}


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how long each was held, in which no time passes."""
    found = list[float]()

    async def passed(seconds: float, _: object) -> None:
        found.append(round(seconds, 6))

    clock = SimpleNamespace(monotonic=lambda: 1000.0 + now[0])
    now = [0.0]
    monkeypatch.setattr(holds, "_passed", passed)
    monkeypatch.setattr(fairness, "time", clock)
    return found


def back(held: Holds, count: int, answer: Answer = BUSY, client: str = "greedy") -> list[Answer]:
    async def all_() -> list[Answer]:
        return [await held.back(answer, client, Asked()) for _ in range(count)]  # type: ignore[arg-type]

    return asyncio.run(all_())


def test_refusals_are_held_for_longer_each_time(slept: list[float]) -> None:
    held = Holds(Metrics())
    assert back(held, BURST) == [BUSY] * BURST
    assert slept == []
    answers = back(held, 80)
    assert slept == [round(min(3.0, EVERY * (n + 1)), 6) for n in range(80)]
    assert [a.retry_after for a in answers] == [max(1, 3 - int(s)) for s in slept]
    assert {a.body for a in answers} == {BUSY.body}
    assert held.metrics.refusals == {"held": 80}


def test_who_obeys_is_not_held(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty at once, and again after ``Retry-After``: no wait is added to the first eight, and the
    others wait for less than they were told to."""
    held, now = Holds(Metrics()), 0.0
    monkeypatch.setattr(fairness, "time", SimpleNamespace(monotonic=lambda: now))
    for _ in range(5):
        back(held, 20)
        now += BUSY.retry_after
    assert len(slept) == 5 * (20 - BURST)
    assert max(slept) == pytest.approx(EVERY * (20 - BURST))
    slept.clear()
    back(held, BURST, client="other")
    assert slept == []
    assert list(held.paces.due) == ["other"]  # who has rested is forgotten


def test_only_refusals_for_want_of_room_are_held(slept: list[float]) -> None:
    held = Holds(Metrics())
    for status in (200, 422, 503):
        back(held, 3 * BURST, Answer(status, b""))
    assert slept == []
    assert not held.paces.due


def test_a_long_wait_is_not_held_to_its_end(slept: list[float]) -> None:
    """What is held is bounded, whatever ``Retry-After`` is: a service can be stopped."""
    back(Holds(Metrics()), 300, refusal(429, "BusyError", "busy", retry_after=60))
    assert max(slept) == LONGEST


def test_so_many_are_held_and_no_more() -> None:
    """What is beyond is said at once, and ends its connection; a client that goes away, or has to
    be told before it sends, leaves nothing behind."""

    async def many() -> None:
        held = Holds(Metrics())
        asked = [Asked(), Asked(0.01), Asked(expect="100-continue")]
        for _ in range(BURST):
            await held.back(BUSY, "greedy", Asked())  # type: ignore[arg-type]
        tasks = [
            asyncio.create_task(held.back(BUSY, "greedy", asked[n % 3]))  # type: ignore[arg-type]
            for n in range(MOST + 20)
        ]
        await asyncio.sleep(0)
        assert held.held == {"greedy": MOST}
        beyond = [t.result() for t in tasks if t.done()]
        assert [a.last for a in beyond] == [True] * 20
        assert held.metrics.refusals == {"held": MOST, "closed": 20}
        for task in tasks[::3]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(f, asyncio.CancelledError) for f in found) == len(
            [n for n in range(0, MOST + 20, 3) if n < MOST]
        )
        assert not held.held

    asyncio.run(many())


@contextmanager
def full(server: Server) -> Iterator[None]:
    """No worker goes on, and the greedy client has all that it may have of the queue."""
    with ExitStack() as stack:
        stack.enter_context(stopped(server))
        for number in range(16):
            client = stack.enter_context(connect(server, GREEDY))
            client.sendall(request(renamed(f"greedy{number}")))
        until(lambda: server.metric("selector_queue") == 15)
        yield


def refused(server: Server, count: int, size: int = 1) -> list[tuple[Reply, float]]:
    """So many at once, and how long each took."""

    def one(number: int) -> tuple[Reply, float]:
        start = time.monotonic()
        data = b'{"target":"sm_80","ir":"%d' % number + b" " * size + b'"}'
        reply = server.ask("POST", "/v1/compile", data, source=GREEDY)
        return reply, time.monotonic() - start

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def test_a_greedy_client_and_a_polite_one(server: Server) -> None:
    """Of thirty refusals eight come at once; another client is answered meanwhile, as ever."""
    known = {"ir": renamed("for_the_polite"), "target": "sm_80"}
    assert server.ask("POST", "/v1/compile", known, source=POLITE).status == 200
    before = server.metric(HELD)
    with full(server), ThreadPoolExecutor(1) as threads:
        asked = threads.submit(refused, server, 30)
        until(lambda: server.metric("selector_refusals_held") >= 10)
        start = time.monotonic()
        assert server.ask("POST", "/v1/compile", known, source=POLITE).status == 200
        polite = time.monotonic() - start
        answers = asked.result()
        assert {r.status for r, _ in answers} == {429}
        assert all(int(r.headers["retry-after"]) >= 1 for r, _ in answers)
        assert 5 <= server.metric(HELD) - before <= 30 - BURST
        times = sorted(seconds for _, seconds in answers)
        assert times[-1] > 0.5
        assert polite < times[-1]
    until(lambda: server.metric("selector_refusals_held") == 0)


def test_no_body_is_held_with_a_refusal(server: Server) -> None:
    """Thirty of 3 MiB: 90 MiB, of which the server holds what it is reading."""
    before = server.memory()
    with full(server), ThreadPoolExecutor(1) as threads:
        asked = threads.submit(refused, server, 30, 3 * MIB)
        until(lambda: server.metric("selector_refusals_held") >= 5)
        until(lambda: server.metric("selector_bodies_bytes") < 17 * MIB)
        answers = asked.result()
        assert {r.status for r, _ in answers} == {429}
        assert server.metric("selector_bodies_bytes") < MIB  # of the queue
    assert server.memory() - before < 64 * MIB


def test_a_client_that_goes_away_while_it_is_held(server: Server) -> None:
    with full(server):
        with ExitStack() as stack:
            for number in range(60):
                client = stack.enter_context(connect(server, GREEDY))
                client.sendall(request(f"{number} is no program"))
            until(lambda: server.metric("selector_refusals_held") >= 20)
        start = time.monotonic()
        until(lambda: server.metric("selector_refusals_held") == 0)
        assert time.monotonic() - start < 2.0
    assert server.compile().status == 200


def test_a_service_that_is_stopped_says_what_it_holds(tmp_path: Path) -> None:
    """More links than a client may make: the refusals that are held come before the end."""
    with running(tmp_path, "--workers", "1") as server, ThreadPoolExecutor(70) as threads:

        def link(number: int) -> int:
            asked = {"ir": f"link {number}", "target": "sm_80"}
            return server.ask("POST", "/links", asked, source=GREEDY).status

        asked = [threads.submit(link, n) for n in range(70)]
        until(lambda: server.metric("selector_refusals_held") >= 20)
        server.process.send_signal(signal.SIGTERM)
        statuses = [a.result() for a in asked]
        assert statuses.count(201) == 20
        assert statuses.count(429) == 50
        try:
            assert server.process.wait(15) in (0, -signal.SIGTERM)
        except subprocess.TimeoutExpired:
            pytest.fail("it goes on")


def spent(clients: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds until one of these has had 40 turns of 2 ms of the processor each; the others ask
    once, and in between."""
    used = [0.0]
    monkeypatch.setattr(
        fairness, "time", SimpleNamespace(monotonic=time.monotonic, thread_time=lambda: used[0])
    )

    async def ask() -> float:
        turns, done, start = Turns(), list[str](), time.monotonic()

        def work(client: str) -> None:
            used[0] += 0.002 * (client == "many")
            done.append(client)

        for other in clients:
            turns.call(other, lambda other=other: work(other))
        for _ in range(40):
            turns.call("many", lambda: work("many"))
        while done.count("many") < 20:
            await asyncio.sleep(0.001)
        for other in clients:
            while not turns.free:
                await asyncio.sleep(0)
            before = len(done)
            turns.call(other, lambda other=other: work(other))
            assert done[before:] == [other]  # at once, though many wait
        while done.count("many") < 40:
            await asyncio.sleep(0.001)
        return time.monotonic() - start

    return asyncio.run(ask())


def test_a_client_has_its_part_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others, after what it has saved; alone, all of it."""
    part = LOOPS * PART * 0.002
    assert spent((), monkeypatch) < 0.5 * part * 40
    found = spent(("one", "other"), monkeypatch)
    assert found >= part * 39 - SAVED - 0.01
    assert part * 40 < HERE  # they are there all the time
