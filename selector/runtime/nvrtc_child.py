"""NVRTC in a process of its own, which can be ended: ``python -m selector.runtime.nvrtc_child``, as
``selector.runtime.nvrtc`` starts it.

One JSON object on standard input (``source``, ``arch``, ``options``, ``seconds`` of the processor);
on standard output a byte, then what it announces: ``+`` the machine code, ``-`` NVRTC's log. A
process that takes longer is ended by the system.
"""

from __future__ import annotations

import json
import resource
import sys

from selector.runtime import nvrtc


def main() -> None:
    request = json.load(sys.stdin)
    nvrtc.bindings()
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + request["seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    code, log = nvrtc.compiled(request["source"], request["arch"], tuple(request["options"]))
    sys.stdout.buffer.write(b"+" + code if code else b"-" + log.encode())


if __name__ == "__main__":
    main()
