"""Compile plain pipelines as Halide's own autoscheduler Anderson2021 schedules them, for
``run_plain.py --halide``.

    python tests/gpu/build_halide.py FOLDER [--match REGEX]

Needs Halide's wheel, a C compiler, torch's types and no GPU: of each job a shared library for the
GPU machine, with Halide's runtime, which works on torch's context and stream (``halide_shim.c``),
and the order of its arguments (``.json``). The schedule is the one that the search finds first.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
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


def estimates(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(0, n) for n in reversed(shape)]


def compiled(job: Job, path: Path, runtime: Path) -> None:
    """RuntimeError of Halide for what its search cannot schedule."""
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
    target, pipeline = hl.Target(TARGET), hl.Pipeline(outputs)
    asked = hl.AutoschedulerParams("Anderson2021", {"parallelism": "132"})
    pipeline.apply_autoscheduler(target, asked)
    own = path.with_suffix(".o")
    arguments = [p for p, _ in case.arguments]
    pipeline.compile_to({hl.OutputFileType.object: str(own)}, arguments, SYMBOL, target)
    shim = Path(__file__).with_name("halide_shim.c")
    command = ["cc", "-shared", "-fPIC", "-O2", "-s", "-o", path, shim, own, runtime, "-ldl"]
    subprocess.run([*command, "-lpthread"], check=True)
    own.unlink()
    names = [p.name() for p in arguments]
    path.with_suffix(".json").write_text(json.dumps(names))


def plugin() -> Path:
    return next(Path(hl.__file__).parent.glob("lib*/libautoschedule_anderson2021.so"))


def main(asked: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="", help="only jobs whose name holds this (regex)")
    options = parser.parse_args(asked)
    options.folder.mkdir(parents=True, exist_ok=True)
    hl.load_plugin(str(plugin()))
    with tempfile.TemporaryDirectory() as work:
        runtime: Any = Path(work) / "runtime.o"
        hl.compile_standalone_runtime(str(runtime), hl.Target(TARGET))
        for job in JOBS:
            if not re.search(options.match, job.name):
                continue
            begin = time.perf_counter()
            try:
                compiled(job, options.folder / f"{job.slug}.so", runtime)
            except (RuntimeError, hl.HalideError, subprocess.CalledProcessError) as error:
                print(f"{job.name}: {str(error).splitlines()[0]}", flush=True)
                continue
            print(f"{job.name}: {time.perf_counter() - begin:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
