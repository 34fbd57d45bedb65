"""Filters that are given in a call, in 32 bits: what is told of their size says how much of a
picture is staged at once, and any size is right.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from plain_pipelines import F32, Plain, floats
from test_plain_pipelines import by_halide, close

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

x, y = hl.Var("x"), hl.Var("y")


def filtered(high: int, wide: int) -> Plain:
    image, taps = hl.ImageParam(F32, 2, "image"), hl.ImageParam(F32, 2, "taps")
    out, r = hl.Func("out"), hl.RDom([(0, taps.width()), (0, taps.height())], "r")
    at = hl.BoundaryConditions.repeat_edge(image)
    out[x, y] += at[x + r.x, y + r.y] * taps[r.x, r.y]
    return Plain(out, [(image, floats(70, 261)), (taps, floats(high, wide))], (70, 261), 1e-5)


@cache
def compiled(high: int, wide: int) -> tuple[str, Any]:
    case, sizes = filtered(1, 1), {"image": (2160, 3840), "taps": (high, wide)}
    schedule = hb.autoschedule(case.outputs, target="sm_90a", sizes=sizes)
    return schedule.source, hb.compile(case.outputs, target="sm_90a", cache=False)


@pytest.mark.parametrize(("high", "wide"), [(7, 5), (3, 16), (9, 40)])
@pytest.mark.parametrize("other", [(7, 5), (9, 3), (17, 33), (1, 1)])
def test_any_size_is_right(high: int, wide: int, other: tuple[int, int]) -> None:
    _, kernel = compiled(high, wide)
    case = filtered(*other)
    arrays = {p.name(): value for p, value in case.arguments}
    found = emulation.check(kernel, sizes=case.sizes, **arrays)
    (wanted,) = by_halide(case)
    assert close(np.asarray(found), wanted, case.tolerance)


def test_what_a_whole_filter_reads_is_staged_at_once() -> None:
    source, kernel = compiled(7, 5)
    assert "ko, ki, 5)" in source
    assert "ko1, ki1, 7)" in source
    assert "pipeline_stages" not in source
    assert kernel.source.count("__syncthreads") <= 3


def test_long_rows_are_staged_in_runs() -> None:
    source, _ = compiled(9, 40)
    assert "pipeline_stages" in source
