"""How many blocks share a multiprocessor: what a directive asks for, and shared memory holds."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from selector.ir.kinds import GridKind
from selector.ir.remarks import GridDirective


def copied(rows: int) -> hl.Func:
    """``rows`` rows of 4 KiB staged in shared memory by a block of 128 threads."""
    x, y, yo, yi = hl.Var("x"), hl.Var("y"), hl.Var("yo"), hl.Var("yi")
    image, kept, out = hl.ImageParam(hl.Float(32), 2, "I"), hl.Func("kept"), hl.Func("out")
    kept[x, y] = image[x, y] * 2
    out[x, y] = kept[x, y] + kept[1023 - x, y]
    out.bound(x, 0, 1024).split(y, yo, yi, rows).reorder(x, yi, yo)
    xo, xi = hl.Var("xo"), hl.Var("xi")
    out.split(x, xo, xi, 128).reorder(xi, xo, yi, yo).gpu_blocks(yo).gpu_threads(xi)
    kept.compute_at(out, yo).store_in(hl.MemoryType.GPUShared)
    kept.bound_extent(x, 1024).bound_extent(y, rows).split(x, xo, xi, 128).gpu_threads(xi)
    return out


def bounds(rows: int, blocks: int, target: str) -> str:
    out = copied(rows)
    if blocks:
        assert hb.resident_blocks(out, blocks) is out
    found = re.search(r"__launch_bounds__\((.*?)\)", hb.compile(out, target=target).source)
    assert found
    return found[1]


@pytest.mark.parametrize(
    ("rows", "blocks", "target", "expected"),
    [
        (4, 0, "sm_90a", "128"),
        (4, 1, "sm_90a", "128"),
        (4, 3, "sm_90a", "128, 3"),
        (24, 2, "sm_90a", "128, 2"),
        (24, 2, "sm_80", "128"),  # 164 KiB do not hold twice 96 KiB
        (12, 8, "sm_80", "128, 3"),
    ],
)
def test_blocks_that_fit(rows: int, blocks: int, target: str, expected: str) -> None:
    assert bounds(rows, blocks, target) == expected


def test_each_kernel_has_its_own() -> None:
    x, xi = hl.Var("x"), hl.Var("xi")
    image, first, out = hl.ImageParam(hl.Float(32), 1, "I"), hl.Func("first"), hl.Func("out")
    first[x] = image[x] + 1
    out[x] = first[x] * first[x]
    for f in (first, out):
        f.compute_root().gpu_tile(x, xi, 64)
    hb.resident_blocks(first, 4)
    assert hb.lower(out).grids == (GridDirective(GridKind.RESIDENT, "first", 4),)
    source = hb.compile(out, target="sm_80").source
    found = re.findall(r"__launch_bounds__\((.*?)\) kernel_(\w+?)(?:_\d)?\(", source)
    assert found == [("64, 4", "first"), ("64, 32", "out")]


@pytest.mark.parametrize("directive", [hb.resident_blocks, hb.persistent, hb.teams, hb.cluster])
def test_a_func_without_a_kernel(directive: Callable[[hl.Func, int], hl.Func]) -> None:
    x, xi = hl.Var("x"), hl.Var("xi")
    image, inner, out = hl.ImageParam(hl.Float(32), 1, "I"), hl.Func("inner"), hl.Func("out")
    inner[x] = image[x] + 1
    out[x] = inner[x] * inner[x]
    inner.compute_at(out.gpu_tile(x, xi, 64), xi)
    directive(inner, 2)
    with pytest.raises(ScheduleError, match="`inner` has no kernel of its own") as caught:
        hb.compile(out, target="sm_90a")
    assert "the kernels compute `out`" in caught.value.why
