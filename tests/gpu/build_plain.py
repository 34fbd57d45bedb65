"""Compile plain pipelines as ``autoschedule`` schedules them, for ``check_plain.py`` and
``run_plain.py``.

    python tests/gpu/build_plain.py FOLDER [--target sm_90a] [--match REGEX] [--jobs] [--missing]
        [--workers N]

Needs Halide, no GPU. Sizes are not told: a kernel takes any. Beside each kernel stand its schedule
(``.txt``), and its small arguments with what Halide's own compiler makes of them (``.npz``). With
``--jobs`` the kernels are instead those of ``run_plain.py``, which needs torch's types: one for
each job, by ``schedule="auto"``, of the class of its sizes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "schedules"), str(ROOT / "tests")]

from plain_pipelines import Plain  # noqa: E402
from test_plain_pipelines import PIPELINES, by_halide  # noqa: E402

import halide_bridge as hb  # noqa: E402
from halide_bridge.names import plain  # noqa: E402


def save_case(path: Path, case: Plain, wanted: list[Any]) -> None:
    """Arrays by name, and in ``about`` the numbers, the sizes and how exact results have to be."""
    named = {p.name(): value for p, value in case.arguments}
    arrays = {f"argument {n}": v for n, v in named.items() if isinstance(v, np.ndarray)}
    arrays |= {f"result {i}": v for i, v in enumerate(wanted)}
    numbers = {n: v for n, v in named.items() if not isinstance(v, np.ndarray)}
    about = {"numbers": numbers, "sizes": case.sizes, "tolerance": case.tolerance}
    np.savez(path, about=np.array(json.dumps(about)), **arrays)


def build_pipeline(folder: Path, target: str, name: str) -> str:
    case = PIPELINES[name]()
    schedule = hb.autoschedule(case.outputs, target=target)
    kernel = hb.compile(case.outputs, target=target, name=name)
    (folder / f"{name}.txt").write_text(f"{schedule.report}\n\n{schedule.source}")
    save_case(folder / f"{name}.npz", case, by_halide(PIPELINES[name]()))
    kernel.save(folder / f"{name}.kernel", overwrite=True)
    return name


def build_job(folder: Path, target: str, at: int) -> str:
    """Of a job, at its sizes."""
    job, begin = jobs()[at], time.perf_counter()
    outputs = PIPELINES[job.pipeline]().outputs
    funcs = outputs if isinstance(outputs, list) else [outputs]
    sizes = {n: shape for n, (shape, _) in job.inputs.items()}
    sizes |= {n or plain(funcs[0].name()): shape for n, (shape, _) in job.outputs.items()}
    kernel = hb.compile(outputs, target=target, name=job.pipeline, schedule="auto", sizes=sizes)
    kernel.save(folder / f"{job.slug}.kernel", overwrite=True)
    seconds = time.perf_counter() - begin
    schedule = hb.autoschedule(outputs, target=target, sizes=sizes)
    (folder / f"{job.slug}.txt").write_text(f"{schedule.report}\n\n{schedule.source}")
    return f"{job.name}: {seconds:.1f} s"


def jobs() -> list[Any]:
    from plain_all_jobs import JOBS

    return [*JOBS]


def apart(workers: int, build: Any, tasks: list[Any]) -> Iterator[str]:
    if workers < 2:
        yield from map(build, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(build, tasks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--match", default="", help="only those whose name holds this (regex)")
    parser.add_argument("--jobs", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--missing", action="store_true", help="only those that are not there")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.jobs:
        named = [(at, job.name, job.slug) for at, job in enumerate(jobs())]
    else:
        named = [(name, name, name) for name in PIPELINES]
    there = {p.stem for p in options.folder.glob("*.kernel")} if options.missing else set[str]()
    build = partial(build_job if options.jobs else build_pipeline, options.folder, options.target)
    asked = [(task, file) for task, name, file in named if re.search(options.match, name)]
    tasks = [task for task, file in asked if file not in there]
    for said in apart(options.workers, build, tasks):
        print(said, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
