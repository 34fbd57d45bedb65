"""All GPU tests and benchmarks of the case studies from saved kernels, in one call.

    python tests/gpu/run_all.py [--artifacts artifacts] [--results results.json] [--only conv1d]
                                [--match REGEX] [--small | --timed] [--no-peers]
                                [--sanitize [memcheck|racecheck ...]] [--seed N]

Needs NumPy, CuPy and, for the peers, torch; neither Halide nor the rule engine. Small sizes are
checked, benchmark sizes checked and timed, with stock Halide's baseline and the libraries in the
same run, each problem in a process that may be lost. ``--sanitize`` repeats the small sizes under
compute-sanitizer's memcheck and racecheck, of which the latter knows the hardware's barriers, not
those that kernels compiled under ``SELECTOR_PATIENCE`` count themselves. Exit code 1 if anything is
wrong.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from casestudies.measuring import artifacts  # noqa: E402
from casestudies.measuring.measure import table  # noqa: E402
from casestudies.measuring.record import Record, speed_ups  # noqa: E402
from casestudies.measuring.tasks import Choice, tasks_of  # noqa: E402
from casestudies.measuring.worker import measure_here, supervise  # noqa: E402

TOOLS = ("memcheck", "racecheck")


def choice(options: argparse.Namespace) -> Choice:
    kinds = ("small", "benchmark")
    if options.small or options.timed:
        kinds = ("small",) if options.small else ("benchmark",)
    cases = tuple(filter(None, options.only.split(",")))
    return Choice(cases, options.match, kinds, not options.no_peers)


def sanitize(options: argparse.Namespace) -> dict[str, str]:
    """The small sizes under each tool of compute-sanitizer: ``clean``, or the last lines of what it
    says.
    """
    if shutil.which("compute-sanitizer") is None:
        return dict.fromkeys(TOOLS, "compute-sanitizer is not installed")
    verdicts = {}
    for tool in options.sanitize or TOOLS:
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
        command += [sys.executable, __file__, "--here"]
        command += ["--artifacts", str(options.artifacts), "--small", "--only", options.only]
        command += ["--match", options.match, "--seed", str(options.seed), "--results", ""]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("=====")]
        verdicts[tool] = "clean" if done.returncode == 0 else "\n".join(lines[-30:])
        print(f"{tool}: {verdicts[tool]}", flush=True)
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--artifacts", type=Path, default=ROOT / "artifacts", help="folder whose code is run"
    )
    parser.add_argument("--results", default="results.json", help="file for the results as data")
    parser.add_argument("--only", default="", help="cases, with commas between them")
    parser.add_argument("--match", default="", help="only problems whose name holds this (regex)")
    parser.add_argument("--small", action="store_true", help="only the small sizes, untimed")
    parser.add_argument("--timed", action="store_true", help="only the benchmark sizes")
    parser.add_argument("--no-peers", action="store_true", help="leave out the libraries")
    parser.add_argument(
        "--sanitize", nargs="*", choices=TOOLS, metavar="TOOL", help="run compute-sanitizer as well"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random inputs")
    parser.add_argument("--patience", type=float, default=120, help="seconds for one job")
    parser.add_argument("--here", action="store_true", help="no processes that may be lost")
    parser.add_argument("--purse", type=float, default=200, help="seconds for all libraries")
    options = parser.parse_args()
    begin = time.perf_counter()
    record = Record(Path(options.results) if options.results else None, options.seed)
    tasks = tasks_of(artifacts.read(options.artifacts), choice(options))
    print(f"{len(tasks)} jobs, seed {options.seed}", flush=True)
    if options.here:
        measure_here(tasks, options.artifacts, options.seed, record, options.purse)
    else:
        supervise(tasks, options.artifacts, options.seed, record, options.patience, options.purse)
    record.about["sanitizer"] = {} if options.sanitize is None else sanitize(options)
    record.write()
    wrong_tools = [t for t, verdict in record.about["sanitizer"].items() if verdict != "clean"]
    print(f"\n{record.about.get('device')}\n{speed_ups(record.rows)}\n")
    if record.wrong:
        print(table(record.wrong))
    if record.about.get("left_out"):
        print("left out, the libraries' time being spent:", *record.about["left_out"], sep="\n  ")
    good = len(record.rows) - len(record.wrong)
    print(f"{good} passed, {len(record.wrong)} failed in {time.perf_counter() - begin:.0f} s")
    return 1 if record.wrong or wrong_tools else 0


if __name__ == "__main__":
    sys.exit(main())
