"""Time kernels of other schedules or revisions than the registered ones, on the GPU machine.

    python tests/gpu/run_variants.py FOLDER [--results variants.json] [--match REGEX] [--seed N]

Each ``X.kernel`` below FOLDER with an ``X.json`` beside it, ``{"case": name, "problem": {fields of
the case's Problem}}``, is checked against float64 on the GPU and timed: one line each with error,
microseconds and the share of the limit, as soon as it is known. Kernels of one problem take turns;
at the end stands how long each takes beside the first. A kernel that fails, hangs or destroys the
GPU's context is a line, not the end. Needs NumPy and CuPy.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from casestudies.measuring.record import Record, ratios  # noqa: E402
from casestudies.measuring.tasks import variants  # noqa: E402
from casestudies.measuring.worker import supervise  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, help="file for the results as data")
    parser.add_argument("--match", default="", help="only labels that hold this (regex)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random inputs")
    parser.add_argument("--patience", type=float, default=45, help="seconds for one kernel")
    options = parser.parse_args()
    begin = time.perf_counter()
    tasks = variants(options.folder, options.match)
    record = Record(options.results, options.seed)
    supervise(tasks, options.folder, options.seed, record, options.patience)
    record.write()
    print(f"\n{ratios(record.rows)}")
    print(f"{len(record.rows)} kernels, {len(record.wrong)} wrong or failed, seed {options.seed}, "
          f"{time.perf_counter() - begin:.0f} s")  # fmt: skip
    return 1 if record.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
