"""Any schedule computes the algorithm: random schedules, interpreted, against NumPy.

Integers, so that results are equal and not only close. Sizes are small and odd.
"""

from __future__ import annotations

import random
from collections.abc import Callable
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
    hl.TailStrategy.Auto,
    hl.TailStrategy.GuardWithIf,
    hl.TailStrategy.RoundUp,
    hl.TailStrategy.ShiftInwards,
]


class Stencil:
    """A stencil of a clamped stencil, then a sum over a window: three Funcs to place anywhere."""

    def __init__(self) -> None:
        self.x, self.y = variables("x y")
        x, y = self.x, self.y
        self.image = hl.ImageParam(hl.Int(32), 2, "I")
        self.clamped = hl.BoundaryConditions.repeat_edge(self.image)
        self.first, self.total, self.out = hl.Func("first"), hl.Func("total"), hl.Func("out")
        self.r = hl.RDom([(0, 3), (0, 5)], "r")
        self.first[x, y] = self.clamped[x - 1, y] + 2 * self.clamped[x + 1, y + 1]
        self.total[x, y] = 0
        self.total[x, y] += self.first[x + self.r.x, y + self.r.y] * (self.r.x + 1)
        self.out[x, y] = self.total[x, y] - self.first[x, y]

    def interpret(self, image: Array, width: int, height: int, target: str) -> Array:
        module = hb.lower(self.out, target=target)
        return interpret(module, {"I": image}, sizes={"out": (height, width)})["out"]


def reference(image: Array, width: int, height: int) -> Array:
    """``Stencil`` in NumPy."""

    def first(x: Array, y: Array) -> Array:
        def clamped(x: Array, y: Array) -> Array:
            rows, columns = image.shape
            return image[np.clip(y, 0, rows - 1), np.clip(x, 0, columns - 1)]

        return clamped(x - 1, y) + 2 * clamped(x + 1, y + 1)

    y, x = np.mgrid[:height, :width]
    total = sum((i + 1) * first(x + i, y + j) for i in range(3) for j in range(5))
    return total - first(x, y)


def test_the_reference_is_what_halide_computes() -> None:
    image = np.arange(60, dtype=np.int32).reshape(5, 12) ** 2 % 31
    p = Stencil()
    p.image.set(hl.Buffer(image))
    assert np.array_equal(np.array(p.out.realize([13, 7])), reference(image, 13, 7))


def on_the_gpu(p: Stencil, choose: random.Random) -> None:
    xo, yo, xi, yi, xv = variables("xo yo xi yi xv")
    tile = (choose.choice([8, 12, 16]), choose.choice([2, 4]))
    p.out.tile(p.x, p.y, xo, yo, xi, yi, *tile, choose.choice(TAILS))
    p.out.gpu_blocks(xo, yo)
    if choose.random() < 0.5:
        p.out.split(xi, xi, xv, choose.choice([2, 4, 5]), choose.choice(TAILS[:2])).vectorize(xv)
    p.out.gpu_threads(yi)
    place = choose.choice([xo, yi])
    p.total.compute_at(p.out, place)
    p.total.update().reorder(p.r.x, p.r.y, p.x, p.y)
    if choose.random() < 0.5:
        p.total.update().atomic().vectorize(p.r.x)
    if choose.random() < 0.7:
        p.first.compute_at(p.out, xo)
        if choose.random() < 0.5:
            p.first.vectorize(p.x, choose.choice([2, 4, 8]))


def on_the_cpu(p: Stencil, choose: random.Random) -> None:
    xi, yi = variables("xi yi")
    p.out.split(p.y, p.y, yi, choose.choice([2, 3, 4]), choose.choice(TAILS))
    p.out.split(p.x, p.x, xi, choose.choice([4, 6, 8]), choose.choice(TAILS))
    if choose.random() < 0.5:
        p.out.reorder(xi, yi, p.x, p.y)
    if choose.random() < 0.7:
        p.out.vectorize(xi)
    if choose.random() < 0.5:
        p.out.unroll(yi)
    p.total.compute_at(p.out, choose.choice([p.y, yi, p.x]))
    if choose.random() < 0.5:
        p.total.update().vectorize(p.x, 4)
    where = choose.choice(["root", "inline", "store_root"])
    if where == "root":
        p.first.compute_root().vectorize(p.x, choose.choice([4, 8]), choose.choice(TAILS))
    elif where == "store_root":
        p.first.store_root().compute_at(p.out, p.y)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("schedule", [on_the_gpu, on_the_cpu])
def test_random_schedules(schedule: Callable[[Stencil, random.Random], None], seed: int) -> None:
    choose = random.Random(seed)
    width, height = choose.choice([1, 7, 13, 16, 33]), choose.choice([1, 3, 8, 11])
    image = np.random.default_rng(seed).integers(-99, 99, (choose.randint(1, 12), 17))
    image = image.astype(np.int32)
    scheduled = Stencil()
    schedule(scheduled, choose)
    target = "sm_80" if schedule is on_the_gpu else "amx"
    result = scheduled.interpret(image, width, height, target)
    assert np.array_equal(result, reference(image, width, height))


def test_fused_loops() -> None:
    p = Stencil()
    t, ti = variables("t ti")
    p.out.fuse(p.x, p.y, t).split(t, t, ti, 8).vectorize(ti).gpu_blocks(t)
    image = np.arange(60, dtype=np.int32).reshape(5, 12)
    assert np.array_equal(p.interpret(image, 7, 5, "sm_80"), reference(image, 7, 5))


def test_an_update_of_an_output_with_tails() -> None:
    x, y, xi = variables("x y xi")
    image, out = hl.ImageParam(hl.Int(32), 2, "I"), hl.Func("out")
    out[x, y] = image[x, y]
    out[x, y] += 2 * image[x, y] + x
    out.split(x, x, xi, 8).vectorize(xi)
    out.update().split(x, x, xi, 4).vectorize(xi)
    data = np.arange(66, dtype=np.int32).reshape(6, 11)
    module = hb.lower(out, target="amx")
    result = interpret(module, {"I": data}, sizes={"out": (6, 11)})["out"]
    assert np.array_equal(result, 3 * data + np.arange(11))


@pytest.mark.parametrize("order", ["rows", "columns"])
def test_accumulators_in_either_order(order: str) -> None:
    """The tile's fastest dimension is that of the innermost pure vectorized loop."""
    n, m = variables("n m")
    a, b = hl.ImageParam(hl.Float(16), 2, "A"), hl.ImageParam(hl.Float(16), 2, "B")
    r = hl.RDom([(0, 16)], "r")
    mm, out = hl.Func("mm"), hl.Func("out")
    mm[n, m] = hl.f32(0)
    mm[n, m] += hl.f32(a[r.x, m]) * hl.f32(b[n, r.x])
    out[n, m] = mm[n, m]
    inner, outer = (n, m) if order == "rows" else (m, n)
    no, mo, ni, mi = variables("no mo ni mi")
    out.tile(n, m, no, mo, ni, mi, 16, 32)
    out.reorder(*([ni, mi] if order == "rows" else [mi, ni]), no, mo)
    out.vectorize(ni).vectorize(mi).gpu_blocks(no, mo)
    mm.compute_at(out, no)
    for stage in (mm, mm.update()):
        stage.reorder(inner, outer).vectorize(n, 16).vectorize(m, 32)
    mm.update().reorder(r.x, inner, outer).atomic().vectorize(r.x)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    random_ = np.random.default_rng(1)
    x = random_.standard_normal((33, 16)).astype(np.float16)
    y = random_.standard_normal((16, 17)).astype(np.float16)
    result = interpret(hb.lower(out), {"A": x, "B": y}, sizes={"out": (33, 17)})["out"]
    assert np.allclose(result, x.astype(np.float64) @ y.astype(np.float64), atol=1e-2)
