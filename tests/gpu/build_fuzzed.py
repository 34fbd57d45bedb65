"""Compile drawn programs for a GPU, with what they should compute, on a machine that needs none.

    python tests/gpu/build_fuzzed.py FOLDER [--count 300] [--seed S] [--first N] [--target sm_90a]
                                         [--patience SECONDS]

For each program that compiles: a saved kernel, and its expected outputs (float64, rounded to the
types of the outputs); inputs follow from a seed. ``programs.jsonl`` names them. ``run_fuzzed.py``
runs them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402
from fuzzing import formats, forms  # noqa: E402
from fuzzing.draw import draw  # noqa: E402
from fuzzing.program import to_data  # noqa: E402
from fuzzing.workers import ENVIRONMENT  # noqa: E402


def build(seed: int, number: int, target: str, folder: Path) -> dict[str, Any] | None:
    """The program's line of the index; None for one that is for a CPU, does not compile, or whose
    call is refused: it may promise bounds that its own sizes break.
    """
    from fuzzing.oracles import Clock, compiled, needed_extents, selected
    from fuzzing.outcome import Outcome

    from selector.diagnostics import UserError

    p = draw(seed, number)
    if p.memory == "amx":
        return None
    p = replace(p, target=target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = compiled(p, Clock(lambda stage: None))
        if isinstance(made, Outcome):
            return None
        try:
            selected(made)
        except UserError:
            return None
        name = f"{seed}-{number}"
        made.kernel.save(folder / f"{name}.kernel", overwrite=True)
    stored = [
        (formats.to_bits(one) if kind == "bf16" else one).astype(formats.DTYPES[kind])
        for one, kind in zip(made.expected, forms.result_kinds(p), strict=True)
    ]
    np.savez_compressed(folder / f"{name}.npz", *stored)
    return {"name": name, "program": to_data(p), "needed": needed_extents(made.module, p)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first of the seed")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--patience", help="seconds that a kernel waits at a barrier at most")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    if options.patience:
        os.environ["SELECTOR_PATIENCE"] = options.patience
    options.folder.mkdir(parents=True, exist_ok=True)
    built = tried = 0
    context = multiprocessing.get_context("spawn")
    with (
        (options.folder / "programs.jsonl").open("w", encoding="utf-8") as index,
        ProcessPoolExecutor(options.workers, context) as pool,
    ):
        while built < options.count:
            numbers = range(options.first + tried, options.first + tried + 4 * options.workers)
            waiting = [
                pool.submit(build, options.seed, n, options.target, options.folder) for n in numbers
            ]
            tried += len(numbers)
            for done in waiting:
                line = done.result()
                if line is not None:
                    index.write(json.dumps(line) + "\n")
                    built += 1
    size = sum(f.stat().st_size for f in options.folder.iterdir())
    print(f"{built} of {tried} programs, {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
