"""The tables that need no GPU: AMX against oneDNN, and compile time over taps.

Made from ``amx.json`` (``python -m casestudies.amx_matmul.bench --run``), ``compile_time.json``
(``python tests/perf/compile_time.py``) and ``compile_cases.json``
(``python tests/perf/compile_cases.py``), unchanged.
"""

from __future__ import annotations

from typing import Any

STAGES = ("lower", "saturate", "select", "emit", "nvrtc")
LIMIT = 1.5  # seconds that a program of the case studies may take
LISTED = 6  # of those that take longest


def amx(data: dict[str, Any]) -> str:
    """Times of the matrix product on one thread and on all, and what was checked."""
    lines = [
        f"Measured {data['date']} on {data['processor']}, {data['threads']} cores; torch "
        f"{data['torch']}, {data['compiler']}. 1024 x 1024 x 1024, microseconds.",
        "",
        "| operands, threads | implementation | median | minimum |",
        "|---|---|---:|---:|",
    ]
    for job, found in data["times"].items():
        element, threads = job.split()
        best = min(found, key=lambda name: found[name]["median"])
        for name, time in found.items():
            median, minimum = f"{time['median']:.0f}", f"{time['minimum']:.0f}"
            lines.append(
                f"| {element}, {threads} | {name} | "
                f"{f'**{median}**' if name == best else median} | {minimum} |"
            )
    right = sum(row["passed"] for row in data["rows"])
    sizes = len(data["rows"][0]["errors"])
    lines += [
        "",
        f"In the same run {right} of {len(data['rows'])} kernels (every schedule, both layouts, "
        f"all operand types) were right at {sizes} sizes each, ragged ones included. B in VNNI "
        "order is read as it is stored; the row-major B is swizzled inside the call.",
    ]
    return "\n".join(lines)


def compile_time(data: dict[str, Any]) -> str:
    """Milliseconds by stage, and the size of the e-graph."""
    lines = [
        f"Measured {data['date']} on {data['processor']}, one process; milliseconds of the "
        "processor, medians.",
        "",
        f"| taps | {' | '.join(STAGES)} | rows of the e-graph |",
        f"|---:|{'---:|' * (len(STAGES) + 1)}",
    ]
    for point in data["points"]:
        times = " | ".join(_digits(point[stage]) for stage in STAGES)
        lines.append(f"| {point['taps']} | {times} | {point['rows']} |")
    return "\n".join(lines)


def compile_cases(data: dict[str, Any]) -> str:
    """How long the programs of the case studies take, and the longest by stage, in milliseconds."""
    stages = ("lower", "verify", "select", "emit", "nvrtc")
    rows = sorted(data["rows"], key=lambda row: row["seconds"], reverse=True)
    late = [row for row in rows if row["seconds"] >= LIMIT]
    middle = rows[len(rows) // 2]["seconds"]
    lines = [
        f"Of the {len(rows)} programs of the benchmarks and of the small sizes "
        f"{'all' if not late else len(rows) - len(late)} take less than {LIMIT} s of the "
        f"processor from Func to machine code, half of them less than {middle:.2f} s; the "
        "longest, in milliseconds:",
        "",
        f"| program | {' | '.join(stages)} | all |",
        f"|---|{'---:|' * (len(stages) + 1)}",
    ]
    for row in rows[:LISTED]:
        times = " | ".join(_digits(1e3 * row[stage]) for stage in stages)
        lines.append(f"| {row['program']} | {times} | {1e3 * row['seconds']:.0f} |")
    return "\n".join(lines)


def _digits(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"
