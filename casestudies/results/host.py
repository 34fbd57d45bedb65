"""What calls cost the host: the table of the page on calls.

``host_time.json`` is what ``python -m casestudies host-time --out`` writes, unchanged.
"""

from __future__ import annotations

import statistics
from typing import Any

WAYS = ("CuPy, out=", "CuPy", "torch, out=", "torch")
VERSIONS = ("driver", "CuPy", "torch", "triton")


def render(data: dict[str, Any]) -> str:
    """A row for each way to call kernels of one launch, of several, and for others' launchers."""
    versions = ", ".join(f"{name} {data[name]}" for name in VERSIONS if name in data)
    lines = [
        f"Measured {data['date']} on one {data['device']} ({versions}), {data['launcher']} "
        f"launcher: microseconds of the host for a call, up to {data['batches']} batches of "
        f"{data['calls']} calls behind an empty queue. `median` and `tenth` (percentile of the "
        "batches) are those of the kernel in the middle, `slowest` is the median of the slowest "
        "kernel.",
        "",
        "| call | launches | kernels | median | tenth | slowest |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for launches, several in (("one", False), ("several", True)):
        for way in WAYS:
            rows = [r for r in data["rows"] if r["way"] == way]
            chosen = [r for r in rows if (r["launches"] > 1) is several]
            if chosen:
                lines.append(f"| {way} | {launches} | {len(chosen)} | {_cells(chosen)} |")
    for r in data["rows"]:
        if not r["way"]:
            lines.append(f"| {r['contender']} | | | {r['median']:.1f} | {r['p10']:.1f} | |")
    return "\n".join(lines)


def _cells(rows: list[dict[str, Any]]) -> str:
    middle = statistics.median(r["median"] for r in rows)
    tenth = statistics.median(r["p10"] for r in rows)
    slowest = max(r["median"] for r in rows)
    return f"**{middle:.1f}** | {tenth:.1f} | {slowest:.1f}"
