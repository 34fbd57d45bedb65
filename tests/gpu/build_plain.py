"""Compile plain pipelines as ``autoschedule`` schedules them, for ``run_plain.py``.

    python tests/gpu/build_plain.py FOLDER [--target sm_90a]

Needs Halide, no GPU. Sizes are not told: a kernel takes any.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "schedules")]

from plain_pipelines import PIPELINES  # noqa: E402
from plain_windows import WINDOWS  # noqa: E402

import halide_bridge as hb  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90a")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, make in (PIPELINES | WINDOWS).items():
        outputs = make().outputs
        schedule = hb.autoschedule(outputs, target=options.target)
        kernel = hb.compile(outputs, target=options.target, name=name)
        kernel.save(options.folder / f"{name}.kernel", overwrite=True)
        (options.folder / f"{name}.txt").write_text(f"{schedule.report}\n\n{schedule.source}")
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
