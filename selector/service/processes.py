"""One worker process as the server sees it: started, given a request, watched, ended."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from selector.service import frames
from selector.service.answers import Answer
from selector.service.frames import Frame

WATCH_EVERY = 0.05
START_LIMIT = 120.0
_PAGE = resource.getpagesize()
# One thread and few arenas: workers share the CPUs, and address space is limited.
_ENVIRONMENT = {
    "SELECTOR_CACHE_DIR": "",
    "SELECTOR_DUMP": "",
    "SELECTOR_CHECK": "0",
    "SELECTOR_PATIENCE": "",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}


class WorkerEndedError(Exception):
    """The process is gone; ``fate`` is "time" or "memory" if it was ended for that, else empty."""

    def __init__(self, fate: str, code: int | None) -> None:
        super().__init__(fate or f"exit code {code}")
        self.fate, self.code = fate, code


class WorkerProcess:
    """A process with the rules loaded."""

    def __init__(self, process: asyncio.subprocess.Process, scratch: Path) -> None:
        self.process, self.scratch = process, scratch
        self.confined = False
        self.served = 0
        self.fate = ""
        self.peak = 0  # bytes, of the request that it computes

    @classmethod
    async def start(cls, memory: int, folder: Path) -> WorkerProcess:
        """A process that is ready; ``WorkerEndedError`` if it does not come up."""
        scratch = Path(tempfile.mkdtemp(prefix="worker-", dir=folder))
        options = {"parent": os.getpid(), "memory": memory, "scratch": str(scratch)}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # modules are ours or installed, never of the folder that the server runs in
            "-m",
            "selector.service.worker",
            json.dumps(options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(scratch),
            limit=1 << 20,
        )
        worker = cls(process, scratch)
        try:
            async with asyncio.timeout(START_LIMIT):
                ready = await worker._receive()
            worker.confined = bool(ready.header.get("confined"))
        except BaseException:
            await worker.end()
            raise
        return worker

    async def perform(
        self, request: dict[str, Any], seconds: float, memory: int, watch: Callable[[str], None]
    ) -> tuple[Answer, bytes]:
        """The answer to a request. ``WorkerEndedError`` if the process did not survive it."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._kill, "time")
        self.peak = 0
        guard = loop.create_task(self._guard(memory))
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(Frame(request).to_bytes())
            await self.process.stdin.drain()
            while True:
                frame = await self._receive()
                if frame.header.get("event") == "answer":
                    self.served += 1
                    return _answer(frame), frame.artifact
                watch(str(frame.header.get("stage", "")))
        except (BrokenPipeError, ConnectionResetError):
            raise WorkerEndedError(self.fate, await self.process.wait()) from None
        except WorkerEndedError as end:
            if not end.fate and starved(end.code, self.peak, memory):
                raise WorkerEndedError("memory", end.code) from None
            raise
        finally:
            timer.cancel()
            guard.cancel()

    def memory(self) -> int:
        """Resident bytes; 0 if the process is gone."""
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE
        except (OSError, IndexError):
            return 0

    async def end(self) -> None:
        """Kill the process and remove its folder."""
        self._kill("")
        with suppress(ProcessLookupError):
            await self.process.wait()
        await asyncio.to_thread(shutil.rmtree, self.scratch, True)

    def _kill(self, fate: str) -> None:
        self.fate = self.fate or fate
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()

    async def _guard(self, memory: int) -> None:
        while (now := self.memory()) <= memory:
            self.peak = max(self.peak, now)
            await asyncio.sleep(WATCH_EVERY)
        self._kill("memory")

    async def _receive(self) -> Frame:
        assert self.process.stdout is not None
        try:
            return await frames.receive(self.process.stdout)
        except (asyncio.IncompleteReadError, ValueError) as error:
            self._kill("")
            raise WorkerEndedError(self.fate, await self.process.wait()) from error


def starved(code: int | None, peak: int, memory: int) -> bool:
    """Whether a process ended itself for want of memory: what is not Python aborts when its address
    space (``sandbox.limit``) has no room for a large block, before the guard sees that it grows.
    """
    return code in (-signal.SIGABRT, -signal.SIGSEGV) and peak > memory // 2


def _environment(scratch: Path) -> dict[str, str]:
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(p for p in paths if p)
    return os.environ | _ENVIRONMENT | {"TMPDIR": str(scratch), "PYTHONPATH": path}


def _answer(frame: Frame) -> Answer:
    h = frame.header
    return Answer(
        int(h["status"]), frame.body, str(h["media"]), str(h["artifact"]), bool(h["keep"])
    )
