"""Compile time of the 1-D convolution against its number of taps: the figure of the results.

    python tests/perf/compile_time.py            measure and write compile_time.json
    python tests/perf/compile_time.py --plot     draw compile_time.png as well (matplotlib)

The paper's figure 6 shows the same quantity for its selector. Every time is that of the processor,
the median of several compilations in one process, with the rules loaded and the memo of solved
statements emptied each time: ``lower`` is Halide's own passes and the bridge, ``saturate`` what
the first selection takes longer than a second one, which has the statements solved, ``select``
the second one, ``emit`` the CUDA text, ``nvrtc`` its machine code. ``rows`` is the size of the
e-graph, all tables counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import halide_bridge as hb  # noqa: E402
from casestudies.conv1d import CASE  # noqa: E402
from casestudies.conv1d.problem import Problem  # noqa: E402
from casestudies.measuring.machine import processor  # noqa: E402
from selector.eqsat.select import select  # noqa: E402
from selector.eqsat.solve import forget  # noqa: E402
from selector.gpu.codegen.program import emit  # noqa: E402
from selector.runtime.nvrtc import compile_to_cubin  # noqa: E402
from selector.targets import find_target  # noqa: E402

RESULTS = ROOT / "casestudies" / "results"
DATA, PLOT = RESULTS / "compile_time.json", RESULTS / "compile_time.png"
TAPS = (16, 32, 64, 128, 256, 512, 1024)
TARGET = "sm_90a"
STAGES = ("lower", "saturate", "select", "emit", "nvrtc")


def measure(taps: int, repeats: int = 5) -> dict[str, Any]:
    """Milliseconds of each stage, and the rows of the e-graph."""
    samples, rows = list[dict[str, float]](), 0
    for _ in range(repeats + 1):
        times, rows = compiled(taps)
        samples.append(times)
    samples = samples[1:] or samples  # the first one loads what all share
    return {
        "taps": taps,
        "rows": rows,
        **{s: statistics.median(sample[s] for sample in samples) for s in STAGES},
    }


def compiled(taps: int, *, machine_code: bool = True) -> tuple[dict[str, float], int]:
    """Milliseconds of each stage of one compilation, and the rows of the largest e-graph."""
    target = find_target(TARGET)
    output = CASE.build(Problem(4096, 4096, taps), "mma")
    module, lower = timed(lambda: hb.lower(output, target=TARGET))
    forget()
    found, first = timed(lambda: select(module, target))
    _, second = timed(lambda: select(module, target))
    plan, emitting = timed(lambda: emit(found.module, target))
    nvrtc = timed(lambda: compile_to_cubin(plan.source, TARGET))[1] if machine_code else 0.0
    times = (lower, max(0.0, first - second), second, emitting, nvrtc)
    return dict(zip(STAGES, times, strict=True)), max(s.rows for s in found.searches)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """A result and the milliseconds that the processor worked for it."""
    start = time.process_time()
    result = call()
    return result, 1e3 * (time.process_time() - start)


def draw(data: dict[str, Any], path: Path = PLOT) -> None:
    """Stages stacked over taps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    points = data["points"]
    figure, axes = pyplot.subplots(figsize=(7, 3.4), dpi=150)
    bottom = [0.0] * len(points)
    labels = [str(p["taps"]) for p in points]
    for stage in STAGES:
        heights = [p[stage] for p in points]
        axes.bar(labels, heights, bottom=bottom, label=stage, width=0.6)
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    axes.set_xlabel("taps")
    axes.set_ylabel("milliseconds of the processor")
    axes.set_title(f"Compile time of conv1d for {TARGET}", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--plot", action="store_true", help="draw compile_time.png as well")
    options = parser.parse_args()
    points = [measure(taps) for taps in TAPS]
    data = {"date": str(date.today()), "processor": processor(), "points": points}
    DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    for point in points:
        print(point)
    if options.plot:
        draw(data)


if __name__ == "__main__":
    main()
