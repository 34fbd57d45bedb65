"""Compile the operators that ``run_jax.py`` calls from JAX, on a machine that needs no GPU.

python tests/gpu/build_jax.py FOLDER [--target sm_90a]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import halide_bridge as hb  # noqa: E402
from halide_bridge import operators  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90a")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    made = {
        "softmax": operators.softmax("float32"),
        "rms_norm": operators.rms_norm("float16"),
        "matmul": operators.matmul("float16"),
        "filter_2d": operators.filter_2d(5, 5, "float16", "zero"),
    }
    for name, operator in made.items():
        for part, pipeline in (("forward", operator.kernel), ("backward", operator.backward)):
            kernel = hb.compile(pipeline, schedule="auto", target=options.target)
            kernel.save(options.folder / f"{name}.{part}.kernel", overwrite=True)
            print(f"{name} {part}", flush=True)


if __name__ == "__main__":
    main()
