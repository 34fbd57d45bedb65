"""Short inner dimensions that are only told: a thread has all of them where their elements share
what is computed, and any other size is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import ceil, prod
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from plain_pipelines import F32, U8, Plain, bytes_, floats
from test_plain_pipelines import by_halide, close

import halide_bridge as hb
from selector.ir.evaluator import evaluate_scalar
from selector.ir.traverse import free_vars

pytestmark = pytest.mark.verified("tests/emulation")

x, y, c, n, i, j = (hl.Var(name) for name in "xycnij")


def lab(wide: int = 33) -> Plain:
    """Three numbers of a pixel that share six powers."""
    a, out = hl.ImageParam(U8, 3, "a"), hl.Func("out")
    linear = [hl.f32(a[k, x, y]) / 255 for k in range(3)]
    linear = [
        hl.select(v <= hl.f32(0.04), v / hl.f32(12.92), hl.pow(v * hl.f32(0.95), hl.f32(2.4)))
        for v in linear
    ]
    mixed = [
        linear[k] * hl.f32(0.5)
        + linear[(k + 1) % 3] * hl.f32(0.25)
        + linear[(k + 2) % 3] * hl.f32(0.125)
        for k in range(3)
    ]
    roots = [
        hl.select(v > hl.f32(0.01), hl.pow(v, hl.f32(0.375)), v * 8 + hl.f32(0.125)) for v in mixed
    ]
    l, a_, b = roots[1] * 116 - 16, (roots[0] - roots[1]) * 500, (roots[1] - roots[2]) * 200  # noqa: E741
    out[c, x, y] = hl.select(c == 0, l, c == 1, a_, b)
    return Plain(out, [(a, bytes_(11, wide, 3))], (11, wide, 3), 1e-3)


def decoded(wide: int = 62) -> Plain:
    """Three bytes of a pixel, of brightness and of two colours of half the size."""
    luma, u, out = hl.ImageParam(U8, 2, "luma"), hl.ImageParam(U8, 2, "u"), hl.Func("out")
    bright, shift = hl.i32(luma[x, y]) * 298, hl.i32(u[x / 2, y / 2]) - 128
    green = bright - 100 * shift
    out[c, x, y] = hl.u8_sat(hl.select(c == 0, bright, c == 1, green, bright + 516 * shift) >> 8)
    arrays = [(luma, bytes_(34, wide)), (u, bytes_(17, (wide + 1) // 2, seed=1))]
    return Plain(out, arrays, (34, wide, 3))


def inverses(count: int = 41) -> Plain:
    a, out = hl.ImageParam(F32, 3, "a"), hl.Func("out")

    def at(row: Any, column: Any) -> Any:
        return a[column % 3, row % 3, n]

    parts = [
        at(0, k) * (at(1, k + 1) * at(2, k + 2) - at(1, k + 2) * at(2, k + 1)) for k in range(3)
    ]
    own = at(j + 1, i + 1) * at(j + 2, i + 2) - at(j + 1, i + 2) * at(j + 2, i + 1)
    out[j, i, n] = own / (parts[0] + parts[1] + parts[2])
    matrices = floats(count, 3, 3) + 2 * np.eye(3, dtype=np.float32)
    return Plain(out, [(a, matrices)], (count, 3, 3), 1e-3)


def products(count: int = 53) -> Plain:
    a, b, out = hl.ImageParam(F32, 3, "a"), hl.ImageParam(F32, 3, "b"), hl.Func("out")
    r = hl.RDom([(0, 4)], "r")
    out[j, i, n] = hl.f32(0)
    out[j, i, n] += a[r, i, n] * b[j, r, n]
    arrays = [(a, floats(count, 6, 4)), (b, floats(count, 4, 6, seed=1))]
    return Plain(out, arrays, (count, 4, 4), 1e-4)


def attracted(count: int = 75) -> Plain:
    """A sum for each axis, whose terms have one root."""
    p, m, out = hl.ImageParam(F32, 2, "p"), hl.ImageParam(F32, 1, "m"), hl.Func("out")
    r = hl.RDom([(0, m.dim(0).extent())], "r")
    apart = [p[k, r] - p[k, i] for k in range(3)]
    near = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2] + hl.f32(0.125)
    root = hl.fast_inverse_sqrt(near)
    out[c, i] = hl.f32(0)
    out[c, i] += m[r] * (p[c, r] - p[c, i]) * root * root * root
    return Plain(out, [(p, floats(count, 6)), (m, floats(count))], (count, 3), 1e-3)


def scaled(count: int = 45) -> Plain:
    """What reads a sum, and scales all channels alike."""
    a, out, total = hl.ImageParam(F32, 2, "a"), hl.Func("out"), hl.Func("total")
    r = hl.RDom([(0, 5)], "r")
    total[i] = hl.f32(0)
    total[i] += hl.exp(a[r, i])
    out[c, i] = a[c, i] / (total[i] + hl.exp(a[0, i]) + 1)
    return Plain(out, [(a, floats(count, 6))], (count, 3), 1e-4)


def doubled(count: int = 301, held: int = 6) -> Plain:
    """Points, whose elements share nothing but vectors; in memory there are so many of each."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    out[c, x] = a[c, x] * 2 + 1
    return Plain(out, [(a, floats(count, held))], (count, 3))


def swapped(count: int = 301) -> Plain:
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    out[c, x] = a[hl.max(2 - c, 0), x]
    return Plain(out, [(a, bytes_(count, 3))], (count, 3))


TOLD: dict[Callable[..., Plain], tuple[int, ...]] = {
    lab: (3000, 4000, 3), decoded: (3000, 4000, 3), inverses: (1000000, 3, 3),
    products: (1000000, 4, 4), attracted: (16384, 3), scaled: (1000000, 3),
    doubled: (1000000, 3), swapped: (1000000, 3),
}  # fmt: skip
RAGGED = {lab: (32, 33, 130), decoded: (62, 130, 512, 1), inverses: (1, 300), products: (1, 257),
    doubled: (1, 1027), swapped: (1, 16, 4096, 4099),
}  # fmt: skip


@cache
def compiled(make: Callable[..., Plain]) -> tuple[hb.Schedule, Any]:
    case = make()
    schedule = hb.autoschedule(case.outputs, target="sm_90a", sizes=TOLD[make])
    return schedule, hb.compile(case.outputs, target="sm_90a", name="short", cache=False)


def check(make: Callable[..., Plain], case: Callable[[], Plain], sizes: Any = None) -> None:
    own = case()
    arrays = {p.name(): value for p, value in own.arguments}
    found = emulation.check(compiled(make)[1], sizes=sizes or own.sizes, **arrays)
    (wanted,) = by_halide(replace(case(), sizes=sizes or own.sizes))
    assert close(np.asarray(found), wanted, own.tolerance)


@pytest.mark.parametrize("make", TOLD)
def test_what_is_told(make: Callable[..., Plain]) -> None:
    check(make, make)


@pytest.mark.parametrize(("make", "count"), [(m, n) for m, found in RAGGED.items() for n in found])
def test_ragged_rows(make: Callable[..., Plain], count: int) -> None:
    check(make, lambda: make(count))


@pytest.mark.parametrize("count", [1, 3, 1024, 1027, 4096])
def test_points_without_gaps(count: int) -> None:
    check(doubled, lambda: doubled(count, 3))


@pytest.mark.parametrize("channels", [1, 2, 4, 5])
@pytest.mark.parametrize("make", TOLD)
def test_other_sizes_than_told_are_right(make: Callable[..., Plain], channels: int) -> None:
    check(make, make, (*make().sizes[:-1], channels))


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("make", [inverses, products])
def test_other_matrices_than_told_are_right(make: Callable[..., Plain], rows: int) -> None:
    first, _, last = make().sizes
    check(make, make, (first, rows, last))


@pytest.mark.parametrize("make", TOLD)
def test_the_source_gives_the_same_program(make: Callable[..., Plain]) -> None:
    schedule, kernel = compiled(make)
    again = make().outputs
    exec(schedule.source, {"hb": hb, "hl": hl, "output": again})
    assert hb.compile(again, target="sm_90a", name="short", cache=False).source == kernel.source


def way(make: Callable[..., Plain]) -> str:
    """The text of the kernel for what is told."""
    parts = compiled(make)[1].source.split('extern "C"')
    assert len(parts) == 3
    return parts[1]


def test_a_thread_computes_what_channels_share_once() -> None:
    assert way(lab).count("powf(") == 6
    assert way(attracted).count("rsqrtf(") == 1
    assert way(products).count("a_2[") == 4  # of each of four turns
    assert way(products).count("b_2[") == 4


def test_the_report_says_when() -> None:
    assert "out: in a kernel of its own, 32 x 8 threads where c is 3, else" in report(lab)
    assert "32 x 8 threads, 8 neighbours each where c is 3, else 4 x 1" in report(decoded)
    assert "256 threads where j is 3 and i is 3, else" in report(inverses)
    assert "256 threads where j is 4 and i is 4, else" in report(products)
    assert "256 threads, 4 outputs each where c is 3, else" in report(doubled)
    assert "256 threads, 16 outputs each where c is 3, else" in report(swapped)


def report(make: Callable[..., Plain]) -> str:
    return compiled(make)[0].report


def test_declared_channels_have_no_other_way() -> None:
    case = lab()
    case.outputs.bound(c, 0, 3)
    schedule = hb.autoschedule(case.outputs, target="sm_90a")
    assert "32 x 8 threads" in schedule.report
    assert "unroll(c)" in schedule.source
    assert "specialize" not in schedule.source
    kernel = hb.compile(case.outputs, target="sm_90a", cache=False)
    assert kernel.source.count("powf(") == 6
    arrays = {p.name(): value for p, value in case.arguments}
    (wanted,) = by_halide(lab())
    assert close(emulation.check(kernel, sizes=case.sizes, **arrays), wanted, case.tolerance)


def test_declared_elements_of_a_sum_have_no_other_way() -> None:
    case = products()
    case.outputs.bound(j, 0, 4).bound(i, 0, 4)
    schedule = hb.autoschedule(case.outputs, target="sm_90a", sizes=TOLD[products])
    assert "specialize" not in schedule.source
    kernel = hb.compile(case.outputs, target="sm_90a", cache=False)
    arrays = {p.name(): value for p, value in case.arguments}
    (wanted,) = by_halide(products())
    assert close(emulation.check(kernel, sizes=case.sizes, **arrays), wanted, case.tolerance)


@pytest.mark.parametrize("make", [inverses, products])
@pytest.mark.parametrize("declared", [0, 1])
def test_one_is_declared_and_one_told(make: Callable[..., Plain], declared: int) -> None:
    case, told = make(), TOLD[make]
    out, arg = case.outputs, (j, i)[declared]
    out.bound(arg, 0, told[-1])
    schedule = hb.autoschedule(out, target="sm_90a", sizes=told)
    other = (i, j)[declared].name()
    assert f"256 threads where {other} is {told[-1]}, else" in schedule.report
    kernel = hb.compile(out, target="sm_90a", cache=False)
    arrays = {p.name(): value for p, value in case.arguments}
    for extent in (told[-1], 1, 5):
        sizes = [*case.sizes]
        sizes[1 + declared] = extent
        (wanted,) = by_halide(replace(make(), sizes=tuple(sizes)))
        found = emulation.check(kernel, sizes=tuple(sizes), **arrays)
        assert close(np.asarray(found), wanted, case.tolerance)


def elementwise() -> hl.Func:
    a, b, out = hl.ImageParam(F32, 3, "a"), hl.ImageParam(F32, 3, "b"), hl.Func("out")
    out[j, i, n] = a[j, i, n] * b[j, i, n]
    return out


def test_elements_that_share_nothing_have_threads_of_their_own() -> None:
    """Beside few columns a block has many matrices, not rows that there are not."""
    schedule = hb.autoschedule(elementwise(), target="sm_90a", sizes=(1000000, 3, 3))
    assert "specialize" not in schedule.source
    assert "split(j, xo, xi, 4).split(n, yo, yi, " in schedule.source


def test_the_first_call_tells() -> None:
    case = inverses()
    kernel: Any = hb.compile(case.outputs, target="sm_90a", schedule="auto")
    arrays = {p.name(): value for p, value in case.arguments}
    kernel.interpret(sizes=case.sizes, **arrays)
    assert kernel.program(sizes=case.sizes, **arrays).source.count('extern "C"') == 2
    assert [str(found) for found in kernel.size_classes] == ["out: 32 x 4 x 4"]
    found = kernel.interpret(sizes=(41, 4, 5), **arrays)  # of the same class
    (wanted,) = by_halide(replace(inverses(), sizes=(41, 4, 5)))
    assert close(found, wanted, case.tolerance)


def blocks(kernel: Any, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Along x, y and z, of the launch for an output of certain sizes."""
    (launch,) = kernel.plan.launches
    names = frozenset[str]().union(*map(free_vars, launch.grid))
    env = {
        f"{name.split('.')[0]}.extent.{d}": s for d, s in enumerate(sizes[::-1]) for name in names
    }
    return tuple(evaluate_scalar(e, env) for e in launch.grid)


@pytest.mark.parametrize("count", [1000, 200000])
def test_the_longest_loop_over_blocks_is_along_x(count: int) -> None:
    """A grid has 65535 blocks at most along y, and along z."""
    out, sizes = elementwise(), (count, 20, 40)
    hb.autoschedule(out, target="sm_90a", sizes=sizes)
    kernel = hb.compile(out, target="sm_90a", cache=False)
    found = blocks(kernel, sizes)
    assert max(found[1:]) <= 65535
    assert (found[0] == count // 2) == (count > 65535)  # two of them are threads
    assert prod(found) >= count // 2 * ceil(20 / 8)
    a, b = floats(5, 20, 40), floats(5, 20, 40, seed=1)
    assert np.array_equal(emulation.check(kernel, sizes=a.shape, a=a, b=b), a * b)
