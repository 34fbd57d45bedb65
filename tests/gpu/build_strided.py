"""Compile convolution layers with a stride, of the sizes that residual networks have, to be timed
beside cuDNN.

    python tests/gpu/build_strided.py [--out artifacts/strided] [--target sm_90a]
    python tests/gpu/run_all.py --artifacts artifacts/strided --timed

The second line needs NumPy, CuPy and torch, and the GPU; the first neither. With them go the same
layers without a stride, which do as many multiply-adds.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from build_artifacts import ROOT, build_kernels

from casestudies.conv_layer import CASE
from casestudies.conv_layer.problem import Problem
from casestudies.measuring import artifacts

LAYERS = ((64, 28), (128, 28), (256, 14), (512, 7))  # channels, width and height of the output
BATCH = 32


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "artifacts" / "strided")
    parser.add_argument("--target", default="sm_90a")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    problems = tuple(
        Problem(BATCH, size, size, channels, channels, stride)
        for channels, size in LAYERS
        for stride in (1, 2)
    )
    case, failures = replace(CASE, small=(), benchmark=problems), list[str]()
    kernels = build_kernels(case, "tensor", options.target, options.out, failures)
    jobs = tuple(artifacts.job(case.name, "benchmark", p) for p in problems)
    artifacts.write(options.out, artifacts.Manifest(tuple(kernels), (), jobs))
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
