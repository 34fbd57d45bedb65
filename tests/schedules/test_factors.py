"""Products whose factors are more than an element, read one array twice, start with a bias, are of
several sums or several batches: they go to tensor units without a schedule, and are right at sizes
that no tile divides.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from halide_bridge.schedules import trials
from selector.diagnostics import ScheduleError

pytestmark = EMULATED

F16, F32 = hl.Float(16), hl.Float(32)
i, j, h, n = (hl.Var(v) for v in "ijhn")
Array = np.ndarray[Any, Any]
BESIDE = 2e-7  # sums of f16 in f32


def half(e: Any) -> Any:
    return hl.cast(F16, e)


def single(e: Any) -> Any:
    return hl.cast(F32, e)


def param(name: str, dimensions: int, kind: Any = F16) -> Any:
    return hl.ImageParam(kind, dimensions, name)


def summed(*extents: int) -> Any:
    return hl.RDom([(0, e) for e in extents], "r")


@dataclass(frozen=True)
class Case:
    """A pipeline, the shapes of its arguments and its result, and what it computes of them."""

    output: Any
    shapes: dict[str, tuple[int, ...]]
    size: tuple[int, ...]
    exact: Callable[..., Array]


def array_with_itself() -> Case:
    a, f, r = param("A", 2), hl.Func("f"), summed(300)
    f[i, j] += single(a[r, i]) * single(a[r, j])
    return Case(f, {"A": (70, 300)}, (70, 70), lambda a: a @ a.T)


def moved_and_scaled() -> Case:
    a, w, f, r = param("A", 2), param("W", 3), hl.Func("f"), summed(100)
    f[i, j] += single(a[r + 3, j]) * single(half(single(w[1, r, i]) * single(0.5)))
    shapes = {"A": (50, 103), "W": (70, 100, 2)}
    return Case(f, shapes, (50, 70), lambda a, w: a[:, 3:] @ (w[:, :, 1] / 2).T)


def of_bytes() -> Case:
    a, q, f, r = param("A", 2), param("Q", 2, hl.UInt(8)), hl.Func("f"), summed(96)
    f[i, j] += single(a[r, j]) * single(half(hl.cast(hl.Int(32), q[r, i]) - 128) * half(0.125))
    shapes = {"A": (50, 96), "Q": (70, 96)}
    return Case(f, shapes, (50, 70), lambda a, q: a @ ((q - 128) / 8).T)


def masked() -> Case:
    a, w, f, r = param("A", 2), param("W", 2), hl.Func("f"), summed(96)
    f[i, j] += single(hl.select(r <= j, a[r, j], half(0))) * single(w[i, r])
    return Case(f, {"A": (50, 96), "W": (96, 70)}, (50, 70), lambda a, w: np.tril(a) @ w)


def from_a_bias() -> Case:
    a, w, b = param("A", 2), param("W", 2), param("b", 1, F32)
    f, out, r = hl.Func("f"), hl.Func("out"), summed(100)
    f[i, j] = b[i] * 2 + 1
    f[i, j] += single(a[r, j]) * single(w[r, i])
    out[i, j] = hl.max(f[i, j], 0)
    shapes = {"A": (50, 100), "W": (70, 100), "b": (70,)}
    return Case(out, shapes, (50, 70), lambda a, w, b: np.maximum(a @ w.T + 2 * b + 1, 0))


def bias_of_an_output() -> Case:
    a, w, b = param("A", 2), param("W", 2), param("b", 1, F32)
    f, r = hl.Func("f"), summed(100)
    f[i, j] = b[i]
    f[i, j] += single(a[r, j]) * single(w[r, i])
    shapes = {"A": (50, 100), "W": (70, 100), "b": (70,)}
    return Case(f, shapes, (50, 70), lambda a, w, b: a @ w.T + b)


def two_sums() -> Case:
    a, w, f, r = param("A", 3), param("W", 3), hl.Func("f"), summed(64, 5)
    f[i, j] += single(a[r.x, r.y, j]) * single(w[r.x, r.y, i])
    shapes = {"A": (50, 5, 64), "W": (70, 5, 64)}
    return Case(f, shapes, (50, 70), lambda a, w: np.einsum("jhd,ihd->ji", a, w))


def einsum_in_any_order() -> Case:
    a, w, f, r = param("A", 4), param("W", 3), hl.Func("f"), summed(24, 20)
    f[i, j] += single(a[r.x, j, r.y, 0]) * single(w[i, r.y, r.x])
    shapes = {"A": (1, 20, 50, 24), "W": (24, 20, 33)}
    return Case(f, shapes, (50, 33), lambda a, w: np.einsum("ybx,xyi->bi", a[0], w))


def heads() -> Case:
    a, w, f, r = param("A", 4), param("W", 4), hl.Func("f"), summed(64)
    f[i, j, h, n] += single(a[r, j, h, n]) * single(w[r, i, h, n])
    shapes = {"A": (2, 3, 50, 64), "W": (2, 3, 70, 64)}
    return Case(f, shapes, (2, 3, 50, 70), lambda a, w: np.einsum("nhjk,nhik->nhji", a, w))


def heads_beside_each_other() -> Case:
    a, w, f, r = param("A", 4), param("W", 4), hl.Func("f"), summed(64)
    f[i, j, h, n] += single(a[r, h, j, n]) * single(w[r, h, i, n])
    shapes = {"A": (2, 50, 3, 64), "W": (2, 70, 3, 64)}
    return Case(f, shapes, (2, 3, 50, 70), lambda a, w: np.einsum("njhk,nihk->nhji", a, w))


def results_between_heads() -> Case:
    a, w, f, r = param("A", 4), param("W", 4), hl.Func("f"), summed(70)
    f[i, h, j, n] += single(a[r, j, h, n]) * single(w[i, h, r, n])
    shapes = {"A": (2, 3, 50, 70), "W": (2, 70, 3, 64)}
    return Case(f, shapes, (2, 50, 3, 64), lambda a, w: np.einsum("nhjk,nkhi->njhi", a, w))


def one_matrix_for_all() -> Case:
    """So many that the image is worth a copy, channels side by side."""
    a, w, f, r = param("A", 3), param("W", 2), hl.Func("f"), summed(96)
    f[i, j, n] += single(a[j, r, n]) * single(w[r, i])
    shapes = {"A": (40, 96, 50), "W": (70, 96)}
    return Case(f, shapes, (40, 50, 70), lambda a, w: np.einsum("nkj,ik->nji", a, w))


def two_taps_along_one_dimension() -> Case:
    a, w, f, r = param("A", 3), param("W", 4), hl.Func("f"), summed(32, 3, 2)
    f[i, j, n] += single(a[r.x, j + r.y + r.z, n]) * single(w[r.x, r.y, r.z, i])
    shapes = {"A": (2, 40, 32), "W": (70, 2, 3, 32)}

    def exact(a: Array, w: Array) -> Array:
        taps = ((s, t) for s in range(3) for t in range(2))
        return sum((a[:, s + t : s + t + 37] @ w[:, t, s].T for s, t in taps), np.array(0.0))

    return Case(f, shapes, (2, 37, 70), exact)


def phases_of_taps() -> Case:
    """Weights have phases, the images, of which there are enough, have none."""
    a, w, f, r = param("A", 3), param("W", 3), hl.Func("f"), summed(32, 3)
    f[i, j, n] += single(a[r.x, j + r.y, n]) * single(w[r.x, j % 2 + 2 * r.y, i])
    shapes = {"A": (24, 39, 32), "W": (70, 6, 32)}

    def exact(a: Array, w: Array) -> Array:
        rows = [sum(a[:, x + t] @ w[:, x % 2 + 2 * t].T for t in range(3)) for x in range(37)]
        return np.stack(rows, 1)

    return Case(f, shapes, (24, 37, 70), exact)


def phases_beside_windows_apart() -> Case:
    a, w, f, r = param("A", 4), param("W", 4), hl.Func("f"), summed(32, 3, 3)
    pixel = a[r.x, j / 2 + r.y, 2 * h + r.z, n]
    f[i, j, h, n] += single(pixel) * single(w[r.x, r.y, r.z, i])
    shapes = {"A": (2, 11, 22, 32), "W": (40, 3, 3, 32)}

    def exact(a: Array, w: Array) -> Array:
        across = np.arange(37) // 2
        taps = ((s, t) for s in range(3) for t in range(3))
        parts = (a[:, t : t + 10 : 2][:, :, across + s] @ w[:, t, s].T for s, t in taps)
        return sum(parts, np.array(0.0))

    return Case(f, shapes, (2, 5, 37, 40), exact)


def nameless_variables() -> Case:
    """Halide calls them v0, v1, and so on, as dimensions of Funcs."""
    x, y = hl.Var("v1"), hl.Var("v0")
    a, w, f, r = param("A", 2), param("W", 2), hl.Func("f"), summed(96)
    f[x, y] += single(half(a[r, y] * half(2))) * single(half(w[r, x] * half(2)))
    shapes = {"A": (50, 96), "W": (70, 96)}
    return Case(f, shapes, (50, 70), lambda a, w: 4 * a @ w.T)


def few_heads_between() -> Case:
    """The tile is of the outer dimension, not of the two heads."""
    a, w, f, r = param("A", 3), param("W", 3), hl.Func("f"), summed(96)
    f[i, h, j] += single(a[r, h, j]) * single(half(single(w[r, h, i]) * single(0.5)))
    shapes = {"A": (50, 2, 96), "W": (70, 2, 96)}
    return Case(f, shapes, (50, 2, 70), lambda a, w: np.einsum("jhr,ihr->jhi", a, w / 2))


CASES = (
    array_with_itself, moved_and_scaled, of_bytes, masked, from_a_bias, bias_of_an_output,
    two_sums, einsum_in_any_order, heads, heads_beside_each_other, results_between_heads,
    one_matrix_for_all, two_taps_along_one_dimension, phases_of_taps, phases_beside_windows_apart,
    nameless_variables, few_heads_between,
)  # fmt: skip


def drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    random = np.random.default_rng(5)
    return {
        name: random.integers(0, 256, shape, np.uint8)
        if name == "Q"
        else random.standard_normal(shape).astype(np.float32 if name == "b" else np.float16)
        for name, shape in shapes.items()
    }


def wide(arrays: dict[str, Array]) -> list[Array]:
    return [a.astype(np.float64) for a in arrays.values()]


def error(result: Any, exact: Array) -> float:
    return float(np.linalg.norm(np.asarray(result) - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("make", CASES)
def test_it_goes_to_a_tensor_unit_and_is_right(make: Callable[[], Case], target: str) -> None:
    case = make()
    arrays = drawn(case.shapes)
    kernel = hb.compile(case.output, target=target, schedule="auto", sizes=case.size)
    assert any(s.block for s in kernel.report.statements)
    exact = case.exact(*wide(arrays))
    assert error(kernel.interpret(**arrays, sizes=case.size), exact) < BESIDE
    assert error(check(kernel, **arrays, sizes=case.size), exact) < BESIDE


@pytest.mark.parametrize("make", CASES)
def test_what_is_written_down_gives_the_same_program(make: Callable[[], Case]) -> None:
    written, again = make().output, make().output
    schedule = hb.autoschedule(written, target="sm_90a")
    exec(schedule.source, {"hb": hb, "hl": hl, "output": again})
    one, other = (hb.compile(f, target="sm_90a").source for f in (written, again))
    assert one == other


def test_a_layer_goes_to_a_tensor_unit_that_has_no_layers() -> None:
    image, w, b = param("A", 4), param("W", 4), param("b", 1, F32)
    f, r, x, y = hl.Func("f"), summed(32, 3, 3), hl.Var("x"), hl.Var("y")
    f[i, x, y, n] = b[i]
    f[i, x, y, n] += single(image[r.x, x + r.y, y + r.z, n]) * single(w[r.x, r.y, r.z, i])
    shapes = {"A": (2, 6, 21, 32), "W": (40, 3, 3, 32), "b": (40,)}
    arrays, size = drawn(shapes), (2, 4, 19, 40)
    pixels, weights = (arrays[name].astype(float) for name in "AW")
    exact = sum(
        pixels[:, r : r + 4, s : s + 19] @ weights[:, r, s].T for r in range(3) for s in range(3)
    ) + arrays["b"].astype(float)
    kernel = hb.compile(f, target="sm_80", schedule="auto")
    assert any(s.block for s in kernel.report.statements)
    assert error(check(kernel, **arrays, sizes=size), exact) < BESIDE


def test_a_schedule_that_halide_refuses_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the report says what Halide said, as of any other schedule that is not taken."""
    real = trials.applied

    def applied(outputs: list[Any], plan: Any) -> Any:
        if plan.tensor:
            outputs[0].split(hl.Var("nowhere"), hl.Var("outer"), hl.Var("inner"), 8)
        return real(outputs, plan)

    monkeypatch.setattr(trials, "applied", applied)
    report = hb.autoschedule(moved_and_scaled().output, target="sm_90a").report
    assert "not on a tensor unit: Halide refuses its schedule: " in report
    assert "nowhere" in report


def test_a_factor_of_other_variables_is_refused() -> None:
    a, w, f, r = param("A", 2), param("W", 2), hl.Func("f"), summed(96)
    f[i, j] += single(a[r, j]) * single(w[r, i])
    with pytest.raises(ScheduleError, match="no factor 0"):
        hb.operand(f, 0, [r.x, i])


def test_a_reduction_variable_of_one_value_may_be_left_out() -> None:
    def sum_of(taps: int) -> tuple[hl.Func, hl.RDom]:
        a, w, f, r = param("A", 2), param("W", 3), hl.Func("f"), summed(96, taps)
        f[i, j] += single(a[r.x, j + r.y]) * single(w[r.x, r.y, i])
        return f, r

    f, r = sum_of(1)
    assert hb.operand(f, 0, [r.x, j]).dimensions() == 2
    random = np.random.default_rng(3)
    a, w = (random.standard_normal(s).astype(np.float16) for s in ((5, 96), (7, 1, 96)))
    result = check(hb.compile(f, target="sm_90a", schedule="auto"), A=a, W=w, sizes=(5, 7))
    exact = a.astype(float) @ w[:, 0].T.astype(float)
    assert np.linalg.norm(result - exact) <= 1e-3 * np.linalg.norm(exact)
    f, r = sum_of(2)
    with pytest.raises(ScheduleError, match="no factor 0"):
        hb.operand(f, 0, [r.x, j])


def test_a_reader_that_does_not_read_a_sum_is_refused() -> None:
    a, f, g, r = param("A", 2), hl.Func("f"), hl.Func("g"), summed(96)
    f[i, j] = single(1)
    f[i, j] += single(a[r, j])
    g[i, j] = single(a[i, j])
    with pytest.raises(ScheduleError, match="`g` does not read `f`"):
        hb.from_zero(f, g)


def test_bytes_of_two_types_in_a_layer_are_exact() -> None:
    image, w = param("A", 4, hl.UInt(8)), param("W", 4, hl.Int(8))
    f, r, x, y = hl.Func("f"), summed(32, 3, 3), hl.Var("x"), hl.Var("y")
    pixel, weight = image[r.x, x + r.y, y + r.z, n], w[r.x, r.y, r.z, i]
    f[i, x, y, n] += hl.cast(hl.Int(32), pixel) * hl.cast(hl.Int(32), weight)
    random = np.random.default_rng(6)
    pixels = random.integers(0, 256, (2, 6, 21, 32), np.uint8)
    weights = random.integers(-128, 128, (40, 3, 3, 32), np.int8)
    exact = sum(
        pixels[:, r : r + 4, s : s + 19].astype(int) @ weights[:, r, s].T.astype(int)
        for r in range(3)
        for s in range(3)
    )
    kernel = hb.compile(f, target="sm_90a", schedule="auto")
    assert any(s.block for s in kernel.report.statements)
    result = check(kernel, A=pixels, W=weights, sizes=(2, 4, 19, 40))
    assert np.array_equal(result, exact)


def test_no_read_along_a_variable_is_refused() -> None:
    a, f = param("A", 2), hl.Func("f")
    f[i, j] = a[i, i]
    with pytest.raises(ScheduleError, match="reads no `A` along `j`"):
        hb.clone(a, f, j)
