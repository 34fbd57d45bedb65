"""What sizes that are told decide: how often an element is read, which blocks lie beside each
other, how many threads a row or a short sum has.
"""

from __future__ import annotations

import halide as hl

import halide_bridge as hb
from halide_bridge.schedules.rows import EACH, MOST, threads_of

x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
U8, U16, F16, F32 = hl.UInt(8), hl.UInt(16), hl.Float(16), hl.Float(32)


def mixed() -> hl.Func:
    """Planes that are made of all planes of a picture."""
    raw, matrix = hl.ImageParam(U16, 3, "raw"), hl.ImageParam(F32, 2, "matrix")
    even, out, k = hl.Func("even"), hl.Func("out"), hl.RDom([(0, 3)], "k")
    even[x, y, c] = hl.f32(raw[x, y, c]) * raw[0, 0, c] / 4095
    out[x, y, c] = hl.sum(even[x, y, k] * matrix[k, c])
    return out


def test_what_few_planes_read_is_computed_by_each() -> None:
    told = hb.autoschedule(mixed(), target="sm_90a", sizes=(3, 720, 1280))
    assert "even: inside those that read it" in told.report
    assert ".gpu_blocks(c, xo, yo)" in told.source
    assert "even: in a kernel of its own" in hb.autoschedule(mixed(), target="sm_90a").report


def test_many_planes_have_blocks_of_their_own() -> None:
    told = hb.autoschedule(mixed(), target="sm_90a", sizes=(64, 720, 1280))
    assert ".gpu_blocks(xo, yo, c)" in told.source


def short_sums() -> hl.Func:
    a, out, r = hl.ImageParam(U8, 2, "a"), hl.Func("out"), hl.RDom([(0, 8), (0, 8)], "r")
    out[x, y] += hl.u16(a[8 * x + r.x, 8 * y + r.y])
    return out


def test_short_sums_have_a_thread_each_where_they_are_few() -> None:
    few = hb.autoschedule(short_sums(), target="sm_90a", sizes=(270, 480))
    many = hb.autoschedule(short_sums(), target="sm_90a", sizes=(2700, 4800))
    assert "4 rows each" not in few.report
    assert "4 rows each" in many.report


def test_two_blocks_share_a_multiprocessor_where_rows_are_only_added_up() -> None:
    assert threads_of(32000, 8, bytes_=2) == MOST
    assert threads_of(32000, 8, bytes_=2, stored=False) == EACH
    assert threads_of(50257, 8, bytes_=2, stored=False) == MOST  # it does not fit half of them


def test_terms_of_a_row_s_sum_are_multiplied_by_a_reciprocal() -> None:
    a, mean, out = hl.ImageParam(F16, 2, "a"), hl.Func("mean"), hl.Func("out")
    r = hl.RDom([(0, a.width())], "r")
    mean[y] += hl.f32(a[r, y]) / hl.f32(a.width())
    out[x, y] = hl.cast(F16, hl.f32(a[x, y]) - mean[y])
    kernel = hb.compile(out, target="sm_90a", schedule="auto", sizes={"out": (64, 1024)})
    divided = [line for line in kernel.source.splitlines() if "/ (float)" in line]
    assert divided
    assert all("= 1.0f / (float)" in line for line in divided)
