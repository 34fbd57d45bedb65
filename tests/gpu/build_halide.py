"""Compile plain pipelines as Halide's own autoscheduler Anderson2021 schedules them, for
``run_plain.py --halide``.

    python tests/gpu/build_halide.py FOLDER [--match REGEX] [--probes N] [--workers N] [--seconds N]

Needs Halide's wheel, a C compiler, torch's types and no GPU: of each job shared libraries for the
GPU machine (``NAME.0.so``), with Halide's runtime, which works on torch's context and stream
(``halide_shim.c``), and the order of their arguments (``NAME.json``). The first schedule is the
one that the search finds; the next ones (``--probes``) are random, as in Halide's own tuning: a
greedy search that drops most of what it meets. After ``--seconds`` none is begun; what is there
is left as it is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "schedules"), str(ROOT / "tests")]

import halide as hl  # noqa: E402
from plain_all_jobs import JOBS  # noqa: E402
from plain_jobs import Job  # noqa: E402
from test_plain_pipelines import PIPELINES  # noqa: E402

from halide_bridge.names import plain  # noqa: E402

TARGET = "x86-64-linux-cuda-cuda_capability_80-no_asserts-no_bounds_query"
SYMBOL = "pipeline"
LONGEST = 60  # seconds for one schedule
SEARCH = {"parallelism": "132"}
PROBE = SEARCH | {"beam_size": "1", "num_passes": "1", "random_dropout": "1"}


def estimates(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(0, n) for n in reversed(shape)]


def told(job: Job) -> tuple[hl.Pipeline, list[Any]]:
    """A job's pipeline with its sizes, and its arguments."""
    case = PIPELINES[job.pipeline]()
    outputs = case.outputs if isinstance(case.outputs, list) else [case.outputs]
    for parameter, value in case.arguments:
        shape = job.inputs.get(parameter.name())
        if shape is None:
            parameter.set_estimate(value)
        else:
            parameter.set_estimates(estimates(shape[0]))
    for func in outputs:
        shape = job.outputs.get("") or job.outputs[plain(func.name())]
        func.set_estimates(estimates(shape[0]))
    return hl.Pipeline(outputs), [p for p, _ in case.arguments]


def compiled(job: Job, path: Path, runtime: Path, options: Mapping[str, str]) -> None:
    """RuntimeError of Halide for what its search cannot schedule."""
    target, (pipeline, arguments) = hl.Target(TARGET), told(job)
    pipeline.apply_autoscheduler(target, hl.AutoschedulerParams("Anderson2021", dict(options)))
    own, whole = path.with_suffix(".o"), path.with_suffix(".part")
    pipeline.compile_to({hl.OutputFileType.object: str(own)}, arguments, SYMBOL, target)
    shim = Path(__file__).with_name("halide_shim.c")
    command = ["cc", "-shared", "-fPIC", "-O2", "-s", "-o", whole, shim, own, runtime, "-ldl"]
    subprocess.run([*command, "-lpthread"], check=True)
    own.unlink()
    names = path.with_name(f"{job.slug}.json")
    names.write_text(json.dumps([p.name() for p in arguments]))
    whole.rename(path)


def attempt(folder: Path, runtime: Path, task: tuple[int, int]) -> str:
    """What came of a schedule of a job. Halide's search may abort: a process of its own has it."""
    (at, probe), begin = task, time.perf_counter()
    job = JOBS[at]
    options = PROBE | {"random_dropout_seed": str(probe)} if probe else SEARCH
    child = os.fork()
    if not child:
        signal.alarm(LONGEST)
        try:
            compiled(job, folder / f"{job.slug}.{probe}.so", runtime, options)
        except (RuntimeError, hl.HalideError, subprocess.CalledProcessError) as error:
            print(f"{job.name} ({probe}): {' '.join(str(error).split())[:200]}", flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        (folder / f"{job.slug}.{probe}.failed").touch()
    seconds = f"{time.perf_counter() - begin:.1f} s"
    return f"{job.name} ({probe}): {'failed after ' if status else ''}{seconds}"


def plugin() -> Path:
    return next(Path(hl.__file__).parent.glob("lib*/libautoschedule_anderson2021.so"))


def begin() -> None:
    hl.load_plugin(str(plugin()))


def tasks(options: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """Every search first, then the probes of all."""
    until = time.monotonic() + options.seconds
    for probe in range(options.probes + 1):
        for at, job in enumerate(JOBS):
            if time.monotonic() > until:
                return
            there = any(options.folder.glob(f"{job.slug}.{probe}.*"))
            if re.search(options.match, job.name) and not there:
                yield at, probe


def main(asked: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="", help="only jobs whose name holds this (regex)")
    parser.add_argument("--probes", type=int, default=0, help="random schedules, beside the first")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e6)
    options = parser.parse_args(asked)
    options.folder.mkdir(parents=True, exist_ok=True)
    begin()
    with tempfile.TemporaryDirectory() as work:
        runtime = Path(work) / "runtime.o"
        hl.compile_standalone_runtime(str(runtime), hl.Target(TARGET))
        one = partial(attempt, options.folder, runtime)
        if options.workers < 2:
            for task in tasks(options):
                print(one(task), flush=True)
            return 0
        start = multiprocessing.get_context("spawn")
        with start.Pool(options.workers, initializer=begin) as pool:
            for said in pool.imap_unordered(one, tasks(options)):
                print(said, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
