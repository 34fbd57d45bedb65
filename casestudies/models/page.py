"""The page of the models, from what ``bench`` leaves.

    python -m casestudies.models.page [FOLDER] [--check]

FOLDER: results of ``bench``, which go to ``casestudies/results/models.json`` first, in the place of
earlier ones of the same models and batches.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from math import exp, log
from pathlib import Path
from typing import Any

from casestudies.results.pages import update

HERE = Path(__file__).parent
DATA = HERE.parent / "results" / "models.json"
PAGE = HERE.parents[1] / "docs" / "results" / "models.md"
OURS = "tensor_selector"
INDUCTOR = ("inductor", "max-autotune")
RESTORES = ("CycleGAN", "DnCNN", "NAFNet")
BAND = 2.0  # times eager's own error in f16
_KEPT = ("model", "batch", "gpu", "torch", "date", "error", "us", "call_us", "regions", "failed",
         "undisturbed")  # fmt: skip
_REGION = re.compile(r"region \d+: (.*)")


def collected(folder: Path) -> dict[str, Any]:
    """What the page needs of a folder of results."""
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        row = {name: found[name] for name in _KEPT if name in found}
        row["failed"] = {k: v.strip().splitlines()[-1][:200] for k, v in row["failed"].items()}
        row["report"] = _regions(found.get("report", {}).get(OURS, []))
        rows.append(row)
    return {"rows": rows}


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The old rows but for those that were measured anew."""

    def what(row: dict[str, Any]) -> tuple[str, int]:
        return row["model"], row["batch"]

    again = {what(row) for row in new["rows"]}
    kept = [row for row in old["rows"] if what(row) not in again]
    return {"rows": sorted([*kept, *new["rows"]], key=what)}


def _measured(rows: list[dict[str, Any]]) -> str:
    """When and on what; which rows, where there were several runs."""
    runs: dict[str, list[str]] = {}
    for r in rows:
        run = f"Measured {r['date']} on one {r['gpu']} (torch {r['torch']})"
        runs.setdefault(run, []).append(f"{r['model']} {r['batch']}")
    if len(runs) == 1:
        return f"{next(iter(runs))}."
    return "\n".join(f"{run}: {', '.join(names)}." for run, names in sorted(runs.items()))


def _regions(lines: list[str]) -> list[tuple[str, int]]:
    """Each region's line, and how many are alike."""
    found = Counter(m[1] for line in lines if (m := _REGION.fullmatch(line)))
    return list(found.items())


def tables(data: dict[str, Any]) -> str:
    rows = [r for r in data["rows"] if r["us"].get(OURS)]
    lines = [
        _measured(rows),
        "",
        "| model | batch | eager | Inductor | this backend | Inductor / this | regions taken "
        "| error: eager | this |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *map(_row, rows),
        "",
        _means(rows),
        "",
        *_untimed(data["rows"]),
        *(line for r in rows for line in _left(r)),
    ]
    return "\n".join(lines).rstrip()


def _ratio(row: dict[str, Any]) -> float | None:
    times = row["us"]
    peers = [times[n] for n in INDUCTOR if n in times]
    return min(peers) / times[OURS] if peers else None


def _row(row: dict[str, Any]) -> str:
    times, ratio, error = row["us"], _ratio(row), row["error"]
    shown = [times.get("eager"), min((times[n] for n in INDUCTOR if n in times), default=None)]
    cells = " | ".join("-" if t is None else f"{t:.0f}" for t in shown)
    taken = row["regions"][OURS]
    right = "" if error[OURS] <= BAND * error["eager"] else " (wrong)"
    return (
        f"| {row['model']} | {row['batch']} | {cells} | **{times[OURS]:.0f}** "
        f"| {'-' if ratio is None else f'{ratio:.2f}'} | {taken['taken']} of {taken['all']} "
        f"| {error['eager']:.1e} | {error[OURS]:.1e}{right} |"
    )


def _means(rows: list[dict[str, Any]]) -> str:
    def mean(some: list[float]) -> str:
        return f"{exp(sum(map(log, some)) / len(some)):.2f}" if some else "-"

    known = [(r["model"], ratio) for r in rows if (ratio := _ratio(r)) is not None]
    every, images = [r for _, r in known], [r for n, r in known if n in RESTORES]
    return (
        f"Geometric mean of Inductor / this: {mean(every)}, of models that restore images "
        f"{mean(images)}; the least {min(every, default=0):.2f}."
    )


def _untimed(rows: list[dict[str, Any]]) -> list[str]:
    """Which models have run, but were not timed."""
    names = [
        f"{r['model']} (error {r['error'][OURS]:.1e}, eager {r['error']['eager']:.1e})"
        for r in rows
        if OURS in r["error"] and OURS not in r["us"]
    ]
    return [f"Run, but not timed before the end: {', '.join(names)}.", ""] if names else []


def _left(row: dict[str, Any]) -> list[str]:
    """The regions of a model that are torch's, and why."""
    marked = ": left to torch: "
    left = [(text.split(marked), n) for text, n in row["report"] if marked in text]
    if not left:
        return []
    lines = [f"**{row['model']}, batch {row['batch']}**, left to torch:", ""]
    lines += [f"- {n} x {what}: {why}" for (what, why), n in left]
    return [*lines, ""]


def main(arguments: list[str]) -> int:
    for folder in [a for a in arguments if not a.startswith("-")]:
        data = merged(json.loads(DATA.read_text()), collected(Path(folder)))
        DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    text = tables(json.loads(DATA.read_text()))
    return update(PAGE, "models", text, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
