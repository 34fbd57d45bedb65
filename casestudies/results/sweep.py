"""The page of the public sweep: what each row reached beside the best library, and why others have
no kernel. ``sweep.json`` is the file that ``python -m casestudies sweep run`` writes, unchanged.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from casestudies.measuring.record import OURS
from casestudies.results.jobs import digits
from casestudies.results.swept import Measured, families, measured
from casestudies.sweep.folder import Entry, sweep_of

HEAD = (
    "row",
    "limit us",
    "set by",
    "us",
    "limit / us",
    "best library",
    "us",
    "of it",
    "copy us",
    "error",
)


def render(data: dict[str, Any]) -> str:
    """The summary, a table for each family, and what has no kernel or went wrong."""
    rows = measured(data)
    lines = [*_runs(data), ""]
    lines += [*_summary(data, rows), "", *_failed(data)]
    for family, found in families(rows).items():
        lines += ["", f"## {family}", ""]
        lines += [f"![share of the limit and time beside the best library]({_plot(family)})", ""]
        lines += [f"| {' | '.join(HEAD)} |", "|---|---:|---|---:|---:|---|---:|---:|---:|---:|"]
        lines += [f"| {' | '.join(_cells(row))} |" for row in found]
    lines += ["", "## Sums that stay on CUDA cores", "", *_on_cores(data)]
    return "\n".join([*lines, "", "## Rows without a kernel", "", *_missing(data)])


def _runs(data: dict[str, Any]) -> Iterator[str]:
    """When and on what it was measured, and which groups later."""
    yield f"Measured {_machine(data)}."
    entries = sweep_of(data["sweep"]).entries
    later: dict[str, set[str]] = {}
    for run in data.get("later", []):  # several of a day on one machine are one line
        later.setdefault(_machine(run), set()).update(run["problems"])
    for machine, problems in later.items():
        groups = dict.fromkeys(f"{e.family}, {e.group}" for e in entries if e.problem in problems)
        if groups and machine != _machine(data):
            yield f"Of {machine}: rows of {'; '.join(groups)}."


def _machine(run: dict[str, Any]) -> str:
    versions = ", ".join(f"{n} {run[n]}" for n in ("driver", "CUDA", "CuPy", "torch") if n in run)
    return f"{run['date']} on one {run['device']} ({versions})"


def _plot(family: str) -> str:
    return f"../../casestudies/results/sweep-{family}.svg"


def _cells(row: Measured) -> list[str]:
    r, ratio = row.result, row.ratio
    limit = ("-", "-") if r.limit is None else (digits(r.limit), r.bound)
    share = "-" if r.share is None else f"{100 * r.share:.0f} %"
    best = r.best_library
    library = ("-", "-") if best is None else (best, digits(r.libraries[best]))
    of_it = "-" if ratio is None else f"{ratio:.2f}x"
    error = f"{r.error:.1e}" if r.error else "0"
    name = row.entry.name.removeprefix(f"{row.entry.family}-")
    copy = "-" if row.copy is None else digits(row.copy)
    return [name, *limit, f"**{digits(r.ours)}**", share, *library, of_it, copy, error]


def _summary(data: dict[str, Any], rows: Sequence[Measured]) -> Iterator[str]:
    """A line for each group and kind of schedule: of shares the median, of ratios the geometric
    mean.
    """
    head = ("group", "rows", "with a kernel", "schedule", "right", "limit / us", "of it", "ahead")
    yield f"| {' | '.join((*head, 'of it, as they lie'))} |"
    yield "|---|---:|---:|---|---:|---:|---:|---:|---:|"
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in sweep_of(data["sweep"]).entries:
        groups.setdefault((entry.family, entry.group, entry.schedule), []).append(entry)
    for (family, group, schedule), entries in groups.items():
        names = {entry.name for entry in entries}
        found = [r for r in rows if r.entry.name in names]
        shares = [r.result.share for r in found if r.result.share is not None]
        ratios = [r.ratio for r in found if r.ratio is not None]
        alike = [r.alike for r in found if r.alike is not None]
        kernels = sum(bool(e.file) for e in entries)
        kind = schedule or "its own" if kernels else "-"
        cells = [f"{family}, {group}", len(entries), kernels, kind, len(found)]
        cells += [f"{100 * statistics.median(shares):.0f} %" if shares else "-"]
        cells += [f"{statistics.geometric_mean(ratios):.2f}x" if ratios else "-"]
        cells += [f"{sum(r >= 1 for r in ratios)} of {len(ratios)}" if ratios else "-"]
        cells += [f"{statistics.geometric_mean(alike):.2f}x" if alike else "-"]
        yield f"| {' | '.join(map(str, cells))} |"


def _failed(data: dict[str, Any]) -> list[str]:
    """What of ours was wrong or did not run, and rows that were not reached."""
    own = {row["problem"]: row for row in data["rows"] if row["contender"] == OURS}
    entries = [entry for entry in sweep_of(data["sweep"]).entries if entry.file]
    late = sum(entry.problem not in own for entry in entries)
    wrong = [
        f"- {name}: {row['failure'] or 'relative error {:.1e}'.format(row['error'])}"
        for name, row in own.items()
        if not row["passed"]
    ]
    lines = ["All that ran is right." if not wrong else "Wrong, or did not run:", *wrong]
    return [*lines, *([f"Not reached in this run: {late} rows."] if late else [])]


def _missing(data: dict[str, Any]) -> Iterator[str]:
    """The reasons, and how many rows each has."""
    return _reasons(sweep_of(data["sweep"]).entries, "reason")


def _on_cores(data: dict[str, Any]) -> Iterator[str]:
    """Why the compiler's own schedules leave sums there."""
    return _reasons(sweep_of(data["sweep"]).entries, "cores")


def _reasons(entries: Sequence[Entry], kind: str) -> Iterator[str]:
    reasons: dict[tuple[str, str], int] = {}
    for entry in entries:
        if getattr(entry, kind):
            key = (f"{entry.family}, {entry.group}", getattr(entry, kind))
            reasons[key] = reasons.get(key, 0) + 1
    yield "| group | rows | reason |"
    yield "|---|---:|---|"
    for (group, reason), count in reasons.items():
        yield f"| {group} | {count} | {reason.replace('|', '/')} |"


def write_page(data: dict[str, Any], folder: Path) -> list[Path]:
    """The page of a run as ``sweep.md``, and its plots, in ``folder``; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "sweep.md"
    page.write_text(render(data).replace("../../casestudies/results/", "") + "\n", encoding="utf-8")
    return [page, *draw(data, folder)]


def draw(data: dict[str, Any], folder: Path) -> list[Path]:
    """A plot for each family that was measured; none without matplotlib."""
    try:
        from casestudies.results.sweep_plots import plot
    except ImportError:
        return []
    return [
        plot(family, rows, str(data["device"]), folder / f"sweep-{family}.svg")
        for family, rows in families(measured(data)).items()
    ]
