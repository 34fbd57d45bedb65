"""Compile time of the 1-D convolution against its number of taps: the figure of the results.

    python tests/perf/compile_time.py            measure and write compile_time.json
    python tests/perf/compile_time.py --plot     draw compile_time.png as well (matplotlib)

The paper's figure 6 shows the same quantity for its selector. Every time is the median of several
compilations in one process, with the rules loaded and the memo of solved statements emptied each
time: ``lower`` is Halide's own passes and the bridge, ``saturate`` the rules and the choice among
what they found, ``select`` the rest of selection, ``emit`` the CUDA text, ``nvrtc`` its machine
code. ``rows`` is the size of the e-graph, all tables counted.
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
from selector.eqsat.facts import instruction_facts, legal_instructions  # noqa: E402
from selector.eqsat.scopes import open_scope  # noqa: E402
from selector.eqsat.select import select  # noqa: E402
from selector.eqsat.solve import forget, solve  # noqa: E402
from selector.gpu.codegen.program import emit  # noqa: E402
from selector.ir.nodes import Allocate  # noqa: E402
from selector.ir.traverse import walk_stmt  # noqa: E402
from selector.operands.accumulators import is_tensor  # noqa: E402
from selector.operands.movement import annotate_movement  # noqa: E402
from selector.runtime.nvrtc import compile_to_cubin  # noqa: E402
from selector.targets import find_target  # noqa: E402

RESULTS = ROOT / "casestudies" / "results"
DATA, PLOT = RESULTS / "compile_time.json", RESULTS / "compile_time.png"
TAPS = (16, 32, 64, 128, 256, 512, 1024)
TARGET = "sm_90a"
STAGES = ("lower", "saturate", "select", "emit", "nvrtc")


def measure(taps: int, repeats: int = 5) -> dict[str, Any]:
    """Milliseconds of each stage, and the rows of the e-graph."""
    target, samples = find_target(TARGET), list[dict[str, float]]()
    rows = 0
    for repeat in range(repeats + 1):
        output = CASE.build(Problem(4096, 4096, taps), "mma")
        module, lower = timed(lambda output=output: hb.lower(output, target=TARGET))
        rows, saturate = solved(module, target)
        selection, select_warm = timed(lambda module=module: select(module, target))
        plan, emitting = timed(lambda selection=selection: emit(selection.module, target))
        _, nvrtc = timed(lambda plan=plan: compile_to_cubin(plan.source, TARGET))
        times = (lower, saturate, select_warm, emitting, nvrtc)
        if repeat:  # the first one loads what all share
            samples.append(dict(zip(STAGES, times, strict=True)))
    return {
        "taps": taps,
        "rows": rows,
        **{s: statistics.median(sample[s] for sample in samples) for s in STAGES},
    }


def solved(module: Any, target: Any) -> tuple[int, float]:
    """Rows of the largest scope's e-graph, and milliseconds for all scopes; nothing remembered
    before. Leaves them remembered, so that ``select`` then times the rest."""
    forget()
    facts = instruction_facts(legal_instructions(target))
    body = annotate_movement(module.body)
    scopes = [open_scope(s) for s in walk_stmt(body) if isinstance(s, Allocate) and is_tensor(s)]
    start = time.perf_counter()
    solutions = [solve(scope.distinct, facts) for scope in scopes]
    elapsed = 1e3 * (time.perf_counter() - start)
    return max(s.saturation.rows for s in solutions), elapsed


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """A result and the milliseconds that it took."""
    start = time.perf_counter()
    result = call()
    return result, 1e3 * (time.perf_counter() - start)


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
    axes.set_ylabel("milliseconds")
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
