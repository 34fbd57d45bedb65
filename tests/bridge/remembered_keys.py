"""What the keys of one pipeline are, by what is said of it: each in a process of its own, where its
Funcs have the same names. Run by ``test_remembered.py``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import halide as hl

import halide_bridge as hb
from halide_bridge.remembered import pipelines_of
from halide_bridge.unscheduled import source_of

F32 = hl.Float(32)
SIZES = {"p": (8, 16), "f": (8, 16)}


def made() -> dict[str, Any]:
    p, s, f = hl.ImageParam(F32, 2, "p"), hl.Param(F32, "s"), hl.Func("f")
    x, y = hl.Var("x"), hl.Var("y")
    f[x, y] = p[x, y] * s
    return {"p": p, "s": s, "f": f, "x": x, "y": y}


SAID: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda m: None,
    "nothing again": lambda m: None,
    "a stride": lambda m: m["p"].dim(0).set_stride(3),
    "an extent": lambda m: m["p"].dim(1).set_bounds(0, 5),
    "a range": lambda m: m["s"].set_range(0, 1),
    "an alignment": lambda m: m["p"].set_host_alignment(16),
    "estimates of an argument": lambda m: m["p"].set_estimates([(0, 5), (0, 6)]),
    "estimates": lambda m: m["f"].set_estimates([(0, 5), (0, 6)]),
    "a bound": lambda m: m["f"].bound(m["x"], 0, 3),
    "a stride of the output": lambda m: m["f"].output_buffer().dim(0).set_stride(2),
    "a schedule": lambda m: m["f"].vectorize(m["x"], 4),
    "a directive": lambda m: hb.persistent(m["f"]),
}


def key(said: str, **options: Any) -> str:
    parts = made()
    SAID[said](parts)
    target, sizes = options.pop("target", "sm_90a"), options.pop("sizes", SIZES)
    output, inputs = options.pop("output", parts["f"]), options.pop("inputs", None)
    source = source_of(output, options.pop("name", None), [parts[n] for n in inputs or ()] or None)
    known = pipelines_of(source, target, options)
    return "" if known is None else known.key(sizes, options.get("some", False))


def apart(call: Callable[[], str]) -> str:
    """What a call gives in a process of its own."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, call().encode())
        os._exit(0)
    os.wait()
    os.close(write)
    return os.read(read, 1 << 12).decode()


def main() -> None:
    found = {said: apart(lambda said=said: key(said)) for said in SAID}
    asked: dict[str, dict[str, Any]] = {
        "other sizes": {"sizes": {"p": (8, 17), "f": (8, 17)}},
        "no sizes": {"sizes": None},
        "another target": {"target": "sm_80"},
        "instructions": {"instructions": ("mma",)},
        "a name": {"name": "other"},
        "an order": {"inputs": ("s", "p")},
        "no cache": {"cache": False},
        "a service": {"service": "http://localhost"},
    }
    found |= {name: apart(lambda o=o: key("nothing", **o)) for name, o in asked.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
