"""What Halide would assert at run time is refused where it is lowered, or checked at the call."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from halide_bridge.promises import PROMISES, promises_of
from halide_bridge.records import Reader
from selector.api import load_bytes
from selector.diagnostics import ArgumentError, InternalError, ScheduleError
from selector.runtime import promises

Pipeline = Any
X, Y = hl.Var("x"), hl.Var("y")


def tiles() -> Sequence[hl.Var]:
    return [hl.Var(n) for n in ("xo", "yo", "xi", "yi")]


def pair(schedule: Callable[..., Pipeline]) -> Pipeline:
    """``g = f(x) + f(x + 4)`` over ``f = 2*a`` in tiles of 32 x 8; ``schedule`` may give another
    output."""
    a, p = hl.ImageParam(hl.Float(32), 2, "a"), hl.Param(hl.Int(32), "p")
    f, g = hl.Func("f"), hl.Func("g")
    xo, yo, xi, yi = tiles()
    f[X, Y] = a[X, Y] * 2
    g[X, Y] = f[X, Y] + f[X + 4, Y]
    g.split(X, xo, xi, 32).split(Y, yo, yi, 8).reorder(xi, yi, xo, yo)
    g.gpu_blocks(xo, yo).gpu_threads(xi, yi)
    f.compute_at(g, xo).gpu_threads(X, Y)
    return schedule(f, g, a, p) or g


def stage(**bounds: Any) -> Callable[..., Pipeline]:
    def schedule(f: Any, g: Any, _a: Any, _p: Any) -> None:
        f.bound_extent(X, bounds["extent"])

    return schedule


def root(extent: int, low: int | None = None, out: int | None = None) -> Callable[..., Pipeline]:
    def schedule(f: Any, g: Any, _a: Any, _p: Any) -> None:
        f.compute_root().gpu_tile(X, Y, *tiles(), 16, 16)
        f.bound_extent(X, extent) if low is None else f.bound(X, low, extent)
        if out is not None:
            g.bound(X, 0, out)

    return schedule


def check(pipeline: Pipeline, width: int, *scalars: Any) -> None:
    """The kernel's result over an image of that width, by the interpreter."""
    image = np.random.default_rng(0).random((20, width), np.float32)
    result = hb.compile(pipeline, target="sm_80").interpret(image, *scalars)
    expected = 2 * (image[:, :-4] + image[:, 4:])
    np.testing.assert_allclose(result, expected[:, : result.shape[1]], rtol=1e-6)


def copied(extent: int, factor: int) -> Callable[..., Pipeline]:
    """A staged Func whose loops round its bound up, where Halide's own would shift inwards."""

    def schedule(f: Any, g: Any, _a: Any, _p: Any) -> None:
        f.bound_extent(X, extent).split(X, hl.Var("xc"), hl.Var("xv"), factor)
        f.vectorize(hl.Var("xv"))

    return schedule


REFUSED = {
    "staged": (stage(extent=32), "bounded to 32 elements along `x`.*and 36 are needed"),
    "root": (root(103, out=100), "bounded to 103 elements.*and 104 are needed"),
    "from": (root(104, low=1, out=100), r"\(1 to 104\), and 104 are needed \(0 to 103\)"),
    "copied in vectors": (copied(32, 8), "bounded to 32 elements along `x`"),
    "storage": (
        lambda f, g, a, p: f.bound_storage(X, 30) and None,
        "storage of `f` is bounded to 30 elements along `x`, of 36",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_broken_for_every_argument_is_refused(case: str) -> None:
    schedule, message = REFUSED[case]
    with pytest.raises(ScheduleError) as caught:
        hb.lower(pair(schedule), target="sm_80")
    assert re.search(message, caught.value.what)
    assert caught.value.where is not None
    assert caught.value.where.func == "f"
    assert caught.value.hint


def test_what_follows_a_bound_that_is_always_broken_is_not_dropped() -> None:
    """Halide leaves out what follows an assert that always fails, and the assert with it."""
    a, b = hl.ImageParam(hl.Float(16), 2, "a"), hl.ImageParam(hl.Float(16), 3, "b")
    r, sums, out = hl.RDom([(0, 16), (0, 3)], "r"), hl.Func("sums"), hl.Func("out")
    sums[X, Y] = hl.f32(0)
    sums[X, Y] += hl.f32(b[X, r.x, r.y]) * hl.f32(a[r.x, 2 * Y + r.y])
    out[X, Y] = sums[X, Y]
    xo, yo, xi, yi = tiles()
    out.split(X, xo, xi, 32).split(Y, yo, yi, 8).reorder(xi, yi, xo, yo)
    out.gpu_blocks(xo, yo).vectorize(xi).vectorize(yi)
    sums.compute_at(out, xo).vectorize(X).vectorize(Y)
    hb.store_in(sums, hb.MemoryType.WMMAAccumulator)
    sums.update().reorder(r.x, X, Y, r.y).atomic().vectorize(X).vectorize(Y).vectorize(r.x)
    sums.update().unroll(r.y)
    staged = b.in_(sums)
    staged.compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
    staged.bound_extent(staged.args()[2], 2)
    with pytest.raises(ScheduleError, match=r"bounded to 2 elements.*and 3 are needed"):
        hb.lower(out, target="sm_80")


KEPT = {
    "staged": stage(extent=36),
    "copied in vectors": copied(36, 8),
    "more": stage(extent=40),
    "root": root(104, out=100),  # tiles that are rounded up read 132, and store none of it
    "from": root(104, low=0, out=100),
    "storage": lambda f, g, a, p: f.bound_storage(X, 40) and None,
    "aligned": lambda f, g, a, p: g.align_bounds(X, 16) and None,
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept_compiles(case: str) -> None:
    check(pair(KEPT[case]), 104)
    assert not hb.lower(pair(KEPT[case]), target="sm_80").promises


def parametric(make: Callable[..., Pipeline]) -> Pipeline:
    a, p = hl.ImageParam(hl.Float(32), 2, "a"), hl.Param(hl.Int(32), "p")
    g = hl.Func("g")
    g[X, Y] = 2 * (a[X, Y] + a[X + p, Y])
    g.gpu_tile(X, Y, *tiles(), 16, 16)
    return make(g, a, p) or g


def ranged(g: Any, a: Any, p: Any) -> None:
    p.set_range(2, 5)


def even(g: Any, a: Any, p: Any) -> Pipeline:
    pipeline = hl.Pipeline(g)
    pipeline.add_requirement(p % 2 == 0, "p is even, not ", p)
    return pipeline


def divided(g: Any, a: Any, p: Any) -> Pipeline:
    h = hl.Func("h")
    h[X, Y] = hl.require(p % 2 == 0, 2 * (a[X, Y] + a[X + p, Y]), p)
    h.gpu_tile(X, Y, *tiles(), 16, 16)
    return h


def half_as_high(g: Any, a: Any, p: Any) -> None:
    a.dim(0).set_extent(a.dim(1).extent() * p * 11 / 20)


def bounded(g: Any, a: Any, p: Any) -> None:
    g.bound(X, 0, p * 10)


CHECKED = {
    "set_range": (ranged, 7, "`p` must be at most 5"),
    "set_range, from": (ranged, 1, "`p` must be at least 2"),
    "add_requirement": (even, 3, r"`\(\(p % 2\) == 0\)` is required.*p is even, not  p"),
    "require": (divided, 3, r"`\(\(p % 2\) == 0\)` is required"),
    "set_extent": (half_as_high, 3, r"`a.extent.0` must be"),
    "bound": (bounded, 3, r"`g` is bounded to \(p\*10\) elements along `x`"),
}


@pytest.mark.parametrize("case", CHECKED)
def test_what_only_the_call_knows_is_checked_there(case: str) -> None:
    make, broken, message = CHECKED[case]
    check(parametric(make), 44, 4)
    kernel = hb.compile(parametric(make), target="sm_80")
    kernel = load_bytes(kernel.to_bytes(machine_code=False))
    with pytest.raises(ArgumentError) as caught:
        kernel.interpret(np.zeros((20, 44), np.float32), broken)
    assert re.search(message, caught.value.what)


def test_a_bound_that_depends_on_the_output() -> None:
    check(pair(root(104)), 104)
    check(pair(root(104)), 64)
    with pytest.raises(ArgumentError, match="bounded to 104 elements"):
        check(pair(root(104)), 105)


def test_a_split_factor() -> None:
    def pipeline() -> Pipeline:
        a, p = hl.ImageParam(hl.Float(32), 2, "a"), hl.Param(hl.Int(32), "p")
        g, xo, xi = hl.Func("g"), hl.Var("xo"), hl.Var("xi")
        g[X, Y] = 2 * (a[X, Y] + a[X + 4, Y])
        g.split(X, xo, xi, p).gpu_blocks(Y)
        return g

    check(pipeline(), 44, 4)
    with pytest.raises(ArgumentError, match="split by p, which must be positive"):
        check(pipeline(), 44, 0)


def required(wanted: Callable[[Any, Any, Any], Any], tail: Any = hl.TailStrategy.Auto) -> Pipeline:
    """``a(x, y)`` where the condition on x, y and p holds, in pieces of 32."""
    a, p = hl.ImageParam(hl.Float(32), 2, "a"), hl.Param(hl.Int(32), "p")
    g, xo, xi = hl.Func("g"), hl.Var("xo"), hl.Var("xi")
    g[X, Y] = hl.require(wanted(X, Y, p), 2 * a[X, Y], p)
    g.split(X, xo, xi, 32, tail).gpu_blocks(xo, Y).gpu_threads(xi)
    return g


IN_LOOPS: dict[str, tuple[Callable[[Any, Any, Any], Any], int]] = {  # least p of 33 x 7 elements
    "affine": (lambda x, y, p: x + y < p, 39),
    "falling": (lambda x, y, p: -p <= 3 * y - x, 32),
    "a quotient": (lambda x, y, p: x // 2 + y % 4 <= p, 19),
    "a product": (lambda x, y, p: x * (6 - y) <= p, 192),
    "a maximum": (lambda x, y, p: hl.min(x - y, 3 * y) <= p, 18),
    "rows that move with columns": (lambda x, y, p: (x + y) - x <= p, 6),
}


@pytest.mark.parametrize("tail", ["Auto", "GuardWithIf"])
@pytest.mark.parametrize("case", IN_LOOPS)
def test_a_promise_in_loops_is_checked_exactly(case: str, tail: str) -> None:
    """The last value that keeps it is taken, the one before is not; elements that a piece has
    beyond the last are none.
    """
    wanted, least = IN_LOOPS[case]
    kernel = hb.compile(required(wanted, getattr(hl.TailStrategy, tail)), target="sm_80")
    image = np.random.default_rng(0).random((7, 33), np.float32)
    assert least == min(
        p for p in range(400)
        if all(wanted_of(case, x, y, p) for x in range(33) for y in range(7))
    )  # fmt: skip
    for made in (kernel, load_bytes(kernel.to_bytes(machine_code=False))):
        np.testing.assert_array_equal(made.interpret(image, least), 2 * image)
        with pytest.raises(ArgumentError, match="is required and does not hold"):
            made.interpret(image, least - 1)


def wanted_of(case: str, x: int, y: int, p: int) -> bool:
    return {
        "affine": x + y < p,
        "falling": -p <= 3 * y - x,
        "a quotient": x // 2 + y % 4 <= p,
        "a product": x * (6 - y) <= p,
        "a maximum": min(x - y, 3 * y) <= p,
        "rows that move with columns": y <= p,
    }[case]


def test_iterations_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "TOGETHER", 10)
    kernel = hb.compile(required(lambda x, y, p: x // 2 + y % 4 <= p), target="sm_80")
    image = np.ones((7, 33), np.float32)
    assert (kernel.interpret(image, 19) == 2).all()
    with pytest.raises(ArgumentError):
        kernel.interpret(image, 18)


def test_specialize_fail() -> None:
    with pytest.raises(ScheduleError, match=r"no specialization .* only for four"):
        hb.lower(parametric(lambda g, a, p: g.specialize_fail("only for four")), target="sm_80")


def test_a_requirement_on_data() -> None:
    def pipeline(g: Any, a: Any, p: Any) -> Pipeline:
        h = hl.Func("h")
        h[X, Y] = hl.require(a[X, Y] < 3, a[X, Y], p)
        h.gpu_tile(X, Y, *tiles(), 16, 16)
        return h

    with pytest.raises(ScheduleError, match="is required and does not hold"):
        hb.lower(parametric(pipeline), target="sm_80")


def test_an_assert_of_no_known_kind() -> None:
    with pytest.raises(InternalError, match="halide_error_new"):
        promises_of([("halide_error_new", (), 0, (), -1)], Reader([], str, frozenset()), (), (), "")  # type: ignore[arg-type]
    assert all(kind == "require" or kind.startswith("halide_error_") for kind in PROMISES)
