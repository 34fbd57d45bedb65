"""Variants as Halide pipelines: algorithms and schedules that say the same in other words.

Every variant has a NumPy function of its inputs in float64 and the output's size, written from its
definition. Axes of arrays follow NumPy, so that ``I[y, x]`` is Halide's ``I(x, y)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import halide as hl
import numpy as np
from corpus_case import Shape, variables
from machines import Array, Machine

import halide_bridge as hb

Arrays = Mapping[str, Array]
MEMORY = {
    "wmma": hb.MemoryType.WMMAAccumulator,
    "amx": hb.MemoryType.AMXTile,
}
TYPES = {
    "float16": hl.Float(16), "bfloat16": hl.BFloat(16), "float32": hl.Float(32),
    "int8": hl.Int(8), "uint8": hl.UInt(8), "int32": hl.Int(32),
}  # fmt: skip


@dataclass(frozen=True)
class Pipeline:
    """A variant: what builds it, the extents of its output (Halide's order), what it computes."""

    name: str
    build: Callable[[Machine], hl.Func]
    size: Shape
    reference: Callable[[Arrays, Shape], Array]
    shapes: Callable[[Shape], Mapping[str, Shape]] | None = None
    scalars: Mapping[str, float] = field(default_factory=dict[str, float])
    statements: int = 1
    values: Mapping[str, tuple[float, float]] = field(
        default_factory=dict[str, tuple[float, float]]
    )
    tolerance: float = 0.0
    machines: tuple[str, ...] = ("wmma", "amx")
    why: str = ""  # the reason of a miss that is known


def wide(m: Machine, value: hl.Expr) -> hl.Expr:
    """A value in the accumulator's type."""
    return hl.cast(TYPES[m.accumulator], value)


def inputs(m: Machine, a: tuple[str, int], b: tuple[str, int]) -> tuple[hl.ImageParam, ...]:
    return (
        hl.ImageParam(TYPES[m.a_type], a[1], a[0]),
        hl.ImageParam(TYPES[m.b_type], b[1], b[0]),
    )


def on_blocks(m: Machine, out: hl.Func, *loops: hl.Var) -> None:
    """The outer loops: the grid on a GPU, plain loops on a CPU."""
    if m.name == "wmma":
        out.gpu_blocks(*loops)


# ---------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Row:
    """How a filter along x is scheduled; ``lanes`` outputs are one tile."""

    lanes: int = 256
    tail: hl.TailStrategy = hl.TailStrategy.Auto
    chunk: int = 0  # taps of one statement; 0: all
    staged: bool = False
    unroll: int = 1


def row(
    m: Machine, out: hl.Func, conv: hl.Func, t: hl.RDom, x: hl.Var, y: hl.Var, s: Row = Row(),
    image: hl.ImageParam | None = None, outer: tuple[hl.Var, ...] = (),
) -> hl.Func:  # fmt: skip
    """Schedule: ``lanes`` outputs of a row at once, all taps of a statement vectorized."""
    xo, xi, xu = variables("xo xi xu")
    out.split(x, xo, xi, s.lanes * s.unroll, s.tail)
    if s.unroll > 1:
        out.split(xi, xu, xi, s.lanes).unroll(xu)
    out.vectorize(xi)
    on_blocks(m, out, xo, y, *outer)
    conv.bound_extent(x, s.lanes * s.unroll).compute_at(out, xo)
    update = conv.update()
    if s.unroll > 1:
        conv.split(x, xu, xi, s.lanes).vectorize(xi).unroll(xu)
        update.split(x, xu, xi, s.lanes).unroll(xu)
    else:
        conv.vectorize(x)
    inner = xi if s.unroll > 1 else x
    if s.chunk:
        to, ti = hl.RVar("to"), hl.RVar("ti")
        update.split(t.x, to, ti, s.chunk).reorder(ti, inner, to)
        update.atomic().vectorize(ti).vectorize(inner)
    else:
        update.reorder(t.x, inner).atomic().vectorize(t.x).vectorize(inner)
    if s.staged and image is not None:
        staged = image.in_(conv)
        staged.compute_at(out, xo)
        if m.name == "wmma":
            staged.store_in(hl.MemoryType.GPUShared)
    hb.store_in(conv, MEMORY[m.name])
    return out


Window = Callable[[hl.ImageParam, hl.Var, hl.Var, hl.RDom], hl.Expr]
Tap = Callable[[hl.ImageParam, hl.RDom], hl.Expr]
Combine = Callable[[hl.Expr, hl.Expr], hl.Expr]
Update = Callable[[hl.Func, hl.Var, hl.Var, hl.Expr], None]


def add(conv: hl.Func, x: hl.Var, y: hl.Var, value: hl.Expr) -> None:
    conv[x, y] += value


def filtered(
    taps: int,
    window: Window = lambda i, x, y, t: i[x + t.x, y],
    tap: Tap = lambda k, t: k[t.x],
    combine: Combine = lambda a, b: a * b,
    where: Callable[[hl.Expr, hl.RDom], hl.Expr] = lambda v, t: v,
    first: Callable[[Machine, hl.Var, hl.Var], hl.Expr] = lambda m, x, y: wide(m, 0),
    read: Callable[[Machine, hl.Expr, hl.Var, hl.Var], hl.Expr] = lambda m, v, x, y: v,
    update: Update = add,
    schedule: Row = Row(),
    start: int = 0,
) -> Callable[[Machine], hl.Func]:
    """A filter along the rows of a 2-D image with one part of it said in another way."""

    def build(m: Machine) -> hl.Func:
        x, y = variables("x y")
        image, weights = inputs(m, ("I", 2), ("K", 1))
        t = hl.RDom([(start, taps)], "t")
        conv, out = hl.Func("conv"), hl.Func("out")
        conv[x, y] = first(m, x, y)
        value = combine(wide(m, window(image, x, y, t)), wide(m, tap(weights, t)))
        update(conv, x, y, where(value, t))
        out[x, y] = read(m, conv[x, y], x, y)
        return row(m, out, conv, t, x, y, schedule, image)

    return build


def correlate(image: Array, taps: Array, width: int, stride: int = 1, dilation: int = 1) -> Array:
    """sum_r I[y, stride*x + dilation*r] * K[r] for ``width`` outputs of each row."""
    return sum(taps[r] * image[:, dilation * r :][:, ::stride][:, :width] for r in range(len(taps)))  # type: ignore[return-value]


def plain(stride: int = 1, dilation: int = 1) -> Callable[[Arrays, Shape], Array]:
    return lambda x, size: correlate(x["I"], x["K"], size[0], stride, dilation)[: size[1]]


WIDE, ODD = (512, 3), (300, 2)


def rows() -> Iterator[Pipeline]:
    """One row filter, its parts said in other ways."""
    yield Pipeline("row", filtered(9), WIDE, plain())
    yield Pipeline("row, ragged", filtered(9), ODD, plain())
    for tail in ("GuardWithIf", "ShiftInwards", "RoundUp", "Predicate"):
        s = Row(tail=getattr(hl.TailStrategy, tail))
        size = WIDE if tail == "RoundUp" else ODD
        yield Pipeline(f"row, tail {tail}", filtered(9, schedule=s), size, plain())
    yield Pipeline("row, staged", filtered(9, schedule=Row(staged=True)), ODD, plain())
    yield Pipeline("row, chunks of taps", filtered(16, schedule=Row(chunk=8)), ODD, plain())
    yield Pipeline("row, uneven chunks", filtered(12, schedule=Row(chunk=8)), ODD, plain())
    yield Pipeline("row, unrolled", filtered(7, schedule=Row(unroll=2)), ODD, plain(), statements=2)
    yield Pipeline("taps first", filtered(9, combine=lambda a, b: b * a), ODD, plain())
    yield Pipeline(
        "accumulator last",
        filtered(9, update=lambda c, x, y, v: c.__setitem__((x, y), v + c[x, y])), ODD, plain(),
    )  # fmt: skip
    yield Pipeline(
        "accumulator first",
        filtered(9, update=lambda c, x, y, v: c.__setitem__((x, y), c[x, y] + v)), ODD, plain(),
    )  # fmt: skip
    windows: dict[str, Window] = {
        "window counted from its end": lambda i, x, y, t: i[(x + 9) - (9 - t.x), y],
        "window by taps first": lambda i, x, y, t: i[t.x + x, y],
        "window twice halved": lambda i, x, y, t: i[(2 * x + 2 * t.x) / 2, y],
        "window in parts": lambda i, x, y, t: i[(t.x + 2) + (x - 2), y],
        "window by div and mod of taps": lambda i, x, y, t: i[x + 2 * (t.x / 2) + t.x % 2, y],
        "window by div and mod of x": lambda i, x, y, t: i[4 * (x / 4) + x % 4 + t.x, y],
        "window through a let": lambda i, x, y, t: i[hl.cast(hl.Int(32), x + t.x), y],
    }
    for name, window in windows.items():
        yield Pipeline(name, filtered(8, window=window), WIDE, plain())
    yield Pipeline(
        "taps counted backwards",
        filtered(9, tap=lambda k, t: k[8 - t.x]), ODD,
        lambda x, size: correlate(x["I"], x["K"][::-1], size[0]),
    )  # fmt: skip
    yield Pipeline(
        "image walked backwards",
        filtered(9, window=lambda i, x, y, t: i[x + 8 - t.x, y]), ODD,
        lambda x, size: correlate(x["I"], x["K"][::-1], size[0]),
    )  # fmt: skip
    yield Pipeline(
        "taps from 5 on", filtered(9, start=5, window=lambda i, x, y, t: i[x + t.x - 5, y],
                                   tap=lambda k, t: k[t.x - 5]), ODD, plain(),
    )  # fmt: skip
    yield Pipeline(
        "every third tap", filtered(6, tap=lambda k, t: k[3 * t.x + 1]), ODD,
        lambda x, size: correlate(x["I"], x["K"][1::3][:6], size[0]),
    )  # fmt: skip
    for s, d in ((2, 1), (3, 1), (5, 1), (1, 2), (1, 3), (2, 3), (4, 2), (3, 6)):
        yield Pipeline(
            f"stride {s}, dilation {d}",
            filtered(7, window=lambda i, x, y, t, s=s, d=d: i[s * x + d * t.x, y]), ODD,
            plain(s, d),
        )  # fmt: skip
    yield Pipeline("one tap", filtered(1), ODD, plain(), why="its loops hold no reduction")
    yield Pipeline("two taps", filtered(2), ODD, plain())
    yield Pipeline("100 taps", filtered(100), ODD, plain())


def around() -> Iterator[Pipeline]:
    """What stands around the accumulator, and factors."""

    def bias(m: Machine, x: hl.Var, y: hl.Var) -> hl.Expr:
        return hl.ImageParam(TYPES[m.accumulator], 1, "bias")[x]

    def with_bias(x: Arrays, size: Shape) -> Array:
        return plain()(x, size) + x["bias"][: size[0]]

    yield Pipeline("starts from a bias", filtered(9, first=bias), ODD, with_bias)
    yield Pipeline(
        "bias when read", filtered(9, read=lambda m, v, x, y: v + bias(m, x, y)), ODD, with_bias
    )
    yield Pipeline(
        "relu", filtered(9, read=lambda m, v, x, y: hl.max(v, wide(m, 0))), ODD,
        lambda x, size: np.maximum(plain()(x, size), 0),
    )  # fmt: skip
    yield Pipeline(
        "starts from one", filtered(9, first=lambda m, x, y: wide(m, 1)), ODD,
        lambda x, size: plain()(x, size) + 1,
    )  # fmt: skip
    yield Pipeline(
        "read with coordinates", filtered(9, read=lambda m, v, x, y: v + wide(m, x - 2 * y)), ODD,
        lambda x, size: plain()(x, size) + np.arange(size[0]) - 2 * np.arange(size[1])[:, None],
    )  # fmt: skip
    combines: dict[str, tuple[Combine, float]] = {
        "factor on the left": (lambda a, b: (a * 3) * b, 3),
        "factor on the right": (lambda a, b: a * (b * 3), 3),
        "factor of the product": (lambda a, b: (a * b) * 3, 3),
        "factors on both sides": (lambda a, b: (2 * a) * (b * 5), 10),
    }
    for name, (combine, scale) in combines.items():
        yield Pipeline(
            name, filtered(9, combine=combine), ODD,
            lambda x, size, scale=scale: scale * plain()(x, size),
        )  # fmt: skip
    yield Pipeline(
        "factor from a parameter",
        lambda m: filtered(
            9, combine=lambda a, b: hl.Param(TYPES[m.accumulator], "alpha") * a * b
        )(m),
        ODD, lambda x, size: 3 * plain()(x, size), scalars={"alpha": 3},
    )  # fmt: skip
