"""Programs in Python, as a worker sees them: sent to a process that lowers them, confined.

Halide is not loaded here: ``python -m halide_bridge.confined`` does all of it, and ends with this
process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import BinaryIO, cast

from selector.dataclass import dataclass
from selector.diagnostics import InternalError, ParseError, as_error
from selector.service import frames
from selector.service.frames import Frame

_ENVIRONMENT = (
    "PYTHONPATH", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX",
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX",
)  # fmt: skip


LARGEST_MISTAKE = 64 << 10
"""Bytes of what is said of a program."""


@dataclass(frozen=True)
class Programs:
    """``start`` it; it ends with this process."""

    requests: BinaryIO
    answers: BinaryIO

    @classmethod
    def start(cls, seconds: float, memory: int) -> Programs:
        """Each program has so many seconds, and so many bytes beyond what Halide takes.

        ``InternalError`` where the process does not start, or its wall does not hold.
        """
        options = {"parent": os.getpid(), "seconds": seconds, "memory": memory}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "halide_bridge.confined", json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        )
        found = cls(cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout))
        if not found._next().header.get("confined"):
            raise InternalError("programs in Python cannot be confined here")
        return found

    def lower(
        self, data: bytes, target: str, schedule: str | None = None, *, serialized: bool = False
    ) -> str:
        """The loops of a program, in the text form; ``UserError`` for its mistakes. It is Python,
        or what Halide has ``serialized``.
        """
        header = {"target": target, "schedule": schedule, "serialized": serialized}
        frames.write(self.requests, Frame(header, data))
        found = self._next()
        try:  # it comes from the program's own process: it may be anything
            if found.header.get("event") == "lowered":
                return found.body.decode()
            error = as_error(json.loads(found.body[:LARGEST_MISTAKE].decode()))
        except (ValueError, KeyError, TypeError, RecursionError):
            error = ParseError("the program says what is neither loops nor a mistake")
        raise error

    def _next(self) -> Frame:
        found = frames.read(self.answers)
        if found is None:
            raise InternalError("the process that lowers programs ended")
        return found
