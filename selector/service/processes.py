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

from selector.service import frames
from selector.service.answers import Answer
from selector.service.frames import Frame
from selector.service.settings import Settings

WATCH_EVERY = 0.05
START_LIMIT = 120.0
END_LIMIT = 10.0
"""Seconds in which the system reports the end of a process that was killed."""
_ASK_EVERY = 0.005
_PAGE = resource.getpagesize()
# All that a worker gets: what the operator's environment holds is none of its business. One thread
# and few arenas: workers share the CPUs, and address space is limited.
_ENVIRONMENT = {
    "PATH": os.defpath,
    "PYTHONUTF8": "1",
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
    """The process is gone; ``fate`` is "time", "memory" or "abandoned" if it was ended for that,
    "unconfined" if it may not be used, else empty.
    """

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
    async def start(cls, settings: Settings, folder: Path, nice: int) -> WorkerProcess:
        """A process that is ready; ``WorkerEndedError`` if it does not come up."""
        scratch = Path(tempfile.mkdtemp(prefix="worker-", dir=folder))
        options = {
            "parent": os.getpid(),
            "memory": settings.memory_limit,
            "scratch": str(scratch),
            "nice": nice,
            "python": (settings.time_limit / 2, settings.memory_limit // 2)
            if settings.python
            else None,
        }
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
            if settings.confined and not worker.confined:
                raise WorkerEndedError("unconfined", None)
        except BaseException:
            await worker.end()
            raise
        return worker

    async def perform(
        self,
        kind: str,
        body: bytes,
        seconds: float,
        memory: int,
        watch: Callable[[str, bool], None],
    ) -> tuple[Answer, bytes]:
        """The answer to a request; ``watch`` is told each stage, and whether there are rules.
        ``WorkerEndedError`` if the process did not survive it.
        """
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self.kill, "time")
        self.peak = 0
        guard = loop.create_task(self._guard(memory))
        try:
            stdin = self.process.stdin
            assert stdin is not None
            if stdin.is_closing():  # it is gone, and the loop knows: writing would be an error
                raise BrokenPipeError
            stdin.writelines(Frame({"kind": kind}, body).parts())
            await stdin.drain()
            while True:
                frame = await self._receive()
                if frame.header.get("event") == "answer":
                    self.served += 1
                    return _answer(frame), frame.artifact
                watch(str(frame.header.get("stage", "")), bool(frame.header.get("rules")))
        except (BrokenPipeError, ConnectionResetError):
            raise WorkerEndedError(self.fate, await self._code()) from None
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
        self.kill("")
        await self._code()
        self.process._transport.close()  # pyright: ignore  # pipes that others hold; it has no other way
        await asyncio.to_thread(shutil.rmtree, self.scratch, True)

    def kill(self, fate: str) -> None:
        """End it, whatever it is doing; the first ``fate`` is the one that counts."""
        self.fate = self.fate or fate
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()

    async def _guard(self, memory: int) -> None:
        while self.process.returncode is None:
            if (now := self.memory()) > memory:
                self.kill("memory")
            self.peak = max(self.peak, now)
            await asyncio.sleep(WATCH_EVERY)
        await asyncio.sleep(
            WATCH_EVERY
        )  # for what it wrote; who else holds the pipe may keep it open
        assert self.process.stdout is not None
        self.process.stdout.set_exception(asyncio.IncompleteReadError(b"", None))

    async def _code(self) -> int | None:
        """The exit code of a process that was killed or has ended; None if nobody reports it.

        Not by ``Process.wait``, which also waits until all pipes are closed: what the process began
        may hold them, and what was not read keeps them open.
        """
        for _ in range(round(END_LIMIT / _ASK_EVERY)):
            if self.process.returncode is not None:
                break
            await asyncio.sleep(_ASK_EVERY)
        return self.process.returncode

    async def _receive(self) -> Frame:
        assert self.process.stdout is not None
        try:
            return await frames.receive(self.process.stdout)
        except (asyncio.IncompleteReadError, ValueError) as error:
            self.kill("")
            raise WorkerEndedError(self.fate, await self._code()) from error


def starved(code: int | None, peak: int, memory: int) -> bool:
    """Whether a process ended itself for want of memory: what is not Python aborts when its address
    space (``sandbox.limit``) has no room for a large block, before the guard sees that it grows.
    """
    return code in (-signal.SIGABRT, -signal.SIGSEGV) and peak > memory // 2


def _environment(scratch: Path) -> dict[str, str]:
    own = str(Path(__file__).resolve().parents[2])
    paths = dict.fromkeys((own, *(os.path.abspath(p) for p in sys.path if os.path.isdir(p))))
    compiled = {"PYTHONPYCACHEPREFIX": sys.pycache_prefix} if sys.pycache_prefix else {}
    return {
        **_ENVIRONMENT,
        **compiled,  # modules that were compiled before are not compiled in each worker
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONPATH": os.pathsep.join(paths),
    }


def _answer(frame: Frame) -> Answer:
    h = frame.header
    return Answer(
        int(h["status"]), frame.body, str(h["media"]), str(h["artifact"]), bool(h["keep"])
    )
