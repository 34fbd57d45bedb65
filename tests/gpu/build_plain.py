"""Compile plain pipelines as ``autoschedule`` schedules them, for ``check_plain.py`` and
``run_plain.py``.

    python tests/gpu/build_plain.py FOLDER [--target sm_90a]

Needs Halide, no GPU. Sizes are not told: a kernel takes any. Beside each kernel stand its schedule
(``.txt``), and its small arguments with what Halide's own compiler makes of them (``.npz``).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "schedules"), str(ROOT / "tests")]

from plain_pipelines import Plain  # noqa: E402
from test_plain_pipelines import PIPELINES, by_halide  # noqa: E402

import halide_bridge as hb  # noqa: E402


def save_case(path: Path, case: Plain, wanted: list[Any]) -> None:
    """Arrays by name, and in ``about`` the numbers, the sizes and how exact results have to be."""
    named = {p.name(): value for p, value in case.arguments}
    arrays = {f"argument {n}": v for n, v in named.items() if isinstance(v, np.ndarray)}
    arrays |= {f"result {i}": v for i, v in enumerate(wanted)}
    numbers = {n: v for n, v in named.items() if not isinstance(v, np.ndarray)}
    about = {"numbers": numbers, "sizes": case.sizes, "tolerance": case.tolerance}
    np.savez(path, about=np.array(json.dumps(about)), **arrays)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90a")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, make in PIPELINES.items():
        case = make()
        schedule = hb.autoschedule(case.outputs, target=options.target)
        kernel = hb.compile(case.outputs, target=options.target, name=name)
        kernel.save(options.folder / f"{name}.kernel", overwrite=True)
        (options.folder / f"{name}.txt").write_text(f"{schedule.report}\n\n{schedule.source}")
        save_case(options.folder / f"{name}.npz", case, by_halide(make()))
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
