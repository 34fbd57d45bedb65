"""Blocks that make what they read of an image, in place of copying it: two filters in one kernel,
by the machine model's judgement, and right at sizes that no tile divides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from selector.families import windows

pytestmark = EMULATED

F16, F32, U8, I32 = hl.Float(16), hl.Float(32), hl.UInt(8), hl.Int(32)
x, y, c = (hl.Var(v) for v in "xyc")
LARGE = (3024, 4032)  # what kernels are made for here; they are called with less
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A pipeline, its arguments, the shape of its result, and float64 of that; ``large``: what it
    is made for.
    """

    output: hl.Func
    arrays: dict[str, Array]
    exact: Array
    large: tuple[int, ...] = LARGE


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def half(a: Array) -> Array:
    return a.astype(np.float16).astype(np.float64)


def along(a: Array, taps: Array, axis: int) -> Array:
    """Sums over the taps, of the places that have them all."""
    windows = np.lib.stride_tricks.sliding_window_view(a.astype(np.float64), len(taps), axis)
    return windows @ taps.astype(np.float64)


def summed(term: Any, *args: hl.Var, name: str, start: Any = None) -> hl.Func:
    total = hl.Func(name)
    total[args] = hl.f32(0) if start is None else start
    total[args] += term
    return total


def separable(
    edge: bool = False,
    bias: bool = False,
    taps: int = 9,
    centred: bool = False,
    large: tuple[int, int] = LARGE,
) -> Case:
    """Rows, then columns, which read rows that lie beyond the image."""
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    add, t, low = hl.ImageParam(F32, 1, "B"), hl.RDom([(0, taps)], "t"), taps // 2 if centred else 0
    source = hl.BoundaryConditions.repeat_edge(image) if edge else image
    rows = summed(
        hl.f32(source[x + t - low, y]) * hl.f32(weights[t]), x, y,
        name="rows", start=add[y] if bias else None,
    )  # fmt: skip
    kept = hl.Func("kept")
    kept[x, y] = hl.cast(F16, hl.max(rows[x, y], 0))
    out = summed(hl.f32(kept[x, y + t - low]) * hl.f32(weights[t]), x, y, name="out")
    i, k, b = noise(91, 303), noise(taps, seed=1), noise(91, seed=2).astype(np.float32)
    padded = np.pad(i, low, mode="edge") if centred else i
    first = along(padded, k, 1) + (b[:, None] if bias else 0)
    arrays = {"I": i, "K": k} | ({"B": b} if bias else {})
    return Case(out, arrays, along(half(np.maximum(first, 0)), k, 0), large)


def bytes_() -> Case:
    image, weights = hl.ImageParam(U8, 2, "I"), hl.ImageParam(U8, 1, "K")
    t, kept, out = hl.RDom([(0, 7)], "t"), hl.Func("kept"), hl.Func("out")
    rows, total = hl.Func("rows"), hl.Func("total")
    rows[x, y] += hl.cast(I32, image[x + t, y]) * hl.cast(I32, weights[t])
    kept[x, y] = hl.u8_sat((rows[x, y] + 128) >> 8)
    total[x, y] += hl.cast(I32, kept[x, y + t]) * hl.cast(I32, weights[t])
    out[x, y] = hl.u8_sat((total[x, y] + 128) >> 8)
    random = np.random.default_rng(3)
    i, k = random.integers(0, 256, (91, 303), np.uint8), random.integers(0, 60, 7, np.uint8)
    first = np.minimum((along(i, k, 1) + 128) // 256, 255)
    return Case(out, {"I": i, "K": k}, np.minimum((along(first, k, 0) + 128) // 256, 255))


def blocks_there_and_back(tile: int = 16) -> Case:
    """Two transforms of tiles that overlap, along y: phases of both."""
    image, there, back = (hl.ImageParam(F16, n, s) for n, s in ((3, "I"), (2, "F"), (2, "G")))
    k, z, step = hl.RDom([(0, tile)], "k"), hl.RDom([(0, 2 * tile)], "z"), tile // 2
    j, kept, out = hl.Var("j"), hl.Func("kept"), hl.Func("out")
    window = image[x, step * (j // tile) + k, c]
    bins = summed(hl.f32(window) * hl.f32(there[k, j % tile]), x, j, c, name="bins")
    kept[x, j, c] = hl.select(
        hl.abs(bins[x, j, c]) > 1, hl.cast(F16, bins[x, j, c]), hl.cast(F16, 0)
    )
    window = kept[x, tile * (y // step) + z, c]
    pixels = summed(hl.f32(window) * hl.f32(back[z, y % step]), x, y, c, name="pixels")
    out[x, y, c] = hl.cast(F16, pixels[x, y, c])
    count = 7
    i, f, g = noise(2, step * (count + 2), 141), noise(tile, tile, seed=1), noise(step, 2 * tile)
    at = step * np.arange(count + 1)[:, None] + np.arange(tile)
    found = np.einsum("ctkx,pk->ctpx", i.astype(float)[:, at], f.astype(float))
    found = half(np.where(abs(found) > 1, found, 0)).reshape(2, -1, 141)
    at = tile * np.arange(count)[:, None] + np.arange(2 * tile)
    exact = np.einsum("ctkx,pk->ctpx", found[:, at], g.astype(float)).reshape(2, -1, 141)
    return Case(out, {"I": i, "F": f, "G": g}, exact[:, :-3], (3, *LARGE))


CASES: dict[str, Callable[[], Case]] = {
    "rows_then_columns": separable,
    "rows_with_an_edge": lambda: separable(edge=True, centred=True, large=(3648, 5472)),
    "five_taps": lambda: separable(edge=True, centred=True, taps=5),
    "from_a_bias": lambda: separable(bias=True),
    "bytes": bytes_,
    "transforms": blocks_there_and_back,
    "small_transforms": lambda: blocks_there_and_back(8),
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_blocks_make_what_they_read_and_are_right(name: str, target: str) -> None:
    case = CASES[name]()
    kernel = hb.compile(case.output, target=target, schedule="auto", sizes=case.large)
    assert kernel.plan.intermediates == ()
    assert "mma" in str(kernel.report)
    for run in (kernel.interpret, partial(check, kernel)):
        found = run(**case.arrays, sizes=case.exact.shape)
        error = np.linalg.norm(found - case.exact) / np.linalg.norm(case.exact)
        assert error < (1e-3 if name != "bytes" else 1e-9)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("phases", "taps"), [(2, 6), (4, 8)])
def test_columns_of_few_phases_go_to_tensor_units(phases: int, taps: int, target: str) -> None:
    """Rows of several windows are those of one product."""
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 2, "K")
    t, out = hl.RDom([(0, taps)], "t"), hl.Func("out")
    term = hl.f32(image[x, y // phases + t]) * hl.f32(weights[t, y % phases])
    out[x, y] = summed(term, x, y, name="total")[x, y]
    kernel = hb.compile(out, target=target, schedule="auto", sizes=LARGE)
    assert "mma" in str(kernel.report)
    i, k = noise(40, 141), noise(phases, taps, seed=1)
    rows = phases * (40 - taps + 1) - 1
    at = np.arange(rows)[:, None] // phases + np.arange(taps)
    exact = np.einsum("ytx,yt->yx", i.astype(float)[at], k.astype(float)[np.arange(rows) % phases])
    for run in (kernel.interpret, partial(check, kernel)):
        found = run(I=i, K=k, sizes=exact.shape)
        assert np.linalg.norm(found - exact) / np.linalg.norm(exact) < 1e-6


def test_rows_of_a_turn_that_is_not_full_hold_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows begin before their taps, of rows too that no turn has."""
    ranked = windows.ranked_made

    def for_nothing(*asked: Any) -> Any:
        return [(0.0, *schedule) for _, *schedule in ranked(*asked)]

    monkeypatch.setattr(windows, "ranked_made", for_nothing)
    case = separable(edge=True, centred=True, taps=31, large=(3648, 5472))
    kernel = hb.compile(case.output, target="sm_90a", schedule="auto", sizes=case.large)
    assert kernel.plan.intermediates == ()
    found = check(kernel, **case.arrays, sizes=case.exact.shape)
    assert np.linalg.norm(found - case.exact) / np.linalg.norm(case.exact) < 1e-3


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_down_gives_the_same_program(name: str) -> None:
    case, again = CASES[name](), CASES[name]()
    schedule = hb.autoschedule(case.output, target="sm_90a", sizes=case.large)
    assert "by the threads of the block that reads it" in schedule.report
    exec(schedule.source, {"hb": hb, "hl": hl, "output": again.output})
    one, other = (hb.compile(f, target="sm_90a").source for f in (case.output, again.output))
    assert one == other


def chain(
    first: Callable[[Any, Any, Any], Any], second: Callable[[Any, Any], Any], edge: bool = False
) -> hl.Func:
    """Two filters with f16 between them: what each reads of the one before."""
    image, weights, r = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 2, "K"), hl.RDom([(0, 5)])
    kept = hl.Func("kept")
    window = first(image, r, hl.RDom([(0, 5), (0, 5)]))
    rows = summed(window[0] * hl.f32(weights[window[1], 0]), x, y, name="rows")
    kept[x, y] = hl.cast(F16, rows[x, y])
    source = hl.BoundaryConditions.repeat_edge(kept, [(0, 4032), (0, 3024)]) if edge else kept
    return summed(hl.f32(second(source, r)) * hl.f32(weights[r, 1]), x, y, name="out")


def of_rows(image: Any, r: Any, _: Any) -> Any:
    return hl.f32(image[x + r, y]), r


def of_columns(image: Any, r: Any, _: Any) -> Any:
    return hl.f32(image[x, y + r]), r


def of_both(image: Any, _: Any, square: Any) -> Any:
    return hl.f32(image[x + square.x, y + square.y]), square.x + 5 * square.y


def read_twice() -> hl.Func:
    out = chain(of_rows, lambda kept, r: kept[x, y + r])
    twice, kept = hl.Func("twice"), hb.funcs(out)["kept"]
    twice[x, y] = out[x, y] + hl.f32(kept[x, y + 2])
    return twice


APART: dict[str, Callable[[], hl.Func]] = {
    "columns, then rows": lambda: chain(of_columns, lambda kept, r: kept[x + r, y]),
    "taps of both": lambda: chain(of_both, lambda kept, r: kept[x, y + r]),
    "an edge in between": lambda: chain(of_rows, lambda kept, r: kept[x, y + r], edge=True),
    "two that read": read_twice,
}


@pytest.mark.parametrize("name", APART)
def test_others_have_a_kernel_each(name: str) -> None:
    schedule = hb.autoschedule(APART[name](), target="sm_90a", sizes=LARGE)
    assert "windows on tensor units" in schedule.report
    assert "by the threads of the block" not in schedule.report


def test_small_images_are_filtered_twice() -> None:
    """Blocks that make what they read take longer, and there are few."""
    report = hb.autoschedule(separable().output, target="sm_90a", sizes=(128, 128)).report
    assert report.count("windows on tensor units") == 2
    assert "by the threads of the block" not in report
