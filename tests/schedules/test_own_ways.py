"""Programs for which the compiler's own schedule was none before: Halide or the emitter refused it,
or a call of another size did, or the kernel computed something else.
"""

from __future__ import annotations

from collections.abc import Callable

import emulation
import halide as hl
import numpy as np
import pytest
from plain_pipelines import F32, I32, U8, Plain, bytes_, floats
from test_plain_pipelines import by_halide, close

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

I16 = hl.Int(16)
x, y = hl.Var("x"), hl.Var("y")
PROGRAMS: dict[str, Callable[[], Plain]] = {}


def program(make: Callable[[], Plain]) -> Callable[[], Plain]:
    PROGRAMS[make.__name__] = make
    return make


def image(kind: hl.Type, dimensions: int = 2, name: str = "a") -> hl.ImageParam:
    return hl.ImageParam(kind, dimensions, name)


@program
def rows_of_no_whole_vectors_with_zeros_around() -> Plain:
    """Halide asks of all lanes of a vector at once whether they are in the row."""
    a, total, out = image(I32), hl.Func("total"), hl.Func("out")
    r = hl.RDom([(0, 34)], "r")
    total[y] += hl.BoundaryConditions.constant_exterior(a, 0)[r, y // 2]
    out[x, y] = total[y] + x
    return Plain(out, [(a, bytes_(9, 31).astype(np.int32))], (17, 5))


@program
def the_total_of_three_open_rows() -> Plain:
    a, total, out = image(I32), hl.Func("total"), hl.Func("out")
    r = hl.RDom([(0, a.width()), (0, 3)], "r")
    total[()] += a[r.x, r.y]
    out[x] = total[()] + x
    return Plain(out, [(a, bytes_(3, 71).astype(np.int32))], (5,))


@program
def a_column_that_is_added_to() -> Plain:
    """An update of some elements is no sum over a domain."""
    a, f, out = image(I32), hl.Func("f"), hl.Func("out")
    f[x, y] = a[x, y] * 3
    f[2, y] += a[1, y]
    out[x, y] = f[x, y] + f[hl.clamp(x - 1, 0, 20), y]
    return Plain(out, [(a, bytes_(7, 21).astype(np.int32))], (7, 21))


@program
def a_histogram_looked_up_beyond_an_edge() -> Plain:
    """Which of its elements are read depends on whether something is outside."""
    a, b, counts = image(U8), image(I16, 1, "b"), hl.Func("counts")
    r, out = hl.RDom(a), hl.Func("out")
    around = hl.BoundaryConditions.constant_exterior(b, 0)
    counts[x] = hl.u32(0)
    counts[hl.clamp(hl.i32(a[r.x, r.y]), 0, 15)] += 1
    out[x, y] = hl.i32(counts[hl.clamp(hl.i32(around[y + 2]), 0, 15)]) + x
    data = [(a, bytes_(20, 30) // 8), (b, np.arange(-4, 12, dtype=np.int16))]
    return Plain(out, data, (19, 5))


def sum_of(
    term: Callable[[hl.ImageParam, hl.Expr], hl.Expr], length: int, results: int, terms: int
) -> Plain:
    """Of numbers in one row, for each ``y``."""
    a, total, r = image(F32, 1), hl.Func("total"), hl.RDom([(0, terms)], "r")
    total[y] += term(a, r.x)
    out = hl.Func("out")
    out[y] = total[y] * 2
    return Plain(out, [(a, floats(length))], (results,), 1e-4)


@program
def all_pairs() -> Plain:
    """Of the elements in shared memory one is another for each result."""
    return sum_of(lambda a, r: hl.abs(a[r] - a[y]), 500, 500, 500)


@program
def beginning_and_what_follows() -> Plain:
    return sum_of(lambda a, r: a[r] * a[r + y], 900, 400, 500)


@program
def what_follows_and_itself() -> Plain:
    """The last neighbour is one more than the sum has terms."""
    return sum_of(lambda a, r: hl.abs(a[r + y + 1] - a[y]), 1300, 1200, 64)


@program
def lags_of_several_blocks() -> Plain:
    """Was refused at the call with more than 128."""
    a, out = image(F32), hl.Func("out")
    r = hl.RDom([(0, a.width() - 300)], "r")
    out[x, y] += a[r, y] * a[r + x, y]
    return Plain(out, [(a, floats(3, 300 + 77))], (3, 300), 1e-4)


@program
def a_minimum_that_begins_elsewhere() -> Plain:
    """What a sum begins with is read of the same image, and lies apart from its window."""
    a, least = image(F32), hl.Func("least")
    edge, out = hl.BoundaryConditions.mirror_image(a), hl.Func("out")
    r = hl.RDom([(-1, 5), (-2, 4)], "r")
    least[x, y] = edge[2 * x - 1, 2 * y + 1]
    least[x, y] = hl.min(least[x, y], edge[35 - (x + r.x), y + r.y] * 3)
    out[x, y] = least[x, y] + 1
    return Plain(out, [(a, floats(36, 61))], (36, 61))


@program
def a_sum_in_runs_that_begins_with_its_pixel() -> Plain:
    """What is staged for each run of a sum is not there when it begins."""
    a, total, out = image(F32), hl.Func("total"), hl.Func("out")
    edge, r = hl.BoundaryConditions.repeat_edge(a), hl.RDom([(0, a.width())], "r")
    total[x, y] = edge[x, y]
    total[x, y] += edge[r, x] * edge[r, y]
    out[x, y] = total[x, y]
    return Plain(out, [(a, floats(40, 70))], (40, 50))


@program
def a_value_of_two_that_nobody_reads() -> Plain:
    """Halide's own lowering crashes where only that reads a sum."""
    a, scanned, least, both, out = image(I32), *(hl.Func(n) for n in ["s", "least", "both", "out"])
    q, r = hl.RDom([(1, 3)], "q"), hl.RDom([(0, 3)], "r")
    scanned[x, y] = a[x, y] * 3
    scanned[q, y] += scanned[q - 1, y]
    least[x, y] = scanned[x, y]
    least[x, y] = hl.min(least[x, y], scanned[x + r, y] * 2)
    both[x, y] = (a[hl.clamp(least[x, y], 0, 3), y], scanned[x, y] + 1)
    out[x, y] = both[x, y][1] * 2
    return Plain(out, [(a, bytes_(10, 40).astype(np.int32))], (9, 20))


@program
def rows_that_are_clamped_beside_whole_ones() -> Plain:
    """Clamped elements were read as neighbours: wrong, and at addresses that vectors must not
    have.
    """
    a, smooth, least = image(F32), hl.Func("smooth"), hl.Func("least")
    edge, out = hl.BoundaryConditions.repeat_edge(a), hl.Func("out")
    t, r = hl.RDom([(-2, 3), (-2, 3)], "t"), hl.RDom([(0, 93)], "r")
    smooth[x, y] = hl.sqrt(edge[x, y // 2] + 1)
    smooth[x, y] += hl.max(edge[x + t.x, y + t.y], edge[hl.clamp(x, 3, 50), y + t.y])
    least[y] = hl.f32(100)
    least[y] = hl.min(least[y], edge[hl.clamp(r.x, 1, 30), y] + smooth[r.x, y - 3])
    out[x, y] = least[hl.clamp(y, 0, 31)] + smooth[x, y]
    return Plain(out, [(a, floats(32, 93))], (32, 93), 1e-5)


def sum_where(condition: hl.Expr, taps: int, otherwise: float) -> Plain:
    """Halide computes no sum where a condition says that it is not read."""
    a, total, out = image(F32), hl.Func("total"), hl.Func("out")
    r = hl.RDom([(0, taps)], "r")
    total[x, y] += a[x + r, y]
    out[x, y] = hl.select(condition, total[x, y], otherwise)
    return Plain(out, [(a, floats(30, 50 + taps))], (30, 50))


@program
def sums_below_a_diagonal() -> Plain:
    return sum_where(x > y, 3, 0.0)


@program
def long_sums_below_a_diagonal() -> Plain:
    return sum_where((x >= y) & (y < 20), 30, -1.0)


@program
def sums_behind_a_border() -> Plain:
    return sum_where(x >= 3, 3, 1.0)


@program
def rows_of_which_some_are_scaled() -> Plain:
    a, total, out = image(F32), hl.Func("total"), hl.Func("out")
    r = hl.RDom([(0, a.width())], "r")
    total[y] += a[r, y]
    out[x, y] = hl.select(y > 9, a[x, y] / total[y], a[x, y])
    return Plain(out, [(a, floats(30, 70))], (30, 70))


@program
def a_filter_that_is_read_backwards() -> Plain:
    """Where its tiles begin follows from the output's size."""
    a, weights = image(I32), image(I32, name="weights")
    around, f, out = hl.BoundaryConditions.repeat_edge(a), hl.Func("f"), hl.Func("out")
    r = hl.RDom([(0, 16), (0, 8)], "r")
    f[x, y] += weights[r.x, r.y] * around[x + r.x - 8, y + r.y]
    out[x, y] = f[7 - x, y] + f[x, y]
    arrays = [(a, bytes_(20, 50).astype(np.int32)), (weights, bytes_(8, 16).astype(np.int32))]
    return Plain(out, arrays, (18, 45))


@program
def products_of_the_rows_and_columns_of_one_func() -> Plain:
    """It is stored, and a block of threads has one part of it for its rows, one for its columns."""
    a, f, g, out = image(U8), hl.Func("f"), hl.Func("g"), hl.Func("out")
    around = hl.BoundaryConditions.repeat_edge(a)
    r, q = hl.RDom([(-1, 3), (-2, 3)], "r"), hl.RDom([(0, 32)], "q")
    f[x, y] += hl.i32(around[x + r.x, y + r.y])
    g[x, y] += f[q.x, y] * f[x, q.x]
    out[x, y] = hl.select(x > y, f[hl.clamp(x, 1, 8), y] + g[x, y], 1)
    return Plain(out, [(a, bytes_(22, 10))], (22, 10))


@program
def long_columns_of_one_channel_of_pixels() -> Plain:
    """A block's part of it is no copy of neighbours: they are three elements apart."""
    a, weights, f, out = image(U8, 3), image(U8, 1, "weights"), hl.Func("f"), hl.Func("out")
    a.dim(0).set_stride(3)
    a.dim(2).set_stride(1).set_bounds(0, 3)
    r = hl.RDom([(0, 21)], "r")
    f[x, y] += hl.i32(weights[r]) * hl.i32(hl.BoundaryConditions.repeat_edge(a)[x, y + r, 2])
    out[x, y] = f[x, y] + f[x, y + 1]
    pixels = np.ascontiguousarray(bytes_(30, 60, 3)).transpose(2, 0, 1)
    return Plain(out, [(a, pixels), (weights, bytes_(21))], (30, 60))


@program
def products_of_the_rows_and_columns_of_what_has_a_kernel_of_its_own() -> Plain:
    """What a block has of it for its columns reads it, and does not compute it again."""
    a, f, g, out = image(I32), hl.Func("f"), hl.Func("g"), hl.Func("out")
    around = hl.BoundaryConditions.repeat_edge(a)
    q, s = hl.RDom([(0, 40)], "q"), hl.RDom([(1, 9)], "s")
    f[x, y] = around[x, y] + around[x + 1, y]
    f[x, s] = f[x, s] + f[x, s - 1]
    g[x, y] += f[q.x, y] * f[x, q.x]
    out[x, y] = g[x, y] + f[x, y]
    return Plain(out, [(a, bytes_(45, 47).astype(np.int32) & 7)], (45, 47))


@program
def a_product_behind_a_condition_that_is_never_true() -> Plain:
    """Halide leaves it out, with what its kernel was asked for."""
    a, b, f, out = image(U8), image(U8, name="b"), hl.Func("f"), hl.Func("out")
    r = hl.RDom([(0, 32)], "r")
    f[x, y] += hl.i32(a[r, y]) * hl.i32(b[x, r])
    out[x, y] = hl.select(y < 0, f[x, y] + f[x + 1, y], hl.i32(a[x, y]))
    return Plain(out, [(a, bytes_(35, 40)), (b, bytes_(32, 41))], (35, 40))


@program
def the_largest_of_the_least_in_two_tiles() -> Plain:
    """Tiles of what is read begin at -2, or before it where those of the second one say so."""
    a, least, out, r = image(U8), hl.Func("least"), hl.Func("out"), hl.RDom([(-2, 5), (-2, 5)], "r")
    around = hl.BoundaryConditions.repeat_edge(a)
    least[x, y] = hl.minimum(around[x + r.x, y + r.y])
    out[x, y] = hl.maximum(least[x + r.x, y + r.y])
    return Plain(out, [(a, bytes_(20, 300))], (20, 300))


@program
def differences_at_few_shifts() -> Plain:
    """Nine of them, from -4 on: tiles that begin at a multiple of what is staged are two."""
    a, b, off, out, s = image(U8), image(U8, name="b"), hl.Func("off"), hl.Func("out"), hl.Var("s")
    around, r = hl.BoundaryConditions.repeat_edge(b), hl.RDom([(0, 16), (0, 16)], "r")
    across, down, shift = x * 16 + r.x, y * 16 + r.y, hl.RDom([(-4, 9)], "shift")
    off[s, x, y] += hl.i32(hl.absd(a[across, down], around[across + s, down]))
    out[x, y] = hl.minimum(off[shift, x, y])
    return Plain(out, [(a, bytes_(32, 640)), (b, bytes_(32, 640)[:, ::-1].copy())], (2, 40))


@program
def a_filter_of_which_every_second_column_is_read() -> Plain:
    """Its first tile begins at -1: the last columns of it were nobody's."""
    a, weights = image(I32), image(I32, name="weights")
    around, f, out = hl.BoundaryConditions.repeat_edge(a), hl.Func("f"), hl.Func("out")
    r = hl.RDom([(0, 8), (0, 21)], "r")
    f[x, y] += weights[r.x, r.y] * around[x + r.x - 4, y + r.y]
    out[x, y] = f[x * 2 - 1, 11 - y]
    arrays = [(a, bytes_(12, 126).astype(np.int32)), (weights, bytes_(21, 8).astype(np.int32))]
    return Plain(out, arrays, (12, 126))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_halide_does(name: str) -> None:
    case = PROGRAMS[name]()
    hb.autoschedule(case.outputs, target="sm_90a")
    kernel = hb.compile(case.outputs, target="sm_90a", cache=False)
    (wanted,) = by_halide(PROGRAMS[name]())
    arrays = {p.name(): value for p, value in case.arguments}
    for found in (
        kernel.interpret(sizes=case.sizes, **arrays),
        emulation.check(kernel, sizes=case.sizes, **arrays),
    ):
        assert close(np.asarray(found), wanted, case.tolerance)


def test_an_argument_may_be_scheduled_in_two_pipelines() -> None:
    """What a copy of it is made for in the first has no say in the second."""
    a, r = image(F32, 1), hl.RDom([(0, 500)], "r")
    for moved in (y, r.x + y):
        total, out = hl.Func("total"), hl.Func("out")
        total[y] += a[r.x] * a[moved]
        out[y] = total[y]
        assert "hb.clone(" in hb.autoschedule(out, target="sm_90a").source


def test_what_says_where_is_not_written_out_in_all_that_is_read_there() -> None:
    """A place that takes long to compute, in something with many elements: the text would be four
    megabytes.
    """
    a, near, place, out = image(U8), hl.Func("near"), hl.Func("place"), hl.Func("out")
    edge = hl.BoundaryConditions.mirror_image(a)
    near[x, y] = sum((hl.i32(edge[x + d, 2 * y - d]) * d for d in range(-3, 4)), hl.i32(0))
    place[x, y] = near[y, x] / 2 + near[x, 2 * y + 1]
    out[x, y] = near[hl.clamp(place[x, y], 0, 15), x]
    hb.autoschedule(out, target="sm_90a")
    assert len(hb.compile(out, target="sm_90a", cache=False).source) < 200_000


def test_code_that_compilers_of_c_take_minutes_for_is_not_taken() -> None:
    """Halide's search stores a boundary of unknown size in the middle, whose strides are long."""
    a, b = image(F32), image(hl.Int(8), 2, "b")
    near, edge = (
        hl.BoundaryConditions.mirror_interior(a),
        hl.BoundaryConditions.mirror_image(b),
    )
    apart, mixed, other, out = (hl.Func(name) for name in ["apart", "mixed", "other", "out"])
    apart[x, y] = near[hl.clamp(x, 1, 125), y + 2] - near[x // 2, y]

    def byte(e: hl.Expr) -> hl.Expr:
        return hl.u8(hl.clamp(e * 4, 0, 100))

    half = hl.u8(edge[(x + 1) // 2, y])
    mixed[x, y] = (
        (half & byte(apart[x, y])) - hl.min(half, byte(near[x, y])) + byte(near[x + 2, y])
        + hl.min(hl.u8(edge[x, (y + 1) // 2]), byte(apart[x, y]))
        + hl.u8(edge[(x + 1) // 2, y * 2 + 1])
    )  # fmt: skip
    other[x, y] = hl.u16(hl.absd(byte(apart[x, y * 2 - 1]), hl.u8(edge[x, hl.clamp(y, 1, 2)])))
    out[x, y] = hl.f32(other[x, y]) + hl.f32(mixed[x, y]) * 0.5
    schedule = hb.autoschedule(out, target="amx")
    assert "characters, which takes long to compile" in schedule.report
    assert len(hb.compile(out, target="amx", cache=False).source) < 100_000
