"""The tutorial's times: its seven programs, as they stand on the page, on one GPU.

``tutorial.json`` is what ``tests/gpu/run_variants.py`` writes for the kernels of
``tests/gpu/build_tutorial.py``, unchanged. While there is no such file the page says so.
"""

from __future__ import annotations

from typing import Any

from casestudies.results.jobs import digits

STEPS = {
    "step1": "a thread for each pixel, CUDA cores",
    "step2": "256 outputs of a warp in accumulators",
    "step3": "rows staged in shared memory",
    "step4": "8 rows of outputs in a warp",
    "step5": "warpgroups (wgmma)",
    "step6": "16 rows of outputs in a group",
    "step7": "four tiles down, the next rows on their way",
}
"""The programs by the label of their kernel, and what each adds."""

COMMANDS = """```
python tests/gpu/build_tutorial.py                                     # where Halide is
python tests/gpu/run_variants.py artifacts/tutorial --results casestudies/results/tutorial.json
python -m casestudies.results.render
```"""


def render(data: dict[str, Any]) -> str:
    """A row for each step: microseconds, how many times as fast as the first, and the error."""
    rows = {r["contender"]: r for r in data["rows"] if r["passed"] and r["timing"]}
    lines = [
        f"Measured {data['date']} on one {data['device']}: medians of CUDA graph replays, each "
        "kernel checked against float64 before it was timed.",
        "",
        "| step | what it adds | us | step 1 / this | error |",
        "|---|---|---:|---:|---:|",
    ]
    for label, what in STEPS.items():
        if label not in rows:
            lines.append(f"| {label[4:]} | {what} | - | - | - |")
            continue
        time = rows[label]["timing"]["median"]
        first = rows.get("step1")
        ratio = f"{digits(first['timing']['median'] / time)}x" if first else "-"
        lines.append(
            f"| {label[4:]} | {what} | **{digits(time)}** | {ratio} | {rows[label]['error']:.1e} |"
        )
    return "\n".join([*lines, "", "To repeat it:", "", COMMANDS])
