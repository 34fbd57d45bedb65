"""Check and time the ten tasks beside torch, ``torch.compile`` and Triton. Needs CuPy, torch and
Triton, no Halide.

    python -m casestudies.ten_tasks.bench FOLDER [--results FILE] [--match REGEX]

FOLDER is that of ``build``. FILE keeps the rows of other tasks, of the same machine, versions and
day: what one run has no time for, the next adds. Each kernel is checked against float64 after
poison, at the paper's size and at ragged ones; then all take turns, as CUDA graphs over data beyond
the L2 cache.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton

from casestudies.measuring.machine import graphics
from casestudies.measuring.memory import Room
from casestudies.measuring.poison import poison
from casestudies.ten_tasks import triton_kernels
from casestudies.ten_tasks.results import kept
from casestudies.ten_tasks.tasks import TASKS, Shape, Task
from selector import load
from selector.tuning.rounds import time_in_turn
from selector.tuning.timing import Prepared, prepare, rotation

TOLERANCE = 1e-3  # relative, Frobenius: f16 alone is 2e-4
BUDGET, ROUNDS, SETS = 0.3, 31, 8
Call = Callable[..., Any]


def drawn(task: Task, size: Shape, seed: int) -> dict[str, torch.Tensor]:
    source = torch.Generator(device="cuda").manual_seed(seed)
    return {
        name: torch.randn(shape, generator=source, device="cuda").half()
        for name, shape in task.inputs(size).items()
    }


def blank(task: Task, size: Shape) -> torch.Tensor:
    return torch.full(task.output(size), float("nan"), dtype=torch.half, device="cuda")


def error_of(task: Task, call: Callable[[dict[str, Any], Any], Any], size: Shape) -> float:
    """Relative to float64; NaN where something was not written."""
    inputs, out = drawn(task, size, 1), blank(task, size)
    poison()
    found = call(inputs, out)
    torch.cuda.synchronize()
    exact = task.torch(*(v.double() for v in inputs.values()), *task.numbers.values())
    return float((found.double() - exact).norm() / exact.norm())


def contenders(task: Task, folder: Path) -> dict[str, Callable[[dict[str, Any], Any], Any]]:
    """By name: calls with inputs and an output, which others than ours do not take."""

    def ours(label: str) -> Call:
        kernel = load(folder / f"{task.name}{label}.kernel")
        return lambda inputs, out: kernel(**inputs, **task.numbers, out=out)

    def other(call: Call) -> Call:
        return lambda inputs, _: call(*inputs.values(), *task.numbers.values())

    found = {
        "ours": ours(""),
        "ours, sizes open": ours(".open"),
        "torch": other(task.torch),
        "torch.compile": other(torch.compile(task.torch, dynamic=False)),
        "Triton": other(getattr(triton_kernels, task.name)),
    }
    if task.name == "sdpa":
        found["torch, cuDNN"] = other(by_cudnn(task.torch))
    return found


def by_cudnn(call: Call) -> Call:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def chosen(*arguments: Any) -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return call(*arguments)

    return chosen


def measured(task: Task, folder: Path) -> dict[str, Any]:
    """Errors by size and contender, microseconds by contender."""
    size = task.paper
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    sets = [
        (drawn(task, size, k), blank(task, size))
        for k in range(rotation(task.bytes(size), l2, SETS))
    ]
    ready: dict[str, tuple[Prepared, Room]] = {}
    errors: dict[str, dict[str, float]] = {}
    failures: dict[str, str] = {}
    for name, call in contenders(task, folder).items():
        ours, room = name.startswith("ours"), Room(apart=not name.startswith("ours"))
        try:
            sizes = (size, *task.others) if ours else (size,)
            errors[name] = {"x".join(map(str, s)): error_of(task, call, s) for s in sizes}
            with room.entered():
                calls = [lambda i=i, o=o, call=call: call(i, o) for i, o in sets]
                ready[name] = prepare(calls, True, BUDGET, ROUNDS), room
        except Exception as failure:  # of one contender: the others are still measured
            failures[name] = f"{type(failure).__name__}: {failure}"[:500]
    times: dict[str, float] = {}
    spread: dict[str, tuple[float, float]] = {}
    names = [*ready]
    prepared = [calls for calls, _ in ready.values()]
    for turn in time_in_turn(prepared, lambda k: ready[names[k]][1].entered()):
        if turn.timing is None:
            failures[names[turn.index]] = str(turn.failure)
            continue
        times[names[turn.index]] = turn.timing.median
        spread[names[turn.index]] = (turn.timing.low, turn.timing.high)
    right = all(
        error <= TOLERANCE
        for name, found in errors.items()
        for error in found.values()
        if name.startswith("ours")
    )
    return {
        "task": task.name, "bytes": task.bytes(size), "right": right and "ours" in times,
        "errors": errors, "microseconds": times, "spread": spread, "failures": failures,
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--match", default="", help="only tasks whose name holds this (regex)")
    options = parser.parse_args(arguments)
    torch.backends.cudnn.benchmark = True
    about = {
        "date": datetime.date.today().isoformat(), **graphics(),
        "torch": torch.__version__, "triton": triton.__version__,
    }  # fmt: skip
    rows = kept(options.results, about, options.match)
    for task in TASKS:
        if not re.search(options.match, task.name):
            continue
        torch.compiler.reset()
        rows[task.name] = measured(task, options.folder)
        print(json.dumps(rows[task.name]), flush=True)
        torch.cuda.empty_cache()
        if options.results:
            ordered = [rows[t.name] for t in TASKS if t.name in rows]
            options.results.write_text(json.dumps(about | {"rows": ordered}, indent=1) + "\n")
    return 0 if all(row["right"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
