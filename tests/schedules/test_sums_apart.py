"""Products that are one of several updates or values of a Func, or an output with something that
comes last, are Funcs of their own, and go to a tensor unit unasked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from plain_pipelines import F16, F32, I32
from plain_sums import I8, U8, x, y

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from selector.runtime.nvrtc import compile_to_cubin

pytestmark = pytest.mark.verified

Array = np.ndarray[Any, np.dtype[Any]]
Pipeline = Callable[["Inputs"], Any]
Truth = Callable[[Array, Array, Array], Array | tuple[Array, ...]]
ROWS, COLUMNS, DEPTH = 70, 41, 96
f32, i32 = hl.f32, hl.i32


class Inputs:
    """Rows of ``a`` by columns of ``b``; ``s`` has a number for each column."""

    def __init__(self, a: hl.Type = F16, b: hl.Type = F16) -> None:
        self.a, self.b = hl.ImageParam(a, 2, "a"), hl.ImageParam(b, 2, "b")
        self.s, self.k = hl.ImageParam(F32, 1, "s"), hl.RDom([(0, DEPTH)], "k")
        self.bytes_ = a != F16
        self.total = hl.Func("total")

    @property
    def term(self) -> Any:
        wide = i32 if self.bytes_ else f32
        return wide(self.a[self.k, y]) * wide(self.b[x, self.k])

    def arrays(self) -> dict[str, Array]:
        rng = np.random.default_rng(1)
        a, b = rng.standard_normal((ROWS, DEPTH)), rng.standard_normal((DEPTH, COLUMNS))
        s = rng.standard_normal(COLUMNS).astype(np.float32)
        if self.bytes_:
            a, b = np.abs(a * 60).astype(np.uint8), (b * 40).astype(np.int8)
            return {"a": a, "b": b, "s": s}
        return {"a": a.astype(np.float16), "b": b.astype(np.float16), "s": s}


def changed_afterwards(i: Inputs) -> Any:
    i.total[x, y] = i.s[x]
    i.total[x, y] += i.term
    i.total[x, y] = hl.max(i.total[x, y], 0) * 2
    return i.total


def edges_set_afterwards(i: Inputs) -> Any:
    i.total[x, y] = f32(0)
    i.total[x, y] += i.term
    i.total[x, 0] = i.total[x, 0] + 1
    i.total[3, y] = f32(y)
    return i.total


def summed_up_afterwards(i: Inputs) -> Any:
    """The last update is a recurrence, which stays one."""
    n = hl.RDom([(1, COLUMNS - 1)], "n")
    i.total[x, y] = f32(0)
    i.total[x, y] += i.term
    i.total[n, y] += i.total[n - 1, y]
    return i.total


def two_products(i: Inputs) -> Any:
    n = hl.RDom([(0, DEPTH // 2)], "n")
    i.total[x, y] = f32(1)
    i.total[x, y] += i.term
    i.total[x, y] -= f32(i.a[n, y]) * f32(i.b[x, n]) * i.s[x]
    return i.total


def two_values(i: Inputs) -> Any:
    out = hl.Func("out")
    i.total[x, y] = (f32(0), f32(-100))
    most = hl.max(i.total[x, y][1], f32(i.a[i.k, y]))
    i.total[x, y] = (i.total[x, y][0] + i.term, most)
    out[x, y] = i.total[x, y][0] - i.total[x, y][1]
    return out


def some_elements(i: Inputs) -> Any:
    i.k.where(x <= y)
    i.total[x, y] = i.s[x]
    i.total[x, y] += i.term
    return i.total


def added_in_a_row(i: Inputs) -> Any:
    i.total[x, y] = f32(0)
    i.total[x, y] = i.total[x, y] + i.term - f32(i.a[i.k, y]) * f32(i.b[x, DEPTH - 1 - i.k])
    return i.total


def scaled_output(i: Inputs) -> Any:
    i.total[x, y] += i.term * i.s[x]
    return i.total


def scaled_output_that_is_read(i: Inputs) -> Any:
    out = hl.Func("out")
    i.total[x, y] -= i.term * i.s[x]
    out[x, y] = hl.abs(i.total[x, y])
    return [i.total, out]


_DOWN, _ACROSS = np.arange(ROWS)[:, None], np.arange(COLUMNS)[None]
_CASES: tuple[tuple[Pipeline, Truth], ...] = (
    (changed_afterwards, lambda a, b, s: np.maximum(a @ b + s, 0) * 2),
    (edges_set_afterwards, lambda a, b, s: _edges(a @ b)),
    (summed_up_afterwards, lambda a, b, s: np.cumsum(a @ b, axis=1)),
    (two_products, lambda a, b, s: 1 + a @ b - a[:, : DEPTH // 2] @ b[: DEPTH // 2] * s),
    (two_values, lambda a, b, s: a @ b - a.max(1)[:, None]),
    (some_elements, lambda a, b, s: s + (a @ b) * (_ACROSS <= _DOWN)),
    (added_in_a_row, lambda a, b, s: a @ b - a @ b[::-1]),
    (scaled_output, lambda a, b, s: (a @ b) * s),
    (scaled_output_that_is_read, lambda a, b, s: (-(a @ b) * s, abs((a @ b) * s))),
)
PRODUCTS = {make.__name__: (make, truth) for make, truth in _CASES}


def _edges(product: Array) -> Array:
    product[0] += 1
    product[:, 3] = np.arange(ROWS)
    return product


def close(kernel: Any, inputs: Inputs, truth: Truth) -> None:
    given = inputs.arrays()
    exact = truth(*(v.astype(float) for v in given.values()))
    used = {b.name for b in kernel.plan.buffers}
    shapes = {b.name: (ROWS, COLUMNS) for b in kernel.plan.buffers if b.name not in given}
    found = kernel.interpret(**{n: v for n, v in given.items() if n in used}, sizes=shapes)
    results = found.values() if isinstance(found, dict) else (found,)
    for f, e in zip(results, exact if isinstance(exact, tuple) else (exact,), strict=True):
        assert np.linalg.norm(f - e) <= 1e-5 * np.linalg.norm(e)


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_tensor_unit_has_the_product(name: str, target: str) -> None:
    make, truth = PRODUCTS[name]
    inputs = Inputs()
    sizes = {"total": (2048, 2048)} if name != "two_values" else {"out": (2048, 2048)}
    kernel = hb.compile(make(inputs), target=target, schedule="auto", sizes=sizes)
    assert kernel.report.updates
    assert all(update.block is not None for update in kernel.report.updates)
    assert compile_to_cubin(kernel.source, target)
    close(kernel, inputs, truth)


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_written_down_gives_the_same_program(name: str) -> None:
    make, truth = PRODUCTS[name]
    said = hb.autoschedule(make(Inputs()), target="sm_90a").source
    assert 'hb.sums_apart(f["total"]' in said
    inputs = Inputs()
    again = make(inputs)
    exec(said, {"output": again, "hl": hl, "hb": hb})
    close(hb.compile(again, target="sm_90a"), inputs, truth)


def test_zero_points_of_an_output() -> None:
    inputs, z = Inputs(U8, I8), hl.Param(I32, "z")
    inputs.total[x, y] += (i32(inputs.a[inputs.k, y]) - z) * i32(inputs.b[x, inputs.k])
    kernel = hb.compile(inputs.total, target="sm_90a", schedule="auto", sizes=(2048, 2048))
    given = inputs.arrays()
    found = kernel.interpret(a=given["a"], b=given["b"], z=17, sizes=(ROWS, COLUMNS))
    assert any(update.block is not None for update in kernel.report.updates)
    assert (found == (given["a"].astype(int) - 17) @ given["b"].astype(int)).all()


def test_a_bound_of_an_output_stays() -> None:
    """And so do its estimates: tiles are for as many rows."""
    inputs = Inputs()
    total = scaled_output(inputs)
    total.bound(x, 0, COLUMNS).set_estimates([(0, COLUMNS), (0, 2048)])
    assert "tiles of 64 x " in hb.autoschedule(total, target="sm_90a").report
    close(hb.compile(total, target="sm_90a"), inputs, PRODUCTS["scaled_output"][1])


def test_a_wrapper_without_a_schedule_is_the_output() -> None:
    inputs = Inputs()
    total = inputs.total
    total[x, y] += inputs.term
    assert total.in_().name() != total.name()
    kernel = hb.compile(total, target="sm_90a", schedule="auto", sizes=(2048, 2048))
    assert all(update.block is not None for update in kernel.report.updates)
    close(kernel, inputs, lambda a, b, s: a @ b)


def halved(i: Inputs) -> None:
    i.total[x, y] = f32(0)
    i.total[x, y] = i.total[x, y] * f32(0.5) + i.term


def crossed(i: Inputs) -> None:
    """Each value needs the other one."""
    i.total[x, y] = (f32(0), f32(0))
    a, b = i.total[x, y][0], i.total[x, y][1]
    i.total[x, y] = (a + i.term, b + a)


@pytest.mark.parametrize("make", [halved, crossed])
def test_what_is_no_sum_by_itself_stays(make: Callable[[Inputs], None]) -> None:
    inputs, out = Inputs(), hl.Func("out")
    make(inputs)
    one = inputs.total[x, y]
    out[x, y] = one if make is halved else one[1]
    said = hb.autoschedule(out, target="sm_90a", sizes=(2048, 2048)).source
    assert "sums_apart" not in said
    with pytest.raises(ScheduleError, match="no sum among its updates"):
        hb.sums_apart(inputs.total, out)


def test_updates_of_others_than_ones_own_element_are_those_of_what_is_read() -> None:
    inputs, out = Inputs(), hl.Func("out")
    out[x, y] = summed_up_afterwards(inputs)[x, y]
    made: list[Any] = [*hb.sums_apart(inputs.total, out)]
    assert [f.name().split("$")[0] for f in made] == ["total_sum", "total_whole"]
    assert made[1].num_update_definitions() == 1


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("first", [8, -8, "first"])
def test_a_sum_may_begin_anywhere(first: int | str, target: str) -> None:
    inputs, out = Inputs(), hl.Func("out")
    begin = hl.Param(I32, "first") if first == "first" else first
    k = hl.RDom([(begin, 64)], "k")
    at = k + 8 if first == -8 else k
    inputs.total[x, y] += f32(inputs.a[at, y]) * f32(inputs.b[x, at])
    out[x, y] = inputs.total[x, y]
    kernel = hb.compile(out, target=target, schedule="auto", sizes=(2048, 2048))
    assert all(update.block is not None for update in kernel.report.updates)
    given = {name: v for name, v in inputs.arrays().items() if name != "s"}
    low = {8: 8, -8: 0, "first": 5}[first]
    numbers: dict[str, Any] = {"first": 5} if first == "first" else {}
    found = kernel.interpret(**given, **numbers, sizes=(ROWS, COLUMNS))
    a, b = (v.astype(float) for v in given.values())
    exact = a[:, low : low + 64] @ b[low : low + 64]
    assert np.linalg.norm(found - exact) <= 1e-5 * np.linalg.norm(exact)


def test_taps_of_a_layer_may_begin_before_their_pixel() -> None:
    c, z = hl.Var("c"), hl.Var("z")
    image, weights = hl.ImageParam(F16, 3, "image"), hl.ImageParam(F16, 4, "weights")
    edge = hl.BoundaryConditions.constant_exterior(image, hl.cast(F16, 0))
    r, total, out = hl.RDom([(0, 32), (-1, 3), (-1, 3)], "r"), hl.Func("total"), hl.Func("out")
    taps = weights[r.x, r.y + 1, r.z + 1, c]
    total[c, y, z] += f32(edge[r.x, y + r.y, z + r.z]) * f32(taps)
    out[c, y, z] = total[c, y, z]
    kernel = hb.compile(out, target="sm_90a", schedule="auto", sizes=(56, 56, 64))
    assert all(update.block is not None for update in kernel.report.updates)
    rng = np.random.default_rng(3)
    pixels = rng.standard_normal((11, 13, 32)).astype(np.float16)
    filters = rng.standard_normal((24, 3, 3, 32)).astype(np.float16)
    padded = np.pad(pixels.astype(float), ((1, 1), (1, 1), (0, 0)))
    around = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (0, 1))
    exact = np.einsum("zycts,ftsc->zyf", around, filters.astype(float))
    found = kernel.interpret(image=pixels, weights=filters, sizes=(11, 13, 24))
    assert np.linalg.norm(found - exact) <= 1e-5 * np.linalg.norm(exact)


def test_a_sum_that_begins_at_zero_is_counted_from_there() -> None:
    inputs = Inputs()
    inputs.total[x, y] += inputs.term
    with pytest.raises(ScheduleError, match="begins elsewhere"):
        hb.counted_from_zero(inputs.total)
