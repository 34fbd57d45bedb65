"""The command ``bench``: cases, baselines and libraries side by side, from saved kernels or
compiled on the spot.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from casestudies.common.options import chosen, problem_of
from casestudies.common.progress import say, step
from casestudies.common.registry import NAMES, find_case, gpu_cases, gpu_schedules
from casestudies.common.runner import choose_device
from casestudies.measuring import artifacts
from casestudies.measuring.machine import graphics, has_amx
from casestudies.measuring.record import Record, speed_ups
from casestudies.measuring.tasks import Choice, tasks_of
from casestudies.measuring.worker import supervise
from selector.diagnostics import UserError

ARTIFACTS = Path("artifacts")
FOLDER = Path("out", "bench")  # of the files that ``--all`` leaves


def bench_cases(options: argparse.Namespace) -> int:
    """Measure, print rows as they come; the exit code."""
    everything = options.all or options.names == ["all"]
    if not everything and not options.names:
        raise UserError("bench needs the names of cases, or --all", hint=", ".join(NAMES))
    names = tuple(c.name for c in gpu_cases()) if everything else tuple(options.names)
    cases = [find_case(name) for name in names]
    if len(cases) == 1 and not gpu_schedules(cases[0]):
        return _bench_cpu()
    choose_device("gpu")
    folder = options.out or (FOLDER if everything else None)
    path = folder / "bench.json" if folder else None
    record = Record(path, options.seed, stream=sys.stderr if options.json else sys.stdout)
    saved = _saved(options, everything)
    if saved is not None:
        tasks = tasks_of(artifacts.read(saved), Choice(names, kinds=("benchmark",)))
        supervise(tasks, saved, options.seed, record)
    else:
        from casestudies.measuring.live import bench

        record.about |= graphics()
        for case in cases:
            own = (problem_of(case, options, options.size),) if chosen(options) else case.benchmark
            for problem in own:
                for row in bench(case, problem, options.seed, options.schedule, options.target):
                    record.add(row)
    _finish(record, folder, options)
    return 1 if record.wrong else 0


def _bench_cpu() -> int:
    """The matrix product on AMX tiles is measured on this CPU, by its own bench."""
    from casestudies.amx_matmul.bench import FAST, report, run
    from casestudies.amx_matmul.build import build

    if not has_amx():
        raise UserError(
            "this CPU has no AMX tiles",
            why="times of tiles in software say nothing about the hardware",
            hint="python -m casestudies run amx_matmul checks the numbers on any CPU",
        )
    with tempfile.TemporaryDirectory() as folder:
        with step("compile"):
            build(Path(folder), FAST)
        with step("measure"):
            found = run(Path(folder), timing=True, chosen=FAST)
    return report(found)


def _saved(options: argparse.Namespace, everything: bool) -> Path | None:
    """The folder of saved kernels to take, if any: the one that is named, or for all the usual
    one.
    """
    special = chosen(options) or options.schedule or options.target
    if options.artifacts is not None and special:
        raise UserError(
            "saved kernels are those of the benchmark problems",
            hint="leave out --artifacts, or the options of the problem",
        )
    if options.artifacts is None and everything and not special:
        return ARTIFACTS if (ARTIFACTS / artifacts.MANIFEST).exists() else None
    found: Path | None = options.artifacts
    return found


def _finish(record: Record, folder: Path | None, options: argparse.Namespace) -> None:
    record.write()
    if options.json:
        print(json.dumps(record.as_dict(), indent=1))
    else:
        print(f"\n{speed_ups(record.rows)}")
    if folder is not None:
        from casestudies.results.render import write_report

        for path in write_report(record.as_dict(), folder):
            say(f"written: {path}")
