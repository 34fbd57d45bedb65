"""Sums of which a predicate (``RDom.where``) says which terms count, on a tensor unit: a factor is
zero where they do not, staged or not, at sizes that no tile divides, and nothing that nobody wrote
is multiplied. Sums that add more than a product, with and without one, end where they should.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl
from emulation import run

import halide_bridge as hb

pytestmark = pytest.mark.verified

F16 = hl.Float(16)
ROWS, COLUMNS, DEPTH, TILE, STEP = 41, 27, 40, 16, 32
X, Y = hl.Var("x"), hl.Var("y")
A, B = hl.ImageParam(F16, 2, "A"), hl.ImageParam(F16, 2, "B")
LENGTH, KEPT = hl.ImageParam(hl.Int(32), 1, "length"), hl.ImageParam(hl.UInt(8), 1, "kept")
ENDS, HOLES = np.arange(ROWS) * 7 % 50 - 5, np.arange(DEPTH) * 5 % 3
M, N, K = np.ogrid[:ROWS, :COLUMNS, :DEPTH]
Array = np.ndarray[Any, Any]
Condition = Callable[[Any], hl.Expr]


@dataclass(frozen=True, slots=True)
class Mask:
    """Which terms count, as a predicate over ``k`` and as an array over rows, columns and terms."""

    where: Condition
    holds: Array
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])


MASKS = {
    "up to the row": Mask(lambda k: k <= Y, K <= M),
    "from the column on": Mask(lambda k: k >= X, K >= N),
    "between both": Mask(lambda k: (k >= X) & (k < Y), (K >= N) & (K < M)),
    "up to the less of both": Mask(lambda k: k <= hl.min(X, Y), np.minimum(M, N) >= K),
    "two of three": Mask(lambda k: k % 3 != 1, K % 3 != 1),
    "a band": Mask(lambda k: hl.abs(k - Y) < 5, abs(K - M) < 5),
    "the first or the last": Mask(lambda k: (k < 3) | (k > 33), (K < 3) | (K > 33)),
    "a length of each row": Mask(
        lambda k: k < LENGTH[Y], ENDS[M] > K, {"length": ENDS.astype(np.int32)}
    ),
    "as an array says": Mask(
        lambda k: KEPT[k] != 0, HOLES[K] != 0, {"kept": HOLES.astype(np.uint8)}
    ),
    "above the diagonal": Mask(lambda k: X > Y, N > M),
}


def product(where: Condition, staged: str = "") -> hl.Func:
    """``staged``: operands in shared memory, those of each step, or Funcs of their own that are
    computed before (``made``).
    """
    k = hl.RDom([(0, DEPTH)], "k")
    k.where(where(k.x))
    a, b = (twice(p) for p in (A, B)) if staged == "made" else (A, B)
    sums = hl.Func("sums")
    sums[X, Y] = hl.f32(0)
    sums[X, Y] += hl.f32(a[k.x, Y]) * hl.f32(b[X, k.x])
    out, ko = scheduled(sums, k)
    for copy in [p.in_(sums) for p in (a, b) if staged == "steps"]:
        copy.compute_at(sums, ko).store_in(hl.MemoryType.GPUShared).vectorize(copy.args()[0])
    return out


def scheduled(sums: hl.Func, k: hl.RDom) -> tuple[hl.Func, hl.RVar]:
    """Tiles of 16 x 16 by one warp each, and the loop over steps."""
    xo, yo, xi, yi, out = *(hl.Var(n) for n in ("xo", "yo", "xi", "yi")), hl.Func("out")
    out[X, Y] = sums[X, Y]
    out.tile(X, Y, xo, yo, xi, yi, TILE, TILE).vectorize(xi).vectorize(yi).gpu_blocks(xo, yo)
    sums.compute_at(out, xo).bound_extent(X, TILE).bound_extent(Y, TILE).vectorize(X).vectorize(Y)
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    update = sums.update().atomic().split(k.x, ko, ki, STEP).reorder(ki, X, Y, ko)
    update.vectorize(ki).vectorize(X).vectorize(Y)
    hb.store_in(sums, hb.MemoryType.WMMAAccumulator)
    return out, ko


def twice(p: hl.ImageParam) -> hl.Func:
    u, v, made = hl.Var("u"), hl.Var("v"), hl.Func(f"made_{p.name()}")
    made[u, v] = hl.cast(F16, 2) * p[u, v]
    return made.compute_root().gpu_blocks(v)


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


def truth(mask: Mask, a: Array, b: Array) -> Array:
    """Rows, columns."""
    holds = np.broadcast_to(mask.holds, (ROWS, COLUMNS, DEPTH))
    return np.einsum("mk,kn,mnk->mn", a.astype(float), b.astype(float), holds)


@pytest.mark.parametrize("staged", ["", "steps", "made"])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.filterwarnings("ignore::selector.diagnostics.PerformanceWarning")
def test_only_some_terms_count(name: str, staged: str) -> None:
    mask = MASKS[name]
    a, b = numbers(ROWS, DEPTH), numbers(DEPTH, COLUMNS, seed=1)
    exact = truth(mask, a, b) * (4 if staged == "made" else 1)
    check(product(mask.where, staged), {"A": a, "B": b, **mask.arrays}, exact)


def check(out: hl.Func, inputs: dict[str, Any], exact: Array) -> None:
    """Selected, and right: as selected, and as emitted."""
    kernel = hb.compile(out, target="sm_80", cache=False)
    updates = kernel.report.updates
    assert updates
    assert all(update.block is not None for update in updates)
    for found in (
        kernel.interpret(**inputs, sizes=exact.shape),
        run(kernel, **inputs, sizes=exact.shape),
    ):
        np.testing.assert_array_equal(found, exact)


TERMS: dict[str, tuple[Callable[[Any, Any, Any], hl.Expr], Callable[[Array, Array], Array]]] = {
    "a + a*b": (lambda f, a, b: f + (a + a * b), lambda a, b: a * (1 + b)),
    "a*b - a": (lambda f, a, b: f + (a * b - a), lambda a, b: a * (b - 1)),
    "b + a*b": (lambda f, a, b: f + (b + a * b), lambda a, b: (a + 1) * b),
    "a*(1 + b)": (lambda f, a, b: f + a * (1 + b), lambda a, b: a * (1 + b)),
    "one after the other": (lambda f, a, b: f + a * b + a, lambda a, b: a * (1 + b)),
    "before and behind": (lambda f, a, b: a * b + f - b, lambda a, b: (a - 1) * b),
}


@pytest.mark.parametrize("where", ["all", "some"])
@pytest.mark.parametrize("name", TERMS)
@pytest.mark.filterwarnings("ignore::selector.diagnostics.PerformanceWarning")
def test_terms_are_products_and_others(name: str, where: str) -> None:
    value, real = TERMS[name]
    k, sums = hl.RDom([(0, DEPTH)], "k"), hl.Func("sums")
    if where == "some":
        k.where(k.x % 3 != 1)
    sums[X, Y] = hl.f32(0)
    sums[X, Y] = value(sums[X, Y], hl.f32(A[k.x, Y]), hl.f32(B[X, k.x]))
    a, b = numbers(ROWS, DEPTH), numbers(DEPTH, COLUMNS, seed=1)
    kept = np.arange(DEPTH) % 3 != 1 if where == "some" else np.ones(DEPTH, bool)
    terms = real(a.astype(float)[:, :, None], b.astype(float)[None])
    beyond = {
        "A": np.pad(a, ((0, 0), (0, STEP)), constant_values=np.nan),
        "B": np.pad(b, ((0, STEP), (0, 0)), constant_values=np.nan),
    }
    check(scheduled(sums, k)[0], beyond, terms[:, kept].sum(1))
