"""The baseline: a schedule compiled by stock Halide, ahead of time, to a shared library that needs
nothing of ours.

The library holds the pipeline and Halide's CUDA runtime; ``casestudies.common.stock_call`` runs it
on device pointers, on a machine that has neither Halide nor its Python package.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import halide as hl

from casestudies.common.case import Problem
from casestudies.common.launches import MOST_REGISTERS, check
from selector.diagnostics import UserError

GPU_TARGET = "x86-64-linux-avx-avx2-f16c-fma-sse41-cuda-cuda_capability_80"
CPU_TARGET = "x86-64-linux-avx-avx2-f16c-fma-sse41"
ENTRY = "stock_pipeline"
REGISTERS = "stock_registers"  # an int of the library: the limit for a thread, by its largest block
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


def fix_sizes(parameters: Iterable[Any], output: hl.Func, problem: Problem) -> None:
    """Declare the arrays of one problem dense: ``parameters`` are those of its first inputs, in
    their order.
    """
    for parameter, spec in zip(parameters, problem.inputs, strict=False):
        fix_dense(parameter, spec.shape)
    fix_dense(output.output_buffer(), problem.output.shape)


def compile_shared(output: hl.Func, path: Path, target: str = GPU_TARGET) -> None:
    """Compile a scheduled Func to a shared library at ``path``; ``UserError`` if Halide or g++
    refuses, or if a GPU could not run it (``launches.check``).
    """
    with tempfile.TemporaryDirectory() as folder:
        library, statement, loops = (Path(folder, f"pipeline.{end}") for end in ("a", "s", "l"))
        files = {
            hl.OutputFileType.static_library: str(library),
            hl.OutputFileType.stmt: str(statement),
            hl.OutputFileType.conceptual_stmt: str(loops),
        }
        alone = hl.Target(f"{target}-no_runtime")
        try:
            output.compile_to(files, output.infer_arguments(), ENTRY, alone)
        except hl.HalideError as error:
            raise UserError("stock Halide cannot compile the baseline", why=str(error)) from None
        registers = MOST_REGISTERS
        if "cuda" in target:
            texts = (f.read_text(encoding="utf-8", errors="replace") for f in (statement, loops))
            registers = min(launch.registers for launch in check(*texts))
        runtime = Path(folder, "runtime.o")
        runtime.write_bytes(_runtime(target))
        _link(library, runtime, path, registers)


@cache
def _runtime(target: str) -> bytes:
    """Halide's runtime for a target, an object: it takes longer to compile than most pipelines, and
    is the same for all.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runtime.o")
        hl.compile_standalone_runtime(str(path), hl.Target(target))
        return path.read_bytes()


def _link(library: Path, runtime: Path, path: Path, registers: int) -> None:
    """The shared library, which tells its limit of registers."""
    constant = library.with_suffix(".cpp")
    constant.write_text(f'extern "C" {{ int {REGISTERS} = {registers}; }}\n', encoding="utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["g++", "-shared", "-fPIC", "-o", str(path), str(constant), str(runtime)]
    command += ["-Wl,--whole-archive", str(library), "-Wl,--no-whole-archive", "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError("g++ cannot link the baseline", why=done.stderr.strip())


def argument_order(output: hl.Func) -> tuple[str, ...]:
    """Names of the library's buffers in calling order, the output last.

    Halide numbers names that a process has used before (``output$2``): that is taken off.
    """
    names = (*(a.name for a in output.infer_arguments()), output.name())
    return tuple(name.split("$")[0] for name in names)
