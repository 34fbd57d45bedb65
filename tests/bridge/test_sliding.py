"""Funcs that are kept outside of the loops that compute them, also where Halide slides wrongly."""

from __future__ import annotations

import random
from typing import Any

import halide as hl
import numpy as np
import pytest
from numpy.typing import NDArray
from pipelines import variables

import halide_bridge as hb
from selector.ir.interpreter import interpret

pytestmark = pytest.mark.verified

Array = NDArray[Any]
TAILS = [
    hl.TailStrategy.GuardWithIf,
    hl.TailStrategy.RoundUp,
    hl.TailStrategy.ShiftInwards,
]
BEFORE = (0, -1, 3), (0, 2, 1)  # what an element is the sum of: columns, rows
NAMES = "x y xo yo xi yi fo fi fy fz so si sy sz"


class Chain:
    """Sums of three elements of sums of three of a clamped picture."""

    def __init__(self) -> None:
        self.x, self.y, *_ = self.vars = variables(NAMES)
        self.image = hl.ImageParam(hl.Int(32), 2, "I")
        clamped = hl.BoundaryConditions.repeat_edge(self.image)
        self.first, self.second, self.out = (hl.Func(n) for n in ("first", "second", "out"))
        x, y = self.x, self.y
        self.first[x, y] = clamped[x, y] * 2 + 1
        for func, of in ((self.second, self.first), (self.out, self.second)):
            func[x, y] = sum((of[x + i, y + j] for i, j in zip(*BEFORE, strict=True)), hl.i32(0))


def pictures(image: Array, height: int, width: int) -> Array:
    """``Chain`` in NumPy."""
    value: Array
    y, x = np.mgrid[-8 : height + 8, -8 : width + 8]
    value = 2 * image[np.clip(y, 0, image.shape[0] - 1), np.clip(x, 0, image.shape[1] - 1)] + 1
    for _ in range(2):
        taps = [np.roll(value, (-j, -i), (0, 1)) for i, j in zip(*BEFORE, strict=True)]
        value = np.sum(taps, axis=0)
    return value[8 : 8 + height, 8 : 8 + width]


def place(
    p: Chain, func: hl.Func, loops: tuple[Any, ...], choose: random.Random, least: int = 0
) -> int:
    """At a loop of the output, the one numbered ``least`` or further out, and kept outside of that
    or further out still. The loop's number.
    """
    at = choose.randrange(least, len(loops))
    kept = choose.randrange(at, len(loops) + 1)
    func.compute_at(p.out, loops[at])
    if kept == len(loops):
        func.store_root()
    elif kept > at:
        func.store_at(p.out, loops[kept])
    return at


def cut(p: Chain, func: hl.Func, names: tuple[Any, ...], choose: random.Random) -> None:
    across, lane, down, row = names
    if choose.random() < 0.8:
        func.split(p.x, across, lane, choose.choice([4, 8, 16]), choose.choice(TAILS))
        func.vectorize(lane)
    if choose.random() < 0.5:
        func.split(p.y, down, row, choose.choice([2, 3, 4]), choose.choice(TAILS))


@pytest.mark.parametrize("seed", range(40))
def test_random_places(seed: int) -> None:
    choose, p = random.Random(seed), Chain()
    _, _, xo, yo, xi, yi, *others = p.vars
    p.out.split(p.y, yo, yi, choose.choice([2, 4, 5, 8]), choose.choice(TAILS))
    p.out.split(p.x, xo, xi, choose.choice([8, 16]), choose.choice(TAILS)).vectorize(xi)
    inner = choose.choice([(xo, yi, yo), (yi, xo, yo)])
    p.out.reorder(xi, *inner)
    at = place(p, p.second, inner, choose)
    place(p, p.first, inner, choose, at)
    cut(p, p.first, tuple(others[:4]), choose)
    cut(p, p.second, tuple(others[4:]), choose)
    image = np.random.default_rng(seed).integers(-99, 99, (13, 18)).astype(np.int32)
    height, width = choose.randrange(5, 30), choose.randrange(5, 40)
    module = hb.lower(p.out, target="amx")
    found = interpret(module, {"I": image}, sizes={"out": (height, width)})["out"]
    assert np.array_equal(found, pictures(image, height, width))


def test_funcs_that_slide_along_one_loop_from_different_ones() -> None:
    """Halide's own compiler begins the loop for the second where it does for the first."""
    p = Chain()
    _, _, xo, yo, xi, yi, fo, fi, *_ = p.vars
    p.out.split(p.y, yo, yi, 5).split(p.x, xo, xi, 16).reorder(xi, xo, yi, yo).vectorize(xi)
    p.second.store_root().compute_at(p.out, xo).vectorize(p.x, 8)
    p.first.store_at(p.out, yi).compute_at(p.out, xo)
    p.first.split(p.x, fo, fi, 8).vectorize(fi)
    image = np.arange(13 * 18, dtype=np.int32).reshape(13, 18) ** 2 % 97
    module = hb.lower(p.out, target="amx")
    found = interpret(module, {"I": image}, sizes={"out": (25, 17)})["out"]
    assert np.array_equal(found, pictures(image, 25, 17))


def test_what_moves_by_no_constant_is_computed_as_a_whole() -> None:
    """A tap and the middle: what is needed ends at the larger of two places."""
    x, y, xi = variables("x y xi")
    image = hl.ImageParam(hl.Int(32), 2, "I")
    clamped, out = hl.BoundaryConditions.repeat_edge(image), hl.Func("out")
    row, total = hl.Func("row"), hl.Func("total")
    row[x, y] = clamped[x, y]
    r = hl.RDom([(-2, 5), (-2, 5)], "r")
    total[x, y] = 0
    total[x, y] += hl.absd(row[x + r.x, y + r.y], row[x, y])
    out[x, y] = total[x, y]
    out.split(x, x, xi, 16).vectorize(xi)
    total.compute_at(out, x).vectorize(x, 16).update().reorder(x, r.x, r.y, y).vectorize(x, 16)
    row.store_at(total, r.y).compute_at(total, r.x).vectorize(x, 16)
    data = np.arange(31 * 42, dtype=np.int32).reshape(31, 42) ** 2 % 101
    found = interpret(hb.lower(out, target="amx"), {"I": data}, sizes={"out": (31, 42)})["out"]
    padded = np.pad(data, 2, mode="edge")
    taps = (padded[j : j + 31, i : i + 42] for j in range(5) for i in range(5))
    assert np.array_equal(found, sum(abs(tap - data) for tap in taps))


@pytest.mark.parametrize("kept", [True, False])
def test_rows_are_computed_once_where_they_are_kept(kept: bool) -> None:
    """A row of the output needs three of ``rows``: one is new."""
    x, y = variables("x y")
    image = hl.ImageParam(hl.Int(32), 2, "I")
    rows, out = hl.Func("rows"), hl.Func("out")
    rows[x, y] = image[x, y] * 2
    out[x, y] = rows[x, y] + rows[x, y + 1] + rows[x, y + 2]
    rows.compute_at(out, y)
    if kept:
        rows.store_root()
    assert ("rows.s0.y" in str(hb.lower(out, target="amx"))) != kept
