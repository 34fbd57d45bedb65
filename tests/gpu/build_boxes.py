"""Kernels of warps (mma.sync) for sm_90 whose operands come by tensor maps, beside the same by
cp.async, on a machine that needs no GPU.

    python tests/gpu/build_boxes.py FOLDER [--match REGEX]

Writes ``PROBLEM/copies.kernel`` and ``PROBLEM/boxes.kernel`` for the benchmark problems of the case
studies below, with the descriptions that ``run_variants.py`` wants to check them and to time them
in turns. Problems whose operands are no boxes are left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import halide_bridge as hb  # noqa: E402
from casestudies.common.registry import find_case  # noqa: E402
from selector.diagnostics import ScheduleError  # noqa: E402

CASES = ("gemm", "attention", "conv_layer")
TARGET = "sm_90"


def build(case: Any, problem: Any, folder: Path) -> str:
    """Both kernels of a problem; or why not."""
    kernels: dict[str, Any] = {}
    for label in ("boxes", "copies"):
        output = case.build(problem, "mma")
        if label == "boxes":
            hb.self_fed(output)
        kernels[label] = hb.compile(output, target=TARGET)
    if "maps_ready" not in kernels["boxes"].source:
        return "left out, it stages nothing ahead"
    place = folder / problem.name
    place.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"case": case.name, "problem": dataclasses.asdict(problem)})
    for label, kernel in kernels.items():
        kernel.cubin()
        kernel.save(place / f"{label}.kernel", overwrite=True)
        (place / f"{label}.json").write_text(about, encoding="utf-8")
    return "built"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="", help="only problems whose name holds this (regex)")
    options = parser.parse_args()
    for case in map(find_case, CASES):
        for problem in case.benchmark:
            if not re.search(options.match, problem.name):
                continue
            try:
                print(f"{problem.name}: {build(case, problem, options.folder)}", flush=True)
            except ScheduleError as error:
                print(f"{problem.name}: left out, {error.why}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
