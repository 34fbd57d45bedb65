"""What an operator relies on: workers that know nothing and are confined, names and tokens that are
checked, a log, and probes that tell being alive from being ready.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from service_tools import CONV, SECRET, Server, renamed, running, until

from selector.__main__ import main
from selector.service import sandbox
from selector.service.answers import Answer
from selector.service.bodies import Body
from selector.service.fairness import Shares
from selector.service.frames import Frame
from selector.service.metrics import Metrics
from selector.service.pool import Pool
from selector.service.processes import WorkerEndedError, WorkerProcess
from selector.service.settings import Settings

pytestmark = pytest.mark.verified

HERE = {"Host": "127.0.0.1"}


def test_workers_get_no_environment(server: Server) -> None:
    server.wait_ready()
    (worker,) = server.workers()
    text = Path(f"/proc/{worker}/environ").read_bytes().decode()
    assert SECRET in Path(f"/proc/{server.process.pid}/environ").read_text()
    assert SECRET not in text
    names = {entry.partition("=")[0] for entry in text.split("\0") if entry}
    assert names <= {"PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONUTF8", "MALLOC_ARENA_MAX",
                     "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "OPENBLAS_NUM_THREADS",
                     "OMP_NUM_THREADS", "RAYON_NUM_THREADS", "SELECTOR_CACHE_DIR", "SELECTOR_DUMP",
                     "SELECTOR_CHECK", "SELECTOR_PATIENCE", "LC_CTYPE"}  # fmt: skip


def test_confinement_is_told(server: Server) -> None:
    server.wait_ready()
    confined = sandbox.abi() >= 1
    assert server.ask("GET", "/healthz").data["confined"] is confined
    assert server.metric("selector_workers_confined") == confined


@pytest.mark.skipif(sandbox.abi() < 1, reason="this kernel has no Landlock: `server` is such a one")
def test_workers_that_cannot_be_confined(poor: Server) -> None:
    poor.wait_ready()
    assert poor.ask("GET", "/healthz").data["confined"] is False
    assert poor.metric("selector_workers_confined") == 0
    assert poor.ask("POST", "/v1/explain", {"ir": CONV, "target": "sm_80"}).status == 200


def test_no_server_without_confinement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sandbox, "abi", lambda: -1)
    assert main(["serve", "--json", "--port", "0", "--store", str(tmp_path), "--confined"]) == 2
    assert json.loads(capsys.readouterr().out)["what"] == "workers cannot be confined here"


def test_the_collector_leaves_what_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stop all answers for tens of milliseconds."""
    uvicorn = pytest.importorskip("uvicorn")
    frozen = list[int]()

    async def serve(_: object, listeners: list[socket.socket]) -> None:
        frozen.append(gc.get_freeze_count())
        for listener in listeners:
            listener.close()

    monkeypatch.setattr(uvicorn.Server, "serve", serve)
    gc.unfreeze()
    assert main(["serve", "--port", "0", "--store", str(tmp_path)]) == 0
    assert frozen[0] > 10_000


def test_a_worker_that_is_killed_is_gone_whoever_holds_its_pipes(tmp_path: Path) -> None:
    """What it began may live on, with the pipe of its answers."""

    async def ended() -> tuple[str, float]:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", "sleep 15 & exec sleep 15",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        worker = WorkerProcess(process, tmp_path / "scratch")
        start = time.monotonic()
        with pytest.raises(WorkerEndedError) as end:
            await worker.perform("select", b"", 0.2, 1 << 30, lambda stage, rules: None)
        await worker.end()
        assert end.value.code == -signal.SIGKILL
        return end.value.fate, time.monotonic() - start

    fate, seconds = asyncio.run(ended())
    assert fate == "time"
    assert seconds < 10


def _loops() -> dict[str, Callable[[], asyncio.AbstractEventLoop] | None]:
    uvloop = importlib.util.find_spec("uvloop") and importlib.import_module("uvloop")
    return {"asyncio": None} | ({"uvloop": uvloop.new_event_loop} if uvloop else {})


@pytest.mark.parametrize("loop", _loops())
def test_a_worker_that_has_ended_before_its_request(tmp_path: Path, loop: str) -> None:
    """Whenever the loop notices it: at once, when it writes, or before that."""

    async def ended(seconds: float) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
        worker = WorkerProcess(process, tmp_path / "scratch")
        worker.process.kill()
        await asyncio.sleep(seconds)
        with pytest.raises(WorkerEndedError):
            await worker.perform("select", b"", 5, 1 << 30, lambda stage, rules: None)
        await worker.end()

    with asyncio.Runner(loop_factory=_loops()[loop]) as runner:
        for seconds in (0, 0, 0.001, 0.005, 0.02, 0.1, 0.3):
            runner.run(ended(seconds))


def test_a_defect_of_the_service_costs_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one has a worker again."""

    async def perform(worker: WorkerProcess, *_: object) -> tuple[Answer, bytes]:
        if worker.served == 0 and not failed:
            failed.append(worker)
            raise RuntimeError("nobody thought of this")
        return Answer(200, b"done"), b""

    async def answers() -> list[int]:
        pool = Pool(Settings(store=tmp_path, workers=1), Metrics())
        pool.start()
        jobs = [await pool.submit("select", Body("one", Shares(100, 100))) for _ in range(2)]
        found = [(await job.done)[0].status for job in jobs]
        await pool.close()
        return found

    failed: list[WorkerProcess] = []
    monkeypatch.setattr(WorkerProcess, "perform", perform)
    assert asyncio.run(answers()) == [500, 200]
    assert "nobody thought of this" in caplog.text


def test_no_worker_without_confinement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ready(_: WorkerProcess) -> Frame:
        return Frame({"event": "ready", "confined": False})

    monkeypatch.setattr(WorkerProcess, "_receive", ready)

    async def start(confined: bool) -> bool:
        worker = await WorkerProcess.start(Settings(confined=confined), tmp_path, nice=0)
        await worker.end()
        return worker.confined

    assert asyncio.run(start(False)) is False
    with pytest.raises(WorkerEndedError, match="unconfined"):
        asyncio.run(start(True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "", "127.0.0.1.evil.example"]
)
def test_names_of_others_are_refused(server: Server, host: str) -> None:
    """A page of theirs could otherwise use the service of who looks at it."""
    for path in ("/", "/v1/targets", "/metrics"):
        reply = server.ask("GET", path, headers={"Host": host})
        assert reply.status == 421
        assert reply.error["kind"] == "RequestError"
    assert server.ask("POST", "/v1/compile", b"{}", {"Host": host}).status == 421
    assert server.ask("GET", "/livez", headers={"Host": host}).status == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1:1", "[::1]:8080"])
def test_own_names_are_taken(server: Server, host: str) -> None:
    assert server.ask("GET", "/v1/targets", headers={"Host": host}).status == 200


def test_names_that_the_operator_gives(tight: Server) -> None:
    assert tight.ask("GET", "/v1/targets", headers={"Host": "selector.example.org"}).status == 200
    assert tight.ask("GET", "/v1/targets", headers={"Host": "example.org"}).status == 421


def logged(server: Server, name: str) -> dict[str, Any]:
    """The line of a request in the access log."""
    until(lambda: any(e["id"] == name for e in server.log()), 5)
    return next(e for e in server.log() if e["id"] == name)


def test_the_access_log(tight: Server) -> None:
    """One line a request, with the id that the client gave or was given, and never its token."""
    reply = tight.compile(target="nothing")
    first = logged(tight, reply.headers["x-request-id"])
    assert first["client"].startswith("token ")
    assert (first["method"], first["path"], first["status"]) == ("POST", "/v1/compile", 422)
    assert first["bytes"] == len(reply.body)
    assert first["seconds"] > 0
    again = tight.ask("GET", "/v1/targets", headers={"X-Request-Id": "build-17.a"})
    assert again.headers["x-request-id"] == "build-17.a"
    assert logged(tight, "build-17.a")["client"] == first["client"]
    wrong = tight.ask("GET", '/v1/"\\x', headers={"Authorization": "", "X-Request-Id": 'a"\\b'})
    assert wrong.headers["x-request-id"] != 'a"\\b'
    refused = logged(tight, wrong.headers["x-request-id"])
    assert (refused["client"], refused["status"]) == ("127.0.0.1", 401)
    assert refused["path"] == '/v1/"\\x'
    text = (tight.folder / "log").read_text()
    assert tight.token not in text


def test_clients_behind_a_proxy(tight: Server) -> None:
    """They are who the proxy says; nobody else can say that he is somebody else."""
    for source, client in (("127.0.0.9", "203.0.113.7"), ("127.0.0.8", "127.0.0.8")):
        headers = {"X-Forwarded-For": "203.0.113.7", "X-Request-Id": f"from-{source}"}
        assert tight.ask("GET", "/healthz", headers=headers, source=source).status == 200
        assert logged(tight, f"from-{source}")["client"] == client


def test_a_second_server_leaves_the_folders_of_the_first(server: Server, tmp_path: Path) -> None:
    """They share a store. What a killed one has left goes, whenever it was; what is in use stays,
    however old it is. The second one is killed: neither an answer nor a link is lost, and no worker
    outlives it.
    """
    scratch = server.store / "scratch"
    server.wait_ready()
    mine = [p for p in scratch.rglob("*") if p.is_dir()]
    left = scratch / "server-left"
    left.mkdir()
    for folder in (*mine, left):
        os.utime(folder, (1, 1))
    assert server.compile(CONV).status == 200
    with running(tmp_path, "--workers", "1", "--store", str(server.store)) as other:
        assert all(p.exists() for p in mine)
        assert not left.exists()
        known = other.compile(CONV).data["cached"]
        assert known is True, "or have sources changed while the tests ran? They are in the key"
        answered = other.compile(renamed("shared"))
        request = {"ir": renamed("shared"), "target": "sm_80"}
        link = other.ask("POST", "/links", request).data["id"]
        (worker,) = other.workers()
        other.process.kill()
        other.process.wait()
    again = server.compile(renamed("shared"))
    assert again.data == {**answered.data, "cached": True}
    assert server.ask("GET", f"/links/{link}").data == request
    until(lambda: not Path(f"/proc/{worker}").exists())
