"""The page of the ten tasks, from the file that ``bench`` leaves.

python -m casestudies.ten_tasks.page [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from casestudies.results.pages import update
from casestudies.ten_tasks import metrics
from casestudies.ten_tasks.tasks import TASKS

HERE = Path(__file__).parent
DATA = HERE.parent / "results" / "ten_tasks.json"
PAGE = HERE.parents[1] / "docs" / "results" / "ten-tasks.md"
OPEN = "ours, sizes open"
PEERS = ("torch", "torch.compile", "Triton", "torch, cuDNN")


def tables(data: dict[str, Any]) -> str:
    """Both tables, and what they were measured on."""
    versions = ", ".join(f"{n} {data[n]}" for n in ("torch", "triton", "CUDA", "driver"))
    head = f"Measured {data['date']} on one {data['device']} ({versions})."
    return "\n".join((head, "", *_times(data), "", *_code()))


def _times(data: dict[str, Any]) -> list[str]:
    lines = [
        "| task | size | ours | sizes open | torch | torch.compile | Triton "
        "| best of these / ours |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    sizes = {task.name: " x ".join(map(str, task.paper)) for task in TASKS}
    ratios = list[float]()
    for row in data["rows"]:
        times: dict[str, float] = row["microseconds"]
        if not row["right"]:
            lines.append(f"| {row['task']} | {sizes[row['task']]} | wrong | | | | | |")
            continue
        peers = {name: times[name] for name in PEERS if name in times}
        ratios.append(min(peers.values()) / times["ours"])
        torch = min(peers[n] for n in ("torch", "torch, cuDNN") if n in peers)
        shown = (times.get(OPEN), torch, peers.get("torch.compile"), peers.get("Triton"))
        cells = " | ".join("-" if t is None else f"{t:.1f}" for t in shown)
        size = sizes[row["task"]]
        lines.append(
            f"| {row['task']} | {size} | **{times['ours']:.1f}** | {cells} | {ratios[-1]:.2f} |"
        )
    mean = geometric_mean(ratios)
    return [*lines, "", f"Geometric mean of the best of these / ours: {mean:.2f}."]


def _code() -> list[str]:
    lines = [
        "| task | lines | statements | G | V | Triton: lines | statements | G | V "
        "| NineToothed: V | its Triton: V |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    total = [0.0, 0.0, 0.0]
    for task in TASKS:
        own, other = metrics.ours(task.name), metrics.triton(task.name)
        theirs = metrics.PUBLISHED["NineToothed"][task.name][3]
        published = metrics.PUBLISHED["Triton"][task.name][3]
        total = [a + b for a, b in zip(total, (own.volume, other.volume, theirs), strict=True)]
        mine, triton = (
            f"{m.sloc} | {m.lloc} | {m.complexity} | {m.volume:.1f}" for m in (own, other)
        )
        lines.append(f"| {task.name} | {mine} | {triton} | {theirs:.1f} | {published:.1f} |")
    a, b, c = total
    return [*lines, f"| all | | | | {a:.0f} | | | | {b:.0f} | {c:.0f} | |"]


def main(arguments: list[str]) -> int:
    text = tables(json.loads(DATA.read_text()))
    return update(PAGE, "tasks", text, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
