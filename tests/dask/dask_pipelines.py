"""Small pipelines that read an image ``I`` in all the ways that matter for cutting it: plain
kernels on CUDA cores, unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import halide as hl
import numpy as np

import halide_bridge as hb
from selector import Kernel

F32 = hl.Float(32)


@dataclass(frozen=True, slots=True)
class Zoo:
    """``build`` gives the scheduled output. ``cuts``: NumPy axes of the output that can be cut.
    ``follows``: the output has the image's shape, which no bound says. ``others``: inputs beside
    the image, by shape. ``before`` and ``after``: the image's extents beside height and width.
    """

    build: Callable[[], hl.Func]
    cuts: tuple[int, ...] = (0, 1)
    follows: bool = False
    others: dict[str, tuple[int, ...]] = field(default_factory=dict)
    dtype: str = "float32"
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    target: str = "sm_80"


@cache
def kernel(name: str) -> Kernel:
    return hb.compile(ZOO[name].build(), target=ZOO[name].target, name="output")


def image(dims: int = 2, name: str = "I", element: hl.Type = F32) -> hl.ImageParam:
    return hl.ImageParam(element, dims, name)


def on_gpu(
    make: Callable[[hl.Var, hl.Var], Any],
    width: int = 8,
    height: int = 4,
    tail: hl.TailStrategy = hl.TailStrategy.Auto,
) -> hl.Func:
    """One value an output, in blocks of ``width`` x ``height``."""
    output, (x, y, xo, yo, xi, yi) = hl.Func("output"), variables()
    output[x, y] = make(x, y)
    output.gpu_tile(x, y, xo, yo, xi, yi, width, height, tail)
    return output


def variables() -> tuple[hl.Var, ...]:
    return tuple(hl.Var(n) for n in ("x", "y", "xo", "yo", "xi", "yi"))


def blur(tail: hl.TailStrategy = hl.TailStrategy.Auto) -> hl.Func:
    i = image()
    return on_gpu(lambda x, y: i[x, y] + 2.0 * i[x + 2, y + 1] - 0.5 * i[x + 1, y + 5], tail=tail)


def bytes_blur() -> hl.Func:
    i = image(element=hl.UInt(8))
    return on_gpu(lambda x, y: hl.u8((hl.u16(i[x, y]) + hl.u16(i[x + 1, y])) / 2))


def late() -> hl.Func:
    i = image()
    return on_gpu(lambda x, y: i[x + 7, y + 3])


def transpose() -> hl.Func:
    i = image()
    return on_gpu(lambda x, y: i[y, x + 1])


def reduce_by_three() -> hl.Func:
    i = image()
    return on_gpu(lambda x, y: i[3 * x, 2 * y] + i[3 * x + 4, 2 * y + 1])


def enlarge_by_three() -> hl.Func:
    i = image()
    return on_gpu(lambda x, y: i[x / 3, y / 2] * hl.f32(x % 3 + 1) + i[x / 3 + 1, y / 2 + 1])


def planes() -> hl.Func:
    i, output = image(3), hl.Func("output")
    (x, y, xo, yo, xi, yi), c = variables(), hl.Var("c")
    output[x, y, c] = i[x, y, c] + i[x + 3, y, c]
    output.gpu_tile(x, y, xo, yo, xi, yi, 8, 4).gpu_blocks(c)
    return output


def interleaved() -> hl.Func:
    i, output = image(3), hl.Func("output")
    (x, y, xo, yo, xi, yi), c = variables(), hl.Var("c")
    clamped = hl.BoundaryConditions.repeat_edge(i)
    output[c, x, y] = clamped[c, x - 1, y] + clamped[c, x + 1, y]
    for target in (i, output.output_buffer()):
        target.dim(0).set_bounds(0, 3).set_stride(1)
        target.dim(1).set_stride(3)
    output.bound(c, 0, 3).reorder(c, x, y).unroll(c)
    output.gpu_tile(x, y, xo, yo, xi, yi, 8, 4)
    return output


def two_images() -> hl.Func:
    i, j = image(), image(name="J")
    return on_gpu(lambda x, y: i[x, y] - j[x + 2, y])


def edges(make: Callable[..., hl.Func], *value: float) -> hl.Func:
    i = image()
    around = make(i, *(hl.f32(v) for v in value))
    return on_gpu(lambda x, y: around[x - 9, y - 1] + 3.0 * around[x + 2, y + 6] + around[x, y])


def edge_inside() -> hl.Func:
    """What only the first hundredth and the last five columns do."""
    i = image()
    here = hl.BoundaryConditions.repeat_edge(i)
    return on_gpu(
        lambda x, y: (
            hl.select((x < 10) | (x >= i.width() - 5), 7.0, 1.0) * here[x, y] + here[x + 1, y]
        )
    )


def every_fifth() -> hl.Func:
    i = image()
    return on_gpu(lambda x, y: hl.select(x % 5 == 0, i[x, y], -i[x, y]))


def position() -> hl.Func:
    i = image()
    return on_gpu(lambda x, y: i[x, y] * hl.f32(x))


def flip() -> hl.Func:
    i = image()
    return on_gpu(lambda x, y: i[hl.clamp(i.width() - 1 - x, 0, i.width() - 1), y])


def middle() -> hl.Func:
    i = image()
    half = i.width() / 2
    return on_gpu(lambda x, y: hl.select(x < half, 1.0, 2.0) * i[hl.min(x, i.width() - 1), y])


def table() -> hl.Func:
    i, k = image(), image(1, "K")
    return on_gpu(lambda x, y: i[x, y] + k[x])


def column_sum() -> hl.Func:
    """A sum over the whole width, for each row."""
    i, total, output = image(), hl.Func("total"), hl.Func("output")
    (x, y, xo, yo, xi, yi), r = variables(), hl.RDom([(0, i.width())], "r")
    total[y] = 0.0
    total[y] += i[r, y]
    output[x, y] = total[y] * i[x, y]
    output.gpu_tile(x, y, xo, yo, xi, yi, 8, 4)
    total.compute_at(output, xi)
    return output


def recursion() -> hl.Func:
    """Each value depends on the one before it in its row."""
    i, output, x, y = image(), hl.Func("output"), hl.Var("x"), hl.Var("y")
    yo, yi, r = hl.Var("yo"), hl.Var("yi"), hl.RDom([(1, i.width() - 1)], "r")
    output[x, y] = i[x, y]
    output[r, y] = output[r, y] + 0.5 * output[r - 1, y]
    output.gpu_tile(y, yo, yi, 4)
    output.update().gpu_tile(y, yo, yi, 4)
    return output


def separable() -> hl.Func:
    """Two kernels with an intermediate image between them."""
    i, rows, output = image(), hl.Func("rows"), hl.Func("output")
    x, y, xo, yo, xi, yi = variables()
    rows[x, y] = i[x, y] + i[x + 2, y]
    output[x, y] = rows[x, y] - 2.0 * rows[x, y + 3]
    output.gpu_tile(x, y, xo, yo, xi, yi, 8, 4)
    rows.compute_root().gpu_tile(x, y, xo, yo, xi, yi, 8, 4)
    return output


def sliding() -> hl.Func:
    """Rows of an intermediate image that are kept from one row of the output to the next."""
    i, rows, output = image(), hl.Func("rows"), hl.Func("output")
    x, y = hl.Var("x"), hl.Var("y")
    rows[x, y] = i[x, y] + i[x + 2, y]
    output[x, y] = rows[x, y] - 2.0 * rows[x, y + 3]
    rows.store_root().compute_at(output, y)
    return output


def on_cpu() -> hl.Func:
    """Rows in parallel, vectors of eight."""
    i, output = image(), hl.Func("output")
    x, y = hl.Var("x"), hl.Var("y")
    output[x, y] = i[x, y] - 2.0 * i[x + 1, y + 3]
    output.vectorize(x, 8).parallel(y)
    return output


def staged() -> hl.Func:
    """A block's part of an image with an edge, in shared memory, with another schedule's tile."""
    i, output = image(), hl.Func("output")
    x, y, xo, yo, xi, yi = variables()
    around, local = hl.BoundaryConditions.constant_exterior(i, hl.f32(2.0)), hl.Func("local")
    local[x, y] = around[x - 3, y - 3] * 2.0
    output[x, y] = local[x, y] - local[x + 6, y + 6]
    output.gpu_tile(x, y, xo, yo, xi, yi, 16, 8)
    local.compute_at(output, xo).gpu_threads(x, y)
    return output


def product() -> hl.Func:
    """A matrix product: ``I`` is K elements wide."""
    i, k, output = image(), image(name="K"), hl.Func("output")
    (x, y, xo, yo, xi, yi), r = variables(), hl.RDom([(0, 12)], "r")
    output[x, y] = 0.0
    output[x, y] += i[r, y] * k[x, r]
    output.gpu_tile(x, y, xo, yo, xi, yi, 8, 4)
    output.update().gpu_tile(x, y, xo, yo, xi, yi, 8, 4)
    return output


def tensor() -> hl.Func:
    """A convolution on tensor instructions."""
    i, k = image(element=hl.Float(16)), image(1, "K", hl.Float(16))
    conv, output = hl.Func("conv"), hl.Func("output")
    (x, y, xo, yo, xi, yi), t = variables(), hl.RDom([(0, 16)], "t")
    conv[x, y] = 0.0
    conv[x, y] += hl.f32(i[x + t, y]) * hl.f32(k[t])
    output[x, y] = conv[x, y]
    output.split(x, xo, xi, 256).split(y, yo, yi, 2).reorder(xi, yi, xo, yo)
    output.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(output, yi).vectorize(x)
    conv.update().atomic().vectorize(x).vectorize(t)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    return output


_B = hl.BoundaryConditions
ZOO: dict[str, Zoo] = {
    "blur": Zoo(blur),
    "blur guarded": Zoo(lambda: blur(hl.TailStrategy.GuardWithIf)),
    "blur shifted": Zoo(lambda: blur(hl.TailStrategy.ShiftInwards)),
    "bytes": Zoo(bytes_blur, dtype="uint8"),
    "late": Zoo(late),
    "transpose": Zoo(transpose),
    "reduce by three": Zoo(reduce_by_three),
    "enlarge by three": Zoo(enlarge_by_three),
    "planes": Zoo(planes, cuts=(0, 1, 2), before=(3,)),
    "interleaved": Zoo(interleaved, follows=True, after=(3,)),
    "two images": Zoo(two_images, others={"J": ()}),
    "repeat edge": Zoo(lambda: edges(_B.repeat_edge), follows=True),
    "constant exterior": Zoo(lambda: edges(_B.constant_exterior, 5.0), follows=True),
    "repeat image": Zoo(lambda: edges(_B.repeat_image), cuts=(), follows=True),
    "mirror image": Zoo(lambda: edges(_B.mirror_image), cuts=(), follows=True),
    "edge inside": Zoo(edge_inside, follows=True),
    "every fifth": Zoo(every_fifth),
    "position": Zoo(position, cuts=(0,)),
    "flip": Zoo(flip, cuts=(0,), follows=True),
    "middle": Zoo(middle, cuts=(0,), follows=True),
    "table": Zoo(table, cuts=(0,), others={"K": (200,)}),
    "column sum": Zoo(column_sum, cuts=(0,), follows=True),
    "recursion": Zoo(recursion, cuts=(0,), follows=True),
    "separable": Zoo(separable),
    "sliding": Zoo(sliding, cuts=(1,), target="amx"),
    "on a CPU": Zoo(on_cpu, target="amx"),
    "staged": Zoo(staged, follows=True),
    "product": Zoo(product, cuts=(0,), others={"K": (12, 20)}),
    "tensor": Zoo(tensor, others={"K": (16,)}, dtype="float16"),
}


def random(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "uint8":
        return rng.integers(0, 256, shape, np.uint8)
    return rng.standard_normal(shape).astype(dtype)
