"""Sums over taps that begin where data say, with weights of their own for each result, on CUDA
cores; those of halves go to tensor units (``test_resampling_bands``).
"""

from __future__ import annotations

from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from halide_bridge.schedules.recognise.program import read_program
from halide_bridge.schedules.recognise.resampling import resampling_of

F16, F32, I32 = hl.Float(16), hl.Float(32), hl.Int(32)
c, x, y = (hl.Var(n) for n in "cxy")
TAPS = 5


def resized(
    interleaved: bool, kind: Any = F32, *, rows_first: bool = True, taps: int = TAPS
) -> hl.Func:
    """Rows and then columns of an image, from tables, or columns and then rows."""
    image = hl.ImageParam(kind, 3, "I")
    starts = [hl.ImageParam(I32, 1, n) for n in ("SY", "SX")]
    weights = [hl.ImageParam(F16, 2, n) for n in ("WY", "WX")]
    tall, middle, wide, out = (hl.Func(n) for n in ("tall", "middle", "wide", "out"))
    u, v = hl.RDom([(0, taps)], "u"), hl.RDom([(0, taps)], "v")

    def at(x: Any, y: Any) -> tuple[Any, ...]:
        return (c, x, y) if interleaved else (x, y, c)

    width, height = (1, 2) if interleaved else (0, 1)
    row = hl.clamp(starts[0][y] + u, 0, image.dim(height).extent() - 1)
    column = hl.clamp(starts[1][x] + v, 0, image.dim(width).extent() - 1)

    def rows(source: Any) -> hl.Func:
        tall[at(x, y)] += hl.f32(source[at(x, row)]) * hl.f32(weights[0][u, y])
        return tall

    def columns(source: Any) -> hl.Func:
        wide[at(x, y)] += hl.f32(source[at(column, y)]) * hl.f32(weights[1][v, x])
        return wide

    first, second = (rows, columns) if rows_first else (columns, rows)
    middle[at(x, y)] = hl.cast(F16 if kind == hl.UInt(8) else kind, first(image)[at(x, y)])
    value = second(middle)[at(x, y)]
    out[at(x, y)] = hl.u8_sat(hl.round(value)) if kind == hl.UInt(8) else hl.cast(kind, value)
    if interleaved:
        out.bound(c, 0, 3)
    return out


def drawn(
    size: tuple[int, int],
    to: tuple[int, int],
    whole: bool = False,
    kind: str = "float32",
    taps: int = TAPS,
) -> dict[str, np.ndarray]:
    """An image (height, width, 3) and tables: starts in no order, some of them outside."""
    rng = np.random.default_rng(3)
    image = rng.integers(0, 200, (*size, 3)).astype(np.uint8) if whole else rng.random((*size, 3))
    found: dict[str, np.ndarray] = {"I": image if whole else image.astype(kind)}
    for axis, n, count in zip("YX", size, to, strict=True):
        found[f"S{axis}"] = rng.integers(-2, n, count).astype(np.int32)
        found[f"W{axis}"] = (rng.random((count, taps)) / taps).astype(np.float16)
    return found


def truth(data: dict[str, np.ndarray]) -> np.ndarray:
    found = data["I"].astype(np.float64)
    for axis, name in enumerate("YX"):
        at = data[f"S{name}"][:, None] + np.arange(data[f"W{name}"].shape[1])
        taken = np.take(found, np.clip(at, 0, found.shape[axis] - 1), axis)
        shape = [1] * taken.ndim
        shape[axis : axis + 2] = at.shape
        found = (taken * data[f"W{name}"].astype(np.float64).reshape(shape)).sum(axis + 1)
    return found


@pytest.mark.parametrize("interleaved", [True, False])
def test_it_is_found_in_both_directions(interleaved: bool) -> None:
    found = {m.label: resampling_of(m) for m in read_program([resized(interleaved)])}
    dims = (2, 1) if interleaved else (1, 0)
    for name, along in zip(("tall", "wide"), dims, strict=True):
        what = found[name]
        assert what is not None
        assert what.along == along
    assert all(found[name] is None for name in ("middle", "out", "I_im"))


@pytest.mark.parametrize("interleaved", [True, False])
def test_threads_share_starts_and_weights(interleaved: bool) -> None:
    out = resized(interleaved)
    report = hb.autoschedule(out, target="sm_80").report
    assert "middle: in a kernel of its own, 32 x 8 threads, 8 neighbours each" in report
    assert "out: in a kernel of its own, 32 x 8 threads, 4 rows each" in report
    kernel = hb.compile(out, target="sm_80")
    for size, to in (((9, 11), (1, 1)), ((40, 272), (33, 37)), ((17, 301), (41, 65))):
        data = drawn(size, to)
        wanted = truth(data)
        if not interleaved:
            data["I"], wanted = np.moveaxis(data["I"], 2, 0).copy(), np.moveaxis(wanted, 2, 0)
        found = emulation.check(kernel, sizes=wanted.shape, **data).astype(np.float64)
        apart = np.abs(found - wanted)
        assert apart.max() <= 1e-5


def test_pixels_that_lie_apart_are_read_one_by_one() -> None:
    """Four elements from one pixel to the next: an alpha that nobody reads."""
    out = resized(interleaved=True)
    hb.autoschedule(out, target="sm_80")
    kernel = hb.compile(out, target="sm_80")
    data = drawn((20, 280), (15, 17))
    wide = np.zeros((20, 280, 4), np.float32)
    wide[..., :3] = data["I"]
    found = emulation.check(kernel, sizes=(15, 17, 3), **(data | {"I": wide}))
    assert np.abs(found - truth(data)).max() <= 4e-3


def test_a_channels_elements_are_loaded_with_those_beside_it() -> None:
    out = resized(interleaved=True)
    hb.autoschedule(out, target="sm_80")
    source = hb.compile(out, target="sm_80").source
    assert source.count("load_anywhere<96>(") == 1  # 8 pixels of three floats
    assert "#pragma unroll 4" in source


def test_what_a_turn_loads_is_tested_once() -> None:
    """The first of two loops has no test of what lies inside, but for the table's in the other."""
    out = resized(interleaved=True)
    hb.autoschedule(out, target="sm_80")
    kernels = hb.compile(out, target="sm_80").source.split("__global__")[1:]
    for text in kernels:
        fast = text.split("#pragma unroll 4")[1].split("else {")[0]
        assert "(u32)" not in fast
        assert "(u32)" in text.split("#pragma unroll 4")[1]


def test_what_is_none() -> None:
    """Windows, weights of each result, starts that differ from tap to tap, two taps."""
    image, table = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 2, "W")
    start, every = hl.ImageParam(I32, 1, "S"), hl.ImageParam(F16, 3, "E")
    u = hl.RDom([(0, TAPS)], "u")
    for name, at, weight in (
        ("window", (x, y + u), table[u, y]),
        ("of each", (x, start[y] + u), every[u, x, y]),
        ("scattered", (x, start[u] + y), table[u, y]),
        ("diagonal", (x + u, start[y] + u), table[u, y]),
        ("twice", (x, start[y] + 2 * u), table[u, y]),
    ):
        total = hl.Func("total")
        total[x, y] += hl.f32(image[at]) * hl.f32(weight)
        member = read_program([total]).members[total.name()]
        assert resampling_of(member) is None, name


def test_results_that_others_read_too_are_stored_as_they_are() -> None:
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 2, "W")
    start, u = hl.ImageParam(I32, 1, "S"), hl.RDom([(0, TAPS)], "u")
    total, half, out = hl.Func("total"), hl.Func("half"), hl.Func("out")
    total[x, y] += hl.f32(image[x, start[y] + u]) * hl.f32(weights[u, y])
    half[x, y] = hl.cast(F16, total[x, y])
    out[x, y] = hl.f32(half[hl.max(x - 1, 0), y]) + total[x, y]
    report = hb.autoschedule(out, target="sm_80").report
    assert "total: in a kernel of its own, 32 x 8 threads, 8 neighbours each" in report
    assert "half: inside those that read it" in report
