"""Compile every case study for the GPU tests, on a machine that needs no GPU.

    python tests/gpu/build_artifacts.py [--out artifacts] [--target sm_90a] [--only conv1d,gemm]
                                     [--no-stock] [--keep-stock] [--patience SECONDS]

Writes saved kernels, the stock Halide baselines and ``manifest.json``; ``tests/gpu/run_all.py``
runs them. Kernels that do not compile are reported at the end, and are missing from the manifest
(exit code 1). ``--out artifacts/patient --no-stock --patience 5``: kernels whose waits end, for the
runs under compute-sanitizer.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import halide_bridge as hb  # noqa: E402
from casestudies.common.registry import find_case, gpu_cases, gpu_schedules, is_stock  # noqa: E402
from casestudies.common.stock import argument_order, compile_shared  # noqa: E402
from casestudies.measuring import artifacts  # noqa: E402
from selector.diagnostics import UserError  # noqa: E402


def build_kernels(
    case: Any, schedule: str, target: str, folder: Path, failures: list[str]
) -> list[Any]:
    """One saved kernel for each program of a case."""
    programs = {p.program: p for p in (*case.small, *case.benchmark)}
    saved = []
    for program, problem in sorted(programs.items()):
        file = f"{program}-{schedule}-{target}.kernel".replace("-tensor", "")
        begin = time.perf_counter()
        try:
            output = case.scheduled(problem, schedule, target)
        except UserError as error:
            print(f"  no {schedule} for {program}: {error.what}", flush=True)
            continue
        try:
            kernel = hb.compile(output, target=target)
            kernel.save(folder / file, overwrite=True)
        except Exception as error:  # the others are still worth running
            failures.append(f"{program} for {target}: {type(error).__name__}: {error}")
            continue
        print(f"  {file} {time.perf_counter() - begin:.1f} s", flush=True)
        saved.append(artifacts.SavedKernel(case.name, program, target, file, schedule))
    return saved


def build_stock(
    case: Any, schedule: str, folder: Path, keep: bool, failures: list[str]
) -> list[Any]:
    """One baseline for each benchmark problem that stock Halide can compile; ``keep``: files that
    are there.
    """
    saved = []
    for problem in case.benchmark:
        file = f"{problem.name}{schedule.removeprefix('cuda')}.so"
        try:
            output = case.build(problem, schedule)
            order = argument_order(output)[:-1]
            if not (keep and (folder / file).exists()):
                compile_shared(output, folder / file)
        except UserError as error:
            print(f"  no baseline for {problem.name}: {error.what}", flush=True)
            continue
        except Exception as error:
            failures.append(f"{file}: {type(error).__name__}: {error}")
            continue
        print(f"  {file}", flush=True)
        saved.append(artifacts.SavedStock(case.name, problem.name, file, order, schedule))
    return saved


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "artifacts")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument(
        "--only",
        default=",".join(c.name for c in gpu_cases()),
        help="cases, with commas between them",
    )
    parser.add_argument("--no-stock", action="store_true", help="leave out the baselines")
    parser.add_argument("--keep-stock", action="store_true", help="do not rebuild baselines")
    parser.add_argument("--patience", help="seconds that a kernel waits at a barrier at most")
    options = parser.parse_args()
    if options.patience:
        os.environ["SELECTOR_PATIENCE"] = options.patience
    options.out.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    kernels: list[Any] = []
    stock: list[Any] = []
    jobs: list[Any] = []
    for name in options.only.split(","):
        case = find_case(name)
        print(name, flush=True)
        for schedule in gpu_schedules(case):
            if not is_stock(schedule):
                kernels += build_kernels(case, schedule, options.target, options.out, failures)
            elif not options.no_stock:
                keep = options.keep_stock
                stock += build_stock(case, schedule, options.out, keep, failures)
        jobs += [artifacts.job(name, "small", p) for p in case.small]
        jobs += [artifacts.job(name, "benchmark", p) for p in case.benchmark]
    artifacts.write(options.out, artifacts.Manifest(tuple(kernels), tuple(stock), tuple(jobs)))
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    print(f"{len(kernels)} kernels, {len(stock)} baselines, {len(jobs)} jobs in {options.out}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
