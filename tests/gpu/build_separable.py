"""Filters along rows and then columns, as two kernels and as one with several tilings, and
transforms there and back with several tilings, for ``run_variants.py``; and what the models of
their costs are worth.

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
from collections.abc import Iterator, Sequence
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
from casestudies.plain import dct as dct_job  # noqa: E402
from casestudies.plain import filter as filter_job  # noqa: E402
from halide_bridge.schedules import made  # noqa: E402
from selector.families import transforms, windows  # noqa: E402
from selector.machine import Machine, machine_for  # noqa: E402

TARGET = "sm_90a"
SIZES = ((1280, 720), (1919, 1079), (1920, 1080), (2560, 1440), (3840, 2160), (5472, 3648))
TAPS = (5, 9, 17, 31)
PICTURES = ((640, 480), (1280, 720), (1919, 1079), (2560, 1440), (4032, 3024))
TILES = (8, 16)
HELD = r"17-separable|2560x1440|dct.*(640x480|1919x1079)"
FIRST, FURTHER = 2, 1  # of the order, and others at equal distances behind them
FILTERS = 4  # of a transform along two axes, there and back
TRIED = 5  # tilings of a transform, the best and others at equal distances behind it
Filters = list[tuple[float, windows.Tiling, tuple[windows.Tiling, ...]]]
Transforms = list[tuple[float, transforms.Tiling]]


def filters() -> Iterator[filter_job.Problem]:
    for width, height in SIZES:
        for taps in TAPS:
            kernel = f"{taps} separable"
            yield filter_job.Problem("f16-f16", "repeat", "one", width, height, kernel)


def pictures() -> Iterator[dct_job.Problem]:
    for width, height in PICTURES:
        for tile in TILES:
            yield dct_job.Problem("three interleaved", tile, width, height)


def compiled(
    case: str, problem: Any, filters: Filters, transformed: Transforms
) -> tuple[Any, list[Any]]:
    """The kernel if these were all that blocks could make, and the arguments of the models."""
    asked: list[Any] = []

    def made_by_blocks(shape: Any, before: Any, machine: Machine) -> Filters:
        asked.append((shape, tuple(before)))
        return filters

    def there_and_back(shapes: Any, channels: int, machine: Machine) -> Transforms:
        asked.append((tuple(shapes), channels))
        return transformed if len(shapes) == FILTERS else []

    plain = find_case(case).plain
    assert plain is not None
    sizes = {spec.name: spec.shape for spec in (*problem.inputs, problem.output)}
    with (
        mock.patch.object(made.windows, "ranked_made", made_by_blocks),
        mock.patch.object(made.transforms, "ranked", there_and_back),
    ):
        kernel = hb.compile(plain(problem), target=TARGET, schedule="auto", sizes=sizes)
    return kernel, asked


def save(kernels: dict[str, Any], case: str, problem: Any, folder: Path) -> None:
    place = folder / problem.name
    place.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"case": case, "problem": asdict(problem)})
    for label, kernel in kernels.items():
        kernel.cubin()
        kernel.save(place / f"{label}.kernel", overwrite=True)
        (place / f"{label}.json").write_text(about, encoding="utf-8")
    print(f"{problem.name}: {', '.join(kernels)}", flush=True)


def some(order: Sequence[Any], first: int, further: int) -> list[Any]:
    """The first of an order, and others at equal distances behind them."""
    rest = order[first:]
    return [*order[:first], *rest[:: max(1, len(rest) // further)][:further]]


def build_filter(problem: filter_job.Problem, folder: Path, machine: Machine) -> None:
    two, ((shape, before), *_) = compiled("plain.filter", problem, [], [])
    kernels = {"two": two}
    order = windows.ranked_made(shape, before, machine)
    for _, tiling, boxes in some(order, FIRST, FURTHER):
        kernel, _ = compiled("plain.filter", problem, [(0.0, tiling, boxes)], [])
        if not kernel.plan.intermediates:
            kernels[tiling.label] = kernel
    save(kernels, "plain.filter", problem, folder)


def build_picture(problem: dct_job.Problem, folder: Path, machine: Machine) -> None:
    kernels = dict[str, Any]()
    for _, tiling in some(_transforms(problem, machine), 1, TRIED - 1):
        kernel, _ = compiled("plain.dct", problem, [], [(0.0, tiling)])
        if not kernel.plan.intermediates:
            kernels[_label(tiling)] = kernel
    save(kernels, "plain.dct", problem, folder)


def _transforms(problem: dct_job.Problem, machine: Machine) -> Transforms:
    _, asked = compiled("plain.dct", problem, [], [])
    shapes, channels = max((x for x in asked if isinstance(x[1], int)), key=lambda x: len(x[0]))
    return transforms.ranked(shapes, channels, machine)


def _label(tiling: transforms.Tiling) -> str:
    return f"w{tiling.width}x{tiling.height}-{tiling.across}"


def foretold(problem: Any, machine: Machine) -> dict[str, float]:
    """Microseconds by the models, by label."""
    if isinstance(problem, dct_job.Problem):
        return {_label(t): us for us, t in _transforms(problem, machine)}
    _, ((shape, before), *_) = compiled("plain.filter", problem, [], [])
    apart = sum(windows.ranked(s, machine)[0][0] for s in (shape, *before))
    apart -= machine.behind * len(before)
    made_ = {t.label: us for us, t, _ in windows.ranked_made(shape, before, machine)}
    return {"two": apart, **made_}


def judge(rows: list[Any], machine: Machine) -> None:
    measured = {row.problem for row in rows}
    for kind in (filters, pictures):
        for held in (False, True):
            chosen = [p for p in kind() if bool(re.search(HELD, p.name)) == held]
            of = {
                p.name: {f"{p.name}/{label}": us for label, us in foretold(p, machine).items()}
                for p in chosen
                if p.name in measured
            }
            if of:
                print(f"{kind.__name__}, {'held out' if held else 'fitted to'}:")
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
    for problem in filters():
        if re.search(options.match, problem.name):
            build_filter(problem, options.folder, machine)
    for problem in pictures():
        if re.search(options.match, problem.name):
            build_picture(problem, options.folder, machine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
