"""The command ``host-time``: what a call costs the host, beside other launchers in the same run.

A call returns when its launches are in the GPU's queue. Calls are timed in batches, each of which
begins with an empty queue and is too short to fill it, so that no call waits for the GPU.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from casestudies.common.case import Case, Problem, bytes_of
from casestudies.common.data import case_inputs
from casestudies.common.registry import find_case
from casestudies.common.runner import choose_device
from casestudies.measuring import artifacts
from casestudies.measuring.machine import graphics
from casestudies.measuring.tasks import Choice, Task, tasks_of
from selector.diagnostics import UserError

BATCHES, CALLS = 200, 20
FEWEST, SECONDS = 20, 0.5  # batches of a contender that keeps the GPU busy for long
LARGEST = 1 << 30  # bytes of a problem: the host does not see how large it is
Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class HostTime:
    """Microseconds of the host for a call: the median of all batches, and their tenth percentile.
    ``way`` is how a kernel of ours is called; ``launches`` is 0 where they are a library's own
    business.
    """

    problem: str
    contender: str
    way: str
    launches: int
    median: float
    p10: float


def host_time(call: Call, synchronize: Call) -> tuple[float, float]:
    """Median and tenth percentile of the batches, in microseconds for a call."""
    for _ in range(CALLS):
        call()
    batches: list[float] = []
    gc.collect()
    gc.disable()
    end = time.perf_counter() + SECONDS
    try:
        while len(batches) < BATCHES and (len(batches) < FEWEST or time.perf_counter() < end):
            synchronize()
            begin = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            batches.append((time.perf_counter_ns() - begin) / 1e3 / CALLS)
    finally:
        gc.enable()
        synchronize()
    return statistics.median(batches), statistics.quantiles(batches, n=10)[0]


def torch_of_gpus() -> Any:
    """torch, or None where it is not installed or has no GPU."""
    try:
        from casestudies.common.gpu_torch import torch
    except ImportError:
        return None
    return torch


def our_calls(case: Case, problem: Problem, kernel: Any, seed: int) -> Iterator[tuple[str, Call]]:
    """Calls of a kernel with CuPy's arrays and torch's, into an array and into new ones."""
    import cupy

    inputs = case_inputs(case, problem, seed, cupy)
    output = cupy.empty(problem.output.shape, problem.output.dtype)
    yield "CuPy, out=", lambda: kernel(**inputs, out=output)
    sizes = problem.output.shape
    yield "CuPy", lambda: kernel(**inputs, sizes=sizes)
    torch = torch_of_gpus()
    if torch is None:
        return
    tensors = {name: torch.as_tensor(array, device="cuda") for name, array in inputs.items()}
    tensor = torch.as_tensor(output, device="cuda")
    yield "torch, out=", lambda: kernel(**tensors, out=tensor)
    yield "torch", lambda: kernel(**tensors, sizes=sizes)


def other_launchers() -> Iterator[tuple[str, Call]]:
    """Triton's launcher and torch's product of small matrices, where they are installed."""
    torch = torch_of_gpus()
    if torch is None:
        return
    a, b, c = (torch.ones((128, 128), dtype=torch.float16, device="cuda") for _ in range(3))
    yield "torch.mm, out=", lambda: torch.mm(a, b, out=c)
    yield "torch.mm", lambda: torch.mm(a, b)
    try:
        from casestudies.measuring.triton_kernel import add
    except ImportError:
        return
    launch = add[(16,)]
    yield "Triton", lambda: launch(a, b, c, a.numel(), BLOCK=1024)


def one_of_each_program(tasks: list[Task]) -> Iterator[Task]:
    """The smallest problem of each program."""
    seen: dict[str, Task] = {}
    for task in tasks:
        problem = task.instance()
        known = seen.get(problem.program)
        if known is None or bytes_of(problem) < bytes_of(known.instance()):
            seen[problem.program] = task
    yield from (task for task in seen.values() if bytes_of(task.instance()) <= LARGEST)


def measure(tasks: list[Task], folder: Path, seed: int) -> Iterator[HostTime]:
    """Host times of the other launchers, then of all kernels of the tasks."""
    import cupy

    from selector import load

    synchronize: Call = cupy.cuda.Device().synchronize
    for name, call in other_launchers():
        yield HostTime("", name, "", 0, *host_time(call, synchronize))
    for task in one_of_each_program(tasks):
        problem = task.instance()
        for schedule, file in task.kernels:
            kernel = load(folder / file, trust=True)
            for name, call in our_calls(task.study, problem, kernel, seed):
                median, p10 = host_time(call, synchronize)
                launches = len(kernel.plan.launches)
                yield HostTime(problem.name, schedule, name, launches, median, p10)


def host_times(options: argparse.Namespace) -> int:
    """Measure, print rows as they come; the exit code."""
    names = tuple(find_case(name).name for name in options.names if name != "all")
    choose_device("gpu")
    tasks = tasks_of(artifacts.read(options.artifacts), Choice(names, options.match, peers=False))
    if not any(task.kernels for task in tasks):
        raise UserError("there is no kernel to call", hint="see manifest.json of the artifacts")
    way = "native" if find_spec("selector.runtime._launch") else "Python"
    about: dict[str, Any] = {"date": datetime.date.today().isoformat(), **graphics()}
    about |= {"launcher": way, "batches": BATCHES, "calls": CALLS}
    print(f"{about['device']}, {way} launcher; microseconds of the host for a call")
    print(f"{'problem':36} {'contender':24} {'call':12} {'launches':>8} {'median':>8} {'p10':>8}")
    rows: list[HostTime] = []
    for row in measure(tasks, options.artifacts, options.seed):
        rows.append(row)
        launches = str(row.launches or "")
        print(
            f"{row.problem:36} {row.contender:24} {row.way:12} {launches:>8} {row.median:8.2f} "
            f"{row.p10:8.2f}",
            flush=True,
        )
    if options.out is not None:
        data = about | {"rows": [asdict(row) for row in rows]}
        options.out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0
