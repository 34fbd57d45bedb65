"""Corpus: kernels without tensor statements. Everything a Halide schedule puts on CUDA cores."""

from __future__ import annotations

import halide as hl
from corpus_case import Case, variables
from corpus_types import TYPES, tiled

RAGGED = ((61, 37), (64, 32), (1, 1))


def blur(staged: str = "", store: hl.MemoryType | None = None) -> hl.Func:
    """A 3 x 3 box; ``staged``: where the horizontal pass is computed."""
    x, y, xo, yo, xi, yi = variables("x y xo yo xi yi")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    rows, out = hl.Func("rows"), hl.Func("out")
    rows[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) / 3
    out[x, y] = (rows[x, y] + rows[x, y + 1] + rows[x, y + 2]) / 3
    out.gpu_tile(x, y, xo, yo, xi, yi, 32, 8)
    if staged == "block":
        rows.compute_at(out, xo).gpu_threads(x, y)
    elif staged == "thread":
        rows.compute_at(out, xi)
    elif staged == "kernel":
        u, v, ui, vi = variables("u v ui vi")
        rows.compute_root().gpu_tile(x, y, u, v, ui, vi, 16, 16)
    if store is not None:
        rows.store_in(store)
    return out


def staged_input(vector: int = 0) -> hl.Func:
    """The input of a 5 x 5 stencil copied to shared memory by the threads."""
    x, y, xo, yo, xi, yi = variables("x y xo yo xi yi")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    r = hl.RDom([(0, 5), (0, 5)], "r")
    total = hl.Func("total")
    total[x, y] = hl.f32(0.0)
    total[x, y] += image[x + r.x, y + r.y] * hl.f32(r.x - 2 * r.y)
    out[x, y] = total[x, y]
    out.gpu_tile(x, y, xo, yo, xi, yi, 32, 8)
    total.compute_at(out, xi).unroll(x).unroll(y)
    total.update().unscheduled()
    copy = image.in_(total)
    u, v = copy.args()
    copy.compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
    if vector:
        copy.vectorize(u, vector)
    copy.gpu_threads(u, v)
    return out


def row_sum(kind: str) -> hl.Func:
    """A reduction over a row in each thread."""
    x, xo, xi = variables("x xo xi")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, 100)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    match kind:
        case "sum":
            total[x] = hl.f32(0.0)
            total[x] += image[r.x, x]
        case "max":
            total[x] = hl.f32(-1e30)
            total[x] = hl.max(total[x], image[r.x, x])
        case "product":
            total[x] = hl.f32(1.0)
            total[x] *= image[r.x, x]
        case _:
            total[x] = hl.f32(0.0)
            total[x] = hl.select(image[r.x, x] > 0, total[x] + 1, total[x])
    out[x] = total[x]
    out.gpu_tile(x, xo, xi, 32)
    total.compute_at(out, xi)
    return out


def update_in_place() -> hl.Func:
    """An output with two updates, each a kernel."""
    x, y, xo, yo, xi, yi = variables("x y xo yo xi yi")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    out = hl.Func("out")
    out[x, y] = image[x, y]
    out[x, y] += image[x, y] * 3
    out[x, y] = hl.select(x % 2 == 0, out[x, y], -out[x, y])
    out.gpu_tile(x, y, xo, yo, xi, yi, 16, 8)
    out.update(0).gpu_tile(x, y, xo, yo, xi, yi, 32, 4)
    out.update(1).gpu_tile(x, y, xo, yo, xi, yi, 8, 8)
    return out


def three_dimensions() -> hl.Func:
    x, y, z, xo, yo, xi, yi, zo, zi = variables("x y z xo yo xi yi zo zi")
    image = hl.ImageParam(hl.Float(32), 3, "image")
    out = hl.Func("out")
    out[x, y, z] = image[x, y, z] * hl.f32(z + 1) + image[x + 1, y, z + 2]
    out.split(x, xo, xi, 8).split(y, yo, yi, 4).split(z, zo, zi, 2)
    out.reorder(xi, yi, zi, xo, yo, zo).gpu_blocks(xo, yo, zo).gpu_threads(xi, yi, zi)
    return out


def vectorized(lanes: int, type_: hl.Type) -> hl.Func:
    x, y, xo, xi, xv = variables("x y xo xi xv")
    image = hl.ImageParam(type_, 2, "image")
    out = hl.Func("out")
    out[x, y] = hl.cast(type_, image[x, y] + image[x + 1, y])
    out.split(x, xo, xi, 32 * lanes).split(xi, xi, xv, lanes).vectorize(xv)
    out.reorder(xv, xi, xo, y).gpu_blocks(xo, y).gpu_threads(xi)
    return out


def several_outputs() -> list[hl.Func]:
    x, y, xo, yo, xi, yi = variables("x y xo yo xi yi")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    low, high = hl.Func("low"), hl.Func("high")
    low[x, y] = hl.min(image[x, y], image[x + 1, y])
    high[x, y] = hl.max(low[x, y], image[x, y + 1])
    for f in (low, high):
        f.gpu_tile(x, y, xo, yo, xi, yi, 16, 8)
    low.compute_root()
    return [low, high]


def tuple_output() -> hl.Func:
    x, y, xo, yo, xi, yi = variables("x y xo yo xi yi")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    out[x, y] = (image[x, y] * 2, hl.i32(image[x, y]))
    out.gpu_tile(x, y, xo, yo, xi, yi, 16, 8)
    return out


def chain(count: int) -> hl.Func:
    """Kernels in a row, the intermediates in global memory, stencils between them."""
    x, y = variables("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    last: hl.Func | hl.ImageParam = image
    for n in range(count):
        f = hl.Func(f"f{n}")
        f[x, y] = last[x, y] * 0.5 + last[x + n, y + 1]
        f.compute_root()
        tiled(f, x, y, 16, 4)
        last = f
    assert isinstance(last, hl.Func)
    return last


def scalars() -> hl.Func:
    x, y = variables("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    gain, shift = hl.Param(hl.Float(32), "gain"), hl.Param(hl.Int(32), "shift")
    out = hl.Func("out")
    out[x, y] = image[x, y] * gain + hl.f32(shift + x)
    return tiled(out, x, y)


def clamped() -> hl.Func:
    """A stencil with repeated edges, the index clamped to the input."""
    x, y = variables("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    u = hl.clamp(x - 3, 0, image.width() - 1)
    v = hl.clamp(y + 2, 0, image.height() - 1)
    out[x, y] = image[u, v] + image[hl.clamp(x, 0, image.width() - 1), v]
    return tiled(out, x, y)


def gather() -> hl.Func:
    """A table looked up by data."""
    x, y = variables("x y")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    table = hl.ImageParam(hl.Float(32), 1, "table")
    out = hl.Func("out")
    out[x, y] = table[hl.i32(image[x, y])]
    table.dim(0).set_bounds(0, 256)
    return tiled(out, x, y)


def transposed() -> hl.Func:
    """A transposition through shared memory."""
    x, y, xo, yo, xi, yi = variables("x y xo yo xi yi")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    turned, out = hl.Func("turned"), hl.Func("out")
    turned[x, y] = image[y, x]
    out[x, y] = turned[x, y] * 2
    out.gpu_tile(x, y, xo, yo, xi, yi, 16, 16)
    turned.compute_at(out, xo).reorder(y, x).gpu_threads(y, x)
    turned.store_in(hl.MemoryType.GPUShared)
    return out


def histogram_rows() -> hl.Func:
    """A scatter within each thread's own bins."""
    b, y, yo, yi = variables("b y yo yi")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    r = hl.RDom([(0, 50)], "r")
    bins, out = hl.Func("bins"), hl.Func("out")
    bins[b, y] = hl.i32(0)
    bins[hl.clamp(hl.i32(image[r.x, y]) / 32, 0, 7), y] += 1
    out[b, y] = bins[b, y]
    out.bound(b, 0, 8).split(y, yo, yi, 16).reorder(b, yi, yo).gpu_blocks(yo).gpu_threads(yi)
    bins.compute_at(out, yi)
    return out


def serial_inside() -> hl.Func:
    """A thread that walks down a column, with a let-like shared subexpression."""
    x, y, xo, xi, yo, yi = variables("x y xo xi yo yi")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    e = hl.exp(image[x, y] * hl.f32(0.1))
    out[x, y] = e * e + hl.sqrt(e) - 1 / e
    out.split(x, xo, xi, 32).split(y, yo, yi, 4)
    out.reorder(yi, xi, xo, yo).gpu_blocks(xo, yo).gpu_threads(xi)
    return out


def plain_matmul() -> hl.Func:
    """A product on CUDA cores, operands staged by the threads, sums in registers."""
    n, m, no, mo, ni, mi = variables("n m no mo ni mi")
    a, b = hl.ImageParam(hl.Float(32), 2, "A"), hl.ImageParam(hl.Float(32), 2, "B")
    k = hl.RDom([(0, 48)], "k")
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    mm, out = hl.Func("mm"), hl.Func("out")
    mm[n, m] = hl.f32(0.0)
    mm[n, m] += a[k.x, m] * b[n, k.x]
    out[n, m] = mm[n, m]
    out.gpu_tile(n, m, no, mo, ni, mi, 16, 16)
    mm.compute_at(out, no).gpu_threads(n, m)
    mm.update().split(k.x, ko, ki, 16).reorder(ki, n, m, ko).gpu_threads(n, m)
    for operand in (a, b):
        copy = operand.in_(mm)
        u, v = copy.args()
        copy.compute_at(mm, ko).gpu_threads(u, v)
    return out


PLAIN: list[Case] = [
    Case("blur_inline", blur, RAGGED),
    Case("blur_shared", lambda: blur("block"), RAGGED),
    Case("blur_shared_asked", lambda: blur("block", hl.MemoryType.GPUShared), RAGGED),
    Case("blur_thread", lambda: blur("thread"), RAGGED),
    Case("blur_kernels", lambda: blur("kernel"), RAGGED),
    Case("stencil_staged", staged_input, RAGGED),
    Case("stencil_staged_vector", lambda: staged_input(4), RAGGED),
    *(
        Case(f"reduce_{k}", lambda k=k: row_sum(k), ((77,), (32,)))
        for k in ("sum", "max", "product", "count")
    ),
    Case("updates", update_in_place, RAGGED, tolerance=0),
    Case("three_dimensions", three_dimensions, ((19, 7, 5), (16, 8, 4))),
    *(
        Case(f"vectors_{n}_{t}", lambda n=n, t=t: vectorized(n, TYPES[t]), ((259, 5), (256, 4)),
             tolerance=2e-3)
        for n, t in ((2, "f32"), (4, "f32"), (8, "f16"), (4, "u8"), (4, "s32"))
    ),
    Case("several_outputs", several_outputs, RAGGED),
    Case("tuple_output", tuple_output, RAGGED),
    Case("chain", lambda: chain(4), RAGGED),
    Case("scalars", scalars, RAGGED, scalars={"gain": 1.5, "shift": -7}),
    Case("clamped", clamped, RAGGED, shapes=lambda s: {"image": (s[0] // 2 + 1, s[1])}),
    Case("gather", gather, RAGGED, values={"image": (0, 255)}),
    Case("transposed", transposed, RAGGED),
    Case("histogram", histogram_rows, ((8, 37),), values={"image": (0, 255)}, tolerance=0),
    Case("serial_inside", serial_inside, RAGGED),
    Case("plain_matmul", plain_matmul, ((33, 17), (32, 32))),
]  # fmt: skip
