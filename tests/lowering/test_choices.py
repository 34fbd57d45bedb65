"""Argmax and the like, which one thread would look for: many do, and the first of those that are
alike is found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = pytest.mark.verified

F32, I32 = hl.Float(32), hl.Int(32)
rng = np.random.default_rng(4)
Made = tuple[hl.Func, Callable[[Any], Any]]


def largest_of_an_image() -> Made:
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    best = hl.argmax(a[(r := hl.RDom(a)).x, r.y])
    out[()] = best[0] + 1000 * best[1]
    return out, lambda v: v.argmax() % v.shape[1] + 1000 * (v.argmax() // v.shape[1])


def smallest_of_three_dimensions() -> Made:
    a, out = hl.ImageParam(F32, 3, "a"), hl.Func("out")
    best = hl.argmin(a[(r := hl.RDom(a)).x, r.y, r.z])
    out[()] = best[0] + 1000 * (best[1] + 1000 * best[2])

    def truth(v: Any) -> Any:
        z, y, x = np.unravel_index(v.argmin(), v.shape)
        return x + 1000 * (y + 1000 * z)

    return out, truth


def as_a_tuple_says() -> Made:
    """The place of the largest one beyond 3, in an order of the user's own."""
    a, out, best = hl.ImageParam(F32, 2, "a"), hl.Func("out"), hl.Func("best")
    r = hl.RDom([(2, a.width() - 2), (1, a.height() - 1)])
    best[()] = (hl.i32(-1), hl.f32(3))
    better = a[r.x, r.y] > best[()][1]
    at = hl.select(better, r.y * a.width() + r.x, best[()][0])
    best[()] = (at, hl.select(better, a[r.x, r.y], best[()][1]))
    out[()] = best[()][0]

    def truth(v: Any) -> Any:
        inside = np.full(v.shape, -1.0)
        inside[1:, 2:] = v[1:, 2:]
        return inside.argmax() if inside.max() > 3 else -1

    return out, truth


def largest_of_pixels() -> Made:
    """Of three elements each: rows of a few elements are no rows."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    r = hl.RDom([(0, 3), (0, a.width() // 3), (0, a.height())])
    best = hl.argmax(a[r.x + 3 * r.y, r.z])
    out[()] = best[0] + 3 * best[1] + 1000 * best[2]

    def truth(v: Any) -> Any:
        whole = v[:, : v.shape[1] // 3 * 3]
        if not whole.size:
            return 0
        y, x = divmod(whole.argmax(), whole.shape[1])
        return x + 1000 * y

    return out, truth


MADE = [largest_of_an_image, largest_of_pixels, smallest_of_three_dimensions, as_a_tuple_says]


@pytest.mark.parametrize("make", MADE)
def test_the_first_of_those_that_are_alike_is_found(make: Callable[[], Made]) -> None:
    out, truth = make()
    assert "the best of a part each" in hb.autoschedule(out, target="sm_80").report
    kernel = hb.compile(out, target="sm_80")
    assert kernel.source.count("__global__") == 5
    leading = (2,) if make is smallest_of_three_dimensions else ()
    for shape, most in (
        ((1, 1), 2),
        ((3, 50), 9),
        ((257, 301), 20),
        ((257, 301), 2),
        ((64, 64), 1),
        ((3, 9001), 2000),
        ((4100, 2), 3000),
    ):
        data = rng.integers(0, most, (*leading, *shape)).astype(np.float32)
        if shape != (1, 1) or make is not as_a_tuple_says:
            assert kernel.interpret(a=data, sizes=()) == truth(data), (shape, most)


def test_kernels_find_what_the_program_does() -> None:
    out, truth = largest_of_an_image()
    hb.autoschedule(out, target="sm_80")
    kernels, plan = emit_kernels(hb.compile(out, target="sm_80").module, find_target("sm_80"))
    data = rng.integers(0, 9, (37, 51)).astype(np.float32)
    found = simulate(kernels, plan, {"a": data}, ())
    assert found.faults == ()
    assert found.outputs["out"] == truth(data)


def kernels_of(update: Callable[[Any, Any], Any]) -> int:
    a, best, out = hl.ImageParam(I32, 1, "a"), hl.Func("best"), hl.Func("out")
    r = hl.RDom(a)
    best[()] = (hl.i32(0), hl.i32(0))
    best[()] = update((best[()][0], best[()][1]), (r.x, a[r.x]))
    out[()] = best[()][0] + best[()][1]
    hb.autoschedule(out, target="sm_80")
    return hb.compile(out, target="sm_80").source.count("__global__")


def test_what_is_no_first_best_stays_one_threads() -> None:
    def chosen(test: Any, own: Any, new: Any) -> Any:
        return tuple(hl.select(test, n, o) for n, o in zip(new, own, strict=True))

    assert kernels_of(lambda own, new: chosen(new[1] > own[1], own, new)) == 5
    assert kernels_of(lambda own, new: chosen(new[1] >= own[1], own, new)) == 1  # the last one
    # Decided by what is not kept.
    assert kernels_of(lambda own, new: chosen(new[1] > own[0], own, new)) == 1
    assert kernels_of(lambda own, new: chosen(new[1] > own[1], own, (own[0] + 1, new[1]))) == 1
    assert kernels_of(lambda own, new: (own[0] + new[1] * own[1], own[1] + 1)) == 1


def test_of_nothing_nothing_is_found() -> None:
    a, best, out = hl.ImageParam(F32, 2, "a"), hl.Func("best"), hl.Func("out")
    r = hl.RDom([(0, a.width() - 9), (0, a.height() - 9)])
    best[()] = (hl.i32(-7), hl.f32(0))
    better = a[r.x, r.y] > best[()][1]
    at = hl.select(better, r.x, best[()][0])
    best[()] = (at, hl.select(better, a[r.x, r.y], best[()][1]))
    out[()] = best[()][0]
    hb.autoschedule(out, target="sm_80")
    kernel = hb.compile(out, target="sm_80")
    for shape in ((3, 3), (20, 5), (10, 10)):
        data = rng.random(shape).astype(np.float32)
        assert kernel.interpret(a=data, sizes=()) == (0 if shape == (10, 10) else -7)


def of_rows() -> tuple[hl.Func, Callable[[Any], Any]]:
    """Of each row; numbers that are no numbers are never the best."""
    a, out, x = hl.ImageParam(F32, 2, "a"), hl.Func("out"), hl.Var("x")
    out[x] = hl.argmax(a[hl.RDom([(0, a.width())], "r"), x])[0]
    return out, lambda v: np.where(np.isnan(v), -np.inf, v).argmax(1)


def of_planes() -> tuple[hl.Func, Callable[[Any], Any]]:
    """Of a window of each plane, beyond 3, two dimensions of planes."""
    a, out, best = hl.ImageParam(F32, 4, "a"), hl.Func("out"), hl.Func("best")
    x, y = hl.Var("x"), hl.Var("y")
    r = hl.RDom([(2, a.width() - 2), (1, a.dim(1).extent() - 1)], "r")
    best[x, y] = (hl.i32(-1), hl.f32(3))
    better = a[r.x, r.y, x, y] > best[x, y][1]
    at = hl.select(better, r.y * a.width() + r.x, best[x, y][0])
    best[x, y] = (at, hl.select(better, a[r.x, r.y, x, y], best[x, y][1]))
    out[x, y] = best[x, y][0]

    def truth(v: Any) -> Any:
        inside = np.full(v.shape, -1.0)
        inside[..., 1:, 2:] = v[..., 1:, 2:]
        flat = inside.reshape(*v.shape[:2], -1)
        return np.where(flat.max(-1) > 3, flat.argmax(-1), -1)

    return out, truth


@pytest.mark.parametrize("most", [1, 2, 9, 5000])
@pytest.mark.parametrize(
    ("make", "shape"),
    [(of_rows, (3, 1)), (of_rows, (5, 127)), (of_rows, (2, 1001)), (of_planes, (2, 3, 20, 33))],
)
def test_the_threads_of_a_block_look_for_the_best_of_a_row(
    make: Callable[[], Made], shape: tuple[int, ...], most: int
) -> None:
    out, truth = make()
    assert "best of a row" in hb.autoschedule(out, target="sm_90a").report
    kernel = hb.compile(out, target="sm_90a")
    data = rng.integers(0, most, shape).astype(np.float32)
    if make is of_rows:
        data[rng.random(shape) < 0.1] = np.nan
        data[:, -1] = 0
    wanted = truth(data)
    for run in (kernel.interpret, partial(check, kernel)):
        assert np.array_equal(run(a=data, sizes=wanted.shape), wanted)


def test_short_rows_and_what_several_threads_look_for_stay_as_they_are() -> None:
    out, _ = of_rows()
    assert (
        "best of a row"
        not in hb.autoschedule(
            out, target="sm_90a", sizes={"a": (1000, 100), "out": (1000,)}
        ).report
    )
    out, _ = of_rows()
    f, xo, xi = hb.funcs(out)["argmax"], hl.Var("xo"), hl.Var("xi")
    f.compute_root().split(f.args()[0], xo, xi, 32).gpu_blocks(xo).gpu_threads(xi)
    update = f.update(0).split(f.args()[0], xo, xi, 32)
    update.reorder(f.rvars(0)[0], xi, xo).gpu_blocks(xo).gpu_threads(xi)
    out.compute_root().split(out.args()[0], xo, xi, 32).gpu_blocks(xo).gpu_threads(xi)
    assert "best0" not in hb.compile(out, target="sm_90a").source


def texts_of(out: hl.Func) -> list[str]:
    sizes = {"a": (64, 5000), "out": (64,)}
    return hb.compile(out, target="sm_90a", schedule="auto", sizes=sizes).source.split("__global__")


def test_what_a_search_begins_with_is_no_load() -> None:
    """Threads wait for nothing but their row, and no kernel before stores it."""
    _, search, last = texts_of(of_rows()[0])
    assert "turn_held" in search
    assert "await_launches" not in search
    assert "await_launches" in last


def of_rows_beyond(least: Callable[[hl.ImageParam, hl.Var], Any]) -> Made:
    """The place of the largest of a row that is more than something of the row."""
    a, out, best = hl.ImageParam(F32, 2, "a"), hl.Func("out"), hl.Func("best")
    r, y = hl.RDom([(0, a.width())]), hl.Var("y")
    best[y] = (hl.i32(-1), least(a, y))
    better = a[r, y] > best[y][1]
    found = (hl.select(better, r, best[y][0]), hl.select(better, a[r, y], best[y][1]))
    best[y] = found
    out[y] = best[y][0]
    return out, lambda v: np.where(v.max(1) > v[:, 0], v.argmax(1), -1)


def test_what_differs_from_row_to_row_is_stored_and_read() -> None:
    assert len(texts_of(of_rows_beyond(lambda a, y: hl.f32(0.5))[0])) == 3
    assert len(texts_of(of_rows_beyond(lambda a, y: a[0, y])[0])) == 4
    out, truth = of_rows_beyond(lambda a, y: a[0, y])
    kernel = hb.compile(out, target="sm_90a", schedule="auto")
    data = rng.random((7, 1201), dtype=np.float32)
    data[3, 0] = 2
    assert np.array_equal(check(kernel, a=data, sizes=(7,)), truth(data))
