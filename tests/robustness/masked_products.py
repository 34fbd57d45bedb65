"""Variants as Halide pipelines: products of matrices whose terms count under a condition, or are
read at places of any form. References are written term by term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import halide as hl
import numpy as np
from corpus_case import Shape
from halide_tiles import Product, product
from halide_variants import Arrays, Pipeline
from machines import Array

DEPTH, SIZE, BEYOND = 32, (37, 29), 32
Holds = Callable[[Any, Any, Any], Any]
"""Of term, column and row: expressions or numbers."""


def _sum(left: Callable[[Array, int, int], float], holds: Holds) -> Callable[..., Array]:
    """Of ``left(A, k, m) * B[k, n]`` where a condition of (k, n, m) holds."""

    def truth(arrays: Arrays, size: Shape) -> Array:
        found = np.zeros((size[1], size[0]))
        for m, n in np.ndindex(found.shape):
            found[m, n] = sum(
                left(arrays["A"], k, m) * arrays["B"][k, n] for k in range(DEPTH) if holds(k, n, m)
            )
        return found

    return truth


def _shapes(size: Shape) -> Mapping[str, Shape]:
    """Halide takes more to be read than is: the transposed of ``A`` as well."""
    side = max(DEPTH, size[1]) + BEYOND
    return {"A": (side, side), "B": (size[0] + BEYOND, DEPTH)}


CONDITIONS: Mapping[str, tuple[Holds, Holds]] = {
    "up to the column": (lambda k, n, m: k <= n, lambda k, n, m: k <= n),
    "up to the row": (lambda k, n, m: k <= m, lambda k, n, m: k <= m),
    "up to both": (lambda k, n, m: (k <= n) & (k <= m), lambda k, n, m: k <= min(n, m)),
    "from both on": (lambda k, n, m: k > hl.max(n, m), lambda k, n, m: k > max(n, m)),
    "before the row": (lambda k, n, m: n < m, lambda k, n, m: n < m),
    "even terms": (lambda k, n, m: k % 2 == 0, lambda k, n, m: k % 2 == 0),
    "terms at both ends": (lambda k, n, m: (k < 5) | (k > 20), lambda k, n, m: k < 5 or k > 20),
    "a band of the rows": (lambda k, n, m: hl.abs(k - m) < 5, lambda k, n, m: abs(k - m) < 5),
    "blocks of columns": (lambda k, n, m: k / 8 == n / 8, lambda k, n, m: k // 8 == n // 8),
    "every other element": (lambda k, n, m: (k + m) % 2 == 1, lambda k, n, m: (k + m) % 2 == 1),
    "all but the diagonal": (lambda k, n, m: ~(k == m), lambda k, n, m: k != m),
}


def _plain(a: Array, k: int, m: int) -> float:
    return a[m, k]


def _conditional() -> Iterator[Pipeline]:
    n, m = hl.Var("n"), hl.Var("m")
    for name, (holds, said) in CONDITIONS.items():

        def chosen(v: hl.Expr, *place: hl.Expr, holds: Holds = holds) -> hl.Expr:
            return hl.select(holds(*place), v, hl.cast(v.type(), 0))

        ways = {
            "of products": Product(where=lambda v, k, c=chosen: c(v, k, n, m)),
            "of the first": Product(left=lambda a, k, m, c=chosen: c(a[k, m], k, n, m)),
            "of the second": Product(right=lambda b, k, n, c=chosen: c(b[n, k], k, n, m)),
            "as a factor": Product(where=lambda v, k, h=holds: v * hl.cast(v.type(), h(k, n, m))),
        }
        for way, p in ways.items():
            truth = _sum(_plain, said)
            yield Pipeline(f"product {name}, {way}", product(p), SIZE, truth, _shapes)


PLACES: Mapping[str, tuple[Callable[..., hl.Expr], Callable[[Array, int, int], float]]] = {
    "symmetric": (lambda a, k, m: a[hl.min(k, m), hl.max(k, m)],
                  lambda a, k, m: a[max(k, m), min(k, m)]),
    "one half and the other": (lambda a, k, m: hl.select(k <= m, a[k, m], a[m, k]),
                               lambda a, k, m: a[m, k] if k <= m else a[k, m]),
    "one half less the other": (lambda a, k, m: hl.select(k <= m, a[k, m], -a[m, k]),
                                lambda a, k, m: a[m, k] if k <= m else -a[k, m]),
    "circulant": (lambda a, k, m: a[(m - k + 64) % 32, 0], lambda a, k, m: a[0, (m - k) % 32]),
    "permuted": (lambda a, k, m: a[k, (m * 5) % 16], lambda a, k, m: a[m * 5 % 16, k]),
    "pairs turned": (lambda a, k, m: a[2 * (k / 2) + (1 - k % 2), m],
                     lambda a, k, m: a[m, 2 * (k // 2) + 1 - k % 2]),
    "of alternating signs": (lambda a, k, m: hl.select((k + m) % 2 == 0, a[k, m], -a[k, m]),
                             lambda a, k, m: a[m, k] * (-1) ** (k + m)),
    "of windows": (lambda a, k, m: a[m % 8 + k % 4, m / 8 + k / 4],
                   lambda a, k, m: a[m // 8 + k // 4, m % 8 + k % 4]),
}  # fmt: skip


def masked_products() -> Iterator[Pipeline]:
    """All of them."""
    yield from _conditional()
    for name, (left, read) in PLACES.items():
        truth = _sum(read, lambda k, n, m: True)
        parts = 2 if name == "pairs turned" else 1  # even and odd terms
        p = product(Product(left=left))
        yield Pipeline(f"product {name}", p, SIZE, truth, _shapes, statements=parts)
    n, m = hl.Var("n"), hl.Var("m")
    for name, along in {"rows": m, "columns": n}.items():
        p = Product(where=lambda v, k, along=along: hl.select((k + along) % 2 == 0, v, -v))
        of = (lambda n, m: m) if name == "rows" else (lambda n, m: n)

        def truth(x: Arrays, size: Shape, of: Callable[[Any, Any], Any] = of) -> Array:
            rows, columns = np.ogrid[: size[1], : size[0]]
            signs = [(-1.0) ** (k + of(columns, rows)) for k in range(DEPTH)]
            terms = (x["A"][: size[1], k, None] * x["B"][k, : size[0]] for k in range(DEPTH))
            return sum(s * t for s, t in zip(signs, terms, strict=True))  # type: ignore[return-value]

        yield Pipeline(f"product, signs along {name}", product(p), SIZE, truth, _shapes)
