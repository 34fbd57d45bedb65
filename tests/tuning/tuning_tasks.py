"""What workers are sent in tests: an importable module, as theirs have to be."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import halide as hl
import numpy as np

from selector.diagnostics import ScheduleError
from selector.tuning.executor import SpoiledWorkerError


def add(a: int, b: int) -> int:
    return a + b


def process(*_: object) -> int:
    return os.getpid()


def talk(text: str) -> str:
    print(text)
    sys.stdout.flush()
    os.write(1, b"more on the same channel\n")
    return text


def refuse() -> None:
    raise ScheduleError("no such schedule", why="it is a test", hint="none")


def stumble() -> None:
    raise ValueError("seven")


def leave() -> None:
    raise SystemExit(3)


def spoil() -> None:
    raise SpoiledWorkerError from RuntimeError("the context is lost")


def crash() -> None:
    print("last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def freeze(once: str) -> str:
    """The first to come stops, as all does on a node that is cut off; the next one answers."""
    if not os.path.exists(once):
        with open(once, "w", encoding="utf-8"):
            os.kill(os.getpid(), signal.SIGSTOP)
    return "thawed"


class Heavy:
    """Counts how often it is unpickled in a process."""

    arrived = 0

    def __init__(self, values: Any) -> None:
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return (_arrive, (self.values,))


def _arrive(values: Any) -> Heavy:
    Heavy.arrived += 1
    return Heavy(values)


def weigh(heavy: Heavy, more: int) -> tuple[int, int]:
    return Heavy.arrived, int(heavy.values.sum()) + more


# ------------------------------------------------------------------ a pipeline to tune

SIZES = (5, 70)


def double(width: int, trouble: str = "", wrong: bool = False) -> hl.Func:
    """``output = 2 * I`` in blocks of ``width`` threads; ``trouble`` happens on the way."""
    match trouble:
        case "crash":
            crash()
        case "hang":
            time.sleep(60)
        case "refuse":
            refuse()
        case "stumble":
            stumble()
        case _:
            pass
    image, output = hl.ImageParam(hl.Float(32), 2, "I"), hl.Func("output")
    x, y, xo, xi = (hl.Var(name) for name in ("x", "y", "xo", "xi"))
    output[x, y] = image[x, y] * (3.0 if wrong else 2.0)
    output.split(x, xo, xi, width, hl.TailStrategy.GuardWithIf).gpu_blocks(xo, y).gpu_threads(xi)
    return output


def image() -> np.ndarray:
    return np.random.default_rng(3).random(SIZES).astype(np.float32)


def arguments() -> dict[str, Any]:
    return {"I": image()}


def doubled(arguments: dict[str, Any]) -> np.ndarray:
    return 2 * np.float64(arguments["I"])


def measure(kernel: Any, configuration: Any) -> float:
    """Microseconds that follow from the kernel: its longest block is the fastest."""
    log = os.environ.get("TUNING_TEST_LOG")
    if log:
        with open(log, "a", encoding="utf-8") as file:
            print(configuration["width"], file=file)
    if configuration["width"] == 33:
        crash()
    if configuration["width"] == 34:
        time.sleep(60)
    if configuration["width"] == 35:
        return float("nan")
    result = kernel.interpret(**arguments())
    assert np.allclose(result, doubled(arguments()))
    return 1e4 / kernel.plan.launches[0].threads


def on_processor(width: int, factor: float = 2.0) -> hl.Func:
    """The same for the CPU."""
    image, output = hl.ImageParam(hl.Float(32), 2, "I"), hl.Func("output")
    x, y, xo, xi = (hl.Var(name) for name in ("x", "y", "xo", "xi"))
    output[x, y] = image[x, y] * factor
    output.split(x, xo, xi, width, hl.TailStrategy.GuardWithIf)
    return output
