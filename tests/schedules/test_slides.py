"""Chains of stencils are one kernel, whose threads go down rows with what they still read of each
stage in registers; what would be computed too often, or does not fit, is stored as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_chains import guided_filter, opened, thin_edges
from plain_emulated import emulated
from plain_others import local_contrast
from plain_pipelines import F32, PIPELINES, U8, Plain, bytes_, floats

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
ROWS = "in registers of the threads that go down the rows"


def funcs(*names: str) -> list[Any]:
    return [hl.Func(name) for name in names]


def ratio(a: Any, at: Any) -> Any:
    """What is worth a load and a store, from some neighbours."""
    near = [a[at[0] + dx, at[1] + dy] for dx, dy in ((0, 0), (1, 0), (2, 2), (0, 1), (1, 1))]
    return hl.sqrt(near[0] * near[1] + near[2] * near[3] + 1) / (1 + near[4])


def inside_of_an_image(width: int = 131, height: int = 37) -> Plain:
    """Without a boundary condition: nothing beyond the image may be read."""
    a, (mid, out) = hl.ImageParam(F32, 2, "a"), funcs("mid", "out")
    mid[x, y] = ratio(a, (x, y))
    out[x, y] = mid[x, y] + mid[x + 1, y] * mid[x, y + 1] + mid[x + 2, y + 2]
    shape = (height - 4, width - 4)
    return Plain(out, [(a, floats(height, width))], shape, 1e-5)


def planes_of_bytes() -> Plain:
    """Along a dimension that no stencil goes along, blocks have a plane each."""
    a, (mid, out) = hl.ImageParam(U8, 3, "a"), funcs("mid", "out")
    edge, r = hl.BoundaryConditions.repeat_edge(a), hl.RDom([(-2, 5), (-1, 3)], name="r")
    mid[x, y, c] = hl.minimum(edge[x + r.x, y + r.y, c])
    out[x, y, c] = hl.maximum(mid[x + r.x, y + r.y, c])
    return Plain(out, [(a, bytes_(3, 29, 77))], (3, 29, 77), 0)


def colours_by_one_plane() -> Plain:
    """All colours of a pixel have the same factor: a thread has them all at each of its rows."""
    a, (gray, soft, out) = hl.ImageParam(F32, 3, "a"), funcs("gray", "soft", "out")
    gray[x, y] = hl.sqrt(a[x, y, 0] * a[x, y, 1] + hl.sqrt(a[x, y, 2])) / (1 + a[x, y, 1])
    soft[x, y] = sum((gray[x + dx, y + dy] for dx in range(3) for dy in range(3)), hl.f32(0))
    out[x, y, c] = a[x + 1, y + 1, c] * soft[x, y] / gray[x + 1, y + 1]
    return Plain(out, [(a, floats(3, 33, 61))], (3, 31, 59), 1e-5)


def sums_of_sums() -> Plain:
    """Sums as stages, and as what a chain ends with."""
    a, (mid, out) = hl.ImageParam(F32, 2, "a"), funcs("mid", "out")
    edge = hl.BoundaryConditions.repeat_edge(a)
    r, q = hl.RDom([(-2, 5), (-1, 3)], name="r"), hl.RDom([(-1, 3), (-2, 5)], name="q")
    mid[x, y] += edge[x + r.x, y + r.y] * edge[x + r.x, y + r.y]
    out[x, y] = hl.f32(1)
    out[x, y] += mid[x + q.x, y + q.y] / (1 + mid[x, y])
    return Plain(out, [(a, floats(43, 70))], (43, 70), 1e-5)


def of_what_is_stored() -> Plain:
    """Rows of what another kernel stores, which others read as well, stay in registers, too."""
    a, (first, mid, out) = hl.ImageParam(F32, 2, "a"), funcs("first", "mid", "out")
    edge = hl.BoundaryConditions.repeat_edge(a)
    total = hl.Func("total")
    r = hl.RDom([(0, a.width()), (0, a.height())])
    far = [hl.exp(edge[x + dx, y + dx]) for dx in (-9, -6, 6, 9)]
    first[x, y] = hl.exp(edge[x, y]) / (1 + sum(far, hl.f32(0)))
    total[()] = hl.f32(0)
    total[()] += first[r.x, r.y]
    mid[x, y] = ratio(first, (x, y - 1)) + hl.exp(first[x, y])
    near = [mid[x + dx, y + dy] for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
    out[x, y] = total[()] * sum(near, hl.f32(0))
    return Plain(out, [(a, floats(40, 65))], (40, 65), 1e-4)


WAYS = [
    (inside_of_an_image, 1),
    (planes_of_bytes, 6),
    (colours_by_one_plane, 2),
    (sums_of_sums, 3),
    (of_what_is_stored, 1),
    (PIPELINES["harris"], 9),
    (thin_edges, 3),
    (guided_filter, 13),
    (opened, 6),
    (local_contrast, 5),
]


@pytest.mark.parametrize(("make", "stages"), WAYS)
def test_it_computes_what_halide_does(make: Callable[[], Plain], stages: int) -> None:
    schedule, _ = emulated(make)
    assert schedule.report.count(ROWS) == stages, schedule.report


def test_harris_is_one_kernel() -> None:
    _, kernel = emulated(PIPELINES["harris"])
    assert kernel.source.count("__global__") == 1


@pytest.mark.parametrize(("height", "width"), [(5, 5), (8, 6), (64, 132), (133, 260)])
def test_of_any_size(height: int, width: int) -> None:
    emulated(lambda: inside_of_an_image(width, height))


def test_the_next_row_is_asked_for_by_vectors() -> None:
    """Of what is read beside a thread's own bytes, too, and as it lies in memory."""
    _, kernel = emulated(opened)
    for vector in ("u32", "uint2"):
        assert f"*({vector}*)(row_ahead" in kernel.source


def test_colours_are_at_each_row_of_a_thread() -> None:
    schedule, _ = emulated(colours_by_one_plane)
    assert ".reorder(xl, c, yl, xi, yi, xo, yo)" in schedule.source


# A stage: what it is, the taps of those before it, and how many powers it costs.
STAGE = st.tuples(
    st.sampled_from(["f32", "f32", "sum", "bool", "u8", "i16", "f16"]),
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(-3, 3), st.integers(-3, 3)),
        min_size=2, max_size=5, unique=True,
    ),
    st.integers(0, 3),
)  # fmt: skip
CHEAP_ONCE_ITS_IMAGE_IS_STORED = [
    ("f32", [(0, 1, 1), (0, -1, 0)], 3),
    ("f32", [(1, 0, -2), (0, -1, -1)], 0),
    ("f32", [(0, -1, 1), (1, 0, 0), (1, -1, 0)], 1),
    ("f32", [(1, -1, 3), (1, -2, 4)], 1),
]


def graph(stages: list[Any], height: int, width: int) -> Plain:
    """Stages of what the one before is, or of what that is made of."""
    a = hl.ImageParam(U8, 2, "a")
    made = [hl.BoundaryConditions.constant_exterior(a, hl.u8(3))]
    types = {"bool": hl.Bool(), "u8": U8, "i16": hl.Int(16), "f16": hl.Float(16), "f32": F32}
    for n, (kind, taps, powers) in enumerate(stages):
        func, value = hl.Func(f"s{n}"), hl.f32(0)
        of = [made[-1], made[max(0, len(made) - 2)]]
        if kind == "sum":
            back, dx, dy = taps[0]
            r = hl.RDom([(dx - 1, 3), (dy, 2)], name=f"r{n}")
            func[x, y] += hl.f32(of[back][x + r.x, y + r.y]) / 9
        else:
            for back, dx, dy in taps:
                value = hl.sqrt(value + hl.abs(hl.f32(of[back][x + dx, y + dy])) / 2) + value / 3
            for k in range(powers):
                value += hl.exp(-value * (k + 1)) * hl.f32(0.1)
            func[x, y] = value > 2 if kind == "bool" else hl.cast(types[kind], value)
        made.append(func)
    return Plain(made[-1], [(a, bytes_(height, width))], (height, width), 1e-2)


@given(st.lists(STAGE, min_size=2, max_size=4), st.integers(1, 80), st.integers(1, 150))
@settings(max_examples=12, deadline=None)
@example(CHEAP_ONCE_ITS_IMAGE_IS_STORED, 25, 99)
def test_any_chain(stages: list[Any], height: int, width: int) -> None:
    """With its taps anywhere, the stages stored or not."""
    emulated(lambda: graph(stages, height, width))


def report_of(out: Any, **options: Any) -> str:
    return hb.autoschedule(out, target="sm_90a", **options).report


def chain(mid_of: Callable[[Any], Any], out_of: Callable[[Any], Any]) -> str:
    a, (mid, out) = hl.ImageParam(F32, 2, "a"), funcs("mid", "out")
    mid[x, y] = mid_of(hl.BoundaryConditions.repeat_edge(a))
    out[x, y] = out_of(mid)
    return report_of(out)


def test_not_what_neighbours_would_compute_too_often() -> None:
    def long(edge: Any) -> Any:
        return sum((hl.exp(edge[x, y] * k) for k in range(4)), hl.f32(0))

    def of(mid: Any, far: int) -> Any:
        return mid[x - far, y] + mid[x + far, y] + mid[x, y - 1] + mid[x, y + 1]

    assert f"mid: {ROWS}" in chain(long, lambda mid: of(mid, 1))
    assert "mid: in a kernel of its own" in chain(long, lambda mid: of(mid, 8))


def test_not_more_rows_than_there_are_registers_for() -> None:
    def costly(edge: Any) -> Any:
        return sum((hl.exp(edge[x, y] / k) for k in range(1, 7)), hl.f32(0))

    assert f"mid: {ROWS}" in chain(costly, lambda mid: mid[x, y - 1] + mid[x, y + 1])
    assert "mid: in a kernel of its own" in chain(
        costly, lambda mid: mid[x, y - 40] + mid[x, y + 40]
    )


def test_windows_of_a_chain_add_up_rows() -> None:
    """Alone, those do that are large enough to be a chain of two."""
    edge, r = hl.BoundaryConditions.repeat_edge(hl.ImageParam(F32, 2, "a")), hl.RDom([(-1, 3)] * 2)

    def window(of: Any) -> Any:
        return hl.sum(of[x + r.x, y + r.y] * of[x + r.x, y + r.y])

    (alone, mid, out) = funcs("alone", "mid", "out")
    alone[x, y] = window(edge)
    assert "rows" not in hb.autoschedule(alone, target="sm_90a").source
    for kind in (F32, U8):
        (large,) = funcs("large")
        q = hl.RDom([(-3, 7)] * 2)
        large[x, y] = hl.minimum(hl.ImageParam(kind, 2, "a")[x + q.x, y + q.y])
        assert f"minimum_rows: {ROWS}" in report_of(large)
    mid[x, y] = hl.sqrt(edge[x + 1, y] - edge[x - 1, y])
    out[x, y] = window(mid)
    schedule = hb.autoschedule(out, target="sm_90a")
    assert f"sum_rows: {ROWS}" in schedule.report
    assert "hb.separated(" in schedule.source


def test_not_what_kernels_of_their_own_compute_as_fast() -> None:
    """Where stages take longer than to load and store them, and of bytes, which are moved soon."""

    def costly(edge: Any) -> Any:
        return sum((hl.exp(edge[x + k % 3, y + k % 2] / (k + 1)) for k in range(7)), hl.f32(0))

    assert ROWS not in chain(costly, costly)
    a, (mid, out) = hl.ImageParam(U8, 2, "a"), funcs("mid", "out")
    edge, r = hl.BoundaryConditions.repeat_edge(a), hl.RDom([(-2, 5)])
    mid[x, y] = hl.maximum(edge[x + r.x, y])
    out[x, y] = hl.maximum(mid[x, y + r.x])
    assert ROWS not in report_of(out)


def test_not_what_is_read_the_other_way_round_or_where_data_says() -> None:
    def costly(edge: Any) -> Any:
        return ratio(edge, (x, y))

    for out_of in (
        lambda mid: mid[x, y] + mid[y, x],
        lambda mid: mid[x, y] + mid[hl.clamp(hl.i32(mid[x, y]), 0, 9), y],
        lambda mid: mid[2 * x, y] + mid[2 * x + 1, y],
        lambda mid: mid[x, y] + mid[x, 0],
    ):
        assert ROWS not in chain(costly, out_of)


def test_not_an_output_and_not_what_others_read() -> None:
    a, (mid, out, sums) = hl.ImageParam(F32, 2, "a"), funcs("mid", "out", "sums")
    mid[x, y] = ratio(hl.BoundaryConditions.repeat_edge(a), (x, y))
    out[x, y] = mid[x, y - 1] + mid[x + 1, y]
    r = hl.RDom([(0, a.width())])
    sums[y] = hl.f32(0)
    sums[y] += mid[r.x, y]
    assert ROWS not in report_of([out, sums])
    again = PIPELINES["harris"]().outputs
    report = report_of([again, hb.funcs(again)["Ix"], hb.funcs(again)["Iy"]])
    assert f"Ix: {ROWS}" not in report
    assert f"Iy: {ROWS}" not in report


def test_what_is_scheduled_stays_so() -> None:
    a, (mid, out) = hl.ImageParam(F32, 2, "a"), funcs("mid", "out")
    mid[x, y] = ratio(hl.BoundaryConditions.repeat_edge(a), (x, y))
    out[x, y] = mid[x, y - 1] + mid[x + 1, y]
    xo, xi = hl.Var("xo"), hl.Var("xi")
    mid.compute_root().gpu_tile(x, xo, xi, 64)
    assert "mid: as scheduled by you" in report_of(out)


def test_short_rows_are_of_other_kernels() -> None:
    case = PIPELINES["harris"]()
    assert ROWS not in report_of(case.outputs, sizes={"harris": (4000, 40)})


def test_edges_that_divide_have_shorter_threads() -> None:
    """Others wait for those at an edge, at each of their rows."""
    case = local_contrast()
    report = report_of(case.outputs, sizes={"photo": (2160, 3840), "even": (2160, 3840)})
    assert "neighbours each down 16 rows" in report


def test_few_rows_have_shorter_threads() -> None:
    def rows(height: int) -> int:
        case = PIPELINES["harris"]()
        sizes = {"harris": (height, 3840)}
        said = hb.autoschedule(case.outputs, target="sm_90a", sizes=sizes).report
        return int(said.split(" neighbours each down ")[1].split(" rows")[0])

    assert rows(270) < rows(2160)


def test_the_row_that_a_scan_of_registers_keeps_is_not_read_before_it_is_there() -> None:
    """Poisoned memory would show in what the first rows of threads are."""
    case = PIPELINES["harris"]()
    hb.autoschedule(case.outputs, target="sm_90a", sizes={"harris": (9, 40)})
    kernel = hb.compile(case.outputs, target="sm_90a", cache=False)
    image = np.full((9, 40), 3, np.float32)
    found = np.asarray(emulation.check(kernel, input=image, sizes=image.shape))
    assert np.all(found[3:6, 3:-3] == 0)
