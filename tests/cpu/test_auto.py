"""Plain pipelines scheduled for a CPU: right in compiled C, as pasted source says them, and what is
said of each Func.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from c_programs import executable, poisoned, relative_error

pytest.importorskip("halide")

import halide as hl
from plain_hosts import PIPELINES, Plain

import halide_bridge as hb
from halide_bridge.schedules.host import planning, search
from selector.api import Kernel
from selector.diagnostics import ScheduleError
from selector.families import MOST_LANES, tiles
from selector.machine import HOST
from selector.sized import SizedKernel

pytestmark = pytest.mark.verified
x, y = hl.Var("x"), hl.Var("y")


@cache
def scheduled(name: str) -> tuple[Plain, hb.Schedule, Kernel]:
    case = PIPELINES[name]()
    schedule = hb.autoschedule(case.output, target="amx", sizes=case.truth.shape)
    return case, schedule, hb.compile(case.output, target="amx")


def error(kernel: Kernel, case: Plain) -> float:
    """Of emitted C, over poison."""
    out = poisoned(case.truth.shape, str(kernel.plan.buffers[-1].type))
    executable(kernel.plan)([], case.arguments, out=out)
    return relative_error(out, case.truth)


@pytest.mark.parametrize("name", PIPELINES)
def test_emitted_c_computes_what_float64_does(name: str) -> None:
    case, schedule, kernel = scheduled(name)
    assert error(kernel, case) < 1e-6, schedule.source


@pytest.mark.parametrize("name", PIPELINES)
def test_the_report_says_what_each_func_became(name: str) -> None:
    case, schedule, kernel = scheduled(name)
    for said in case.inside:
        assert said in schedule.report
    in_tiles = schedule.report.count(": in tile registers")
    assert len({s.func for s in kernel.report.updates if s.block}) == in_tiles


@pytest.mark.parametrize("name", PIPELINES)
def test_the_source_gives_the_same_program(name: str) -> None:
    _, schedule, kernel = scheduled(name)
    again = PIPELINES[name]().output
    exec(schedule.source, {"hb": hb, "hl": hl, "output": again})
    assert hb.compile(again, target="amx").source == kernel.source


@pytest.mark.parametrize("name", ["layer", "unsharp"])
def test_compile_makes_a_program_for_each_size_class(name: str) -> None:
    case = PIPELINES[name]()
    kernel = hb.compile(case.output, target="amx", schedule="auto")
    assert error(kernel, case) < 1e-6  # the program for unknown sizes
    found = kernel(**case.arguments, sizes=case.truth.shape)
    assert relative_error(found, case.truth) < 1e-6
    assert isinstance(kernel, SizedKernel)
    assert len(kernel.size_classes) == 1
    assert np.array_equal(
        hb.apply(PIPELINES[name]().output, target="amx", sizes=case.truth.shape, **case.arguments),
        found,
    )


def test_without_instructions_a_product_is_loops() -> None:
    case = PIPELINES["layer"]()
    schedule = hb.autoschedule(case.output, target="amx", instructions=())
    assert "tile" not in schedule.report
    assert error(hb.compile(case.output, target="amx"), case) < 1e-6


def test_a_tiling_is_given() -> None:
    case, tiling = PIPELINES["layer"](), tiles.Tiling(16, 32, 32, 32, 64, stages=1)
    schedule = hb.autoschedule(case.output, target="amx", tilings={"sums": tiling})
    assert f"sums: in tile registers, {tiling.label}" in schedule.report
    assert error(hb.compile(case.output, target="amx"), case) < 1e-6


GIVEN: dict[str, Any] = {
    "its factors are of float32": ("product_of_floats", "sums", tiles.Tiling(32, 32, 32, 32, 32)),
    "it is no product of matrices": ("layer", "nobody", tiles.Tiling(32, 32, 32, 32, 32)),
    "of `selector.families`: of tiles": ("layer", "sums", 32),
}


@pytest.mark.parametrize("why", GIVEN)
def test_a_tiling_that_cannot_be_is_refused(why: str) -> None:
    name, label, tiling = GIVEN[why]
    with pytest.raises(ScheduleError) as caught:
        hb.autoschedule(PIPELINES[name]().output, target="amx", tilings={label: tiling})
    assert why in str(caught.value)


def filtered(kind: Any, term: Any, start: Any = 0) -> Any:
    """A Func that sums what ``term`` makes of a window of an image and of taps."""
    image, taps = hl.ImageParam(kind, 2, "image"), hl.ImageParam(kind, 1, "taps")
    out, r = hl.Func("out"), hl.RDom([(0, 5)], "r")
    out[x, y] = start
    out[x, y] += term(image, taps, r)
    return out


MISSES: dict[str, Any] = {
    "its factors are of float16": (hl.Float(16), lambda i, t, r: hl.f32(i[r, y]) * hl.f32(t[r])),
    "is not read by variables alone": (
        hl.BFloat(16),
        lambda i, t, r: hl.f32(i[x + r, y]) * hl.f32(t[r]),
    ),
    "cast each factor": (hl.BFloat(16), lambda i, t, r: hl.f32(i[r, y] * t[r])),
}


@pytest.mark.parametrize("why", MISSES)
def test_why_a_sum_is_not_in_tile_registers(why: str) -> None:
    kind, term = MISSES[why]
    report = hb.autoschedule(filtered(kind, term, hl.f32(0)), target="amx").report
    (line,) = (t for t in report.splitlines() if "not in tile registers" in t)
    assert why in line


def test_what_a_user_scheduled_stays_and_halide_is_not_asked() -> None:
    case = PIPELINES["unsharp"]()
    rows = hb.funcs(case.output)["rows"]
    rows.compute_root().parallel(y)
    schedule = hb.autoschedule(case.output, target="amx")
    assert "rows: as scheduled by you" in schedule.report
    assert "rows" not in schedule.source
    assert "Adams2019" not in schedule.report
    assert error(hb.compile(case.output, target="amx"), case) < 1e-6


@pytest.mark.parametrize("name", ["unsharp", "product_of_floats", "planes"])
def test_where_the_search_fails_there_are_plain_loops(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise hl.HalideError("Error: no schedule")

    monkeypatch.setattr(planning.search, "search", fails)
    case = PIPELINES[name]()
    schedule = hb.autoschedule(case.output, target="amx")
    assert "loops not by Halide's autoscheduler: no schedule" in schedule.report
    assert ", vectors of " in schedule.report
    assert error(hb.compile(case.output, target="amx"), case) < 1e-6


def test_no_statement_of_halides_schedule_is_passed_over() -> None:
    with pytest.raises(ScheduleError, match="no statement of a schedule"):
        list(search._read("f.split(x", []))  # pyright: ignore[reportPrivateUsage]


def test_blocks_fit_sizes_and_caches() -> None:
    ((_, square), *_) = tiles.ranked(tiles.Shape(1024, 1024, 1024), HOST)
    assert (square.m, square.n) == (32, 32)
    blocks = -(-1024 // square.rows) * -(-1024 // square.columns)
    assert blocks % HOST.cores == 0
    ((_, flat), *_) = tiles.ranked(tiles.Shape(4, 4096, 4096), HOST)
    assert flat.m == flat.rows == tiles.SIDE
    ((_, deep), *_) = tiles.ranked(tiles.Shape(4096, 4096, 1 << 16), HOST)
    assert deep.rows < square.rows * 2
    for _, tiling in tiles.ranked(tiles.Shape(100, 100, 100, bytes=1), HOST):
        assert tiling.m * tiling.vector_n * tiling.k <= MOST_LANES
