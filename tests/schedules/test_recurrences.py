"""Recurrences that nobody scheduled: threads share them, unless they are short or no scans."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb

pytestmark = pytest.mark.verified

F32 = hl.Float(32)
x, y = hl.Var("x"), hl.Var("y")


def recurrence(step: Callable[[Any], Any], kind: Any = F32, count: Any = None) -> hl.Func:
    source, out = hl.ImageParam(kind, 2, "X"), hl.Func("out")
    r = hl.RDom([(1, source.width() - 1 if count is None else count)], "r")
    out[x, y] = source[x, y]
    out[r, y] = step(lambda n: out[r - n, y])
    return out


def report(out: hl.Func, **options: Any) -> str:
    return hb.autoschedule(out, target="sm_90a", **options).report


@pytest.mark.parametrize("name", ["sum", "mean", "largest", "integers"])
def test_a_recurrence_is_a_scan(name: str) -> None:
    step = {
        "sum": lambda v: v(0) + v(1),
        "mean": lambda v: v(1) + (v(0) - v(1)) * hl.f32(0.5),
        "largest": lambda v: hl.max(v(0), v(1)),
        "integers": lambda v: v(0) - v(1) * 3,
    }[name]
    kind = hl.Int(32) if name == "integers" else F32
    threads = 32 if name == "mean" else 128  # which forgets within a tile of a warp
    assert f"scans by {threads} threads of 16 steps" in report(recurrence(step, kind))


NO_SCANS = {
    "not linear": (lambda v: hl.sqrt(v(1)) + v(0), F32),
    "rounded": (lambda v: v(1) + v(0), hl.Float(16)),
    "bytes": (lambda v: v(1) + v(0), hl.UInt(8)),
}


@pytest.mark.parametrize("name", NO_SCANS)
def test_what_is_no_scan_is_a_threads_own(name: str) -> None:
    assert "scans" not in report(recurrence(*NO_SCANS[name]))


def test_a_short_one_is_a_threads_own() -> None:
    assert "scans" not in report(recurrence(lambda v: v(0) + v(1), count=40))


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_too_few_to_read_each_other_are_a_threads_own(steps: int) -> None:
    """Halide would let them run at once, which a scan of so many back would not be."""
    source, out = hl.ImageParam(F32, 2, "X"), hl.Func("out")
    r = hl.RDom([(steps, steps)], "r")
    out[x, y] = source[x, y]
    out[r, y] += out[r - steps, y]
    kernel = hb.compile(out, target="sm_90a", schedule="auto")
    data = np.arange(40, dtype=np.float32).reshape(4, 10)
    found = kernel.interpret(X=data, sizes=data.shape)
    exact = data.copy()
    exact[:, steps : 2 * steps] += data[:, :steps]
    assert np.array_equal(found, exact)


def test_columns_have_threads_side_by_side() -> None:
    source, out = hl.ImageParam(F32, 2, "X"), hl.Func("out")
    r = hl.RDom([(1, source.height() - 1)], "r")
    out[x, y] = source[x, y]
    out[x, r] += out[x, r - 1]
    assert "scans by 16 threads of 16 steps" in report(out)


def test_weights_of_columns_are_a_threads_own() -> None:
    source, weights, out = hl.ImageParam(F32, 2, "X"), hl.ImageParam(F32, 1, "w"), hl.Func("out")
    r = hl.RDom([(1, source.height() - 1)], "r")
    out[x, y] = source[x, y]
    out[x, r] += weights[x] * out[x, r - 1]
    assert "scans" not in report(out)


def test_long_rows_are_cut_for_several_blocks() -> None:
    out = recurrence(lambda v: v(0) + v(1))
    schedule = hb.autoschedule(out, target="sm_90a", sizes=(2, 1 << 20))
    assert 'hl.RVar("rb")' in schedule.source
    data = np.random.default_rng(1).integers(-9, 9, (2, 40000)).astype(np.float32)
    found = hb.compile(out, target="sm_90a").interpret(X=data, sizes=data.shape)
    assert np.array_equal(found, np.cumsum(data, 1))


def test_what_a_recurrence_begins_with_goes_as_vectors() -> None:
    a, out = hl.ImageParam(hl.Float(32), 2, "a"), hl.Func("out")
    x, y, r = hl.Var("x"), hl.Var("y"), hl.RDom([(1, a.width() - 1)])
    out[x, y] = a[x, y]
    out[r, y] += out[r - 1, y]
    shapes = {"a": (2, 1 << 20), "out": (2, 1 << 20)}
    text = hb.autoschedule(out, target="sm_80", sizes=shapes).source
    assert "split(x, xo, xi, 512).split(xi, xi, xl, 4).vectorize(xl).split(y, yo, yi, 2)" in text
    kernel = hb.compile(out, target="sm_80")
    data = np.random.default_rng(1).random((3, 517), dtype=np.float32)
    found = kernel.interpret(a=data, sizes=data.shape)
    assert np.allclose(found, np.cumsum(data.astype(float), 1), rtol=1e-5)


@pytest.mark.parametrize(
    ("feedback", "threads", "blocks"),
    [((0.5, -0.2), 32, 32), ((0.5, -0.95), 128, 8), ((2.0, -1.0), 256, 4)],
)
def test_sections_have_the_fewest_threads_that_their_memories_take(
    feedback: tuple[float, float], threads: int, blocks: int
) -> None:
    """And as many blocks as there are registers for; four of those that never forget."""
    image, f, g, out = hl.ImageParam(hl.Float(32), 1, "image"), *map(hl.Func, ("f", "g", "out"))
    t, r = hl.Var("t"), hl.RDom([(2, image.width() - 2)], "r")
    a, b = map(hl.f32, feedback)
    f[t] = image[t]
    f[r.x] += a * f[r.x - 1] + b * f[r.x - 2]
    g[t] = f[t]
    g[r.x] += hl.f32(0.4) * g[r.x - 1] - hl.f32(0.1) * g[r.x - 2]
    out[t] = g[t]
    source = hb.autoschedule(out, target="sm_90a", sizes={"out": (1 << 22,)}).source
    assert source.count(f"split(ro, ro, rt, {threads})") == 2
    assert len(re.findall(rf"hb.resident_blocks\(\w+, {blocks}\)", source)) == 2
