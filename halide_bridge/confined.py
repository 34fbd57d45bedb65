"""Programs as text, each lowered in a process of its own that can compute and do nothing else.

    python -m halide_bridge.confined '{"parent": 1, "seconds": 10, "memory": 536870912}'

A worker of the compile service starts this and sends programs over a pipe. Halide is loaded once;
each program then has a process that is forked for it and ends with it: it knows Halide and nothing
of other requests. The wall is the kernel's (``selector.service.calls``: memory, time, and one pipe
to say the answer; ``sandbox`` below it), never Python's. What comes out is data, as if a client
had sent it.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from io import BytesIO
from math import ceil
from typing import Any

from halide_bridge import source
from halide_bridge.memory import caller_location
from selector.diagnostics import LimitError, ParseError, UserError
from selector.service import calls, frames, sandbox
from selector.service.frames import Frame

CACHE = "SELECTOR_CACHE_DIR"
LARGEST = 4 << 20
"""Bytes of an answer."""
_BESIDES = ("unicodedata", "numpy.random", "numpy.linalg", "numpy.fft")
"""What is imported only when it is needed, which here would be too late."""
_SAMPLE = """
import halide as hl, halide_bridge as hb
a, b = hl.ImageParam(hl.Float(16), 2, "a"), hl.ImageParam(hl.Float(16), 2, "b")
loaded, output, x, y = hl.Func("loaded"), hl.Func("loading"), hl.Var("x"), hl.Var("y")
k = hl.RDom([(0, 16)], "k")
loaded[x, y] = hl.f32(0.0)
loaded[x, y] += hl.f32(a[k.x, y]) * hl.f32(b[x, k.x])
output[x, y] = loaded[x, y]
output.tile(x, y, hl.Var("xo"), hl.Var("yo"), x, y, 16, 16).vectorize(x).vectorize(y)
output.gpu_blocks(hl.Var("xo"), hl.Var("yo"))
loaded.compute_at(output, hl.Var("xo")).vectorize(x).vectorize(y)
loaded.update().atomic().vectorize(x).vectorize(y).vectorize(k.x)
hb.store_in(loaded, hb.MemoryType.WMMAAccumulator)
"""
_PLAIN = """
import halide as hl
image, output, x, y = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("plain"), hl.Var(), hl.Var()
output[x, y] = image[x, y] + image[x + 1, y]
"""
_MISTAKES = ("1 +", "import os", "import halide as hl\noutput = hl.Func('none')")


def main(options: dict[str, Any]) -> None:
    sandbox.end_with_parent(int(options["parent"]))
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.SIG_IGN)
    requests, answers = frames.standard_pipes()
    os.chdir("/")
    _preload()
    sandbox.limit(int(options["memory"]), 0)
    confined = sandbox.confine((), None)
    seconds = float(options["seconds"])
    walled = perform(_tried, seconds).header.get("event") == "held"
    frames.write(answers, Frame({"event": "ready", "confined": confined and walled}))
    while (request := frames.read(requests)) is not None:
        frames.write(answers, perform(partial(_lowered, request.body, **request.header), seconds))


def perform(work: Callable[[], Frame], seconds: float) -> Frame:
    """What ``work`` says in a process of its own; a ``mistake`` if it says nothing in time."""
    read, write = os.pipe()
    parent, child = os.getpid(), os.fork()
    if not child:
        _confined(work, parent, write, seconds)
    os.close(write)
    data, fate = b"", ""
    try:
        data, fate = _collected(read, seconds)
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)  # it is not yet waited for: the number is its own
        _, status, _ = os.wait4(child, 0)
    return _answer(data, fate or _end_of(status))


def _confined(work: Callable[[], Frame], parent: int, write: int, seconds: float) -> None:
    """Does not return: the rest of a process that is just forked."""
    try:
        sandbox.end_with_parent(parent)
        for number in (1, 2):
            os.dup2(0, number)  # the null device
        os.closerange(3, write)
        os.closerange(write + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        whole = ceil(seconds)
        # At the hard limit comes SIGKILL, which does not say why: the soft one is below.
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        calls.allow_only_computing()
        data = memoryview(work().to_bytes())
        while data:
            data = data[os.write(write, data) :]
        os._exit(0)
    finally:
        os._exit(1)


def _lowered(
    data: bytes, target: str, schedule: str | None = None, serialized: bool = False
) -> Frame:
    try:
        if serialized:
            module = source.lower_serialized(data, target, schedule)
        else:
            module = source.lower_source(data.decode(), target, schedule)
        return Frame({"event": "lowered"}, str(module).encode())
    except UserError as error:
        return _mistake(error)


def _mistake(error: UserError) -> Frame:
    return Frame({"event": "mistake"}, json.dumps(error.as_dict()).encode())


def _collected(read: int, seconds: float) -> tuple[bytes, str]:
    """All that is written until the other end is closed, or why not all."""
    parts, length, end = list[bytes](), 0, time.monotonic() + seconds
    while length <= LARGEST:
        ready, _, _ = select.select([read], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return b"", f"longer than {seconds:g} s"
        part = os.read(read, 1 << 16)
        if not part:
            return b"".join(parts), ""
        parts.append(part)
        length += len(part)
    return b"", f"more than {LARGEST >> 20} MiB for its loops"


def _end_of(status: int) -> str:
    """Which limit ended a process; empty if none did."""
    return "longer than it is given" if os.waitstatus_to_exitcode(status) == -signal.SIGXCPU else ""


def _answer(data: bytes, fate: str) -> Frame:
    """What a process has said, which may be anything."""
    if fate:
        return _mistake(LimitError(f"the program takes {fate}", "Python here has limits"))
    try:
        found = frames.read(BytesIO(data))
    except ValueError:
        found = None
    if found is None or found.header.get("event") not in ("lowered", "mistake", "held"):
        why = "it wants more memory than it is given, or Halide gave up"
        return _mistake(ParseError("the program ends its process", why, where=source.NAME))
    return found


def _preload() -> None:
    """Load all that a program may need: later, nothing can be opened. What it takes to compile is
    loaded, too, where the kernel is in the cache.
    """
    os.environ[CACHE] = ""
    for name in (*source.MODULES, *_BESIDES):
        import_module(name)
    source.lower_source(_SAMPLE, "sm_80")
    for target in ("sm_80", "amx"):
        source.lower_source(_PLAIN, target, source.AUTO)
    for text in _MISTAKES:
        _lowered(text.encode(), "sm_80")
    _leave_compiling_to_the_service()
    os.environ.clear()
    gc.collect()
    gc.freeze()  # pages stay shared with the processes that are forked


def _leave_compiling_to_the_service() -> None:
    """For programs that were written to be run: what they end with is not done here."""
    import halide_bridge

    def left(name: str) -> Callable[..., None]:
        def refuse(*_: object, **__: object) -> None:
            what = f"`{name}` is left to the service"
            hint = f"assign the Func to `{source.OUTPUT}`, and end there"
            raise ParseError(what, hint=hint, where=caller_location())

        return refuse

    for name in ("compile", "tune"):
        setattr(halide_bridge, name, left(f"halide_bridge.{name}"))


def _tried() -> Frame:
    """Try the wall before anyone relies on it."""
    attempts: tuple[Callable[[], object], ...] = (
        lambda: os.open("/", os.O_RDONLY),
        lambda: os.stat("/"),
        lambda: os.kill(os.getppid(), 0),
        lambda: os.execv(sys.executable, ["python"]),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        lambda: socket.socketpair(),
        lambda: os.pipe(),
        lambda: mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC),
        os.fork,
    )
    for attempt in attempts:
        try:
            attempt()
        except PermissionError:
            continue
        return Frame({"event": "mistake"})
    return Frame({"event": "held"})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
