"""All GPU tests and benchmarks of the case studies from saved kernels, in one call.

    python tests/gpu/run_all.py [--artifacts artifacts] [--results results.json] [--only conv1d]
    [--match REGEX]
                                [--small] [--no-peers] [--sanitize] [--seed N]

Needs NumPy, CuPy and, for the peers, torch; neither Halide nor the rule engine. Small sizes are
checked, benchmark sizes checked and timed, with stock Halide's baseline and the libraries in the
same run. ``--sanitize`` repeats the small sizes under compute-sanitizer's memcheck and racecheck.
Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from casestudies.common import artifacts  # noqa: E402
from casestudies.common.measure import Contender, Row, measure, peer, table  # noqa: E402
from casestudies.common.registry import find_case  # noqa: E402
from casestudies.common.stock_call import StockLibrary  # noqa: E402

TOOLS = ("memcheck", "racecheck")


def kernel_contender(kernel: Any) -> Contender:
    return Contender("tensor", kernel.target.name, lambda i, o: lambda: kernel(**i, out=o))


def stock_contender(path: Path, problem: Any, order: tuple[str, ...]) -> Contender:
    library = StockLibrary(path)
    library.use_cupy()
    return Contender("stock Halide", "CUDA cores", lambda i, o: library.bind(order, problem, i, o))


class Session:
    """The artifacts of a folder, loaded once."""

    def __init__(self, options: argparse.Namespace) -> None:
        import selector

        self.options = options
        self.manifest = artifacts.read(options.artifacts)
        self.kernels: dict[str, list[Any]] = {}
        for saved in self.manifest.kernels:
            kernel = selector.load(options.artifacts / saved.file)
            self.kernels.setdefault(saved.program, []).append(kernel)
        self.stock = {s.problem: s for s in self.manifest.stock}

    def contenders(self, entry: artifacts.Job, problem: Any) -> Iterator[Contender]:
        for kernel in self.kernels.get(problem.program, ()):
            yield kernel_contender(kernel)
        if entry.kind != "benchmark":
            return
        saved = self.stock.get(problem.name)
        if saved is not None:
            yield stock_contender(self.options.artifacts / saved.file, problem, saved.order)
        case = find_case(entry.case)
        if not self.options.no_peers and problem in case.compared:
            yield from (peer(problem, p) for p in case.peers)

    def run(self, entry: artifacts.Job) -> list[Row]:
        problem = artifacts.problem_of(entry)
        case = find_case(entry.case)
        contenders = list(self.contenders(entry, problem))
        rows = measure(case, problem, contenders, self.options.seed, entry.kind == "benchmark")
        if not self.kernels.get(problem.program):
            size = sum(s.bytes for s in (*problem.inputs, problem.output))
            missing = "not in the artifacts: it did not compile"
            rows.insert(0, Row(case.name, problem.name, "tensor", "", None, 0.0, None, size,
                               problem.multiply_adds, missing))  # fmt: skip
        return rows


def free_memory() -> None:
    """Give CuPy's and torch's pools back, so that each problem finds the whole memory."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()


def run_jobs(session: Session, options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for entry in session.manifest.jobs:
        if options.only and entry.case not in options.only.split(","):
            continue
        if options.small and entry.kind != "small":
            continue
        if not re.search(options.match, artifacts.problem_of(entry).name):
            continue
        begin = time.perf_counter()
        found = session.run(entry)
        free_memory()
        rows += found
        seconds = f"({time.perf_counter() - begin:.1f} s)"
        print(table(found).split("\n", 1)[1], seconds, flush=True)
    return rows


def sanitize(options: argparse.Namespace) -> dict[str, str]:
    """The small sizes under each tool of compute-sanitizer: ``clean``, or the last lines of what it
    says.
    """
    if shutil.which("compute-sanitizer") is None:
        return dict.fromkeys(TOOLS, "compute-sanitizer is not installed")
    verdicts = {}
    for tool in TOOLS:
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable]
        command += [__file__, "--artifacts", str(options.artifacts), "--small"]
        command += [
            "--only",
            options.only,
            "--match",
            options.match,
            "--seed",
            str(options.seed),
            "--results",
            "",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("=====")]
        verdicts[tool] = "clean" if done.returncode == 0 else "\n".join(lines[-30:])
        print(f"{tool}: {verdicts[tool]}", flush=True)
    return verdicts


def speed_ups(rows: list[Row]) -> str:
    """How much faster than stock Halide and than the best library each kernel is."""
    lines = []
    by_problem: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.timing is not None and not row.failure:
            by_problem.setdefault(row.problem, {})[row.contender] = row.timing.median
    for problem, times in by_problem.items():
        ours, stock = times.get("tensor"), times.get("stock Halide")
        if ours is None:
            continue
        others = {n: t for n, t in times.items() if n not in ("tensor", "stock Halide")}
        best = min(others, key=lambda n: others[n], default=None)
        against = f"  {stock / ours:5.2f}x stock Halide" if stock else ""
        library = f"  {others[best] / ours:5.2f}x {best}" if best else ""
        lines.append(f"{problem:28} {ours:9.2f} us{against}{library}")
    return "\n".join(lines)


def device() -> str:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return f"{properties['name'].decode()}, CUDA {cupy.cuda.runtime.driverGetVersion()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifacts", type=Path, default=ROOT / "artifacts")
    parser.add_argument("--results", default="results.json", help="file for the results as data")
    parser.add_argument("--only", default="", help="cases, with commas between them")
    parser.add_argument("--match", default="", help="only problems whose name holds this (regex)")
    parser.add_argument("--small", action="store_true", help="only the small sizes, untimed")
    parser.add_argument("--no-peers", action="store_true", help="leave out the libraries")
    parser.add_argument("--sanitize", action="store_true", help="run compute-sanitizer as well")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random inputs")
    options = parser.parse_args()
    begin = time.perf_counter()
    print(f"{device()}, seed {options.seed}", flush=True)
    rows = run_jobs(Session(options), options)
    verdicts = sanitize(options) if options.sanitize else {}
    if options.results:
        data = {
            "device": device(),
            "seed": options.seed,
            "rows": [row.as_dict() for row in rows],
            "sanitizer": verdicts,
        }
        Path(options.results).write_text(json.dumps(data, indent=1), encoding="utf-8")
    wrong = [row for row in rows if not row.passed]
    wrong_tools = [tool for tool, verdict in verdicts.items() if verdict != "clean"]
    print(f"\n{speed_ups(rows)}\n")
    if wrong:
        print(table(wrong))
    good = len(rows) - len(wrong)
    print(f"{good} passed, {len(wrong)} failed in {time.perf_counter() - begin:.0f} s")
    return 1 if wrong or wrong_tools else 0


if __name__ == "__main__":
    sys.exit(main())
