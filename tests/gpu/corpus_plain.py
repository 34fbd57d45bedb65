"""Corpus: kernels without tensor statements. Everything a Halide schedule puts on CUDA cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import halide as hl
from corpus_case import Case, variables

RAGGED = ((61, 37), (64, 32), (1, 1))
Pointwise = Callable[..., hl.Expr]


def tiled(out: hl.Func, x: hl.Var, y: hl.Var, width: int = 16, height: int = 8) -> hl.Func:
    xo, yo, xi, yi = variables("xo yo xi yi")
    return out.gpu_tile(x, y, xo, yo, xi, yi, width, height)


def pointwise(value: Pointwise, *types: hl.Type) -> Callable[[], hl.Func]:
    """An element-wise Func of as many inputs as there are types; ``value`` gets the elements and
    the coordinates.
    """

    def build() -> hl.Func:
        x, y = variables("x y")
        inputs = [hl.ImageParam(t, 2, f"in{i}") for i, t in enumerate(types)]
        out = hl.Func("out")
        out[x, y] = value(*(p[x, y] for p in inputs), x, y)
        return tiled(out, x, y)

    return build


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
    e = hl.exp(image[x, y] * 0.1)
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


_MATH: dict[str, tuple[Callable[[hl.Expr], hl.Expr], tuple[float, float]]] = {
    "sqrt": (hl.sqrt, (0, 9)), "exp": (hl.exp, (-5, 5)), "log": (hl.log, (0.1, 9)),
    "sin": (hl.sin, (-3, 3)), "cos": (hl.cos, (-3, 3)), "tan": (hl.tan, (-1, 1)),
    "asin": (hl.asin, (-1, 1)), "acos": (hl.acos, (-1, 1)), "atan": (hl.atan, (-5, 5)),
    "sinh": (hl.sinh, (-3, 3)), "cosh": (hl.cosh, (-3, 3)), "tanh": (hl.tanh, (-3, 3)),
    "asinh": (hl.asinh, (-3, 3)), "acosh": (hl.acosh, (1, 9)), "atanh": (hl.atanh, (-0.9, 0.9)),
    "floor": (hl.floor, (-9, 9)), "ceil": (hl.ceil, (-9, 9)), "trunc": (hl.trunc, (-9, 9)),
    "round": (hl.round, (-9, 9)), "abs": (hl.abs, (-9, 9)),
    "fast_inverse": (hl.fast_inverse, (0.1, 9)),
    "fast_inverse_sqrt": (hl.fast_inverse_sqrt, (0.1, 9)),
    "is_nan": (lambda v: hl.i32(hl.is_nan(v)), (-9, 9)),
    "sigmoid": (lambda v: 1 / (1 + hl.exp(-v)), (-5, 5)),
    "fast_exp": (hl.fast_exp, (-5, 5)), "fast_log": (hl.fast_log, (0.1, 9)),
}  # fmt: skip

_TYPES: dict[str, hl.Type] = {
    "f16": hl.Float(16), "bf16": hl.BFloat(16), "f32": hl.Float(32), "f64": hl.Float(64),
    "s8": hl.Int(8), "u8": hl.UInt(8), "s16": hl.Int(16), "u16": hl.UInt(16),
    "s32": hl.Int(32), "u32": hl.UInt(32), "s64": hl.Int(64), "u64": hl.UInt(64),
}  # fmt: skip


def casts(source: hl.Type, targets: Iterable[str]) -> Callable[[], list[hl.Func]]:
    """One output, and kernel, for each target type."""

    def build() -> list[hl.Func]:
        x, y = variables("x y")
        image = hl.ImageParam(source, 2, "image")
        outputs: list[hl.Func] = []
        for target in targets:
            f = hl.Func(f"to_{target}")
            f[x, y] = hl.cast(_TYPES[target], image[x, y])
            outputs.append(tiled(f, x, y))
        return outputs

    return build


def _casts() -> Iterable[Case]:
    """Every type to every other; what is out of the range of an integer has no meaning as a float."""
    signed = [t for t in _TYPES if not t.startswith("u")]
    for name, source in _TYPES.items():
        is_float = name[0] in "fb"
        low = 0 if is_float or name.startswith("u") else -100
        ranges = {"image": (low, 100)}
        yield Case(f"cast_{name}", casts(source, _TYPES), ((37, 11),), values=ranges, tolerance=0)
        if is_float:
            ranges = {"image": (-100, 100)}
            build = casts(source, signed)
            yield Case(f"cast_{name}_signed", build, ((37, 11),), values=ranges, tolerance=0)


def _math() -> Iterable[Case]:
    for name, (function, values) in _MATH.items():

        def build(function: Callable[[hl.Expr], hl.Expr] = function) -> hl.Func:
            return pointwise(lambda v, x, y: function(v), hl.Float(32))()

        loose = 1e-5 if name.startswith("fast") else 2e-6
        yield Case(f"math_{name}", build, ((45, 9),), values={"in0": values}, tolerance=loose)
    f32, f16 = hl.Float(32), hl.Float(16)
    for name, t in (("f32", f32), ("f16", f16)):
        build = pointwise(lambda a, b, x, y: hl.pow(a, b) + hl.atan2(a, b), t, t)
        ranges = {"in0": (0.2, 3), "in1": (-2, 2)}
        yield Case(f"math_two_{name}", build, ((45, 9),), values=ranges, tolerance=1e-3 if name == "f16" else 2e-6)
    yield Case("math_f16", pointwise(lambda v, x, y: hl.exp(v) + hl.sqrt(hl.abs(v)) - hl.floor(v), f16),
               ((45, 9),), tolerance=1e-3)
    yield Case("math_f64", pointwise(lambda v, x, y: hl.exp(v) * hl.sin(v) + hl.sqrt(hl.abs(v)), hl.Float(64)),
               ((45, 9),), tolerance=1e-12)


def _selected(t: hl.Type) -> Pointwise:
    return lambda a, b, x, y: hl.select(a < b, a, hl.select((x + y) % 3 == 0, b, hl.cast(t, x)))


def _arithmetic() -> Iterable[Case]:
    for name, t in _TYPES.items():
        is_float = name[0] in "fb"
        ranges = {"in0": (-100, 100), "in1": (-9, 9)}
        sizes = ((45, 9),)
        build = pointwise(lambda a, b, x, y: a + b * a - b, t, t)
        yield Case(f"add_mul_{name}", build, sizes, values=ranges, tolerance={"f16": 2e-3, "bf16": 2e-2}.get(name, 1e-6))
        build = pointwise(lambda a, b, x, y: hl.min(a, b) - hl.max(a, b), t, t)
        yield Case(f"min_max_{name}", build, sizes, values=ranges, tolerance={"f16": 2e-3, "bf16": 2e-2}.get(name, 1e-6))
        if not is_float:
            build = pointwise(lambda a, b, x, y: a / b + a % b * 3, t, t)
            yield Case(f"div_mod_{name}", build, sizes, values=ranges)
            build = pointwise(lambda a, b, x, y: a / 7 + a % 8 - a / 4, t, t)
            yield Case(f"div_const_{name}", build, sizes, values=ranges)
            build = pointwise(lambda a, b, x, y: (a & b) | (a ^ 3), t, t)
            yield Case(f"bits_{name}", build, sizes, values=ranges)
            build = pointwise(lambda a, b, x, y: (a << 1) + (b >> 2), t, t)
            yield Case(f"shift_{name}", build, sizes, values=ranges)
            build = pointwise(lambda a, b, x, y: hl.absd(a, b), t, t)
            yield Case(f"absd_{name}", build, sizes, values=ranges, tolerance=0)
            build = pointwise(lambda a, b, x, y: hl.count_leading_zeros(a) + hl.popcount(b), t, t)
            yield Case(f"count_{name}", build, sizes, values=ranges, tolerance=0)
            build = pointwise(lambda a, b, x, y: hl.div_round_to_zero(a, b) - hl.mod_round_to_zero(a, b), t, t)
            yield Case(f"truncating_{name}", build, sizes, values={"in0": (-100, 100), "in1": (1, 9)}, tolerance=0)
        else:
            build = pointwise(lambda a, b, x, y: a / b + a % b, t, t)
            yield Case(f"div_{name}", build, sizes, values={"in0": (-9, 9), "in1": (0.5, 9)},
                       tolerance={"f16": 5e-3, "bf16": 5e-2}.get(name, 1e-6))
        build = pointwise(_selected(t), t, t)
        yield Case(f"select_{name}", build, sizes, values=ranges, tolerance=0)
        build = pointwise(lambda a, b, x, y: (a < b) | ((a == b) & (x != y)) | ~(a >= b), t, t)
        yield Case(f"bool_{name}", build, sizes, values=ranges, tolerance=0)


PLAIN: list[Case] = [
    Case("blur_inline", blur, RAGGED),
    Case("blur_shared", lambda: blur("block"), RAGGED),
    Case("blur_shared_asked", lambda: blur("block", hl.MemoryType.GPUShared), RAGGED),
    Case("blur_thread", lambda: blur("thread"), RAGGED),
    Case("blur_kernels", lambda: blur("kernel"), RAGGED),
    Case("stencil_staged", staged_input, RAGGED),
    Case("stencil_staged_vector", lambda: staged_input(4), RAGGED),
    *(Case(f"reduce_{k}", lambda k=k: row_sum(k), ((77,), (32,))) for k in ("sum", "max", "product", "count")),
    Case("updates", update_in_place, RAGGED, tolerance=0),
    Case("three_dimensions", three_dimensions, ((19, 7, 5), (16, 8, 4))),
    *(
        Case(f"vectors_{n}_{t}", lambda n=n, t=t: vectorized(n, _TYPES[t]), ((259, 5), (256, 4)),
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
    *_casts(),
    *_math(),
    *_arithmetic(),
]  # fmt: skip
