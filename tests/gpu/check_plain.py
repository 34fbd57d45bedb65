"""Check plain pipelines that nobody scheduled on the GPU, at ragged sizes.

    python tests/gpu/check_plain.py FOLDER [--sanitize TOOL ...] [--match REGEX]

The kernels of ``build_plain.py`` run on their small arguments, with the memory pool full of NaN,
and are compared with what Halide's own compiler makes of these; then the same under each tool of
compute-sanitizer. Needs CuPy.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

import selector  # noqa: E402

POISONED = 64 << 20  # bytes


def poison() -> None:
    """Fill what the pool gives out next with NaN."""
    room = cp.cuda.alloc(POISONED)
    cp.cuda.runtime.memset(room.ptr, 0xFF, POISONED)


def is_close(found: Any, wanted: Any, tolerance: float) -> bool:
    if found.shape != wanted.shape:
        return False
    if wanted.dtype.kind in "iu":
        off = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
        return bool(off.max() <= (tolerance > 1))
    exact = wanted.astype(np.float64)
    return bool(np.linalg.norm(found - exact) <= tolerance * np.linalg.norm(exact))


def fault(path: Path) -> str:
    """What is wrong with a kernel; empty if nothing."""
    case = np.load(path.with_suffix(".npz"))
    about = json.loads(str(case["about"]))
    arguments = {
        n.removeprefix("argument "): cp.asarray(case[n]) for n in case if n.startswith("argument ")
    }
    sizes = about["sizes"]
    sizes = {n: tuple(s) for n, s in sizes.items()} if isinstance(sizes, dict) else tuple(sizes)
    poison()
    try:
        found = selector.load(path)(**arguments, **about["numbers"], sizes=sizes)
    except Exception as error:  # one kernel's fault is not the end of the others
        return f"{type(error).__name__}: {error}"
    outputs = [*found.values()] if isinstance(found, dict) else [found]
    wanted = [case[n] for n in case if n.startswith("result ")]
    pairs = zip(map(cp.asnumpy, outputs), wanted, strict=True)
    return "" if all(is_close(f, w, about["tolerance"]) for f, w in pairs) else "wrong"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="", help="only pipelines whose name holds this (regex)")
    parser.add_argument("--sanitize", nargs="*", default=(), metavar="TOOL")
    options = parser.parse_args()
    paths = [p for p in sorted(options.folder.glob("*.kernel")) if re.search(options.match, p.stem)]
    faults = {p.stem: f for p in paths if (f := fault(p))}
    for name, found in faults.items():
        print(f"{name}: {found}")
    print(f"{len(paths)} plain pipelines, {len(faults)} wrong or failed")
    failed = bool(faults)
    for tool in options.sanitize:
        own = [sys.executable, __file__, str(options.folder), "--match", options.match]
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *own]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        failed |= done.returncode != 0
        print(f"{tool}: {done.stdout.strip().splitlines()[-1]}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
