"""Tables and fields that go on step by step: threads of a block share each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import pytest
from plain_emulated import emulated
from plain_pipelines import F32, U8, Plain, bytes_, floats

import halide_bridge as hb
from selector.diagnostics import ScheduleError

pytestmark = pytest.mark.verified("tests/emulation")

x, y, t, n = (hl.Var(name) for name in ("x", "y", "t", "n"))
SHARED, ONE = "which share each step along", "one thread: an update may read"


def seams(upwards: bool = False, width: int = 47) -> Plain:
    """The least energy of a seam down to each pixel, or up to it."""
    a, seam = hl.ImageParam(F32, 2, "a"), hl.Func("seam")
    r = hl.RDom([(0, a.width()), (1, a.height() - 1)])
    row = a.height() - 1 - r.y if upwards else r.y
    before = row + 1 if upwards else row - 1
    left, right = hl.max(r.x - 1, 0), hl.min(r.x + 1, a.width() - 1)
    seam[x, y] = a[x, y]
    seam[r.x, row] = a[r.x, row] + hl.min(
        seam[left, before], seam[r.x, before], seam[right, before]
    )
    return Plain(seam, [(a, floats(23, width))], (23, width))


def upward_seams() -> Plain:
    return seams(upwards=True)


def heat_in_a_plane() -> Plain:
    a, heat, width, height = hl.ImageParam(F32, 2, "a"), hl.Func("heat"), 53, 35
    inside = a[hl.clamp(x, 0, width - 1), hl.clamp(y, 0, height - 1)]
    heat[x, y, t] = hl.select(t == 0, inside, 0.0)
    r = hl.RDom([(0, a.width()), (0, a.height()), (1, 6)])

    def near(dx: int, dy: int) -> Any:
        at = hl.clamp(r.x + dx, 0, a.width() - 1), hl.clamp(r.y + dy, 0, a.height() - 1)
        return heat[*at, r.z - 1]

    around = near(1, 0) + near(-1, 0) + near(0, 1) + near(0, -1)
    heat[r.x, r.y, r.z] = near(0, 0) + 0.2 * (around - 4 * near(0, 0))
    return Plain(heat, [(a, floats(height, width))], (7, height, width))


def two_fields() -> Plain:
    """Electric and magnetic: tuples."""
    a, field, out = hl.ImageParam(F32, 1, "a"), hl.Func("field"), hl.Func("out")
    field[x, t] = hl.Tuple([hl.select(t == 0, a[hl.clamp(x, 0, 89)], 0.0), hl.f32(0)])
    r = hl.RDom([(0, a.width()), (1, 19)])
    left, right = hl.max(r.x - 1, 0), hl.min(r.x + 1, a.width() - 1)
    e, h = field[r.x, r.y - 1][0], field[r.x, r.y - 1][1]
    new_e = e + 0.5 * (h - field[left, r.y - 1][1])
    field[r.x, r.y] = hl.Tuple([new_e, h + 0.5 * (field[right, r.y - 1][0] - e)])
    out[x, t] = field[x, t][0] + field[x, t][1]
    return Plain(out, [(a, floats(90))], (20, 90))


def likeliest_paths() -> Plain:
    """Viterbi's: a loop of each thread over the states before."""
    seen, moves = hl.ImageParam(F32, 2, "seen"), hl.ImageParam(F32, 2, "moves")
    best, states = hl.Func("best"), seen.width()
    best[x, t] = hl.select(t == 0, seen[x, 0], hl.f32(-1e30))
    r = hl.RDom([(0, states), (0, states), (1, seen.height() - 1)])
    way = best[r.x, r.z - 1] + moves[r.x, r.y] + seen[r.y, r.z]
    best[r.y, r.z] = hl.max(best[r.y, r.z], way)
    return Plain(best, [(seen, floats(11, 37)), (moves, floats(37, 37, seed=2))], (11, 37))


def waves_side_by_side() -> Plain:
    """Two steps back, and a block for each wave."""
    a, wave = hl.ImageParam(F32, 2, "a"), hl.Func("wave")
    wave[x, n, t] = hl.select(t < 2, a[x, n], 0.0)
    r = hl.RDom([(0, a.width()), (2, 18)])

    def at(place: Any, back: int) -> Any:
        return wave[place, n, r.y - back]

    left, right = hl.max(r.x - 1, 0), hl.min(r.x + 1, a.width() - 1)
    bent = at(left, 1) - 2 * at(r.x, 1) + at(right, 1)
    wave[r.x, n, r.y] = 2 * at(r.x, 1) - at(r.x, 2) + 0.1 * bent
    return Plain(wave, [(a, floats(5, 61))], (20, 5, 61), 1e-4)


def rule_30() -> Plain:
    """Steps along the innermost dimension."""
    a, cells = hl.ImageParam(U8, 1, "a"), hl.Func("cells")
    cells[t, x] = hl.select(t == 0, a[hl.clamp(x, 0, 76)] & 1, hl.u8(0))
    r = hl.RDom([(0, a.width()), (1, 29)])
    left, right = hl.max(r.x - 1, 0), hl.min(r.x + 1, a.width() - 1)
    near = [cells[r.y - 1, place] for place in (left, r.x, right)]
    cells[r.y, r.x] = near[0] ^ (near[1] | near[2])
    return Plain(cells, [(a, bytes_(77))], (77, 30))


MADE = [seams, upward_seams, heat_in_a_plane, two_fields, likeliest_paths, waves_side_by_side,
        rule_30]  # fmt: skip


@pytest.mark.parametrize("make", MADE)
def test_they_are_what_halide_computes(make: Callable[[], Plain]) -> None:
    assert SHARED in emulated(make)[0].report


@pytest.mark.parametrize("width", [1, 33, 200])
def test_rows_longer_and_shorter_than_a_block(width: int) -> None:
    sizes = {"seam": (23, 64), "a": (23, 64)}
    schedule, _ = emulated(lambda: seams(width=width), sizes=sizes)
    assert "64 threads a block" in schedule.report


def edit_distance() -> hl.Func:
    a, b, far = hl.ImageParam(U8, 1, "a"), hl.ImageParam(U8, 1, "b"), hl.Func("far")
    r = hl.RDom([(1, a.width()), (1, b.width())])
    far[x, y] = hl.select(x == 0, y, x)
    other = hl.select(a[r.x - 1] == b[r.y - 1], 0, 1)
    beside = hl.min(far[r.x - 1, r.y], far[r.x, r.y - 1]) + 1
    far[r.x, r.y] = hl.min(beside, far[r.x - 1, r.y - 1] + other)
    return far


def shortest_ways() -> hl.Func:
    """What steps are along is where nothing is stored."""
    a, way = hl.ImageParam(F32, 2, "a"), hl.Func("way")
    r = hl.RDom([(0, a.width()), (0, a.width()), (0, a.width())])
    way[x, y] = a[x, y]
    way[r.x, r.y] = hl.min(way[r.x, r.y], way[r.x, r.z] + way[r.z, r.y])
    return way


@pytest.mark.parametrize("make", [edit_distance, shortest_ways])
def test_what_reads_its_own_step_stays_with_one_thread(make: Callable[[], hl.Func]) -> None:
    report = hb.autoschedule(make(), target="sm_90a").report
    assert SHARED not in report
    assert ONE in report


def rows_and_then_all() -> Plain:
    """An update of single rows, and one of every element, which have no domain."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    out[x, y] = a[x, y]
    out[x, 0] = out[x, 0] * 2
    out[x, y] = hl.max(out[x, y], hl.f32(0.5))
    return Plain(out, [(a, floats(7, 45))], (7, 45))


def test_updates_without_a_domain_have_no_steps() -> None:
    assert SHARED not in emulated(rows_and_then_all)[0].report


def by_hand(back: int) -> hl.Func:
    """Threads of a block along rows, of which each reads its neighbour ``back`` rows before."""
    a, f = hl.ImageParam(F32, 2, "a"), hl.Func("f")
    r = hl.RDom([(1, 255), (1, 15)])
    f[x, y] = a[x, y]
    f[r.x, r.y] = f[r.x, r.y] + f[r.x - 1, r.y - back]
    xo, yo, xi, yi = (hl.Var(name) for name in ("xo", "yo", "xi", "yi"))
    block, ro, ri = hl.Var("b"), hl.RVar("ro"), hl.RVar("ri")
    f.compute_root().gpu_tile(x, y, xo, yo, xi, yi, 32, 8)
    update = f.update().allow_race_conditions().split(r.x, ro, ri, 64)
    update.split(hl.Var.outermost(), hl.Var.outermost(), block, 1)
    update.gpu_blocks(block).gpu_threads(ri)
    return f


def test_a_schedule_of_steps_may_be_written_by_hand() -> None:
    assert "for (int" in hb.compile(by_hand(1), target="sm_90a").source
    with pytest.raises(ScheduleError, match="cannot be computed by threads along its recurrence"):
        hb.compile(by_hand(0), target="sm_90a")


@pytest.mark.parametrize("make", [seams, heat_in_a_plane])
def test_threads_wait_once_a_step(make: Callable[[], Plain]) -> None:
    case = make()
    hb.autoschedule(case.outputs, target="sm_90a")
    kernel = hb.compile(case.outputs, target="sm_90a", cache=False)
    arrays: dict[str, Any] = {p.name(): value for p, value in case.arguments}
    assert kernel.source.count("__syncthreads();") == 1
    alone = kernel.source.replace("__syncthreads();", "")
    with pytest.raises(emulation.Fault):
        emulation.check(kernel, sizes=case.sizes, source=alone, **arrays)
