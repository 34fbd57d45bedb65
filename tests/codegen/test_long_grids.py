"""Grids with more blocks along an outer loop than y and z have room for: all are along x."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from verified import SIMULATED

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from selector.gpu.codegen.program import emit_kernels
from selector.ir.nodes import IntImm
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = SIMULATED
x, y, n, xo, xi, yo, yi = (hl.Var(name) for name in ("x", "y", "n", "xo", "xi", "yo", "yi"))
ROOM = 65535


@pytest.mark.parametrize(("planes", "in_line"), [(ROOM, False), (ROOM + 1, True)])
def test_blocks_are_in_line_where_a_loop_has_too_many(planes: int, in_line: bool) -> None:
    image, out = hl.ImageParam(hl.Float(32), 3, "image"), hl.Func("out")
    out[x, y, n] = image[x, y, n] + 1
    out.bound(n, 0, planes).split(x, xo, xi, 4).split(y, yo, yi, 2).reorder(xi, yi, xo, yo, n)
    out.gpu_blocks(xo, yo, n).gpu_threads(xi, yi)
    kernel = hb.compile(out, target="sm_90a")
    (launch,) = kernel.plan.launches
    assert (launch.grid[1:] == (IntImm(1), IntImm(1))) == in_line
    data = np.random.default_rng(1).random((planes, 3, 5)).astype(np.float32)
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    run = simulate(kernels, plan, {"image": data}, data.shape)
    assert run.faults == ()
    assert np.array_equal(run.outputs["out"], data + 1)


def plus_one(persistent: bool = False) -> hl.Func:
    image, out = hl.ImageParam(hl.Float(32), 3, "image"), hl.Func("out")
    out[x, y, n] = image[x, y, n] + 1
    out.split(x, xo, xi, 4).split(y, yo, yi, 2).reorder(xi, yi, xo, yo, n)
    out.gpu_blocks(xo, yo, n).gpu_threads(xi, yi)
    return hb.persistent(hb.in_line(out)) if persistent else hb.in_line(out)


def test_blocks_are_in_line_where_that_is_asked_for() -> None:
    """Of loops whose extents nobody knows."""
    kernel = hb.compile(plus_one(), target="sm_90a")
    (launch,) = kernel.plan.launches
    assert launch.grid[1:] == (IntImm(1), IntImm(1))
    data = np.random.default_rng(2).random((70, 5, 9)).astype(np.float32)
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    run = simulate(kernels, plan, {"image": data}, data.shape)
    assert run.faults == ()
    assert np.array_equal(run.outputs["out"], data + 1)


def test_a_persistent_grid_is_not_in_line() -> None:
    with pytest.raises(ScheduleError, match="blocks of `out` cannot be numbered in line"):
        hb.compile(plus_one(persistent=True), target="sm_90a")
