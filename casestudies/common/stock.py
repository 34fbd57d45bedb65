"""The baseline: a schedule compiled by stock Halide, ahead of time, to a shared library that needs
nothing of ours.

The library holds the pipeline and Halide's CUDA runtime; ``casestudies.common.stock_call`` runs it
on device pointers, on a machine that has neither Halide nor its Python package.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import halide as hl

from selector.diagnostics import UserError

GPU_TARGET = "x86-64-linux-avx-avx2-f16c-fma-sse41-cuda-cuda_capability_80"
CPU_TARGET = "x86-64-linux-avx-avx2-f16c-fma-sse41"
ENTRY = "stock_pipeline"
ALIGNMENT = 16  # bytes; every array of CuPy and NumPy that is passed starts at such an address


def fix_dense(parameter: Any, shape: tuple[int, ...]) -> None:
    """Declare a dense array of NumPy ``shape``: all extents and strides constants of the compiled
    pipeline.
    """
    stride = 1
    for dim, extent in enumerate(reversed(shape)):
        parameter.dim(dim).set_bounds(0, extent).set_stride(stride)
        stride *= extent
    parameter.set_host_alignment(ALIGNMENT)


def compile_shared(output: hl.Func, path: Path, target: str = GPU_TARGET) -> None:
    """Compile a scheduled Func to a shared library at ``path``; ``UserError`` if Halide or g++
    refuses.
    """
    with tempfile.TemporaryDirectory() as folder:
        stem = str(Path(folder, "pipeline"))
        try:
            output.compile_to_static_library(
                stem, output.infer_arguments(), ENTRY, hl.Target(target)
            )
        except hl.HalideError as error:
            raise UserError("stock Halide cannot compile the baseline", why=str(error)) from None
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["g++", "-shared", "-o", str(path), "-Wl,--whole-archive", f"{stem}.a"]
        command += ["-Wl,--no-whole-archive", "-ldl", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError("g++ cannot link the baseline", why=done.stderr.strip())


def argument_order(output: hl.Func) -> tuple[str, ...]:
    """Names of the library's buffers in calling order, the output last.

    Halide numbers names that a process has used before (``output$2``): that is taken off.
    """
    names = (*(a.name for a in output.infer_arguments()), output.name())
    return tuple(name.split("$")[0] for name in names)
