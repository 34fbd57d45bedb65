"""Hardware counters of saved kernels, by Nsight Compute (ncu), on the GPU machine.

    python tests/gpu/profile_kernels.py [--artifacts artifacts] [--results counters.json] REGEX ...

Every benchmark problem whose name holds one of the patterns is run once under ncu; for each launch
of ours a line tells time, what the memory, the tensor unit and the issue slots were busy with, and
why warps waited. Times under ncu are those of single cold launches. Needs NumPy and CuPy.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from casestudies.measuring import artifacts  # noqa: E402
from casestudies.measuring.tasks import Choice, Task, tasks_of  # noqa: E402

METRICS = {
    "gpu__time_duration.sum": "us",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM %",
    "lts__t_sector_hit_rate.pct": "L2 hit %",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed": "shared %",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "bank conflicts",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": "tensor %",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue %",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps %",
    "launch__registers_per_thread": "registers",
    "launch__grid_size": "blocks",
    "launch__waves_per_multiprocessor": "waves",
}
STALLS = ("long_scoreboard", "short_scoreboard", "barrier", "mio_throttle", "lg_throttle",
          "math_pipe_throttle", "wait", "not_selected", "membar", "gmma", "sleeping")  # fmt: skip
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def run_once(folder: Path, pattern: str) -> None:
    """Run the kernels of the matching problems once each, on random data."""
    import cupy

    import selector
    from casestudies.common.data import case_inputs, poisoned

    for task in chosen(folder, pattern):
        case, problem = task.study, task.instance()
        inputs = case_inputs(case, problem, 1, cupy)
        output = poisoned(problem.output, cupy)
        cupy.cuda.Device().synchronize()
        for _, file in task.kernels:
            print(f"begin {problem.name}", flush=True)
            selector.load(folder / file)(**inputs, out=output)
            cupy.cuda.Device().synchronize()


def chosen(folder: Path, pattern: str) -> list[Task]:
    manifest = artifacts.read(folder)
    return tasks_of(manifest, Choice((), pattern, ("benchmark",), peers=False))


def counters(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """One row for each launch: kernel, and the values of METRICS and STALLS."""
    wanted = [*METRICS, *(STALL.format(s) for s in STALLS)]
    command = ["ncu", "--csv", "--page", "raw", "--clock-control", "none", "-k", "regex:^kernel_"]
    command += ["--metrics", ",".join(wanted), sys.executable, __file__]
    command += ["--child", "--artifacts", str(folder), pattern]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode or not lines:
        raise SystemExit(f"ncu failed: {(done.stdout + done.stderr)[-2000:]}")
    rows = list(csv.DictReader(lines))
    units, launches = rows[0], rows[1:]
    problems = re.findall(r"^begin (\S+)", done.stdout, re.MULTILINE)
    return [
        {
            "problems": problems,
            "kernel": row["Kernel Name"],
            **{label: value(row, units, name) for name, label in METRICS.items()},
            "stalls": {s: value(row, units, STALL.format(s)) for s in STALLS},
        }
        for row in launches
    ]


def value(row: dict[str, str], units: dict[str, str], name: str) -> float | None:
    """A counter as a number, times in microseconds; None where ncu has none."""
    try:
        number = float(row[name].replace(",", ""))
    except (KeyError, ValueError):
        return None
    scale = {"ns": 1e-3, "nsecond": 1e-3, "ms": 1e3, "msecond": 1e3}.get(units.get(name, ""), 1.0)
    return number * scale


def show(row: dict[str, Any]) -> str:
    numbers = "  ".join(
        f"{label} {row[label]:.4g}" for label in METRICS.values() if row[label] is not None
    )
    stalls = sorted(((v or 0.0, s) for s, v in row["stalls"].items()), reverse=True)[:4]
    return f"{row['kernel']}: {numbers}\n    waits: " + ", ".join(f"{s} {v:.2f}" for v, s in stalls)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="+", metavar="REGEX")
    parser.add_argument("--artifacts", type=Path, default=ROOT / "artifacts")
    parser.add_argument("--results", type=Path, help="file for the counters as data")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_once(options.artifacts, options.patterns[0])
        return 0
    if shutil.which("ncu") is None:
        print("error: ncu is not installed", file=sys.stderr)
        return 2
    found: list[dict[str, Any]] = []
    for pattern in options.patterns:
        print(pattern, flush=True)
        for row in counters(options.artifacts, pattern):
            found.append({"pattern": pattern, **row})
            print(f"  {show(row)}", flush=True)
    if options.results:
        options.results.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
