"""Run a built corpus on the GPU and compare; needs NumPy and CuPy only.

    python tests/gpu/run_corpus.py FOLDER [--match REGEX]

Every size runs twice: with dense arrays, and with rows that are padded by an odd number of
elements, in inputs and outputs. Outputs, shared memory and the memory pool are poisoned first, and
what lies around outputs is checked to be untouched. Prints a table; exit code 1 if anything is
wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import cupy  # noqa: E402  # pyright: ignore
import numpy as np  # noqa: E402

import selector  # noqa: E402
from casestudies.measuring.poison import poison  # noqa: E402

Arrays = dict[str, Any]
POISON = 0xA5


def place(shape: tuple[int, ...], dtype: Any, pad: int) -> tuple[Any, Any]:
    """(whole buffer, view of ``shape`` in it): rows ``pad`` elements longer, ``pad`` rows more."""
    if not shape:
        shape = (1,)
    whole = cupy.empty((*(n + pad for n in shape[:-1]), shape[-1] + pad), dtype)
    whole.view(cupy.uint8)[...] = POISON
    return whole, whole[tuple(slice(0, n) for n in shape)]


def on_device(value: Any, pad: int) -> Any:
    _, view = place(value.shape, value.dtype, pad)
    view[...] = cupy.asarray(value)
    return view


def difference(expected: Any, found: Any) -> float:
    """Relative Frobenius error; infinite where one is NaN or infinite and the other is not."""
    wide, other = expected.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(wide)
    same = np.array_equal(finite, np.isfinite(other)) and np.array_equal(
        wide[~finite], other[~finite], equal_nan=True
    )
    if not same:
        return float("inf")
    norm = float(np.linalg.norm(wide[finite]))
    return float(np.linalg.norm(wide[finite] - other[finite])) / (norm or 1.0)


def bfloat(bits: Any) -> Any:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def takes_strides(kernel: Any) -> bool:
    """Whether rows may be apart: a pipeline can fix the strides of its buffers."""
    return all(hasattr(d.stride, "name") for b in kernel.plan.buffers for d in b.dims[1:])


def run_one(kernel: Any, data: Arrays, pad: int) -> list[tuple[str, float, str]]:
    """(output, error, where it is wrong) of one call."""
    inputs = {k[3:]: on_device(v, pad) for k, v in data.items() if k.startswith("in_")}
    scalars = {k[7:]: v.item() for k, v in data.items() if k.startswith("scalar_")}
    expected = {k[4:]: v for k, v in data.items() if k.startswith("out_")}
    places = {k: place(v.shape, v.dtype, pad) for k, v in expected.items()}
    views = {k: view for k, (_, view) in places.items()}
    poison()
    kernel(**inputs, **scalars, out=views if len(views) > 1 else next(iter(views.values())))
    cupy.cuda.runtime.deviceSynchronize()
    types = {b.name: str(b.type) for b in kernel.plan.buffers}
    rows: list[tuple[str, float, str]] = []
    for name, want in expected.items():
        got = views[name].get()
        outside = places[name][0].view(cupy.uint8).get() != POISON
        mask = np.ones(places[name][0].shape, bool)
        mask[tuple(slice(0, n) for n in want.shape)] = False
        stray = outside.reshape(*mask.shape, -1)[mask].any()
        if types[name] == "bfloat16":
            want, got = bfloat(want), bfloat(got)
        error = difference(want, got)
        wrong = np.argwhere(
            ~np.isclose(want.astype(np.float64), got.astype(np.float64), 1e-2, 1e-2)
        )
        where = f"{len(wrong)} wrong, first {wrong[:3].tolist()}" if len(wrong) else ""
        rows.append((name, error, "writes outside its rows" if stray else where))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="", help="only cases whose name holds this (regex)")
    options = parser.parse_args()
    good = bad = 0
    for path in sorted(options.folder.glob("*.kernel")):
        if not re.search(options.match, path.stem):
            continue
        for file in sorted(options.folder.glob(f"{path.stem}.[0-9]*.npz")):
            data = dict(np.load(file))
            limit = float(data.pop("tolerance"))
            for pad in (0, 1, 3) if takes_strides(selector.load(path)) else (0,):
                try:
                    rows = run_one(selector.load(path), data, pad)
                except Exception as error:  # the others are still worth running
                    rows = [("", float("inf"), f"{type(error).__name__}: {error}")]
                for name, error, where in rows:
                    passed = error <= limit and where != "writes outside its rows"
                    good, bad = good + passed, bad + (not passed)
                    mark = "ok " if passed else "BAD"
                    if not passed or options.match:
                        print(
                            f"{mark} {file.stem:40} {name:12} pad {pad} {error:9.2e} {where}",
                            flush=True,
                        )
    print(f"{good} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
