"""NVRTC in a process of its own, which can be ended: ``python -m selector.runtime.nvrtc_child``.

One JSON object on standard input (``source``, ``arch``, ``options``, ``seconds`` of the processor);
on standard output a byte, then what it announces: ``+`` the machine code, ``-`` NVRTC's log. A
process that takes longer is ended by the system.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

from selector.diagnostics import LimitError

_CODE, _LOG = b"+", b"-"


def compile_apart(
    source: str, arch: str, options: tuple[str, ...], seconds: float
) -> tuple[bytes, str]:
    """``nvrtc.compiled`` in another process; ``LimitError`` if it takes longer than that, or does
    not live."""
    request = {"source": source, "arch": arch, "options": options, "seconds": seconds}
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(request).encode(),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    if done.returncode != 0 or done.stdout[:1] not in (_CODE, _LOG):
        raise LimitError(f"NVRTC did not end: {done.stderr.decode(errors='replace')[-500:]}")
    if done.stdout[:1] == _CODE:
        return done.stdout[1:], ""
    return b"", done.stdout[1:].decode(errors="replace")


def _main() -> None:
    from selector.runtime import nvrtc

    request = json.load(sys.stdin)
    nvrtc.bindings()
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + request["seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    code, log = nvrtc.compiled(request["source"], request["arch"], tuple(request["options"]))
    sys.stdout.buffer.write(_CODE + code if code else _LOG + log.encode())


if __name__ == "__main__":
    _main()
