"""Bytes less a zero point are multiplied as they are; who reads the sum makes up for that."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from plain_pipelines import I32, U8
from plain_sums import I8, matrices, stored, with_a_zero_point, x, y

import halide_bridge as hb
from selector.diagnostics import ScheduleError

pytestmark = pytest.mark.verified

Term = Callable[[Any, Any, Any, Any, Any], Any]
Array = np.ndarray[Any, np.dtype[Any]]
ROWS, COLUMNS, DEPTH, Z, W = 70, 41, 96, 7, 250


def i16(e: Any) -> Any:
    return hl.cast(hl.Int(16), e)


def summed_of(term: Term, begin: int = 0) -> tuple[Any, Any]:
    """A sum and what reads it."""
    z, w = hl.Param(I32, "z", Z), hl.Param(I32, "w", W)
    a, b, k = matrices(U8, U8)
    total = hl.Func("total")
    total[x, y] = hl.i32(begin)
    total[x, y] += term(a[k, y], b[k, x], z, w, k)
    return total, stored(total)


TERMS: dict[str, tuple[Term, Callable[[Array, Array], Array], int]] = {
    "both factors": (
        lambda a, b, z, w, k: (hl.i32(a) - z) * (hl.i32(b) - w),
        lambda a, b: (a - Z) @ (b - W).T, 2,
    ),
    "in 16 bits": (
        lambda a, b, z, w, k: hl.i32(i16(a) - i16(128)) * hl.i32(i16(b) - i16(3)),
        lambda a, b: (a - 128) @ (b - 3).T, 2,
    ),
    "added": (
        lambda a, b, z, w, k: (w + hl.i32(a)) * hl.i32(b), lambda a, b: (a + W) @ b.T, 1
    ),
    "one after the other": (
        lambda a, b, z, w, k: hl.i32(a) * (hl.i32(b) - w + 5), lambda a, b: a @ (b - W + 5).T, 1
    ),
    "of a row": (
        lambda a, b, z, w, k: (hl.i32(a) - y * z) * (hl.i32(b) - x),
        lambda a, b: (a - Z * np.arange(ROWS)[:, None]) @ (b - np.arange(COLUMNS)[:, None]).T, 2,
    ),
}  # fmt: skip


@pytest.fixture
def operands() -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 256, (n, DEPTH)).astype(np.uint8) for n in (ROWS, COLUMNS))
    return a, b


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", TERMS)
def test_products_are_of_bytes(name: str, target: str, operands: tuple[Array, Array]) -> None:
    term, truth, _ = TERMS[name]
    _, out = summed_of(term, begin=11)
    kernel = hb.compile(out, target=target, schedule="auto", sizes=(2048, 2048))
    (update,) = kernel.report.updates
    assert update.block is not None
    assert "u8" in update.block.instruction
    a, b = operands
    found = kernel.interpret(a=a, b=b, sizes=(ROWS, COLUMNS), **_numbers(kernel))
    assert np.array_equal(found, 11 + truth(a.astype(int), b.astype(int)))


def _numbers(kernel: Any) -> dict[str, int]:
    given = {"z": Z, "w": W}
    return {s.name: given[s.name] for s in kernel.module.scalars if s.name in given}


@pytest.mark.parametrize("name", TERMS)
def test_by_hand_sums_of_operands_are_funcs(name: str, operands: tuple[Array, Array]) -> None:
    term, truth, count = TERMS[name]
    total, out = summed_of(term)
    sums: list[Any] = [*hb.subtracted_last(total, out)]
    assert len(sums) == count
    for func in (*sums, total):
        func.compute_root()
    a, b = (v[:, :9] for v in operands)
    kernel = hb.compile(out, target="amx", cache=False)
    found = kernel.interpret(a=a.copy(), b=b.copy(), sizes=(ROWS, COLUMNS), **_numbers(kernel))
    assert np.array_equal(found, truth(a.astype(int), b.astype(int)))


def test_of_two_kinds() -> None:
    case = with_a_zero_point()
    kernel = hb.compile(case.outputs, target="sm_90a", schedule="auto", sizes=(2048, 2048))
    (update,) = kernel.report.updates
    assert update.block is not None
    assert update.block.instruction.endswith("u8.s8.s32")
    a, b = (v for _, v in case.arguments)
    found = kernel.interpret(a=a, b=b, sizes=case.sizes)
    assert np.array_equal(found, (a.astype(int) - 128) @ b.astype(int).T)


def test_sums_are_added_by_the_blocks_of_the_product() -> None:
    said = str(hb.autoschedule(with_a_zero_point().outputs, target="sm_90a", sizes=(2048, 2048)))
    assert 'hb.subtracted_last(f["total"], f["out"])' in said
    assert re.search(
        r"total\.bound_extent\(x, \d+\)\.bound_extent\(y, \d+\)\.compute_at\(out, block\)", said
    )
    assert "total_in" not in said  # it would be stored, and read again


def test_few_products_are_left_as_they_are() -> None:
    said = hb.autoschedule(with_a_zero_point().outputs, target="sm_90a", sizes=(2, 2))
    assert "subtracted_last" not in str(said)


REFUSED: dict[str, Term] = {
    "nothing": lambda a, b, z, w, k: hl.i32(a) * hl.i32(b),
    "what changes along the sum": lambda a, b, z, w, k: (hl.i32(a) - k * z) * hl.i32(b),
    "a difference that wraps around": lambda a, b, z, w, k: hl.i32(i16(a) - i16(z)) * hl.i32(b),
    "what is subtracted from": lambda a, b, z, w, k: (z - hl.i32(a)) * hl.i32(b),
    "no product": lambda a, b, z, w, k: hl.i32(a) - z,
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_sums_are_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match="the factors of `total` are less by nothing"):
        hb.subtracted_last(*summed_of(REFUSED[name]))


def test_signed_bytes_of_a_row_are_not_summed_by_a_window() -> None:
    """A window's pixels are summed for each result, so its factors are left as they are."""
    image, taps, t = hl.ImageParam(I8, 2, "image"), hl.ImageParam(I8, 2, "taps"), hl.RDom([(0, 32)])
    total = hl.Func("total")
    total[x, y] = 0
    total[x, y] += hl.i32(image[x + t, y]) * (hl.i32(taps[t, y]) - 3)
    said = hb.autoschedule(stored(total), target="sm_90a", sizes=(2048, 2048))
    assert "subtracted_last" not in str(said)
