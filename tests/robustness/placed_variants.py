"""Variants as Halide pipelines: what a sum's terms are follows their places.

Conditions on taps and pixels, said of products, of elements and as factors; signs and taps by
formulas; images that are read at clamped, wrapped, mirrored and divided places. References are
written term by term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import halide as hl
import numpy as np
from corpus_case import Shape
from halide_variants import ODD, Arrays, Pipeline, Tap, Window, filtered
from machines import Array

TAPS = 8
INT = hl.Int(32)
Place = tuple[int, int, int]
"""Tap, column and row; of Halide's, expressions."""
Term = Callable[[Arrays, Place], float]


def _sum(term: Term) -> Callable[[Arrays, Shape], Array]:
    def truth(arrays: Arrays, size: Shape) -> Array:
        found = np.zeros((size[1], size[0]))
        for y, x in np.ndindex(found.shape):
            found[y, x] = sum(term(arrays, (t, x, y)) for t in range(TAPS))
        return found

    return truth


def _plain(arrays: Arrays, at: Place) -> float:
    t, x, y = at
    return arrays["I"][y, x + t] * arrays["K"][t]


CONDITIONS: Mapping[str, tuple[Callable[..., hl.Expr], Callable[..., bool]]] = {
    "even taps": (lambda t, x, y: t % 2 == 0, lambda t, x, y: t % 2 == 0),
    "all taps but one": (lambda t, x, y: t != 3, lambda t, x, y: t != 3),
    "all taps but two": (lambda t, x, y: ~((t == 2) | (t == 5)), lambda t, x, y: t not in (2, 5)),
    "taps around one": (lambda t, x, y: hl.abs(t - 4) < 3, lambda t, x, y: abs(t - 4) < 3),
    "part of the image": (
        lambda t, x, y: (x + t >= 3) & (x + t < 200), lambda t, x, y: 3 <= x + t < 200,
    ),
    "the rest of the image": (
        lambda t, x, y: (x + t < 3) | (x + t >= 200), lambda t, x, y: not 3 <= x + t < 200,
    ),
    "every other pixel": (lambda t, x, y: (x + t + y) % 2 == 0,
                          lambda t, x, y: (x + t + y) % 2 == 0),
    "a block of pixels": (lambda t, x, y: (x + t) / 16 == x / 16,
                          lambda t, x, y: (x + t) // 16 == x // 16),
    "every other row": (lambda t, x, y: y % 2 == 0, lambda t, x, y: y % 2 == 0),
    "every other column": (lambda t, x, y: x % 2 == 0, lambda t, x, y: x % 2 == 0),
    "as many taps as columns": (lambda t, x, y: t < x % 8, lambda t, x, y: t < x % 8),
}  # fmt: skip


def _conditional() -> Iterator[Pipeline]:
    x, y = hl.Var("x"), hl.Var("y")
    for name, (holds, said) in CONDITIONS.items():
        truth = _sum(lambda a, at, said=said: _plain(a, at) * said(*at))

        def chosen(v: hl.Expr, t: hl.RDom, holds=holds) -> hl.Expr:  # type: ignore[no-untyped-def]
            return hl.select(holds(t.x, x, y), v, hl.cast(v.type(), 0))

        def factor(v: hl.Expr, t: hl.RDom, holds=holds) -> hl.Expr:  # type: ignore[no-untyped-def]
            return v * hl.cast(v.type(), holds(t.x, x, y))

        def window(i: hl.ImageParam, x: hl.Var, y: hl.Var, t: hl.RDom, holds=holds) -> hl.Expr:  # type: ignore[no-untyped-def]
            return hl.select(holds(t.x, x, y), i[x + t.x, y], hl.cast(i.type(), 0))

        yield Pipeline(f"{name}, of products", filtered(TAPS, where=chosen), ODD, truth)
        yield Pipeline(f"{name}, of elements", filtered(TAPS, window=window), ODD, truth)
        yield Pipeline(f"{name}, as a factor", filtered(TAPS, where=factor), ODD, truth)


def _along_both() -> Pipeline:
    """A condition that moves along windows and taps otherwise than the image does."""
    x = hl.Var("x")
    return Pipeline(
        "taps before their column",
        filtered(TAPS, where=lambda v, t: hl.select(t.x <= x, v, hl.cast(v.type(), 0))), ODD,
        _sum(lambda a, at: _plain(a, at) * (at[0] <= at[1])), machines=("wmma",),
        why="follows neither the windows of `I` nor the taps alone",
    )  # fmt: skip


GATHERED: Mapping[str, tuple[Tap, Callable[[int], int]]] = {
    "taps by their distance": (lambda k, t: k[hl.cast(INT, hl.abs(t.x - 3))], lambda t: abs(t - 3)),
    "taps from both ends": (lambda k, t: k[hl.min(t.x, 7 - t.x)], lambda t: min(t, 7 - t)),
    "taps turned": (lambda k, t: k[(t.x + 3) % 8], lambda t: (t + 3) % 8),
    "taps in two orders": (
        lambda k, t: k[hl.select(t.x < 4, t.x, 11 - t.x)], lambda t: t if t < 4 else 11 - t,
    ),
    "taps twice each": (lambda k, t: k[t.x / 2], lambda t: t // 2),
}  # fmt: skip
WINDOWS: Mapping[str, tuple[Window, Callable[[int, int], int]]] = {
    "clamped": (lambda i, x, y, t: i[hl.clamp(x + t.x - 3, 0, 299), y],
                lambda t, x: min(max(x + t - 3, 0), 299)),
    "wrapped": (lambda i, x, y, t: i[(x + t.x) % 300, y], lambda t, x: (x + t) % 300),
    "mirrored": (lambda i, x, y, t: i[hl.cast(INT, hl.abs(x + t.x - 3)), y],
                 lambda t, x: abs(x + t - 3)),
    "at half a pixel": (lambda i, x, y, t: i[(x + 1) / 2 + t.x, y], lambda t, x: (x + 1) // 2 + t),
    "halved": (lambda i, x, y, t: i[(x + t.x) / 2, y], lambda t, x: (x + t) // 2),
    "halved backwards": (lambda i, x, y, t: i[(x - t.x + 8) / 2, y],
                         lambda t, x: (x - t + 8) // 2),
    "by half a tap": (lambda i, x, y, t: i[x + t.x / 2, y], lambda t, x: x + t // 2),
    "by even and odd taps": (lambda i, x, y, t: i[x + (t.x % 2) * 5, y],
                             lambda t, x: x + (t % 2) * 5),
}  # fmt: skip
PARTS = {"taps twice each": 2, "by half a tap": 2, "by even and odd taps": 4}
"""Statements that a sum is split into, by what is left of a tap."""
SIGNS: Mapping[str, Callable[[hl.Expr, hl.RDom], hl.Expr]] = {
    "chosen": lambda v, t: hl.select(t.x % 2 == 0, v, -v),
    "by a formula": lambda v, t: hl.cast(v.type(), 1 - 2 * (t.x % 2)) * v,
}


def _pixels() -> Iterator[Pipeline]:
    """Conditions of what is read, and of which row."""

    def positive(i: hl.ImageParam, x: hl.Var, y: hl.Var, t: hl.RDom) -> hl.Expr:
        zero = hl.cast(i.type(), 0)
        return hl.select(i[x + t.x, y] > zero, i[x + t.x, y], zero)

    def moved(i: hl.ImageParam, x: hl.Var, y: hl.Var, t: hl.RDom) -> hl.Expr:
        return hl.select(y % 2 == 0, i[x + t.x + 2, y], i[x + t.x, y])

    yield Pipeline(
        "positive pixels", filtered(TAPS, window=positive), ODD,
        _sum(lambda a, at: max(0.0, a["I"][at[2], at[1] + at[0]]) * a["K"][at[0]]),
    )  # fmt: skip
    yield Pipeline(
        "every other row moved", filtered(TAPS, window=moved), ODD,
        _sum(lambda a, at: a["I"][at[2], at[1] + at[0] + 2 * (at[2] % 2 == 0)] * a["K"][at[0]]),
    )  # fmt: skip


def placed() -> Iterator[Pipeline]:
    """All of them."""
    yield from _conditional()
    yield _along_both()
    yield from _pixels()
    for name, (tap, of) in GATHERED.items():
        truth = _sum(lambda a, at, of=of: a["I"][at[2], at[1] + at[0]] * a["K"][of(at[0])])
        parts = PARTS.get(name, 1)
        yield Pipeline(name, filtered(TAPS, tap=tap), ODD, truth, statements=parts)
    for name, (window, at_x) in WINDOWS.items():
        truth = _sum(lambda a, at, at_x=at_x: a["I"][at[2], at_x(*at[:2])] * a["K"][at[0]])
        parts = PARTS.get(name, 1)
        yield Pipeline(
            f"an image {name}", filtered(TAPS, window=window), ODD, truth, statements=parts
        )
    for name, sign in SIGNS.items():
        truth = _sum(lambda a, at: _plain(a, at) * (-1) ** at[0])
        yield Pipeline(f"signs {name}", filtered(TAPS, where=sign), ODD, truth)
