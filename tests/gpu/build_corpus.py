"""Compile the corpus for a GPU and write what it should compute, on a machine that needs no GPU.

    python tests/gpu/build_corpus.py FOLDER [--target sm_90a] [--match REGEX]

For each case: a saved kernel, and one .npz per size with inputs (``in_NAME``), scalars
(``scalar_NAME``), the results of the unselected program in the interpreter (``out_NAME``) and the
allowed error. ``run_corpus.py`` runs them. Exit code 1 if a case does not compile.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
from corpus import CORPUS  # noqa: E402
from corpus_case import Case, output_shapes, random_inputs  # noqa: E402

import halide_bridge as hb  # noqa: E402
import selector  # noqa: E402
from selector.ir.interpreter import interpret  # noqa: E402


def build(case: Case, target: str, folder: Path) -> None:
    module = hb.lower(case.build(), target=target, name=case.name)
    kernel = selector.compile(module, target=target, cache=False, instructions=case.only)
    kernel.save(folder / f"{case.name}.kernel", overwrite=True)
    for number, size in enumerate(case.sizes):
        arrays = random_inputs(case, module, size, number)
        expected = interpret(
            module, arrays, scalars=case.scalars, sizes=output_shapes(module, size)
        )
        content: dict[str, Any] = {f"in_{k}": v for k, v in arrays.items()}
        content |= {f"scalar_{k}": v for k, v in case.scalars.items()}
        content |= {f"out_{k}": v for k, v in expected.items()}
        np.savez(folder / f"{case.name}.{number}.npz", tolerance=case.tolerance, **content)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--match", default="", help="only cases whose name holds this (regex)")
    parser.add_argument("--patience", default="5", help="seconds that a kernel waits at a barrier")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ["SELECTOR_PATIENCE"] = options.patience  # nothing is timed here: no test can hang
    failed: list[str] = []
    for name, case in CORPUS.items():
        if not re.search(options.match, name) or case.target not in (None, options.target):
            continue
        try:
            build(case, options.target, options.folder)
            print(f"{name}: built", flush=True)
        except Exception as error:  # the others are still worth building
            failed.append(name)
            print(f"{name}: FAILED {type(error).__name__}: {error}", flush=True)
            traceback.print_exc(limit=-2)
    print(f"{len(failed)} of {len(CORPUS)} failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
