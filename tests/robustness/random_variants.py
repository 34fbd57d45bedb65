"""Variants drawn at random from a seed: computation, sizes, types and writing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from indices import STYLES
from machines import TYPES, Machine
from text_variants import Filter, Product, Variant, Writer

MOST_LANES = 30_000


def drawn(m: Machine, count: int, seed: int = 0) -> Iterator[Variant]:
    """``count`` variants; the same seed gives the same ones."""
    rng = np.random.default_rng(seed)
    made = 0
    while made < count:
        v = _product(m, rng, made) if rng.random() < 0.4 else _filter(m, rng, made)
        if v is not None:
            made += 1
            yield v


def _pick(rng: np.random.Generator, *choices: int) -> int:
    return int(rng.choice(choices))


def _writer(rng: np.random.Generator) -> Writer:
    styles = list(STYLES)
    return Writer(
        styles[rng.integers(len(styles))],
        styles[rng.integers(len(styles))],
        bool(rng.integers(2)),
        bool(rng.integers(2)),
        ("inside", "outside")[rng.integers(2)],
        int(rng.integers(4)),
    )


def _typed(m: Machine, rng: np.random.Generator) -> Machine:
    kinds = TYPES[m.name]
    return m.with_types(*kinds[rng.integers(len(kinds))])


def _product(m: Machine, rng: np.random.Generator, number: int) -> Variant | None:
    layouts = [("row", "column")[rng.integers(2)] for _ in range(2)]
    rows, columns = _pick(rng, 16, 32, 48), _pick(rng, 8, 16, 32, 40)
    p = Product(rows, columns, int(rng.integers(1, 24)), *layouts)
    tiles = -(-p.m // 16) * -(-p.n // 16)
    if p.m * p.n * p.k > MOST_LANES or (m.name == "amx" and tiles > 6):
        return None
    w = _writer(rng)
    name = f"drawn {number}: product {p.m} x {p.n} x {p.k} {' '.join(layouts)}, {w.style_a}"
    return p.variant(f"{name} by {w.style_b}", _typed(m, rng), w)


def _filter(m: Machine, rng: np.random.Generator, number: int) -> Variant | None:
    phases = _pick(rng, 1, 1, 1, 2, 3, 4, 5)
    f = Filter(
        _pick(rng, 128, 256), int(rng.integers(1, 14)), int(rng.integers(1, 6)),
        int(rng.integers(1, 6)), phases, bool(rng.integers(2)),
    )  # fmt: skip
    if rng.random() < 0.3:
        f = replace(f, tap_step=int(rng.integers(1, 4)) * phases)
    if f.lanes * f.taps > MOST_LANES or (m.name == "amx" and f.lanes > 1024):
        return None
    w = _writer(rng)
    name = (
        f"drawn {number}: {f.taps} taps, stride {f.stride}, dilation {f.dilation}, "
        f"{f.phases} phases, {w.style_a} by {w.style_b}"
    )
    return f.variant(name, _typed(m, rng), w)
