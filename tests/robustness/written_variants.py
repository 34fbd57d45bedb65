"""Variants as Halide pipelines: one law applied in one place of a program that is written best.

A law says the same in other words: of a subscript, of an element, of a factor as wide as the sum,
of a product, of what is added, of a condition. Each is applied to filters and products in turn;
``Pipeline.name`` says which law, where and of what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import halide as hl
import numpy as np
from corpus_case import Shape
from halide_tiles import Product, multiplied, product
from halide_variants import ODD, Arrays, Pipeline, Row, correlate, filtered, plain
from machines import Array

Law = Callable[[hl.Expr], hl.Expr]
WIDE_INT = hl.Int(64)
TAPS, COUNTED = 8, 5


def _one(e: hl.Expr) -> hl.Expr:
    return hl.cast(e.type(), 1)


def _none(e: hl.Expr) -> hl.Expr:
    return hl.cast(e.type(), 0)


def _negated_twice(e: hl.Expr) -> hl.Expr:
    negated = -e
    return -negated


SUBSCRIPTS: dict[str, Law] = {
    "added and taken away": lambda e: (e + 3) - 3,
    "twice and half": lambda e: (2 * e) / 2,
    "twice and one, half": lambda e: (2 * e + 1) / 2,
    "negated twice": _negated_twice,
    "the less of itself": lambda e: hl.min(e, e),
    "the less of the next": lambda e: hl.min(e, e + 1),
    "the more of the last": lambda e: hl.max(e - 1, e),
    "the one or the other": lambda e: hl.select(e > 3, e, e),
    "in 64 bits": lambda e: hl.cast(hl.Int(32), hl.cast(WIDE_INT, e)),
    "quotient and rest": lambda e: 4 * (e / 4) + e % 4,
    "rest first": lambda e: e % 8 + 8 * (e / 8),
    "shifted there and back": lambda e: (e << 1) >> 1,
    "in thirds": lambda e: (3 * e + 2) / 3,
    "twice less itself": lambda e: 2 * e - e,
}
ELEMENTS: dict[str, Law] = {
    "and nothing": lambda e: e + _none(e),
    "times one": lambda e: e * _one(e),
    "negated twice": _negated_twice,
    "the less of itself": lambda e: hl.min(e, e),
    "the one or the other": lambda e: hl.select(e > _none(e), e, e),
    "wide and narrow": lambda e: hl.cast(e.type(), hl.cast(_wider(e), e)),
    "over one": lambda e: e / _one(e),
}
FACTORS: dict[str, Law] = {
    "and nothing": lambda e: e + _none(e),
    "times one": lambda e: e * _one(e),
    "negated twice": _negated_twice,
    "less nothing": lambda e: e - _none(e),
    "cast again": lambda e: hl.cast(e.type(), e),
    "the more of itself": lambda e: hl.max(e, e),
}
SUMMANDS: dict[str, Law] = {
    "and nothing": lambda e: e + _none(e),
    "nothing and": lambda e: _none(e) + e,
    "times one": lambda e: e * _one(e),
    "negated twice": _negated_twice,
    "the one or the other": lambda e: hl.select(hl.Var("y") > 1, e, e),
    "less its negative": lambda e: _none(e) - (_none(e) - e),
}
PRODUCTS: dict[str, Callable[[hl.Expr, hl.Expr], hl.Expr]] = {
    "turned": lambda a, b: b * a,
    "the first negated": lambda a, b: -((-a) * b),
    "the second negated": lambda a, b: -(a * (-b)),
    "both negated": lambda a, b: (-a) * (-b),
    "negated from nothing": lambda a, b: _none(a) - (_none(a) - a) * b,
    "doubled and halved": lambda a, b: (a * 2) * b / 2,
    "of a sum with nothing": lambda a, b: (a + _none(a)) * (b + _none(b)),
}
CONDITIONS: dict[str, Callable[[hl.Expr, hl.Expr], hl.Expr]] = {
    "below": lambda t, n: t < n,
    "above": lambda t, n: n > t,
    "not at least": lambda t, n: ~(t >= n),
    "at most one less": lambda t, n: t <= n - 1,
    "the next at most": lambda t, n: t + 1 <= n,
    "their difference": lambda t, n: t - n < 0,
    "twice": lambda t, n: 2 * t < 2 * n,
    "the less of both": lambda t, n: hl.min(t, n - 1) == t,
    "said twice": lambda t, n: (t < n) & (t < n),
    "or again": lambda t, n: (t < n) | (t < n),
    "or less": lambda t, n: (t < n) | (t < n - 2),
}
MASKED: dict[str, Callable[[hl.Expr, hl.Expr], hl.Expr]] = {
    "chosen": lambda p, v: hl.select(p, v, _none(v)),
    "chosen not": lambda p, v: hl.select(~p, _none(v), v),
    "as a factor": lambda p, v: hl.cast(v.type(), p) * v,
    "as the second factor": lambda p, v: v * hl.cast(v.type(), p),
    "chosen twice": lambda p, v: hl.select(p, hl.select(p, v, _none(v)), _none(v)),
}


def _wider(e: hl.Expr) -> hl.Type:
    """A type that holds every value of the expression's."""
    t = e.type()
    return hl.Float(32) if t.is_float() or t.is_bfloat() else hl.Int(32)


@dataclass(frozen=True)
class Filter:
    """Windows along rows: ``start`` of the window of an output, tap by tap, and what it gives."""

    window: Callable[[hl.Var, hl.RDom], hl.Expr]
    truth: Callable[[Arrays, Shape], Array]
    tap: Callable[[hl.Var, hl.RDom], hl.Expr] = lambda x, t: t.x
    schedule: Row = field(default_factory=Row)


def _phased(x: Arrays, size: Shape) -> Array:
    """Two outputs a pixel, every other tap each."""
    found = np.zeros((size[1], size[0]))
    for p in (0, 1):
        taps, own = x["K"][p : 2 * TAPS : 2], found[:, p::2]
        own[:] = correlate(x["I"], taps, own.shape[1])[: size[1]]
    return found


FILTERS: Mapping[str, Filter] = {
    "a row": Filter(lambda x, t: x + t.x, plain()),
    "a strided row": Filter(lambda x, t: 2 * x + t.x, plain(2)),
    "a dilated row": Filter(lambda x, t: x + 3 * t.x, plain(1, 3)),
    "a row backwards": Filter(
        lambda x, t: x + (TAPS - 1 - t.x),
        lambda x, size: correlate(x["I"], x["K"][::-1], size[0])[: size[1]],
    ),
    "two phases": Filter(lambda x, t: x / 2 + t.x, _phased, lambda x, t: 2 * t.x + x % 2),
    "chunks of taps": Filter(lambda x, t: x + t.x, plain(), schedule=Row(chunk=4)),
}
LAYOUTS = {"rows": "nn", "rows by rows": "nt", "columns": "tn"}


def _filter(
    name: str,
    f: Filter,
    subscript: Law = lambda e: e,
    tap: Law = lambda e: e,
    element: Law = lambda e: e,
    weight: Law = lambda e: e,
    combine: Callable[[hl.Expr, hl.Expr], hl.Expr] = lambda a, b: a * b,
    summand: Law = lambda e: e,
) -> Pipeline:
    build = filtered(
        TAPS,
        window=lambda i, x, y, t: element(i[subscript(f.window(x, t)), y]),
        tap=lambda k, t: weight(k[tap(f.tap(hl.Var("x"), t))]),
        combine=lambda a, b: summand(combine(a, b)),
        schedule=f.schedule,
    )
    return Pipeline(name, build, ODD, f.truth)


def _of_filters() -> Iterator[Pipeline]:
    for where, f in FILTERS.items():
        for law, of in SUBSCRIPTS.items():
            yield _filter(f"{where}: subscript {law}", f, subscript=of)
            if law != "twice less itself":  # Halide takes more taps to be read
                yield _filter(f"{where}: subscript of taps {law}", f, tap=of)
    for where in ("a row", "a strided row", "two phases"):
        f = FILTERS[where]
        for law, of in ELEMENTS.items():
            yield _filter(f"{where}: element {law}", f, element=of)
            yield _filter(f"{where}: tap {law}", f, weight=of)
        for law, of in FACTORS.items():
            yield _filter(f"{where}: factor {law}", f, combine=lambda a, b, of=of: of(a) * b)
            yield _filter(f"{where}: second factor {law}", f, combine=lambda a, b, of=of: a * of(b))
        for law, of in SUMMANDS.items():
            yield _filter(f"{where}: summand {law}", f, summand=of)
        for law, both in PRODUCTS.items():
            yield _filter(f"{where}: product {law}", f, combine=both)


def _through_funcs() -> Iterator[Pipeline]:
    """Rows of a Func that nobody schedules: of the image, of what is made of it, of the taps."""
    u, v = hl.Var("u"), hl.Var("v")

    def pixels(of: Law) -> Callable[..., hl.Expr]:
        def window(i: hl.ImageParam, x: hl.Var, y: hl.Var, t: hl.RDom) -> hl.Expr:
            made = hl.Func("made")
            made[u, v] = of(i[u, v])
            return made[x + t.x, y]

        return window

    def weights(k: hl.ImageParam, t: hl.RDom) -> hl.Expr:
        made = hl.Func("made")
        made[u] = k[u]
        return made[t.x]

    def moved(i: hl.ImageParam, x: hl.Var, y: hl.Var, t: hl.RDom) -> hl.Expr:
        made = hl.Func("made")
        made[u, v] = i[u + 4, v]
        return made[x + t.x - 4, y]

    for law, of in ({"as it is": lambda e: e} | ELEMENTS).items():
        yield Pipeline(f"a Func of pixels {law}", filtered(TAPS, window=pixels(of)), ODD, plain())
    yield Pipeline("a Func of pixels, moved", filtered(TAPS, window=moved), ODD, plain())
    yield Pipeline("a Func of taps", filtered(TAPS, tap=weights), ODD, plain())


def _of_products() -> Iterator[Pipeline]:
    for where, layout in LAYOUTS.items():
        p = Product(layout=layout)
        for law, of in FACTORS.items():
            yield _product(f"{where}: factor {law}", p, lambda a, b, of=of: of(a) * b)
            yield _product(f"{where}: second factor {law}", p, lambda a, b, of=of: a * of(b))
        for law, of in SUMMANDS.items():
            if "other" not in law:
                yield _product(f"{where}: summand {law}", p, lambda a, b, of=of: of(a * b))
        for law, both in PRODUCTS.items():
            yield _product(f"{where}: product {law}", p, both)
    for law, of in SUBSCRIPTS.items():
        for place in ("k", "m"):
            left = _subscripted(of, place)
            yield _product(f"rows: subscript {place} {law}", Product(left=left))
    for law, of in ELEMENTS.items():
        yield _product(f"rows: element {law}", Product(left=lambda a, k, m, of=of: of(a[k, m])))


def _subscripted(of: Law, place: str) -> Callable[[hl.ImageParam, hl.Expr, hl.Var], hl.Expr]:
    if place == "k":
        return lambda a, k, m: a[of(k), m]
    return lambda a, k, m: a[k, of(hl.Expr(m))]


def _product(
    name: str,
    p: Product,
    combine: Callable[[hl.Expr, hl.Expr], hl.Expr] = lambda a, b: a * b,
) -> Pipeline:
    def shapes(size: Shape) -> Mapping[str, Shape]:
        n, m = size
        a, b = (p.depth, m), (n, p.depth)
        return {
            "A": a[::-1] if p.layout[0] == "t" else a,
            "B": b[::-1] if p.layout[1] == "t" else b,
        }

    p = replace(p, combine=combine)
    return Pipeline(name, product(p), (37, 29), multiplied(p), shapes)


def _masked() -> Iterator[Pipeline]:
    """Rows whose taps end at a parameter: of a product, and of an element before it is one."""
    for condition, holds in CONDITIONS.items():
        yield _where(f"condition {condition}", holds, MASKED["chosen"])
        yield _where(f"condition {condition}, of elements", holds, MASKED["chosen"], True)
    for mask, masked in MASKED.items():
        yield _where(f"mask {mask}", CONDITIONS["below"], masked)
        yield _where(f"mask {mask}, of elements", CONDITIONS["below"], masked, True)


def _where(
    name: str,
    holds: Callable[[hl.Expr, hl.Expr], hl.Expr],
    masked: Callable[[hl.Expr, hl.Expr], hl.Expr],
    early: bool = False,
) -> Pipeline:
    def mask(v: hl.Expr, t: hl.RDom) -> hl.Expr:
        return masked(holds(hl.Expr(t.x), hl.Param(hl.Int(32), "n")), v)

    build = filtered(
        TAPS,
        window=lambda i, x, y, t: mask(i[x + t.x, y], t) if early else i[x + t.x, y],
        where=(lambda v, t: v) if early else mask,
    )
    return Pipeline(
        name, build, ODD, lambda x, size: correlate(x["I"], x["K"][:COUNTED], size[0]),
        scalars={"n": COUNTED},
    )  # fmt: skip


def written() -> Iterator[Pipeline]:
    """All of them."""
    yield from _of_filters()
    yield from _of_products()
    yield from _through_funcs()
    yield from _masked()
