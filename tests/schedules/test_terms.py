"""Terms of sums in other words are taken to a tensor unit unasked: products of sums, signs,
products that Halide has in fewer nodes, windows that go backwards, images that go on beyond their
edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from plain_pipelines import F16, F32, I32
from plain_sums import I8, x, y
from test_in_other_words import BYTES, HALVES, Term, matrix

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from selector.runtime.nvrtc import compile_to_cubin

Array = np.ndarray[Any, np.dtype[Any]]
Kinds = tuple[hl.Type, hl.Type, hl.Type]
ROWS, COLUMNS, DEPTH, TAPS = 70, 41, 96, 16
f32, i16, i32 = hl.f32, hl.i16, hl.i32
SIGNED = (I8, I8, I32)
AT_LARGE = {"a": (2100, 2048), "b": (2048, 2048), "out": (2048, 2048)}


def products(term: Term, kinds: Kinds) -> tuple[hl.Func, hl.Func]:
    a, b = hl.ImageParam(kinds[0], 2, "a"), hl.ImageParam(kinds[1], 2, "b")
    k, total, out = hl.RDom([(0, a.width())], "k"), hl.Func("total"), hl.Func("out")
    total[x, y] = hl.cast(kinds[2], 0)
    total[x, y] += term(a, b, k)
    out[x, y] = total[x, y]
    return total, out


def next_rows(a: Array) -> Array:
    return a[1 : ROWS + 1]


PRODUCTS: dict[str, tuple[Term, Callable[[Array, Array], Array], Kinds]] = {
    "a difference of rows": (
        lambda a, b, k: (f32(a[k, y]) - f32(a[k, y + 1])) * f32(b[x, k]),
        lambda a, b: (a[:ROWS] - next_rows(a)) @ b, HALVES,
    ),
    "three of them": (
        lambda a, b, k: f32(b[x, k]) * (f32(a[k, y]) - f32(a[k, y + 1]) - f32(a[k, y + 2])),
        lambda a, b: (a[:ROWS] - next_rows(a) - a[2 : ROWS + 2]) @ b, HALVES,
    ),
    "the same twice": (
        lambda a, b, k: (f32(a[k, y]) + f32(a[k, y])) * f32(b[x, k]),
        lambda a, b: 2 * a[:ROWS] @ b, HALVES,
    ),
    "a difference of bytes": (
        lambda a, b, k: (i32(a[k, y]) - i32(a[k, y + 1])) * i32(b[x, k]),
        lambda a, b: (a[:ROWS] - next_rows(a)) @ b, BYTES,
    ),
    "a difference in int16": (
        lambda a, b, k: i32(i16(a[k, y]) - i16(a[k, y + 1])) * i32(b[x, k]),
        lambda a, b: (a[:ROWS] - next_rows(a)) @ b, BYTES,
    ),
    "a sign in int16": (
        lambda a, b, k: i32(-i16(a[k, y])) * i32(b[x, k]),
        lambda a, b: -a[:ROWS] @ b, BYTES,
    ),
    "widened by Halide": (
        lambda a, b, k: i32(hl.widening_mul(a[k, y], b[x, k])),
        lambda a, b: a[:ROWS] @ b, SIGNED,
    ),
    "a difference that is widened": (
        lambda a, b, k: i32(hl.widening_sub(a[k, y], a[k, y + 1])) * i32(b[x, k]),
        lambda a, b: (a[:ROWS] - next_rows(a)) @ b, SIGNED,
    ),
}  # fmt: skip


def placed(kernel: Any) -> bool:
    updates = [update.block is not None for update in kernel.report.updates]
    return bool(updates) and all(updates)


def near(found: Array, exact: Array, kind: hl.Type = F32) -> None:
    limit = 1e-5 if kind == F32 else 0
    assert np.linalg.norm(found - exact) <= limit * np.linalg.norm(exact)


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_matrices(name: str, target: str) -> None:
    term, truth, kinds = PRODUCTS[name]
    out = products(term, kinds)[1]
    kernel = hb.compile(out, target=target, schedule="auto", sizes=AT_LARGE)
    assert placed(kernel)
    assert compile_to_cubin(kernel.source, target)
    a, b = matrix(kinds[0], (ROWS + 2, DEPTH), 1), matrix(kinds[1], (DEPTH, COLUMNS), 2)
    found = kernel.interpret(a=a, b=b, sizes=(ROWS, COLUMNS))
    near(found, truth(a.astype(float), b.astype(float)), kinds[2])


# ------------------------------------------------------------------ windows

Window = Callable[[Any, Any, Any], Any]


def windows(term: Window) -> tuple[hl.Func, hl.Func]:
    image, taps = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 1, "taps")
    t, total, out = hl.RDom([(0, TAPS)], "t"), hl.Func("total"), hl.Func("out")
    total[x, y] = f32(0)
    total[x, y] += term(image, taps, t)
    out[x, y] = total[x, y]
    return total, out


def at(columns: Callable[[Array, int], Array]) -> Callable[[Array, Array], Array]:
    """The sum over taps of what ``columns`` of the image, numbered, are for each of them."""

    def truth(image: Array, taps: Array) -> Array:
        numbers = np.arange(image.shape[1])
        return sum(
            (taps[t] * np.take(image, columns(numbers, t), axis=1) for t in range(TAPS)),
            np.zeros(()),
        )

    return truth


def both(sign: int) -> Callable[[Array, Array], Array]:
    def truth(image: Array, taps: Array) -> Array:
        return at(lambda n, t: n[: -2 * TAPS] + t)(image, taps) + sign * at(
            lambda n, t: n[: -2 * TAPS] + 2 * TAPS - 1 - t
        )(image, taps)

    return truth


def held(e: Any, image: Any) -> Any:
    return hl.clamp(e, 0, image.width() - 1)


def around_zero(image: Array, taps: Array) -> Array:
    more = np.pad(image, ((0, 0), (0, TAPS)))
    return at(lambda n, t: n[:-TAPS] + t)(more, taps)


WINDOWS: dict[str, tuple[Window, Callable[[Array, Array], Array], tuple[str, ...]]] = {
    "taps from either end": (
        lambda i, k, t: (f32(i[x + t, y]) + f32(i[x + 2 * TAPS - 1 - t, y])) * f32(k[t]),
        both(1), ("hb.together",),
    ),
    "with a sign": (
        lambda i, k, t: f32(k[t]) * (f32(i[x + t, y]) - f32(i[x + 2 * TAPS - 1 - t, y])),
        both(-1), ("hb.together",),
    ),
    "two that lie apart": (
        lambda i, k, t: (f32(i[x + t, y]) - f32(i[x + t + TAPS + 3, y])) * f32(k[t]),
        lambda image, taps: at(lambda n, t: n[: -2 * TAPS - 2] + t)(image, taps)
        - at(lambda n, t: n[: -2 * TAPS - 2] + t + TAPS + 3)(image, taps),
        ("hb.expanded", "each=True"),
    ),
    "backwards": (
        lambda i, k, t: f32(i[x - t + TAPS - 1, y]) * f32(k[t]),
        at(lambda n, t: n[: -TAPS + 1] + TAPS - 1 - t), ("hb.counted_down",),
    ),
    "clamped": (
        lambda i, k, t: f32(i[held(x + t - 7, i), y]) * f32(k[t]),
        at(lambda n, t: np.clip(n + t - 7, 0, len(n) - 1)), ("hb.around",),
    ),
    "clamped, taps first": (
        lambda i, k, t: f32(k[t]) * f32(i[hl.min(x + t, i.width() - 1), y]),
        at(lambda n, t: np.minimum(n + t, len(n) - 1)), ("hb.around",),
    ),
    "clamped backwards": (
        lambda i, k, t: f32(i[held(x - t, i), y]) * f32(k[t]),
        at(lambda n, t: np.clip(n - t, 0, len(n) - 1)), ("hb.around", "hb.counted_down"),
    ),
    "wrapped around": (
        lambda i, k, t: f32(i[(x + t) % i.width(), y]) * f32(k[t]),
        at(lambda n, t: (n + t) % len(n)), ("hb.around",),
    ),
    "zero beyond": (
        lambda i, k, t: f32(hl.select(x + t < i.width(), i[held(x + t, i), y], hl.cast(F16, 0)))
        * f32(k[t]),
        around_zero, ("hb.around",),
    ),
}  # fmt: skip


SLOW_COPIES = pytest.mark.filterwarnings("ignore::selector.diagnostics.PerformanceWarning")


def width_of(truth: Callable[[Array, Array], Array]) -> int:
    return truth(np.zeros((1, 300)), np.zeros(TAPS)).shape[1]


@SLOW_COPIES
@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str, target: str) -> None:
    term, truth, _ = WINDOWS[name]
    kernel = hb.compile(windows(term)[1], target=target, schedule="auto", sizes=(2160, 3840))
    assert placed(kernel)
    assert compile_to_cubin(kernel.source, target)
    random = np.random.default_rng(3)
    image = random.standard_normal((7, 300)).astype(np.float16)
    taps = random.standard_normal(TAPS).astype(np.float16)
    found = kernel.interpret(image=image, taps=taps, sizes=(7, width_of(truth)))
    near(found, truth(image.astype(float), taps.astype(float)))


@SLOW_COPIES
@pytest.mark.parametrize("name", WINDOWS)
def test_what_is_written_down_gives_the_same_program(name: str) -> None:
    term, truth, lines = WINDOWS[name]
    said = hb.autoschedule(windows(term)[1], target="sm_90a", sizes=(2160, 3840)).source
    assert [line for line in lines if line not in said] == []
    out = windows(term)[1]
    exec(said, {"output": out, "hl": hl, "hb": hb})
    kernel = hb.compile(out, target="sm_90a")
    assert placed(kernel)
    image, taps = np.ones((3, 300), np.float16), np.arange(TAPS).astype(np.float16)
    found = kernel.interpret(image=image, taps=taps, sizes=(3, width_of(truth)))
    near(found, truth(image.astype(float), taps.astype(float)))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_images_are_convolved(target: str) -> None:
    """Backwards along both axes."""
    image, taps = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 2, "taps")
    t, total, out = hl.RDom([(0, 5), (0, 3)], "t"), hl.Func("total"), hl.Func("out")
    total[x, y] = f32(0)
    total[x, y] += f32(image[x - t.x + 4, y - t.y + 2]) * f32(taps[t.x, t.y])
    out[x, y] = total[x, y]
    kernel = hb.compile(out, target=target, schedule="auto", sizes=(2160, 3840))
    assert placed(kernel)
    random = np.random.default_rng(5)
    pixels = random.standard_normal((23, 301)).astype(np.float16)
    weights = random.standard_normal((3, 5)).astype(np.float16)
    found = kernel.interpret(image=pixels, taps=weights, sizes=(21, 297))
    exact = np.zeros((21, 297))
    for j, row in enumerate(weights.astype(float)):
        for i, tap in enumerate(row):
            exact += tap * pixels[2 - j : 23 - j, 4 - i : 301 - i]
    near(found, exact)


def test_small_sums_of_differences_stay_as_they_are() -> None:
    """Two products take a tensor unit longer than one takes CUDA cores."""
    term, _, kinds = PRODUCTS["a difference of rows"]
    schedule = hb.autoschedule(products(term, kinds)[1], target="sm_90a", sizes=(5, 7))
    assert "hb.expanded" not in schedule.source


def test_windows_of_a_small_image_are_one_where_they_can() -> None:
    """Two would be stored."""

    def said(name: str) -> str:
        out = windows(WINDOWS[name][0])[1]
        return hb.autoschedule(out, target="sm_90a", sizes=(1080, 1920)).source

    assert "hb.together" in said("taps from either end")
    assert "each=True" not in said("two that lie apart")


def test_sums_that_are_rounded_are_one_number() -> None:
    def term(a: Any, b: Any, k: Any) -> Any:
        return f32(a[k, y] - a[k, y + 1]) * f32(b[x, k])

    out = products(term, HALVES)[1]
    assert "hb.expanded" not in hb.autoschedule(out, target="sm_90a", sizes=AT_LARGE).source
    with pytest.raises(ScheduleError, match="adds no products of sums"):
        hb.expanded(products(term, HALVES)[0])


def test_integers_that_wrap_around_are_no_sum_of_products() -> None:
    def eight_bits(a: Any, b: Any, k: Any) -> Any:
        return i32(a[k, y] - a[k, y + 1]) * i32(b[x, k])

    with pytest.raises(ScheduleError, match="adds no products of sums"):
        hb.expanded(products(eight_bits, BYTES)[0])


def test_what_has_no_band_says_why() -> None:
    def term(i: Any, k: Any, t: Any) -> Any:
        return hl.select(t < x, f32(i[x + t, y]) * f32(k[t]), 0.0)

    report = hb.autoschedule(windows(term)[1], target="sm_90a", sizes=(2160, 3840)).report
    assert "neighbours have other taps then" in report


def test_what_cannot_be_said_otherwise_is_refused() -> None:
    term = WINDOWS["backwards"][0]
    with pytest.raises(ScheduleError, match="does not go along `u`"):
        hb.counted_down(windows(term)[0], hl.RVar("u"))
    with pytest.raises(ScheduleError, match="not read around edges alone"):
        hb.around(windows(term)[0], 0)

    def weighted(i: Any, k: Any, t: Any) -> Any:  # by where it is read from, and by the tap
        return hl.select(t > 3, f32(i[held(x + t, i), y]), 0.0) * f32(k[t])

    with pytest.raises(ScheduleError, match="not read around edges alone"):
        hb.around(windows(weighted)[0], 0)
