"""Corpus: element-wise kernels over all types: casts, arithmetic, comparisons, math."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import halide as hl
from corpus_case import Case, variables

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

TYPES: dict[str, hl.Type] = {
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
            f[x, y] = hl.cast(TYPES[target], image[x, y])
            outputs.append(tiled(f, x, y))
        return outputs

    return build


def _casts() -> Iterable[Case]:
    """Every type to every other; a float beyond an integer's range has no meaning as one."""
    signed = [t for t in TYPES if not t.startswith("u")]
    for name, source in TYPES.items():
        is_float = name[0] in "fb"
        low = 0 if is_float or name.startswith("u") else -100
        ranges = {"image": (low, 100)}
        yield Case(f"cast_{name}", casts(source, TYPES), ((37, 11),), values=ranges, tolerance=0)
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
        yield Case(
            f"math_two_{name}",
            build,
            ((45, 9),),
            values=ranges,
            tolerance=1e-3 if name == "f16" else 2e-6,
        )
    yield Case(
        "math_f16",
        pointwise(lambda v, x, y: hl.exp(v) + hl.sqrt(hl.abs(v)) - hl.floor(v), f16),
        ((45, 9),),
        tolerance=1e-3,
    )
    yield Case(
        "math_f64",
        pointwise(lambda v, x, y: hl.exp(v) * hl.sin(v) + hl.sqrt(hl.abs(v)), hl.Float(64)),
        ((45, 9),),
        tolerance=1e-12,
    )


def _selected(t: hl.Type) -> Pointwise:
    return lambda a, b, x, y: hl.select(a < b, a, hl.select((x + y) % 3 == 0, b, hl.cast(t, x)))


def _arithmetic() -> Iterable[Case]:
    for name, t in TYPES.items():
        is_float = name[0] in "fb"
        ranges = {"in0": (-100, 100), "in1": (-9, 9)}
        sizes = ((45, 9),)
        build = pointwise(lambda a, b, x, y: a + b * a - b, t, t)
        yield Case(
            f"add_mul_{name}",
            build,
            sizes,
            values=ranges,
            tolerance={"f16": 2e-3, "bf16": 2e-2}.get(name, 1e-6),
        )
        build = pointwise(lambda a, b, x, y: hl.min(a, b) - hl.max(a, b), t, t)
        yield Case(
            f"min_max_{name}",
            build,
            sizes,
            values=ranges,
            tolerance={"f16": 2e-3, "bf16": 2e-2}.get(name, 1e-6),
        )
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
            build = pointwise(
                lambda a, b, x, y: hl.div_round_to_zero(a, b) - hl.mod_round_to_zero(a, b), t, t
            )
            yield Case(
                f"truncating_{name}",
                build,
                sizes,
                values={"in0": (-100, 100), "in1": (1, 9)},
                tolerance=0,
            )
        else:
            build = pointwise(lambda a, b, x, y: a / b + a % b, t, t)
            yield Case(
                f"div_{name}",
                build,
                sizes,
                values={"in0": (-9, 9), "in1": (0.5, 9)},
                tolerance={"f16": 5e-3, "bf16": 5e-2}.get(name, 1e-6),
            )
        build = pointwise(_selected(t), t, t)
        yield Case(f"select_{name}", build, sizes, values=ranges, tolerance=0)
        build = pointwise(lambda a, b, x, y: (a < b) | ((a == b) & (x != y)) | ~(a >= b), t, t)
        yield Case(f"bool_{name}", build, sizes, values=ranges, tolerance=0)


ELEMENTWISE: list[Case] = [*_casts(), *_math(), *_arithmetic()]
