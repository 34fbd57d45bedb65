"""Convolutions: sums over channels and a window of pixels, with channels innermost, as tensor units
take them; by groups over the channels of one; transposed ones as sums over the taps of each phase.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import halide

from halide_bridge.torch_backend.pointwise import converted
from halide_bridge.torch_backend.products import factor
from halide_bridge.torch_backend.quantised import scaled
from halide_bridge.torch_backend.values import (
    STORED,
    Making,
    Value,
    computed,
    loaded,
    rule,
    unsupported,
)

hl: Any = halide


@rule("convolution")
def convolution(
    m: Making, x: Value, weight: Value, bias: Value | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """(N, C, pixels) with weights (filters, channels of a group, taps); transposed: (channels,
    filters of a group, taps).
    """
    del output_padding  # the result's shape says it
    pixels = x.rank - 2
    taps = weight.shape[2:]
    if not all(isinstance(n, int) for n in taps):
        raise unsupported("a window whose size is not known")
    if groups > 1 and not isinstance(weight.shape[1], int):
        raise unsupported("groups of channels whose number is not known")
    bytes_ = x.levels is not None and weight.levels is not None and not transposed
    a, b = (x.levels, weight.levels) if bytes_ else (None, None)
    image = m.operand(x if a is None else a.stored, "image")
    filters = m.operand(weight if b is None else b.stored, "filters")
    if transposed:
        if groups > 1:
            raise unsupported("a transposed convolution by groups")
        places = [_phase(int(t), s, d, p) for t, s, d, p in
                  zip(taps, stride, dilation, padding, strict=True)]  # fmt: skip
    else:
        places = [_window(int(t), s, d, p) for t, s, d, p in
                  zip(taps, stride, dilation, padding, strict=True)]  # fmt: skip
    source = _inner(m, image, [p.around for p in places], 0 if a is None else a.zero(None))
    n, f, *at = m.variables(x.rank)
    channels = weight.shape[0] if transposed else weight.shape[1]
    alone = groups > 1 and channels == 1
    domain = [(0, p.count) for p in reversed(places)]
    r = hl.RDom(domain if alone else [(0, channels), *domain], m.name("r"))
    over = [r[len(domain) - k - alone] for k in range(pixels)]
    c = 0 if alone else r[0]
    if groups > 1:
        of_group = m.shape()[1] // groups
        channel = f if alone and of_group == 1 else f / of_group * channels + c
    else:
        channel = c
    read = [p.read(v, u) for p, v, u in zip(places, at, over, strict=True)]
    pixel = source([n, channel, *[i for i, _ in read]])
    tap = [t for _, t in read]
    args = (f, *reversed(at), n)
    own = [c, f, *tap] if transposed else [f, c, *tap]
    func = m.func("layer")
    if a is not None and b is not None:
        func[args] = hl.i32(0)
        func[args] += a.less(pixel, None) * replace(b, stored=filters).factor(own)
        return _finished(m, bias, lambda i: scaled(_read(func, i), a, b, i[1]), "float32")
    func[args] = hl.cast(computed(x.dtype), 0)
    func[args] += hl.cast(computed(x.dtype), pixel) * factor(_taps(m, filters, places), own)
    return _finished(m, bias, lambda i: _read(func, i), x.dtype)


def _read(func: Any, i: Sequence[Any]) -> Any:
    return func[(i[1], *reversed(list(i[2:])), i[0])]


def _finished(
    m: Making, bias: Value | None, sums: Callable[[Sequence[Any]], Any], dtype: str
) -> Value:
    def result(i: Sequence[Any]) -> Any:
        value = converted(sums(i), dtype, m.dtype)
        return value if bias is None else value + converted(bias.at([i[1]]), bias.dtype, m.dtype)

    return Value(m.dtype, m.shape(), result)


class _window:  # noqa: N801 - used as a function
    """An axis of a window: pixels ``stride`` apart, taps ``dilation`` apart."""

    def __init__(self, taps: int, stride: int, dilation: int, padding: int) -> None:
        self.count, self.stride, self._dilation = taps, stride, dilation
        self._padding, self.around, self.taps = padding, padding > 0, taps

    def read(self, v: Any, tap: Any) -> tuple[Any, Any]:
        """The pixel that is read, and the tap."""
        at = v * self.stride if self.stride > 1 else v
        step = tap * self._dilation if self._dilation > 1 else tap
        return at + step - self._padding, tap


class _phase:  # noqa: N801
    """An axis of a transposed window: each result reads every ``stride``-th tap, by its phase."""

    def __init__(self, taps: int, stride: int, dilation: int, padding: int) -> None:
        if dilation > 1:
            raise unsupported("a transposed convolution with taps apart")
        self.count = -(-taps // stride)
        self.stride, self._padding, self.around, self.taps = stride, padding, True, taps

    def read(self, v: Any, tap: Any) -> tuple[Any, Any]:
        moved = v + self._padding
        return moved / self.stride - tap, moved % self.stride + self.stride * tap


def _taps(m: Making, filters: Value, places: Sequence[Any]) -> Value:
    """The weights, with zeros where a phase has fewer taps than others."""
    short = [p.taps % p.stride > 0 if isinstance(p, _phase) else False for p in places]
    if not any(short):
        return filters
    element = filters.element
    assert element is not None
    index = m.variables(filters.rank)
    func = m.func("taps")
    func[tuple(reversed(index))] = element(index)
    every = (hl.Expr(), hl.Expr())
    sides = [(0, p.taps) if s else every for p, s in zip(places, short, strict=True)]
    zero = hl.cast(STORED[filters.dtype], 0)
    around = hl.BoundaryConditions.constant_exterior(func, zero, [*reversed(sides), every, every])

    def at(i: Sequence[Any]) -> Any:
        return around[tuple(reversed(list(i)))]

    return Value(filters.dtype, filters.shape, lambda i: loaded(at(i), filters.dtype), at)


def _inner(m: Making, image: Value, around: Sequence[bool], beyond: int) -> Any:
    """The image with channels innermost, and what is ``beyond`` around the axes that need it."""
    element, rank = image.element, image.rank
    assert element is not None
    index = m.variables(rank)
    n, c, *at = index
    func = m.func("pixels")
    args = (c, *reversed(at), n)
    func[args] = element(index)
    source = func
    if any(around):
        every = (hl.Expr(), hl.Expr())
        extents = [*map(_expr, reversed(image.shape[2:]))]
        sides = [(0, n) if a else every for a, n in zip(reversed(around), extents, strict=True)]
        zero = hl.cast(STORED[image.dtype], beyond)
        source = hl.BoundaryConditions.constant_exterior(func, zero, [every, *sides, every])
    return lambda i: source[(i[1], *reversed(list(i[2:])), i[0])]


def _expr(extent: Any) -> Any:
    return hl.Expr(extent) if isinstance(extent, int) else extent
