"""How long the case studies' programs take to compile, stage by stage.

    python tests/perf/compile_cases.py FOLDER --lower [--match conv1d]     # needs Halide
    python tests/perf/compile_cases.py FOLDER [--results compile_times.json]
    python tests/perf/compile_cases.py FOLDER --warm conv1d-k256-w128x10-1x8-t1-s1x1-3

The second command needs the rule engine and NVRTC, neither Halide nor a GPU, so that it can run
where kernels will. Each program is compiled three times with nothing remembered but the rules; the
median counts, of seconds that the processor works. Lowering is timed by the first command.

The third one compiles one program many times in one process, without NVRTC, and prints milliseconds
of the processor by stage: of the first time; of the median where statements of this kind are known,
but these are new; and of the median where these statements are known, too. Behind them stands what
printing the report takes, after compiling and from the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from casestudies.common.registry import gpu_cases  # noqa: E402

TARGET = "sm_90a"
UNCACHED = ("--no-cache",)  # beside a driver, NVRTC remembers what it has compiled
REPEATS = 3
WARM_REPEATS = 25
LOWERING = "lowering.json"


def programs() -> Iterator[tuple[Any, Any]]:
    """Case and problem of each program of the benchmarks, and of the small sizes of the tests."""
    for case in gpu_cases():
        problems = {p.program: p for p in (*case.small, *case.benchmark)}
        yield from ((case, problem) for problem in problems.values())


def lower_all(folder: Path, match: str) -> None:
    """Write each program's text, and what lowering it takes, without the user's own calls."""
    import halide_bridge as hb

    folder.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    for case, problem in programs():
        if match not in problem.program:
            continue
        output = case.scheduled(problem, "tensor", TARGET)
        (folder / f"{problem.program}.vir").write_text(str(hb.lower(output, target=TARGET)))
        samples: list[float] = []
        for _ in range(REPEATS):
            begin = time.process_time()
            hb.lower(output, target=TARGET)
            samples.append(time.process_time() - begin)
        seconds[problem.program] = statistics.median(samples)
    (folder / LOWERING).write_text(json.dumps(seconds, indent=1))


def compile_all(folder: Path) -> list[dict[str, Any]]:
    """Compile each program of the folder; a row each, printed as soon as it is known."""
    import selector
    from selector.eqsat.solve import forget
    from selector.ir.parser import parse_module
    from selector.runtime.nvrtc import compile_to_cubin

    lowering = json.loads((folder / LOWERING).read_text())
    rows: list[dict[str, Any]] = []
    for number, (program, lowered) in enumerate(lowering.items()):
        text = (folder / f"{program}.vir").read_text()
        samples: list[tuple[float, dict[str, float]]] = []
        for _ in range(REPEATS + (number == 0)):  # the first of all reads the rules
            module = parse_module(text)
            forget()
            begin = time.process_time()
            kernel = selector.compile(module, TARGET, cache=False)
            emitted = time.process_time()
            compile_to_cubin(kernel.source, TARGET, UNCACHED)
            end = time.process_time()
            samples.append((end - begin, {**kernel.stages, "nvrtc": end - emitted}))
        spent, stages = sorted(samples[-REPEATS:], key=itemgetter(0))[REPEATS // 2]
        row = {"program": program, "seconds": lowered + spent, "lower": lowered, **stages}
        parts = "  ".join(f"{k} {1e3 * v:.0f}" for k, v in row.items() if k not in ("program",))
        print(f"{program:44} {parts}", flush=True)
        rows.append(row)
    return rows


def compile_warm(folder: Path, program: str) -> None:
    """Compile one program again and again, and print the stages."""
    from selector.eqsat.solve import forget

    text = (folder / f"{program}.vir").read_text()
    lowered = json.loads((folder / LOWERING).read_text())[program]
    first = by_stage(text)
    known = [(forget(), by_stage(text))[1] for _ in range(WARM_REPEATS)]
    same = [by_stage(text) for _ in range(WARM_REPEATS)]
    print(f"{'milliseconds':24} " + "  ".join(f"{k:>7}" for k in ("lower", *first, "all")))
    for name, rows in (("first", [first]), ("of a known kind", known), ("known", same)):
        times = [lowered, *(statistics.median(r[k] for r in rows) for k in first)]
        print(f"{name:24} " + "  ".join(f"{1e3 * t:7.1f}" for t in (*times, sum(times))))
    for name, seconds in report_seconds(text).items():
        print(f"report, {name:16} {1e3 * seconds:8.2f}")


def by_stage(text: str) -> dict[str, float]:
    """Seconds that the processor works in each stage of a compilation."""
    from selector import pipeline
    from selector.ir.parser import parse_module
    from selector.targets import find_target

    target = find_target(TARGET)
    work = pipeline.Work(parse_module(text), target, strict=True)
    seconds: dict[str, float] = {}
    with pipeline.collector_paused():
        for stage in pipeline.STAGES:
            if stage.family in ("", target.family):
                begin = time.process_time()
                work = stage.run(work)
                seconds[stage.name] = time.process_time() - begin
    return seconds


def report_seconds(text: str) -> dict[str, float]:
    """Seconds that printing a report takes, after the compilation and of a kernel in the cache."""
    import selector
    from selector.ir.parser import parse_module

    samples: dict[str, list[float]] = {"compiled": [], "cached": []}
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["SELECTOR_CACHE_DIR"] = cache
            for times in samples.values():
                kernel = selector.compile(parse_module(text), TARGET)
                begin = time.process_time()
                str(kernel.report)
                times.append(time.process_time() - begin)
    return {name: statistics.median(times) for name, times in samples.items()}


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.partition(":")[2].strip() for x in lines if "model name" in x), "unknown")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lower", action="store_true", help="write the programs")
    parser.add_argument("--results", type=Path, help="file for the results as data")
    parser.add_argument("--warm", metavar="PROGRAM", help="compile this one many times")
    parser.add_argument("--match", default="", help="write only programs whose name holds this")
    options = parser.parse_args()
    if options.lower:
        lower_all(options.folder, options.match)
        return 0
    if options.warm:
        compile_warm(options.folder, options.warm)
        return 0
    rows = compile_all(options.folder)
    slow = [r["program"] for r in rows if r["seconds"] >= 1.5]
    longest = max(rows, key=lambda r: r["seconds"])
    print(f"{len(rows)} programs on {processor()}: at most {longest['seconds']:.2f} s "
          f"({longest['program']}); over 1.5 s: {', '.join(slow) or 'none'}")  # fmt: skip
    if options.results:
        facts = {
            "date": datetime.now(UTC).date().isoformat(),
            "processor": processor(),
            "python": platform.python_version(),
            "rows": rows,
        }
        options.results.write_text(json.dumps(facts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
