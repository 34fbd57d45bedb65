"""The pipelines whose loops are compared with stock Halide's, and the program that prints its.

    HL_DEBUG_CODEGEN=2 python stock_pipelines.py

prints a JSON object from names to texts.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator

import halide as hl
from pipelines import (
    BF16,
    F16,
    S8,
    Case,
    bias_relu,
    conv1d,
    conv1d_paper,
    conv2d,
    downsample,
    gemm_simple,
    gemm_staged,
    matmul_paper,
    upsample,
    variables,
)

BARE = "x86-64-linux-no_runtime-no_bounds_query-no_asserts"
TARGETS = {"sm_90a": f"{BARE}-cuda-cuda_capability_80", "amx": BARE}


def blur() -> Case:
    """A separable 3 x 3 mean on the CPU, with a sliding window."""
    x, y, yo, yi = variables("x y yo yi")
    image = hl.ImageParam(hl.UInt(16), 2, "I")
    across, out = hl.Func("across"), hl.Func("blur")
    across[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) / 3
    out[x, y] = (across[x, y] + across[x, y + 1] + across[x, y + 2]) / 3
    out.split(y, yo, yi, 32).vectorize(x, 8).parallel(yo)
    across.store_at(out, yo).compute_at(out, yi).vectorize(x, 8)
    return Case([out], [image], target="amx")


def edges_tuple() -> Case:
    """Two outputs in a tuple, clamped reads, a select and a cast."""
    x, y, xi = variables("x y xi")
    image = hl.ImageParam(hl.Float(32), 2, "I")
    clamped = hl.BoundaryConditions.repeat_edge(image)
    out = hl.Func("edges")
    step = clamped[x + 1, y] - clamped[x - 1, y]
    out[x, y] = (step, hl.select(hl.abs(step) > 0.5, hl.u8(255), hl.u8(0)))
    out.split(x, x, xi, 16, hl.TailStrategy.GuardWithIf).vectorize(xi)
    return Case([out], [image], target="amx")


def histogram() -> Case:
    """A scatter over a reduction domain."""
    i = hl.Var("i")
    image = hl.ImageParam(hl.UInt(8), 2, "I")
    r = hl.RDom([(0, image.width()), (0, image.height())], "r")
    out = hl.Func("histogram")
    out[i] = 0
    out[hl.i32(image[r.x, r.y])] += 1
    out.bound(i, 0, 256).vectorize(i, 8)
    return Case([out], [image], target="amx")


def simt_conv(k: int = 8) -> Case:
    """A convolution without tensor instructions, tiled over threads."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image, taps = hl.ImageParam(hl.Float(16), 2, "I"), hl.ImageParam(hl.Float(16), 1, "K")
    rx = hl.RDom([(0, k)], "rx")
    out = hl.Func("output")
    out[x, y] = hl.f32(0)
    out[x, y] += hl.f32(taps[rx.x]) * hl.f32(image[x + rx.x, y])
    out.gpu_tile(x, y, xo, yo, xi, yi, 32, 8)
    out.update().reorder(rx.x, x, y).gpu_tile(x, y, xo, yo, xi, yi, 32, 8).unroll(rx.x)
    return Case([out], [image, taps])


STOCK = {
    "conv1d": lambda: conv1d(8, lanes=32, tiles=2),
    "conv1d_direct": lambda: conv1d(16, lanes=64, tiles=1, staged=False),
    "conv1d_paper": lambda: conv1d_paper(16),
    "conv2d": lambda: conv2d(4, lanes=32, rows=2),
    "gemm_simple": lambda: gemm_simple(F16, k=64),
    "gemm_simple_ragged": lambda: gemm_simple(BF16),
    "gemm_staged": lambda: gemm_staged(S8, k=64, tile=(32, 64)),
    "matmul_paper": matmul_paper,
    "downsample": lambda: downsample(4),
    "upsample": lambda: upsample(8),
    "bias_relu": lambda: bias_relu(4),
    "blur": blur,
    "edges_tuple": edges_tuple,
    "histogram": histogram,
    "simt_conv": simt_conv,
}


def compile_with_stock(case: Case) -> None:
    target = hl.Target(TARGETS[case.target])
    text = hl.StmtOutputFormat.Text
    case.outputs[0].compile_to_lowered_stmt("/dev/null", case.inputs, text, target)


def stock_text(make: Callable[[], Case]) -> str:
    """What stock Halide prints after vectorizing, in a child that is stopped after that."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        try:
            compile_with_stock(make())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, errors="replace") as log:
        block = list(vectorized_block(log))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "".join(block)


def vectorized_block(log: Iterable[str]) -> Iterator[str]:
    """The lines between the header of that print and the next one; headers start with a capital."""
    inside = False
    for line in log:
        if inside and line[0].isupper():
            return
        if inside:
            yield line
        inside = inside or line.startswith("Lowering after vectorizing")


if __name__ == "__main__":
    print(json.dumps({name: stock_text(make) for name, make in STOCK.items()}))
