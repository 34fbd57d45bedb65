"""The matrix product on AMX against oneDNN (torch on the CPU), and every cell of table I checked.

    python -m casestudies.amx_matmul.build DIR     compile all kernels; needs Halide
    python -m casestudies.amx_matmul.bench DIR     check and time them; needs NumPy, and for times
                                                   torch and a CPU with AMX

Times are medians and minima of single calls in microseconds, outputs allocated beforehand, arrays
aligned to cache lines; checks
compare with float64 on random data, over outputs that were poisoned before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from casestudies.amx_matmul.problem import LAYOUTS, SCHEDULES, Cell, Problem, cells
from casestudies.amx_matmul.reference import reference
from casestudies.common.data import decoded, poisoned, random_inputs, relative_error
from casestudies.measuring.machine import processor
from selector import load

TIMED = (("bf16", "bf16"), ("s8", "s8"))
SIZES = ((64, 64, 128), (70, 50, 132), (33, 17, 64), (256, 320, 192), (1, 1, 4))
TIMED_SIZE = 1024
FAST = tuple(
    Cell(types, layout, schedule)
    for types in TIMED
    for layout in LAYOUTS
    for schedule in SCHEDULES
    if schedule.startswith("blocked")
)
ROUNDS, CALLS = 20, 10


def operands(problem: Problem, seed: int) -> tuple[dict[str, Any], Any]:
    """Random A and B as the kernel takes them, and the product in float64."""
    arrays = random_inputs(problem, seed, np)
    return arrays, reference(problem, decoded(problem, arrays, np), np)


def aligned(array: Any) -> Any:
    """A copy that starts at a cache line, as torch's tensors do: a tile's row is one line then."""
    room = np.empty(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    result = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def check(kernel: Any, problem: Problem) -> float:
    """Relative Frobenius error of one call."""
    arrays, expected = operands(problem, problem.m + problem.n + problem.k)
    out = poisoned(problem.output, np)
    kernel(**arrays, out=out)
    return relative_error(out, expected, np)


def timed(calls: dict[str, Callable[[], object]], threads: int) -> dict[str, dict[str, float]]:
    """Median and minimum of single calls of each contender, in rounds, so that what slows the
    machine for a while slows all; the pauses let idle threads of another runtime stop spinning."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            if threads > 1:
                time.sleep(0.01)
            for i in range(CALLS + 2):
                start = time.perf_counter()
                call()
                if i >= 2:
                    samples[name].append(1e6 * (time.perf_counter() - start))
    return {n: {"median": statistics.median(s), "minimum": min(s)} for n, s in samples.items()}


def peers(element: str) -> dict[str, Callable[[], object]]:
    """oneDNN through torch: row-major B as we take it, and B transposed in memory, which it
    prefers. None without torch."""
    if not torch_version():
        return {}
    import torch as installed

    torch: Any = installed
    n = TIMED_SIZE
    if element == "bf16":
        a, b = (torch.randn(n, n).to(torch.bfloat16) for _ in range(2))
        out = torch.empty(n, n, dtype=torch.bfloat16)
        turned = b.t().contiguous().t()
        return {
            "oneDNN (torch.mm, out=)": lambda: torch.mm(a, b, out=out),
            "oneDNN (torch.mm, out=, B column-major)": lambda: torch.mm(a, turned, out=out),
        }
    a, b = (torch.randint(-128, 128, (n, n), dtype=torch.int8) for _ in range(2))
    out = torch.empty(n, n, dtype=torch.int32)
    turned = b.t().contiguous().t()
    return {
        "oneDNN (torch._int_mm, out=)": lambda: torch._int_mm(a, b, out=out),
        "oneDNN (torch._int_mm, out=, B column-major)": lambda: torch._int_mm(a, turned, out=out),
    }


def run(folder: Path, timing: bool, chosen: Iterable[Cell] | None = None) -> dict[str, Any]:
    """Check every cell, or the ``chosen`` ones, at every size; time the schedules for speed against
    the peers.
    """
    rows: list[dict[str, Any]] = []
    for cell in chosen or cells():
        kernel = load(cell.path(folder), trust=True)
        errors = {f"{m}x{n}x{k}": check(kernel, cell.problem(m, n, k)) for m, n, k in SIZES}
        limit = 2e-3 if cell.types[0] == "bf16" else 0.0
        rows.append({"cell": cell.name, "errors": errors, "passed": max(errors.values()) <= limit})
    result: dict[str, Any] = {"rows": rows, "times": {}}
    if timing:
        threads = len(os.sched_getaffinity(0))
        result |= {"date": str(date.today()), "processor": processor(), "threads": threads}
        result |= {"torch": torch_version(), "compiler": compiler()}
        for count in (1, threads):
            if result["torch"]:
                import torch

                torch.set_num_threads(count)
            for types in TIMED:
                result["times"][f"{types[0]} {count}"] = times_of(folder, types, count)
    return result


def torch_version() -> str:
    """Empty where torch is not installed: nothing is timed beside ours then."""
    try:
        import torch
    except ImportError:
        return ""
    return str(torch.__version__)


def compiler() -> str:
    """The C compiler's first line about itself."""
    found = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()[0]


def times_of(folder: Path, types: tuple[str, str], threads: int) -> dict[str, Any]:
    """Ours in both layouts, software-pipelined and not, and the peers."""
    calls: dict[str, Callable[[], object]] = {}
    errors: dict[str, float] = {}
    n, plain = TIMED_SIZE, "blocked" if threads == 1 else "blocked_parallel"
    for layout in LAYOUTS:
        problem = Cell(types, layout, plain).problem(n, n, n)
        arrays, _ = operands(problem, seed=1)
        arrays = {name: aligned(array) for name, array in arrays.items()}
        for schedule, said in ((plain, ""), (f"{plain}_pipelined", ", pipelined")):
            kernel = load(Cell(types, layout, schedule).path(folder), trust=True)
            out = aligned(poisoned(problem.output, np))
            name = f"ours, B in {layout} order{said}"
            errors[name] = check(kernel, problem)
            calls[name] = lambda k=kernel, a=arrays, o=out: k(**a, out=o)
    found = timed(calls | peers(types[0]), threads)
    return {name: times | {"error": errors.get(name)} for name, times in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, help="where build put the kernels")
    parser.add_argument("--no-times", action="store_true", help="check the numbers only")
    parser.add_argument("--results", metavar="FILE", type=Path, help="write what was found as JSON")
    options = parser.parse_args()
    found = run(options.folder, not options.no_times)
    if options.results:
        options.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return report(found)


def report(found: dict[str, Any]) -> int:
    """Print what ``run`` found; the exit code."""
    print(json.dumps(found["times"], indent=1))
    failed = [row for row in found["rows"] if not row["passed"]]
    print(f"{len(found['rows']) - len(failed)} of {len(found['rows'])} kernels right")
    for row in failed:
        print(row)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
