"""A large image through a pipeline, from file to file, on one GPU and on several.

python tests/gpu/run_images.py FOLDER --build     # where Halide is: the kernel, saved
python tests/gpu/run_images.py FOLDER             # on the GPU machine: NumPy, CuPy, Dask, Zarr

No chunk of the image is like another. Each count of workers computes it from Zarr to Zarr twice,
the second time with files in the page cache. Beside that stands the time of computing alone, from
memory in one process. Windows of every result are compared with float64. Prints a line of JSON for
each run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "bridge")]

import selector  # noqa: E402
from selector.__main__ import main  # noqa: E402

TAPS, CHUNK, SIDE = 31, 2048, 100  # pixels: of the filter, of a chunk's side, of a window compared
MOST = 1e-3  # error of halves


def build(folder: Path, target: str) -> None:
    """The kernel, and its taps."""
    import halide as hl

    import halide_bridge as hb

    x, y, r = hl.Var("x"), hl.Var("y"), hl.RDom([(0, TAPS)], "r")
    image, taps = hl.ImageParam(hl.Float(16), 2, "I"), hl.ImageParam(hl.Float(16), 1, "K")
    rows, output = hl.Func("rows"), hl.Func("output")
    rows[x, y] += hl.f32(image[x + r, y]) * hl.f32(taps[r])
    output[x, y] = hl.cast(hl.Float(16), rows[x, y])
    folder.mkdir(parents=True, exist_ok=True)
    kernel = hb.compile(output, target=target, schedule="auto", sizes={"I": (CHUNK, CHUNK)})
    kernel.save(folder / "rows.kernel", overwrite=True)
    np.save(folder / "taps.npy", (np.hanning(TAPS) / TAPS).astype(np.float16))


def make(folder: Path, height: int, width: int) -> None:
    """The image in Zarr, row of chunks by row of chunks."""
    import zarr

    random = np.random.default_rng(1)
    image = zarr.create_array(
        store=str(folder / "image.zarr"), shape=(height, width), chunks=(CHUNK, CHUNK),
        dtype="float16", overwrite=True, compressors=None,
    )  # fmt: skip
    for y in range(0, height, CHUNK):
        rows = random.random((min(CHUNK, height - y), width), np.float32)
        image[y : y + CHUNK] = rows.astype(np.float16)


def error(folder: Path) -> float:
    """The largest relative error of some windows."""
    import zarr

    image = zarr.open(str(folder / "image.zarr"), mode="r")
    found = zarr.open(str(folder / "out.zarr"), mode="r")
    taps, random, worst = np.load(folder / "taps.npy"), np.random.default_rng(2), 0.0
    for _ in range(10):
        y, x = (int(random.integers(0, max(n - SIDE, 1))) for n in found.shape)
        part = image[y : y + SIDE, x : x + SIDE + TAPS - 1].astype(np.float64)
        exact = np.lib.stride_tricks.sliding_window_view(part, TAPS, axis=1) @ taps.astype(float)
        window = found[y : y + SIDE, x : x + SIDE].astype(np.float64)
        worst = max(worst, float(np.linalg.norm(window - exact) / np.linalg.norm(exact)))
    return worst


def computing(folder: Path, height: int, interpret: bool) -> float:
    """Seconds of the kernel for all rows of chunks, from NumPy's memory and back."""
    import zarr

    kernel = selector.load(folder / "rows.kernel")
    run = kernel.interpret if interpret else kernel
    image, taps = zarr.open(str(folder / "image.zarr"), mode="r"), np.load(folder / "taps.npy")
    rows = image[:CHUNK]
    run(rows, taps)
    begin = time.perf_counter()
    for _ in range(-(-height // CHUNK)):
        run(rows, taps)
    return time.perf_counter() - begin


def run(options: argparse.Namespace) -> int:
    folder = options.folder
    make(folder, options.height, options.width)
    more = ["--interpret"] if options.interpret else []
    failed = 0
    for workers in options.workers:
        for _ in range(2):
            command = ["apply", str(folder / "rows.kernel"), f"I={folder / 'image.zarr'}"]
            command += [
                f"K={folder / 'taps.npy'}",
                "--out",
                str(folder / "out.zarr"),
                "--overwrite",
            ]
            begin = time.perf_counter()
            failed += main([*command, "--workers", str(workers), *more])
            seconds = time.perf_counter() - begin
            line = {"workers": workers, "seconds": seconds, "error": error(folder)}
            failed += not line["error"] < MOST
            print(json.dumps(line), flush=True)
    alone = computing(folder, options.height, options.interpret)
    print(json.dumps({"computing": alone, "pixels": options.height * options.width}), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--height", type=int, default=32768)
    parser.add_argument("--width", type=int, default=32768)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--interpret", action="store_true", help="by the interpreter: no GPU")
    chosen = parser.parse_args()
    if chosen.build:
        build(chosen.folder, chosen.target)
    else:
        sys.exit(run(chosen))
