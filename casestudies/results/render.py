"""The README's tables of measured times; those of the GPU come from one run of
``tests/gpu/run_all.py``, those of the CPU from ``cpu``.

    python -m casestudies.results.render            rewrite the tables in README.md
    python -m casestudies.results.render --check    only say whether they are out of date (exit 1)
    python -m casestudies.results.render --plot     draw conv1d.png as well; needs matplotlib

``h200.json`` is the file that ``run_all.py --results`` writes, unchanged; ``h200.run.json`` says
when and on what it was made, and the ceilings that limits are computed from: TB/s of a device copy
(measured) and TMAC/s of the tensor units (data sheet, f16; twice that for bytes). The limit of a
job is the larger of bytes / bandwidth and multiply-adds / rate, with every input read once and
every output written once.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from casestudies.results import cpu

HERE = Path(__file__).resolve().parent
README = HERE.parent.parent / "README.md"
PLOT = HERE / "conv1d.png"
OURS, STOCK = "tensor", "stock Halide"


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the GPU can do at most: TB/s of memory, TMAC/s (10^12 multiply-adds) of f16 and s8."""

    terabytes_per_second: float
    tera_macs: float
    tera_macs_of_bytes: float

    def limit(self, row: dict[str, Any]) -> float:
        """Microseconds below which the job of a row cannot go."""
        macs = self.tera_macs_of_bytes if "-s8-" in row["problem"] else self.tera_macs
        traffic = row["bytes"] / self.terabytes_per_second
        return max(traffic, row["multiply_adds"] / macs) / 1e6


@dataclass(frozen=True, slots=True)
class Result:
    """One job: microseconds of each contender, and the error of ours."""

    case: str
    problem: str
    limit: float
    times: dict[str, float]
    error: float

    @property
    def best_library(self) -> str | None:
        """The fastest contender that is neither ours nor stock Halide."""
        others = [name for name in self.times if name not in (OURS, STOCK)]
        return min(others, key=lambda name: self.times[name], default=None)


def read(path: Path = HERE / "h200.json") -> tuple[dict[str, Any], dict[str, Any]]:
    """The data of a run, and what is known about the run."""
    data = json.loads(path.read_text(encoding="utf-8"))
    about = json.loads(path.with_suffix(".run.json").read_text(encoding="utf-8"))
    return data, about


def ceilings_of(about: dict[str, Any]) -> Ceilings:
    return Ceilings(about["terabytes_per_second"], about["tera_macs"], about["tera_macs_of_bytes"])


def results_of(data: dict[str, Any], ceilings: Ceilings) -> list[Result]:
    """The timed jobs that ours did right, in the order of the run."""
    jobs: dict[str, list[dict[str, Any]]] = {}
    for row in data["rows"]:
        if row["timing"] is not None and row["passed"]:
            jobs.setdefault(row["problem"], []).append(row)
    results: list[Result] = []
    for problem, rows in jobs.items():
        own = next((r for r in rows if r["contender"] == OURS), None)
        if own is not None:
            times = {r["contender"]: float(r["timing"]["median"]) for r in rows}
            limit = ceilings.limit(own)
            results.append(Result(own["case"], problem, limit, times, float(own["error"])))
    return results


def digits(value: float) -> str:
    """Three digits or more: 0.51, 2.17, 28.5, 139, 2130."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def job_name(r: Result) -> str:
    """``k = 64`` or ``f16 -> f32, 1024 x 1024 x 1024``: the table's heading names the case."""
    name = r.problem.removeprefix(f"{r.case}-")
    match = re.fullmatch(r"k(\d+)-.*", name)
    if match:
        return f"k = {match[1]}"
    operand, result, size = name.split("-")
    return f"{operand} → {result}, {' x '.join(size.split('x'))}"


HEAD = (
    "tensor us", "limit us", "limit / tensor", "stock Halide us", "speed-up",
    "best library us", "library", "library / tensor", "error",
)  # fmt: skip


def row_cells(r: Result) -> list[str]:
    """The cells of a job's row; a dash where nothing was measured."""
    own, stock, best = r.times[OURS], r.times.get(STOCK), r.best_library
    cells = [f"**{digits(own)}**", digits(r.limit), f"{100 * r.limit / own:.0f} %"]
    cells += [digits(stock), f"{digits(stock / own)}x"] if stock else ["-", "-"]
    if best is None:
        cells += ["-", "-", "-"]
    else:
        cells += [digits(r.times[best]), best, f"{digits(r.times[best] / own)}x"]
    return [job_name(r), *cells, f"{r.error:.1e}" if r.error else "0"]


def table(title: str, results: Sequence[Result]) -> list[str]:
    lines = [f"| {title} | {' | '.join(HEAD)} |", f"|---|{'---:|' * 6}---|---:|---:|"]
    return lines + [f"| {' | '.join(row_cells(r))} |" for r in results]


def checked(data: dict[str, Any]) -> str:
    """What was checked besides the timed jobs, and what failed."""
    own = [r for r in data["rows"] if r["contender"] == OURS]
    small = [r for r in own if r["timing"] is None]
    wrong = [r["problem"] for r in data["rows"] if not r["passed"]]
    verdict = f"wrong: {', '.join(wrong)}" if wrong else "all within tolerance"
    return (
        f"Checked against float64 in the same run: {len(own) - len(small)} timed sizes and "
        f"{len(small)} small ones (ragged, prime, single pixels); {verdict}."
    )


def calls(data: dict[str, Any]) -> list[str]:
    """Which call each library's name stands for."""
    ours = (OURS, STOCK)
    notes = {r["contender"]: r["note"] for r in data["rows"] if r["contender"] not in ours}
    return [f"- {name}: {note}" for name, note in notes.items()]


def render(data: dict[str, Any], about: dict[str, Any]) -> str:
    """The text between the README's markers."""
    ceilings = ceilings_of(about)
    results = results_of(data, ceilings)
    lines = [f"Measured {about['date']} on {about['gpu']} ({about['versions']}).", ""]
    for case in dict.fromkeys(r.case for r in results):
        lines += [*table(case, [r for r in results if r.case == case]), ""]
    lines += [
        "Times are medians of CUDA graph replays in microseconds (`cupyx`: events), on random "
        "inputs that rotate through more memory than the L2 cache holds. `limit` is the larger "
        f"of bytes / {ceilings.terabytes_per_second:g} TB/s (a device copy on this GPU) and "
        f"multiply-adds / {ceilings.tera_macs:g} TMAC/s (f16, bf16; "
        f"{ceilings.tera_macs_of_bytes:g} for s8). `error` is the relative Frobenius error "
        "against float64. A library's time includes what it does beyond the job (`cupyx` "
        "computes the borders as well) and may have another result type:",
        "",
        *calls(data),
        "",
        checked(data),
    ]
    return "\n".join(lines)


def replaced(readme: str, section: str, text: str) -> str:
    """The README with ``text`` between the markers of a section."""
    start, stop = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    before, begin, rest = readme.partition(start)
    _, end, after = rest.partition(stop)
    if not begin or not end:
        sys.exit(f"error: README.md has no {start} ... {stop}")
    return f"{before}{start}\n{text}\n{stop}{after}"


def rendered(readme: str) -> str:
    """The README with all its measured tables as the data has them."""
    readme = replaced(readme, "results", render(*read()))
    readme = replaced(readme, "amx", cpu.amx(cpu.read("amx.json")))
    return replaced(readme, "compile time", cpu.compile_time(cpu.read("compile_time.json")))


def plot(data: dict[str, Any], about: dict[str, Any], path: Path) -> None:
    """conv1d over its taps: ours, stock Halide, the limit."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = [r for r in results_of(data, ceilings_of(about)) if r.case == "conv1d"]
    taps = [int(job_name(r).removeprefix("k = ")) for r in found]
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), dpi=100)
    axes.plot(taps, [r.times[STOCK] for r in found], "s-", color="#999999", label="stock Halide")
    axes.plot(taps, [r.times[OURS] for r in found], "o-", color="#1f6fb4", label="tensor")
    axes.plot(
        taps, [r.limit for r in found], "--", color="#333333", label="limit (bytes read, written)"
    )
    axes.set(xlabel="taps", ylabel="us", ylim=(0, None), xlim=(0, None))
    axes.set_title(f"conv1d on 4096 x 4096, f16 -> f32, {about['gpu']}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": ""})
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Render, or check; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m casestudies.results.render")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if out of date")
    parser.add_argument("--plot", action="store_true", help=f"draw {PLOT.name} (matplotlib)")
    options = parser.parse_args(arguments)
    old = README.read_text(encoding="utf-8")
    new = rendered(old)
    if options.check:
        if new != old:
            print("README.md is out of date: python -m casestudies.results.render", file=sys.stderr)
        return int(new != old)
    README.write_text(new, encoding="utf-8")
    if options.plot:
        plot(*read(), PLOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
