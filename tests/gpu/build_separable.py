"""Filters along rows and then columns, as two kernels and as one with several tilings, for
``run_variants.py``; and what the model of their costs is worth.

    python tests/gpu/build_separable.py FOLDER [--match REGEX]                   # here
    python tests/gpu/run_variants.py FOLDER --results separable.json             # there
    python tests/gpu/build_separable.py FOLDER --results separable.json --gpu H100   # here

The last one prints for each problem how the foretold order agrees with the measured one and what
the choice loses, once for what constants may be fitted to and once for what is ``HELD`` out.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import halide_bridge as hb  # noqa: E402
from casestudies.common.registry import find_case  # noqa: E402
from casestudies.measuring.measure import row_of  # noqa: E402
from casestudies.measuring.model import verdict  # noqa: E402
from casestudies.plain.filter import Problem  # noqa: E402
from halide_bridge.schedules import made  # noqa: E402
from selector.families import windows  # noqa: E402
from selector.machine import Machine, machine_for  # noqa: E402

TARGET = "sm_90a"
SIZES = ((1280, 720), (1919, 1079), (1920, 1080), (2560, 1440), (3840, 2160), (5472, 3648))
TAPS = (5, 9, 17, 31)
HELD = r"17-separable|2560x1440"
FIRST, FURTHER = 2, 1  # of the order, and others at equal distances behind them
Ranked = list[tuple[float, windows.Tiling, tuple[windows.Tiling, ...]]]


def problems() -> Iterator[Problem]:
    for width, height in SIZES:
        for taps in TAPS:
            yield Problem("f16-f16", "repeat", "one", width, height, f"{taps} separable")


def compiled(problem: Problem, ranked: Ranked) -> tuple[Any, list[Any]]:
    """The kernel if these were all that blocks could make, and the arguments of the model."""
    asked: list[Any] = []

    def chosen(shape: Any, before: Any, machine: Machine) -> Ranked:
        asked.append((shape, tuple(before)))
        return ranked

    plain = find_case("plain.filter").plain
    assert plain is not None
    sizes = {spec.name: spec.shape for spec in (*problem.inputs, problem.output)}
    with mock.patch.object(made.windows, "ranked_made", chosen):
        kernel = hb.compile(plain(problem), target=TARGET, schedule="auto", sizes=sizes)
    return kernel, asked


def build(problem: Problem, folder: Path, machine: Machine) -> None:
    place = folder / problem.name
    place.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"case": "plain.filter", "problem": asdict(problem)})
    two, ((shape, before), *_) = compiled(problem, [])
    kernels = {"two": two}
    order = windows.ranked_made(shape, before, machine)
    rest = order[FIRST:]
    step = max(1, len(rest) // FURTHER)
    for _, tiling, boxes in (*order[:FIRST], *rest[::step][:FURTHER]):
        kernel, _ = compiled(problem, [(0.0, tiling, boxes)])
        if not kernel.plan.intermediates:
            kernels[tiling.label] = kernel
    for label, kernel in kernels.items():
        kernel.cubin()
        kernel.save(place / f"{label}.kernel", overwrite=True)
        (place / f"{label}.json").write_text(about, encoding="utf-8")
    print(f"{problem.name}: {', '.join(kernels)}", flush=True)


def foretold(problem: Problem, machine: Machine) -> dict[str, float]:
    """Microseconds by the model, by label."""
    _, ((shape, before), *_) = compiled(problem, [])
    apart = sum(windows.ranked(s, machine)[0][0] for s in (shape, *before))
    apart -= machine.behind * len(before)
    made_ = {t.label: us for us, t, _ in windows.ranked_made(shape, before, machine)}
    return {"two": apart, **made_}


def judge(rows: list[Any], machine: Machine) -> None:
    for held in (False, True):
        chosen = [p for p in problems() if bool(re.search(HELD, p.name)) == held]
        measured = {row.problem for row in rows}
        of = {
            p.name: {f"{p.name}/{label}": us for label, us in foretold(p, machine).items()}
            for p in chosen
            if p.name in measured
        }
        print("held out:" if held else "fitted to:")
        print(verdict.report(verdict.verdicts(of, rows)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="", help="only problems whose name holds this (regex)")
    parser.add_argument("--results", type=Path, help="of run_variants.py, to be judged")
    parser.add_argument("--gpu", default="", help="whose costs: H200, H100, ...")
    options = parser.parse_args()
    machine = machine_for(TARGET, options.gpu)
    if options.results is not None:
        rows = json.loads(options.results.read_text(encoding="utf-8"))["rows"]
        judge([row_of(row) for row in rows], machine)
        return 0
    for problem in problems():
        if re.search(options.match, problem.name):
            build(problem, options.folder, machine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
