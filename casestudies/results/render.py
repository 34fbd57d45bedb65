"""The tables of measured times in README.md and ``docs/``; those of the GPU come from one run of
``tests/gpu/run_all.py`` or of ``python -m casestudies bench --all``, those of the CPU from ``cpu``,
those of the tutorial from ``tutorial``, of the public sweep from ``sweep``, of the host from
``host``, of sums in other words and types from ``sums``.

    python -m casestudies.results.render            rewrite the tables
    python -m casestudies.results.render --check    only say whether they are out of date (exit 1)
    python -m casestudies.results.render --plot     draw the plots as well; needs matplotlib

``h200.json`` is the file that ``run_all.py --results`` writes, unchanged. The limit of a job
(``casestudies.measuring.limits``) is in its rows.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from casestudies.measuring.record import OURS
from casestudies.results import cpu, host, paper, plots, summary, sums, sweep, tutorial
from casestudies.results.jobs import HERE, Result, digits, read, results_of
from casestudies.results.pages import replaced

ROOT = HERE.parent.parent
README, DOCS = ROOT / "README.md", ROOT / "docs"
RESULTS, PERFORMANCE = DOCS / "results" / "index.md", DOCS / "results" / "performance.md"
VERSIONS = ("driver", "CUDA", "CuPy", "torch", "jax")


HEAD = (
    "job", "limit us", "tensor us", "limit / tensor", "stock Halide us", "speed-up",
    "best library us", "library", "speed-up", "error",
)  # fmt: skip


def row_cells(r: Result) -> list[str]:
    """The cells of a job's row; a dash where nothing was measured."""
    stock, best = r.best_stock, r.best_library
    cells = [r.problem, "-" if r.limit is None else digits(r.limit), f"**{digits(r.ours)}**"]
    cells.append("-" if r.share is None else f"{100 * r.share:.0f} %")
    cells += [digits(stock), f"{digits(stock / r.ours)}x"] if stock else ["-", "-"]
    if best is None:
        cells += ["-", "-", "-"]
    else:
        time = r.libraries[best]
        cells += [digits(time), best, _speed_up(time / r.ours, r.ratios.get(best))]
    return [*cells, f"{r.error:.1e}" if r.error else "0"]


def short(data: dict[str, Any]) -> str:
    """The table of a few jobs, for a page that has no room for all of them."""
    versions = ", ".join(f"{name} {data[name]}" for name in VERSIONS[:4] if name in data)
    head = f"Microseconds, measured {data['date']} on one {data['device']} ({versions})."
    return "\n".join([head, "", *summary.table(results_of(data))])


def _speed_up(usual: float, ratio: tuple[float, float] | None) -> str:
    """The spread is said where it matters for who is faster."""
    if ratio is None:
        return f"{digits(usual)}x"
    median, spread = ratio
    return f"{median:.3f}x ± {spread:.3f}" if 0.9 < median < 1.1 else f"{digits(median)}x"


def table(results: Sequence[Result]) -> list[str]:
    lines = [f"| {' | '.join(HEAD)} |", f"|---|{'---:|' * 6}---|---:|---:|"]
    return lines + [f"| {' | '.join(row_cells(r))} |" for r in results]


def checked(data: dict[str, Any]) -> str:
    """What was checked besides the timed jobs, and what failed."""
    own = [r for r in data["rows"] if r["contender"] == OURS]
    small = [r for r in own if r["timing"] is None]
    failed: dict[tuple[str, str, str], list[str]] = {}
    for r in data["rows"]:
        if r["failure"]:
            why = re.sub(r"\$\d+", "", r["failure"])  # Halide numbers its buffers
            failed.setdefault((r["case"], r["contender"], why), []).append(r["problem"])
    wrong = [
        f"{r['problem']} ({r['contender']})"
        for r in data["rows"]
        if not r["passed"] and not r["failure"]
    ]
    verdict = f"wrong: {', '.join(wrong)}" if wrong else "all within tolerance"
    lines = [
        f"Checked against float64 in the same run: {len(own) - len(small)} timed sizes and "
        f"{len(small)} small ones (ragged, prime, single pixels); {verdict}."
    ]
    if failed:
        lines += ["", "Did not run:", ""]
        lines += [
            f"- {name} on {', '.join(problems) if len(problems) < 3 else f'all of {case}'}: {why}"
            for (case, name, why), problems in failed.items()
        ]
    return "\n".join(lines)


def calls(data: dict[str, Any]) -> list[str]:
    """Which call each library's name stands for, and in which cases."""
    cases: dict[tuple[str, str], list[str]] = {}
    for r in data["rows"]:
        if r["timing"] and not r["ours"]:
            known = cases.setdefault((r["contender"], r["note"]), [])
            known += [] if r["case"] in known else [r["case"]]
    return [f"- {name} ({', '.join(known)}): {note}" for (name, note), known in cases.items()]


def render(data: dict[str, Any]) -> str:
    """The table of all jobs with what it says."""
    versions = ", ".join(f"{name} {data[name]}" for name in VERSIONS if name in data)
    lines = [f"Measured {data['date']} on one {data['device']} ({versions}).", ""]
    lines += [*table(results_of(data)), ""]
    lines += [
        f"{_about_limits(data)} Times are medians in microseconds of CUDA graph replays (slow "
        "calls, and libraries that refuse a graph: between events), on random inputs that rotate "
        f"through more memory than the L2 cache holds{_about_rounds(data)}. `error` is the "
        "relative Frobenius error "
        "against float64. A library's time includes what it does beyond the job and may have "
        "another result type:",
        "",
        *calls(data),
        "",
        checked(data),
    ]
    return "\n".join(lines)


def _about_rounds(data: dict[str, Any]) -> str:
    if not any(r.get("ratio") for r in data["rows"]):
        return ""
    return (
        "; all that do one job take turns, and the speed-up over a library is the median of the "
        "rounds' ratios, ± half of the way between the quartiles where it is near one"
    )


def _about_limits(data: dict[str, Any]) -> str:
    found = data["ceilings"]
    if found is None:
        return "The ceilings of this GPU are not in `selector/machine/gpus.py`: no limits."
    return (
        "`limit` is the larger of bytes (every input read once, every output written once) / "
        f"{found['terabytes_per_second']:g} TB/s and multiply-adds / {found['tera_macs']:g} TMAC/s "
        f"(f16, bf16; {found['tera_macs_of_bytes']:g} for s8): {found['source']}."
    )


def write_report(data: dict[str, Any], folder: Path) -> list[Path]:
    """The table of a run and, with matplotlib, its plots, as files in ``folder``; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "bench.md"
    page.write_text(render(data) + "\n", encoding="utf-8")
    try:
        return [page, *plots.draw(results_of(data), str(data["device"]), folder)]
    except ImportError:
        return [page]  # the plots can be drawn from the data elsewhere


def limits(data: dict[str, Any]) -> str:
    """What each job has to move and to multiply, the limit that follows, and the share reached."""
    head = ("job", "MB", "10^9 multiply-adds", "limit us", "set by", "tensor us", "limit / tensor")
    lines = [f"| {' | '.join(head)} |", "|---|---:|---:|---:|---|---:|---:|"]
    counts = {r["problem"]: (r["bytes"], r["multiply_adds"]) for r in data["rows"]}
    for r in results_of(data):
        moved, multiplied = counts[r.problem]
        cells = [r.problem, digits(moved / 1e6), digits(multiplied / 1e9)]
        cells += [digits(r.limit), r.bound] if r.limit is not None else ["-", "-"]
        cells += [digits(r.ours), "-" if r.share is None else f"{100 * r.share:.0f} %"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def sections() -> dict[Path, dict[str, str]]:
    """What stands between the markers of each page, as the data has it."""
    data = read()
    return {
        README: {"results": short(data)},
        RESULTS: {"results": render(data)},
        PERFORMANCE: {"limits": limits(data)},
        DOCS / "results" / "compile-time.md": {
            "compile time": cpu.compile_time(read("compile_time.json")),
            "compile cases": cpu.compile_cases(read("compile_cases.json")),
        },
        DOCS / "howto" / "amx.md": {"amx": cpu.amx(read("amx.json"))},
        DOCS / "results" / "sweep.md": {"sweep": sweep.render(read("sweep.json"))},
        DOCS / "howto" / "call.md": {"host time": host.render(read("host_time.json"))},
        DOCS / "results" / "paper.md": {"paper": paper.render(data)},
        DOCS / "results" / "sums.md": {
            "sums": sums.words(read("sums.json")),
            "tf32": sums.tf32(read("tf32.json")),
            "float8": sums.float8(read("float8.json")),
        },
        DOCS / "tutorial.md": {"tutorial": tutorial.render(read("tutorial.json"))},
    }


def rendered() -> dict[Path, str]:
    """The pages with all their measured tables as the data has them."""
    pages: dict[Path, str] = {}
    for path, texts in sections().items():
        page = path.read_text(encoding="utf-8")
        for section, text in texts.items():
            page = replaced(page, section, text)
        pages[path] = page
    return pages


def main(arguments: Sequence[str] | None = None) -> int:
    """Render, or check; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m casestudies.results.render")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if out of date")
    parser.add_argument("--plot", action="store_true", help="draw the plots (matplotlib)")
    options = parser.parse_args(arguments)
    pages = rendered()
    late = [path for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    if options.check:
        for path in late:
            print(f"{path.name} is out of date: python -m casestudies.results.render",
                  file=sys.stderr)  # fmt: skip
        return int(bool(late))
    for path in late:
        path.write_text(pages[path], encoding="utf-8")
    if options.plot:
        data = read()
        plots.draw(results_of(data), str(data["device"]), HERE)
        plots.overview(results_of(data), f"{data['device']}, {data['date']}", HERE)
        sweep.draw(read("sweep.json"), HERE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
