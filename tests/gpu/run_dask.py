"""Dask arrays on a GPU: blocks of CuPy and of NumPy against the whole image, bit by bit.

python tests/gpu/run_dask.py FOLDER --build     # where Halide is: kernels of tests/dask, saved
python tests/gpu/run_dask.py FOLDER             # on the GPU machine: NumPy, CuPy, Dask
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "dask")]

import selector  # noqa: E402

HEIGHT, WIDTH = 301, 1003
NAMES = (
    "blur", "bytes", "transpose", "reduce by three", "enlarge by three", "two images", "separable",
    "repeat edge", "constant exterior", "edge inside", "staged", "tensor",
)  # fmt: skip
PICTURE = {"width": 3001, "height": 999}
CASES: tuple[tuple[str, dict[str, Any], tuple[int, ...]], ...] = (  # the axes to cut behind them
    ("conv1d", {**PICTURE, "taps": 32}, (0, 1)),
    ("conv1d", {**PICTURE, "taps": 16, "boundary": "zero"}, (0, 1)),
    ("conv2d", {**PICTURE, "taps": 32}, (0, 1)),
    ("conv2d", {**PICTURE, "taps": 16, "boundary": "clamp"}, (0, 1)),
    ("downsample", {**PICTURE, "taps": 16}, (0, 1)),
    ("downsample", {**PICTURE, "taps": 32}, (0, 1)),
    ("upsample", {**PICTURE, "taps": 16}, (0, 1)),
    ("dct_denoise", {**PICTURE, "planes": 3}, (1, 2)),
    (
        "conv_layer",
        {"batch": 3, "height": 70, "width": 200, "channels": 64, "filters": 64},
        (0, 1, 2),
    ),
)


def build(folder: Path, target: str) -> None:
    """Save the kernels, and what they are called with."""
    from dask_pipelines import ZOO

    import halide_bridge as hb
    from casestudies.common.registry import find_case

    folder.mkdir(parents=True, exist_ok=True)
    calls: dict[str, Any] = {}

    def save(name: str, output: Any, arrays: Any, axes: Any, sizes: Any) -> None:
        file = f"{len(calls)}.saved"
        hb.compile(output, target=target, name="output").save(folder / file)
        calls[name] = {"file": file, "arrays": arrays, "axes": axes, "sizes": sizes}

    for name in NAMES:
        case = ZOO[name]
        shapes = {"I": (HEIGHT, WIDTH)}
        shapes |= {n: shape or (HEIGHT, WIDTH) for n, shape in case.others.items()}
        arrays = {n: (shape, case.dtype) for n, shape in shapes.items()}
        save(name, case.build(), arrays, (0, 1), (HEIGHT, WIDTH) if case.follows else None)
    for name, fields, axes in CASES:
        problem = importlib.import_module(f"casestudies.{name}.problem").Problem(**fields)
        arrays = {a.name: (a.shape, a.dtype) for a in problem.inputs}
        output = find_case(name).scheduled(problem, "tensor", target)
        save(problem.name, output, arrays, axes, problem.output.shape)
    (folder / "calls.json").write_text(json.dumps(calls, indent=1))


def cuts(shape: list[int], axes: list[int]) -> list[tuple[tuple[int, ...], ...]]:
    """The image whole, in ragged chunks, and in even ones with a rest."""

    def ways(n: int) -> tuple[tuple[int, ...], ...]:
        each = max(n // 4, 1)
        even = (each,) * (n // each) + ((n % each,) if n % each else ())
        return (n,), (1, n // 2 - 1, n - n // 2) if n > 3 else (n,), even

    kinds = [ways(n) if k in axes else ((n,),) * 3 for k, n in enumerate(shape)]
    return list(zip(*kinds, strict=True))


def check(name: str, call: dict[str, Any], folder: Path) -> bool:
    """One kernel, in all cuts, from both kinds of arrays; a line each."""
    import cupy
    import dask.array as da

    from selector.dask import apply

    kernel = selector.load(folder / call["file"])
    rng = np.random.default_rng(1)
    arrays = {n: random(rng, *array) for n, array in call["arrays"].items()}
    sizes = None if call["sizes"] is None else tuple(call["sizes"])
    whole = kernel(**arrays, sizes=sizes)
    fine = True
    for library, cut in product((np, cupy), cuts(call["arrays"]["I"][0], call["axes"])):
        given = {
            n: da.from_array(library.asarray(a), cut) if n in ("I", "J") else library.asarray(a)
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
        print(f"{name:28} {library.__name__:6} {blocks.numblocks!s:12} {seconds:6.3f} s", end="  ")
        print("same bits" if same else f"WRONG: {np.count_nonzero(made != whole)} elements")
    return fine


def large(kernel: selector.Kernel) -> None:
    """A convolution of a large image that is on the GPU, whole and in blocks."""
    import cupy
    import dask.array as da

    from selector.dask import apply

    image = cupy.random.default_rng(1).random((16384, 32768), dtype="float32").astype("float16")
    taps = cupy.full(32, 1 / 32, "float16")
    blocks = apply(kernel, I=da.from_array(image, 8192), K=taps)
    for _ in range(3):
        begin = time.perf_counter()
        whole = kernel(I=image, K=taps)
        cupy.cuda.Device().synchronize()
        middle = time.perf_counter()
        made = blocks.compute(scheduler="threads", num_workers=4)
        cupy.cuda.Device().synchronize()
        end = time.perf_counter()
        same = bool((made == whole).all())
        times = f"{1e3 * (middle - begin):.2f} ms whole, {1e3 * (end - middle):.2f} ms in blocks"
        print(f"conv1d of 16384 x 32768: {times}, same bits: {same}")


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
    large(selector.load(options.folder / calls["conv1d-k32-3001x999"]["file"]))
    print(f"{len(calls)} kernels, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
