"""Dask arrays on a GPU: blocks of CuPy and of NumPy against the whole image, bit by bit.

python tests/gpu/run_dask.py FOLDER --build     # where Halide is: kernels of tests/dask, saved
python tests/gpu/run_dask.py FOLDER             # on the GPU machine: NumPy, CuPy, Dask
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "dask")]

import selector  # noqa: E402

HEIGHT, WIDTH = 301, 1003
CUTS = (((301,), (1003,)), ((1, 200, 100), (3, 500, 500)), ((64,) * 4 + (45,), (250,) * 4 + (3,)))
NAMES = (
    "blur", "bytes", "transpose", "reduce by three", "enlarge by three", "two images", "separable",
    "repeat edge", "constant exterior", "edge inside", "staged", "tensor",
)  # fmt: skip


def build(folder: Path, target: str) -> None:
    """Save the kernels, and what they are called with."""
    from dask_pipelines import ZOO

    import halide_bridge as hb

    folder.mkdir(parents=True, exist_ok=True)
    calls: dict[str, Any] = {}
    for i, name in enumerate(NAMES):
        case = ZOO[name]
        hb.compile(case.build(), target=target, name="output").save(folder / f"{i}.saved")
        shapes = {"I": (HEIGHT, WIDTH)}
        shapes |= {n: shape or (HEIGHT, WIDTH) for n, shape in case.others.items()}
        sizes = (HEIGHT, WIDTH) if case.follows else None
        calls[name] = {"file": f"{i}.saved", "shapes": shapes, "dtype": case.dtype, "sizes": sizes}
    (folder / "calls.json").write_text(json.dumps(calls, indent=1))


def check(name: str, call: dict[str, Any], folder: Path) -> bool:
    """One kernel, in all cuts, from both kinds of arrays; a line each."""
    import cupy
    import dask.array as da

    from selector.dask import apply

    kernel = selector.load(folder / call["file"])
    rng = np.random.default_rng(1)
    arrays = {n: random(rng, s, call["dtype"]) for n, s in call["shapes"].items()}
    sizes = None if call["sizes"] is None else tuple(call["sizes"])
    whole = kernel(**arrays, sizes=sizes)
    fine = True
    for library in (np, cupy):
        for cut in CUTS:
            given = {
                n: library.asarray(a) if n == "K" else da.from_array(library.asarray(a), cut)
                for n, a in arrays.items()
            }
            blocks = apply(kernel, sizes=sizes, **given)
            begin = time.perf_counter()
            made = blocks.compute(scheduler="threads", num_workers=4)
            seconds = time.perf_counter() - begin
            same = isinstance(made, library.ndarray) and isinstance(blocks._meta, library.ndarray)
            made = made if library is np else made.get()
            same = same and np.array_equal(made, whole) and made.dtype == blocks.dtype
            fine = fine and same
            verdict = "same bits" if same else "WRONG"
            print(
                f"{name:18} {library.__name__:6} {blocks.numblocks!s:8} {seconds:6.3f} s  {verdict}"
            )
    return fine


def random(rng: np.random.Generator, shape: list[int], dtype: str) -> np.ndarray:
    if dtype == "uint8":
        return rng.integers(0, 256, shape, np.uint8)
    return rng.standard_normal(shape).astype(dtype)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--target", default="sm_90a")
    options = parser.parse_args()
    if options.build:
        build(options.folder, options.target)
        return 0
    calls = json.loads((options.folder / "calls.json").read_text())
    wrong = [name for name, call in calls.items() if not check(name, call, options.folder)]
    print(f"{len(calls)} kernels, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
