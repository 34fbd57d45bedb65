"""Reductions along axes, and what is made of them: means, variances, softmax, norms, pooling."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import halide

from halide_bridge.torch_backend.pointwise import converted
from halide_bridge.torch_backend.values import (
    FLOATS,
    Extent,
    Making,
    Value,
    along,
    axis,
    computed,
    domain,
    rule,
    unsupported,
)

hl: Any = halide
LEAST = -3.0e38  # where a maximum of float32 begins


def reduced(
    m: Making,
    x: Value,
    dims: Any,
    keepdim: bool,
    start: Any,
    step: Callable[[Any, Any], Any],
    base: str,
    inner: str = "float32",
) -> Value:
    """A Func of what is left, over the axes ``dims`` (all, if there are none)."""
    gone = sorted({axis(d, x.rank) for d in dims}) if dims else list(range(x.rank))
    left = [d for d in range(x.rank) if d not in gone]
    if not x.rank:
        return Value(inner, (), lambda _: converted(x.at(()), x.dtype, inner))
    func, index = m.func(base), m.variables(len(left))
    r = domain([x.shape[d] for d in gone], m.name("r"))
    places: list[Any] = [None] * x.rank
    for d, i in [*zip(left, index, strict=True), *zip(gone, along(r, len(gone)), strict=True)]:
        places[d] = i
    args = tuple(reversed(index)) or ()
    value = converted(x.at(places), x.dtype, inner)
    if args:
        func[args] = start
        func[args] = step(func[args], value)
    else:
        func[()] = start
        func[()] = step(func[()], value)
    shape = [1 if d in gone else n for d, n in enumerate(x.shape) if keepdim or d not in gone]
    whole = [d for d in range(x.rank) if keepdim or d not in gone]

    def at(i: Sequence[Any]) -> Any:
        own = [j for d, j in zip(whole, i, strict=True) if d not in gone]
        return func[tuple(reversed(own))]

    return Value(inner, tuple(shape), at)


def _plus(a: Any, b: Any) -> Any:
    return a + b


def count_of(x: Value, dims: Any) -> Any:
    """How many elements these axes have, as a float."""
    found: Any = 1
    for d in sorted({axis(d, x.rank) for d in dims}) if dims else range(x.rank):
        found = found * x.shape[d]
    return hl.f32(found) if isinstance(found, int) else hl.cast(hl.Float(32), found)


def total(m: Making, x: Value, dims: Any, keepdim: bool, base: str) -> Value:
    return reduced(m, x, dims, keepdim, hl.f32(0), _plus, base)


def _typed(m: Making, x: Value, f: Callable[[Any], Any] = lambda v: v) -> Value:
    return Value(m.dtype, x.shape, lambda i: converted(f(x.at(i)), x.dtype, m.dtype))


def _dims(dim: Any) -> Any:
    return (dim,) if isinstance(dim, int) else dim


@rule("sum")
def sum_(m: Making, x: Value, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    if m.dtype not in FLOATS:
        zero = hl.cast(hl.Int(32), 0)
        return _typed(m, reduced(m, x, _dims(dim), keepdim, zero, _plus, "sum", "int32"))
    return _typed(m, total(m, x, _dims(dim), keepdim, "sum"))


@rule("mean")
def mean(m: Making, x: Value, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    count = count_of(x, _dims(dim))
    return _typed(m, total(m, x, _dims(dim), keepdim, "sum"), lambda v: v / count)


@rule("amax")
def amax(m: Making, x: Value, dim: Any = (), keepdim: bool = False) -> Value:
    return _typed(m, reduced(m, x, _dims(dim), keepdim, hl.f32(LEAST), hl.max, "peak"))


@rule("amin")
def amin(m: Making, x: Value, dim: Any = (), keepdim: bool = False) -> Value:
    return _typed(m, reduced(m, x, _dims(dim), keepdim, hl.f32(-LEAST), hl.min, "least"))


@rule("any")
def any_(m: Making, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    def one(i: Sequence[Any]) -> Any:
        return converted(converted(x.at(i), x.dtype, "bool"), "bool", "int32")

    ones = Value("int32", x.shape, one)
    found = reduced(m, ones, _dims(dim), keepdim, hl.cast(hl.Int(32), 0), hl.max, "any", "int32")
    return _typed(m, found)


def moments(m: Making, x: Value, dims: Any, correction: float) -> tuple[Value, Value]:
    """Mean and variance, with axes of one: the squares of what differs from the mean."""
    count = count_of(x, dims)
    sums = total(m, x, dims, True, "sum")
    middle = m.kept(Value("float32", sums.shape, lambda i: sums.at(i) / count), "mean")
    difference = m.kept(_without(x, middle), "apart")
    squares = total(
        m,
        Value("float32", x.shape, lambda i: difference.at(i) * difference.at(i)),
        dims, True, "squares",
    )  # fmt: skip
    spread = Value(
        "float32", squares.shape,
        lambda i: squares.at(i) / (count - hl.f32(correction) if correction else count),
    )  # fmt: skip
    return middle, spread


def _without(x: Value, less: Value) -> Value:
    def at(i: Sequence[Any]) -> Any:
        return converted(x.at(i), x.dtype, "float32") - less.broadcast(i)

    return Value("float32", x.shape, at)


def _squeezed(value: Value, dims: Any, keepdim: bool, rank: int) -> Value:
    if keepdim:
        return value
    gone = {axis(d, rank) for d in dims} if dims else set(range(rank))
    left = [d for d in range(rank) if d not in gone]

    def index(i: Sequence[Any]) -> list[Any]:
        found: list[Any] = [0] * rank
        for d, j in zip(left, i, strict=True):
            found[d] = j
        return found

    return value.seen([value.shape[d] for d in left], index)


@rule("var")
def var(
    m: Making, x: Value, dim: Any = None, *, correction: float = 1, keepdim: bool = False
) -> Value:
    _, spread = moments(m, x, _dims(dim), correction)
    return _typed(m, _squeezed(spread, _dims(dim), keepdim, x.rank))


@rule("var_mean")
def var_mean(
    m: Making, x: Value, dim: Any = None, *, correction: float = 1, keepdim: bool = False
) -> tuple[Value, Value]:
    middle, spread = moments(m, x, _dims(dim), correction)
    return tuple(  # pyright: ignore[reportReturnType]
        _typed(m, _squeezed(v, _dims(dim), keepdim, x.rank)) for v in (spread, middle)
    )


def _exponentials(m: Making, x: Value, dim: int) -> tuple[Value, Value, Value]:
    peak = reduced(m, x, (dim,), True, hl.f32(LEAST), hl.max, "peak")
    down = _without(x, peak)
    weight = m.kept(Value("float32", x.shape, lambda i: hl.exp(down.at(i))), "weight")
    return down, weight, total(m, weight, (dim,), True, "total")


@rule("_softmax")
def softmax(m: Making, x: Value, dim: int, half_to_float: bool = False) -> Value:
    del half_to_float
    _, weight, sums = _exponentials(m, x, dim)
    return Value(m.dtype, x.shape, lambda i: weight.at(i) / sums.broadcast(i))


@rule("_log_softmax")
def log_softmax(m: Making, x: Value, dim: int, half_to_float: bool = False) -> Value:
    del half_to_float
    down, _, sums = _exponentials(m, x, dim)
    return Value(m.dtype, x.shape, lambda i: down.at(i) - hl.log(sums.broadcast(i)))


@rule("native_layer_norm")
def native_layer_norm(
    m: Making, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, ...]:
    dims = range(x.rank - len(shape), x.rank)
    middle, spread = moments(m, x, dims, 0)
    return _normal(m, x, middle, spread, eps, weight, bias, lambda v, i: v.broadcast(i))


def _normal(
    m: Making,
    x: Value,
    middle: Value,
    spread: Value,
    eps: float,
    weight: Value | None,
    bias: Value | None,
    of: Callable[[Value, Sequence[Any]], Any],
) -> tuple[Value, ...]:
    scale = m.kept(
        Value("float32", spread.shape, lambda i: 1 / hl.sqrt(spread.at(i) + hl.f32(eps))), "scale"
    )

    def at(i: Sequence[Any]) -> Any:
        value = (converted(x.at(i), x.dtype, "float32") - middle.broadcast(i)) * scale.broadcast(i)
        if weight is not None:
            value = value * of(weight, i)
        return value if bias is None else value + of(bias, i)

    return Value(m.dtype, x.shape, at), middle, scale


@rule("native_group_norm")
def native_group_norm(
    m: Making, x: Value, weight: Value | None, bias: Value | None,
    n: Any, c: Any, pixels: Any, groups: int, eps: float,
) -> tuple[Value, ...]:  # fmt: skip
    """Groups are an axis of their own, in front of the channels of one."""
    del n, pixels
    if not isinstance(c, int):
        raise unsupported("a number of channels that is not known")
    each = c // groups
    shape = (x.shape[0], groups, each, *x.shape[2:])
    split = x.seen(shape, lambda i: [i[0], i[1] * each + i[2], *i[3:]])
    middle, spread = moments(m, split, range(2, len(shape)), 0)

    def channel(v: Value, i: Sequence[Any]) -> Any:
        return converted(v.at([i[1] * each + i[2]]), v.dtype, "float32")

    whole, a, b = _normal(m, split, middle, spread, eps, weight, bias, channel)
    joined = whole.seen(x.shape, lambda i: [i[0], i[1] / each, i[1] % each, *i[2:]])
    flat = [v.seen(shape[:2], lambda i: [*i, *[0] * (len(shape) - 2)]) for v in (a, b)]
    return joined, *flat


def windows(
    x: Value, taps: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], r: Any, index: Sequence[Any], outside: float,
) -> tuple[Any, Any]:  # fmt: skip
    """The element of a window of the last two axes, ``outside`` beyond the edges; and whether it
    lies inside.
    """
    places, inside = list(index), None
    for k, d in enumerate((x.rank - 2, x.rank - 1)):
        tap = along(r, 2)[k]
        i = index[d] * stride[k] + tap * dilation[k] - padding[k]
        if padding[k]:
            within = (i >= 0) & (i < x.shape[d])
            inside = within if inside is None else inside & within
            i = hl.clamp(i, 0, x.shape[d] - 1)
        else:
            i = hl.min(i, x.shape[d] - 1)
        places[d] = i
    value = converted(x.at(places), x.dtype, "float32")
    if inside is None:
        return value, hl.Expr(1) == 1
    return hl.select(inside, value, hl.f32(outside)), inside


def _pair(value: Any, default: Any = None) -> tuple[int, int]:
    found = default if value is None or not len(value) else value
    return (found[0], found[0]) if len(found) == 1 else (found[0], found[1])


@rule("avg_pool2d")
def avg_pool2d(
    m: Making, x: Value, kernel: Sequence[int], stride: Any = None, padding: Any = (0, 0),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None,
) -> Value:  # fmt: skip
    taps, around = _pair(kernel), _pair(padding)
    if ceil_mode or (any(around) and not count_include_pad):
        raise unsupported("a mean over windows that differ in size")
    func, index = m.func("pooled"), m.variables(x.rank)
    r = domain(taps, m.name("r"))
    value, _ = windows(x, taps, _pair(stride, taps), around, (1, 1), r, index, 0.0)
    args = tuple(reversed(index))
    func[args] = hl.f32(0)
    func[args] += value
    scale = hl.f32(1 / (divisor or math.prod(taps)))
    return Value(m.dtype, m.shape(), lambda i: func[tuple(reversed(list(i)))] * scale)


@rule("max_pool2d_with_indices")
def max_pool2d_with_indices(
    m: Making, x: Value, kernel: Sequence[int], stride: Any = None, padding: Any = (0, 0),
    dilation: Any = (1, 1), ceil_mode: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    taps = _pair(kernel)
    if ceil_mode:
        raise unsupported("windows beyond the edges")
    func, index = m.func("pooled"), m.variables(x.rank)
    r = domain(taps, m.name("r"))
    value, _ = windows(
        x, taps, _pair(stride, taps), _pair(padding), _pair(dilation), r, index, LEAST
    )
    args = tuple(reversed(index))
    func[args] = hl.f32(LEAST)
    func[args] = hl.max(func[args], value)

    def refused(_: Sequence[Any]) -> Any:
        raise unsupported("the places of the largest elements")

    found = Value(m.dtype, m.shape(), lambda i: func[tuple(reversed(list(i)))])
    return found, Value("int64", m.shape(), refused)


@rule("embedding")
def embedding(m: Making, weight: Value, numbers: Value, *_: Any) -> Value:
    """Rows of a table, by number; ``numbers`` that it does not have are the nearest it has."""
    rows: Extent = weight.shape[0]
    return Value(
        m.dtype,
        m.shape(),
        lambda i: weight.at(
            [hl.clamp(hl.cast(computed("int32"), numbers.at(i[:-1])), 0, rows - 1), i[-1]]
        ),
    )
