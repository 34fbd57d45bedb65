"""Products that count under a condition, or are taken in fewer bits than their sum, are products of
two factors (``hb.as_product``) and go to a tensor unit unasked; what is none says why.
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
Term = Callable[[Any, Any, Any], Any]
Truth = Callable[[Array, Array], Array]
ROWS, COLUMNS, DEPTH = 70, 41, 96
f32, i16, i32 = hl.f32, hl.i16, hl.i32
M, N, K = np.ogrid[:ROWS, :COLUMNS, :DEPTH]


def masked(condition: Callable[[Any, Any, Any], Any], wide: Any = f32) -> Term:
    """Products that count where a condition of k, x and y holds."""

    def term(a: Any, b: Any, k: Any) -> Any:
        value = wide(a[k, y]) * wide(b[x, k])
        return hl.select(condition(k, x, y), value, hl.cast(value.type(), 0))

    return term


def some(condition: Callable[[Any], Any], wide: Any = f32) -> Term:
    """Products of which a predicate says which count."""

    def term(a: Any, b: Any, k: Any) -> Any:
        k.where(condition(k.x))
        return wide(a[k, y]) * wide(b[x, k])

    return term


def where(holds: Array) -> Truth:
    return lambda a, b: np.einsum(
        "mk,kn,mnk->mn", a, b, np.broadcast_to(holds, (ROWS, COLUMNS, DEPTH))
    )


def in_bits(t: Any) -> Term:
    return lambda a, b, k: i32(hl.cast(t, a[k, y]) * hl.cast(t, b[x, k]))


HALVES, BYTES = (F16, F16, F32), (U8, I8, I32)
TAKEN: dict[str, tuple[Term, Truth, tuple[hl.Type, hl.Type, hl.Type]]] = {
    "even terms": (masked(lambda k, n, m: k % 2 == 0), where(K % 2 == 0), HALVES),
    "up to the column": (masked(lambda k, n, m: k <= n), where(K <= N), HALVES),
    "from the row on": (masked(lambda k, n, m: k > m), where(K > M), HALVES),
    "between both": (
        masked(lambda k, n, m: (k >= n) & (k <= m)), where((K >= N) & (K <= M)), HALVES
    ),
    "a band": (masked(lambda k, n, m: hl.abs(k - m) < 5), where(abs(K - M) < 5), HALVES),
    "terms at both ends": (
        masked(lambda k, n, m: (k < 5) | (k > 90)), where((K < 5) | (K > 90)), HALVES
    ),
    "of bytes": (masked(lambda k, n, m: k <= n, i32), where(K <= N), BYTES),
    "of some terms, up to the column": (some(lambda k: k <= x), where(K <= N), HALVES),
    "of some terms, between both": (
        some(lambda k: (k >= x) & (k <= y)), where((K >= N) & (K <= M)), HALVES
    ),
    "a condition as a factor": (
        lambda a, b, k: f32(a[k, y]) * f32(b[x, k]) * f32((k <= x) & (k > 3)),
        where((K <= N) & (K > 3)), HALVES,
    ),
    "none or one as a factor": (
        lambda a, b, k: f32(a[k, y]) * (hl.select(k % 2 == 0, 0.0, 1.0) * f32(b[x, k])),
        where(K % 2 == 1), HALVES,
    ),
    "two of three terms": (some(lambda k: k % 3 != 1), where(K % 3 != 1), HALVES),
    "some terms of bytes": (some(lambda k: k > y, i32), where(K > M), BYTES),
    "u8 by s8 in int16": (in_bits(hl.Int(16)), where(K >= 0), BYTES),
    "s8 by s8 in int16": (in_bits(hl.Int(16)), where(K >= 0), (I8, I8, I32)),
    "u8 by u8 in uint16": (in_bits(hl.UInt(16)), where(K >= 0), (U8, U8, I32)),
    "in int16, even terms": (
        lambda a, b, k: hl.select(k % 2 == 0, in_bits(hl.Int(16))(a, b, k), 0),
        where(K % 2 == 0), BYTES,
    ),
}  # fmt: skip


def defined(term: Term, kinds: tuple[hl.Type, hl.Type, hl.Type]) -> tuple[hl.Func, hl.Func]:
    a, b = hl.ImageParam(kinds[0], 2, "a"), hl.ImageParam(kinds[1], 2, "b")
    k, total, out = hl.RDom([(0, DEPTH)], "k"), hl.Func("total"), hl.Func("out")
    total[x, y] = hl.cast(kinds[2], 0)
    total[x, y] += term(a, b, k)
    out[x, y] = total[x, y]
    return total, out


def matrix(kind: hl.Type, shape: tuple[int, int], seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if kind == F16:
        return rng.standard_normal(shape).astype(np.float16)
    ends = np.iinfo(np.uint8 if kind == U8 else np.int8)  # the ends among them
    values = rng.choice([ends.min, ends.min + 1, 3, ends.max], shape)
    return values.astype(ends.dtype)


def close(kernel: Any, truth: Truth, kinds: tuple[hl.Type, hl.Type, hl.Type]) -> None:
    a, b = matrix(kinds[0], (ROWS, DEPTH), 1), matrix(kinds[1], (DEPTH, COLUMNS), 2)
    found = kernel.interpret(a=a, b=b, sizes=(ROWS, COLUMNS))
    exact = truth(a.astype(float), b.astype(float))
    limit = 1e-5 if kinds[2] == F32 else 0
    assert np.linalg.norm(found - exact) <= limit * np.linalg.norm(exact)


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", TAKEN)
def test_a_tensor_unit_has_the_product(name: str, target: str) -> None:
    term, truth, kinds = TAKEN[name]
    out = defined(term, kinds)[1]
    kernel = hb.compile(out, target=target, schedule="auto", sizes=(2048, 2048))
    assert [update.block is not None for update in kernel.report.updates] == [True]
    assert compile_to_cubin(kernel.source, target)
    close(kernel, truth, kinds)


@pytest.mark.parametrize("name", ["length", "kept"])
def test_lengths_and_masks_are_read(name: str) -> None:
    """Arrays in a predicate are no factors."""
    some_of = {"length": np.arange(ROWS) * 7 % 99 - 1, "kept": np.arange(DEPTH) * 5 % 3}
    length, kept = hl.ImageParam(I32, 1, "length"), hl.ImageParam(U8, 1, "kept")
    term = some(lambda k: (k < length[y]) if name == "length" else kept[k] != 0)
    kernel = hb.compile(
        defined(term, HALVES)[1], target="sm_90a", schedule="auto", sizes=(2048, 2048)
    )
    assert [update.block is not None for update in kernel.report.updates] == [True]
    a, b = matrix(F16, (ROWS, DEPTH), 1), matrix(F16, (DEPTH, COLUMNS), 2)
    array = some_of[name].astype(np.int32 if name == "length" else np.uint8)
    found = kernel.interpret(a=a, b=b, sizes=(ROWS, COLUMNS), **{name: array})
    holds = some_of["length"][M] > K if name == "length" else some_of["kept"][K] != 0
    exact = where(holds)(a.astype(float), b.astype(float))
    assert np.linalg.norm(found - exact) <= 1e-5 * np.linalg.norm(exact)


@pytest.mark.parametrize("name", ["between both", "in int16, even terms"])
def test_what_is_written_down_gives_the_same_program(name: str) -> None:
    term, truth, kinds = TAKEN[name]
    said = hb.autoschedule(defined(term, kinds)[1], target="sm_90a", sizes=(2048, 2048)).source
    assert 'hb.as_product(f["total"])' in said
    again = defined(term, kinds)[1]
    exec(said, {"output": again, "hl": hl, "hb": hb})
    close(hb.compile(again, target="sm_90a"), truth, kinds)


def test_few_products_stay_as_they_are() -> None:
    term, _, kinds = TAKEN["up to the column"]
    schedule = hb.autoschedule(defined(term, kinds)[1], target="sm_90a", sizes=(5, 7))
    assert "as_product" not in schedule.source


LEFT: dict[str, tuple[Term, Truth | None, tuple[hl.Type, hl.Type, hl.Type]]] = {
    "neither factor can have": (masked(lambda k, n, m: k <= n + m), where(K <= N + M), HALVES),
    "its rows and columns": (some(lambda k: k <= x + y), where(K <= N + M), HALVES),
    "says which terms count, which neither": (
        lambda a, b, k: f32(a[k, y]) * f32(b[x, k]) * f32(k <= x + y), where(K <= N + M), HALVES
    ),
    "may wrap around": (in_bits(hl.Int(16)), None, (U8, U8, I32)),
    "taken in int8 and cast afterwards, where they may": (
        lambda a, b, k: i32(a[k, y] * b[x, k]), None, (I8, I8, I32)
    ),
    "which rounds them": (lambda a, b, k: f32(a[k, y] * b[x, k]), None, HALVES),
    "products and others": (
        lambda a, b, k: f32(a[k, y]) + f32(a[k, y]) * f32(b[x, k]),
        lambda a, b: a.sum(1)[:, None] + a @ b, HALVES,
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", LEFT)
def test_others_say_why(why: str) -> None:
    term, truth, kinds = LEFT[why]
    out = defined(term, kinds)[1]
    assert why in hb.autoschedule(out, target="sm_90a", sizes=(2048, 2048)).report
    total, out = defined(term, kinds)
    if truth is not None:
        close(hb.compile(out, target="sm_90a", schedule="auto"), truth, kinds)
    with pytest.raises(ScheduleError, match="no product of two factors in other words"):
        hb.as_product(total)


def test_the_way_out_of_terms_that_are_more_than_products() -> None:
    """It is what the report says."""
    a, b = hl.ImageParam(F16, 2, "a"), hl.ImageParam(F16, 2, "b")
    k, total = hl.RDom([(0, DEPTH)], "k"), hl.Func("total")
    total[x, y] = f32(0)
    total[x, y] += f32(a[k, y]) * f32(b[x, k])
    total[x, y] += f32(a[k, y])
    kernel = hb.compile(total, target="sm_90a", schedule="auto", sizes=(2048, 2048))
    assert any(update.block is not None for update in kernel.report.updates)
    close(kernel, lambda a, b: a.sum(1)[:, None] + a @ b, HALVES)
