"""Vector stores side by side load together; where rows are not aligned, blocks go on along them."""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED, Verified, text_of

import halide_bridge as hb

pytestmark = pytest.mark.verified

x, y, xo, xi, xl = (hl.Var(name) for name in ("x", "y", "xo", "xi", "xl"))
F32 = hl.Float(32)
FIRST = "block_id_x == 0"


def vectorized(out: hl.Func, lanes: int = 4) -> hl.Func:
    out.compute_root().split(x, xo, xi, 8 * lanes).split(xi, xi, xl, lanes).vectorize(xl)
    return out.gpu_blocks(xo, y).gpu_threads(xi)


def two(kind: Any = F32, lanes: tuple[int, int] = (4, 4)) -> list[hl.Func]:
    a, f, g = hl.ImageParam(kind, 2, "a"), hl.Func("f"), hl.Func("g")
    f[x, y] = a[x + 1, y] - a[x, y]
    g[x, y] = a[x, y + 1] + a[x, y]
    return [vectorized(s, n) for s, n in zip((f, g), lanes, strict=True)]


def truth(a: Any) -> dict[str, Any]:
    return {"f": a[:-1, 1:] - a[:-1, :-1], "g": a[1:, :-1] + a[:-1, :-1]}


@EMULATED
@pytest.mark.parametrize("kind", [np.float32, np.uint8])
@pytest.mark.parametrize("width", [3, 32, 67, 130])
@pytest.mark.parametrize("less", [0, 40])
def test_all_is_loaded_before_anything_is_stored(
    less: int, width: int, kind: Any, verified: Verified
) -> None:
    """Rows of any alignment, and outputs of which one ends blocks earlier."""
    lanes = 4 if kind == np.float32 else 16
    kernel = hb.compile(two(F32 if lanes == 4 else hl.UInt(8), (lanes, lanes)), target="sm_90a")
    text = kernel.source
    assert len(kernel.plan.launches) == 1
    assert text.index("near_2[") < text.index("run[")
    assert "shift == " in text
    a = np.random.default_rng(width).integers(0, 99, (5, width + 1)).astype(kind)
    own = max(1, width - less)
    wanted = truth(a) | {"g": truth(a)["g"][:, :own]}
    sizes = {n: v.shape for n, v in wanted.items()}
    runs = [kernel.interpret(a=a, sizes=sizes)]
    if not verified(text_of(kernel), repr(sizes)):
        runs.append(check(kernel, a=a, sizes=sizes))
    for found in runs:
        assert all(np.array_equal(found[n], v) for n, v in wanted.items())


def test_stores_of_other_lanes_are_apart() -> None:
    assert "shift == " not in hb.compile(two(lanes=(4, 2)), target="sm_90a").source


def one(where: str = "") -> hl.Func:
    a, f = hl.ImageParam(hl.UInt(8), 2, "a"), hl.Func("f")
    f[x, y] = a[x, y] * 2
    vectorized(f, 16)
    if where == "exact":
        f.bound(x, 0, 256)
    if where == "turned":
        g = hl.Func("g")
        g[x, y] = hl.u8(0)
        r = hl.RDom([(0, a.width()), (0, a.height())], "r")
        r.where((r.x // 128 + r.y) % 2 == 0)
        g[r.x, r.y] = a[r.x, r.y] * 2
        ro, ri, rl = hl.RVar("ro"), hl.RVar("ri"), hl.RVar("rl")
        g.gpu_tile(x, y, xo, xi, hl.Var("u"), hl.Var("v"), 32, 4)
        update = g.update(0)
        update.split(r.x, ro, ri, 128).split(ri, ri, rl, 16)
        update.allow_race_conditions().vectorize(rl).gpu_blocks(ro, r.y).gpu_threads(ri)
        return g
    return f


@EMULATED
@pytest.mark.parametrize("width", [1, 15, 17, 127, 129, 300, 395])
def test_blocks_have_what_the_next_one_begins_with(width: int, verified: Verified) -> None:
    kernel = hb.compile(one(), target="sm_90a")
    assert FIRST in kernel.source
    a = np.random.default_rng(width).integers(0, 120, (5, width)).astype(np.uint8)
    if not verified(text_of(kernel), repr(width)):
        assert np.array_equal(check(kernel, a=a, sizes=a.shape), a * 2)


def test_blocks_stay_apart_where_nothing_says_where_rows_end() -> None:
    assert FIRST not in hb.compile(one("exact"), target="sm_90a").source


@EMULATED
def test_blocks_under_a_condition_stay_apart(verified: Verified) -> None:
    kernel = hb.compile(one("turned"), target="sm_90a")
    assert FIRST not in kernel.source
    a = np.random.default_rng(0).integers(0, 120, (5, 395)).astype(np.uint8)
    taken = (np.arange(395) // 128 + np.arange(5)[:, None]) % 2 == 0
    if not verified(text_of(kernel), ""):
        assert np.array_equal(check(kernel, a=a, sizes=a.shape), a * 2 * taken)


def test_a_condition_on_data_says_nothing_of_rows() -> None:
    a, f, r = hl.ImageParam(F32, 2, "a"), hl.Func("f"), hl.RDom([(0, 256), (0, 5)], "r")
    ro, ri, rl = hl.RVar("ro"), hl.RVar("ri"), hl.RVar("rl")
    f[x, y] = hl.f32(0)
    r.where(a[r.x, r.y] < 5)
    f[r.x, r.y] = a[r.x, r.y] * 2
    f.bound(x, 0, 256).bound(y, 0, 5)
    f.gpu_tile(x, y, xo, xi, hl.Var("u"), hl.Var("v"), 32, 4)
    update = f.update(0).split(r.x, ro, ri, 32).split(ri, ri, rl, 4)
    update.allow_race_conditions().vectorize(rl).gpu_blocks(ro, r.y).gpu_threads(ri)
    kernel = hb.compile(f, target="sm_90a")
    assert FIRST not in kernel.source
    data = np.random.default_rng(0).integers(0, 9, (5, 256)).astype(np.float32)
    found = kernel.interpret(a=data, sizes=data.shape)
    assert np.array_equal(found, np.where(data < 5, data * 2, 0))


def turned(apart: bool = True) -> hl.Func:
    """Halves of rows of 32, of which a thread has a vector each (or two next to each other), under
    a condition on the row.
    """
    a, b, f = hl.ImageParam(hl.Float(16), 2, "a"), hl.ImageParam(hl.Float(16), 1, "b"), hl.Func("f")
    first = x % 16
    re, im = hl.f32(a[first, y]) * hl.f32(b[first]), hl.f32(a[first + 16, y])
    f[x, y] = hl.cast(hl.Float(16), hl.select(x < 16, re - im, re + im))
    yo, yi, xt = hl.Var("yo"), hl.Var("yi"), hl.Var("xt")
    f.bound(x, 0, 32).compute_root()
    if apart:
        f.split(x, xt, xi, 16).unroll(xt).split(xi, xi, xl, 8)
    else:
        f.split(x, xi, xl, 16).split(xl, xt, xl, 8).unroll(xt)
    f.vectorize(xl).split(y, yo, yi, 4).reorder(xl, xt, xi, yi, yo)
    return f.gpu_blocks(yo).gpu_threads(xi, yi)


def declares_windows(text: str, after: str, before: str) -> bool:
    return " f16 near" in text[text.index(after) : text.index(before)]


@EMULATED
@pytest.mark.parametrize("pitch", [32, 33, 40])
@pytest.mark.parametrize("height", [1, 4, 7])
def test_vectors_of_one_array_load_together(height: int, pitch: int, verified: Verified) -> None:
    kernel = hb.compile(turned(), target="sm_90a")
    assert not declares_windows(kernel.source, "run[", "run_2[")
    rng = np.random.default_rng(height)
    a = rng.uniform(-1, 1, (height, pitch)).astype(np.float16)[:, :32]
    b = rng.uniform(-1, 1, 16).astype(np.float16)
    re, im = (v.astype(np.float32) for v in (a[:, :16] * b.astype(np.float32), a[:, 16:]))
    wanted = np.concatenate((re - im, re + im), 1).astype(np.float16)
    runs = [kernel.interpret(a=a, b=b, sizes=(height, 32))]
    if not verified(text_of(kernel), repr((height, pitch))):
        runs.append(check(kernel, a=a, b=b, sizes=(height, 32)))
    for found in runs:
        assert np.array_equal(found, wanted)


def test_vectors_next_to_each_other_load_for_themselves() -> None:
    text = hb.compile(turned(apart=False), target="sm_90a").source
    assert declares_windows(text, "run[", "run_2[")
