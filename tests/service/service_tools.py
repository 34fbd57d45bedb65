"""Servers for tests, each on a free port of 127.0.0.1, and a plain HTTP client."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rules import program_files

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = dict(program_files())
CONV = PROGRAMS["conv1d.vir"]
START_LIMIT = 120.0
SECRET = "not for workers"
"""What is in the environment of every server."""
EXPLODING = """
; each pair of constants gives a new one: squares in every round
(rule ((= x (Int a)) (= y (Int b))) ((Int (+ a (* 3 b))) (Int (+ b (* 5 a))))
      :ruleset axioms :name "explodes")
"""
DOUBLING = """
; a symbol -> one twice as long
(rule ((= x (Sym s))) ((Sym (+ s s))) :ruleset axioms :name "doubles")
"""


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert set(self.data) == {"error"}, self.body
        error = self.data["error"]
        assert set(error) == {"kind", "what", "why", "hint", "where"}
        assert set(error["where"]) == {"func", "stage", "location", "statement"}
        return error


@dataclass(frozen=True)
class Server:
    """A running server: its port, its process, the folder that everything of it is in."""

    port: int
    process: subprocess.Popen[str]
    folder: Path
    token: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | object = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float = 120,
        source: str = "127.0.0.1",
    ) -> Reply:
        """One request, from a client of this machine: all of 127.0.0.0/8 are addresses of it."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        own = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=timeout, source_address=(source, 0)
        )
        try:
            connection.request(method, path, data, {**own, **(headers or {})})
            reply = connection.getresponse()
            found = {k.lower(): v for k, v in reply.getheaders()}
            return Reply(reply.status, found, reply.read())
        finally:
            connection.close()

    def compile(self, ir: object = CONV, target: str = "sm_80", **more: object) -> Reply:
        return self.ask("POST", "/v1/compile", {"ir": ir, "target": target, **more})

    def metric(self, name: str) -> float:
        """The value of a metric, labels included; 0 if it is not there."""
        for line in self.ask("GET", "/metrics").body.decode().splitlines():
            found, _, value = line.rpartition(" ")
            if found == name:
                return float(value)
        return 0.0

    def log(self) -> list[dict[str, Any]]:
        """The lines of the error output that are data: those of the access log."""
        lines = (self.folder / "log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def workers(self) -> list[int]:
        """The process numbers of the workers."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(n) for t in tasks for n in t.read_text().split()]

    def memory(self) -> int:
        """Resident bytes of the server, without workers."""
        statm = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(statm.split()[1]) * resource.getpagesize()

    def wait_ready(self, workers: int = 1) -> None:
        end = time.monotonic() + START_LIMIT
        while time.monotonic() < end:
            if self.ask("GET", "/healthz").data["workers"] >= workers:
                return
            time.sleep(0.02)
        raise AssertionError("no worker came up")


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def running(
    folder: Path,
    *options: str,
    token: str = "",
    before: Callable[[], None] = lambda: None,
    bytecode: bool = True,
) -> Iterator[Server]:
    """A server in a folder of its own: home, working directory, temporary files, store, log.

    ``before`` is called in its process, before it begins. ``bytecode``: what it imports may be
    written; half a file of it would break everybody who imports that next.
    """
    for name in ("home", "here", "temporary"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    if token:
        (folder / "tokens").write_text(f"# of the tests\nother-token\n{token}\n")
        options = (*options, "--token-file", str(folder / "tokens"))
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "temporary"),
        "OPERATORS_SECRET": SECRET,
    }
    for name in ("XDG_CACHE_HOME", "SELECTOR_DUMP"):
        variables.pop(name, None)
    variables |= {} if bytecode else {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-m", "selector", "serve", "--port", "0"]
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        [*command, "--store", str(folder / "store"), *options],
        cwd=folder / "here", env=variables, stdout=subprocess.PIPE, stderr=log, text=True,
        preexec_fn=before,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        said = (folder / "log").read_text()
        assert line.startswith("serving on http://127.0.0.1:"), line + said
        server = Server(int(line.rpartition(":")[2]), process, folder, token)
        server.wait_ready()
        yield server
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def exhaust_landlock() -> None:
    """A process can be confined sixteen times, and not once more: do it."""
    libc = ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)
    devices = struct.pack("=Q", 1 << 11)  # making block devices is all that is forbidden
    for _ in range(16):
        libc.syscall(446, libc.syscall(444, devices, len(devices), 0), 0)


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """The workers are stopped in the meantime: what is asked of them is begun, and not done."""
    server.wait_ready()
    workers = server.workers()
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)


def hardware() -> str:
    """The processor and how many CPUs of it this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'an unknown CPU'}, {len(os.sched_getaffinity(0))} CPUs"


def put_into_page(mark: str, text: str) -> None:
    """Replace what stands between the two comments of that name."""
    page = ROOT / "docs" / "howto" / "service.md"
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(before + begin + text + end + rest.split(end)[1], encoding="utf-8")


def renamed(name: str, text: str = CONV) -> str:
    """A program that no store knows yet."""
    return text.replace("module output", f"module {name}", 1)


def events(body: bytes) -> list[tuple[str, Any]]:
    """The server-sent events of a stream."""
    found = []
    for part in body.decode().split("\n\n")[:-1]:
        name, data = part.split("\n")
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        found.append((name[7:], json.loads(data[6:])))
    return found
