"""Copies into shared memory: all threads take part where nothing forbids it, and what they cost is
said."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl
from emulation import run

import halide_bridge as hb
from selector.api import Kernel, load_bytes
from selector.diagnostics import PerformanceWarning
from selector.gpu.codegen.copies.costs import _conflicts
from selector.runtime.plan import CopyLimit

pytestmark = pytest.mark.verified

F16 = hl.Float(16)
X, Y, U, T = (hl.Var(n) for n in ("x", "y", "u", "t"))
Read = Callable[[Any, Any], Any]
Copied = Callable[[Any], Any]


def staged(
    copied: Copied | None,
    read: Read = lambda a, _: a[X, Y],
    otherwise: Callable[[Any, Any, Any, Any], None] | None = None,
) -> hl.Func:
    """Tiles of 64 x 64 of a product by four warps, the rows of its left factor staged in shared
    memory as ``copied`` schedules it, or scheduled ``otherwise`` with its consumer, the output and
    the loop over blocks."""
    a, b = hl.ImageParam(F16, 2, "a"), hl.ImageParam(F16, 2, "b")
    mm, out, stage, part = (hl.Func(n) for n in ("mm", "out", "stage", "part"))
    xo, xi, yo, yi, yw, v = (hl.Var(n) for n in ("xo", "xi", "yo", "yi", "yw", "v"))
    r, q = hl.RDom([(0, 64)], "r"), hl.RDom([(0, 3)], "q")
    part[X, Y] = hl.f32(0)
    part[X, Y] += hl.f32(a[X + q, Y])
    stage[X, Y] = hl.cast(F16, read(a, part))
    mm[X, Y] = hl.f32(0)
    mm[X, Y] += hl.f32(stage[r, Y]) * hl.f32(b[X, r])
    out[X, Y] = mm[X, Y]
    out.bound(X, 0, 64)
    out.split(X, xo, xi, 64).split(Y, yo, yi, 64).split(yi, yw, yi, 16).split(xi, xi, v, 16)
    out.reorder(v, yi, xi, yw, xo, yo).vectorize(v).vectorize(yi).gpu_blocks(xo, yo)
    out.gpu_threads(yw)
    mm.compute_at(out, xi).vectorize(X).vectorize(Y)
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    mm.update().split(r, ro, ri, 16).reorder(ri, X, Y, ro).atomic()
    mm.update().vectorize(ri).vectorize(X).vectorize(Y)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    if otherwise is not None:
        otherwise(stage, mm, out, xo)
    if copied is not None:
        stage.compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
        copied(stage)
    part.compute_at(stage, X)
    return out


def compiled(copied: Copied, read: Read = lambda a, _: a[X, Y]) -> tuple[Kernel, list[str]]:
    """The kernel, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel = hb.compile(staged(copied, read), target="sm_80")
    return kernel, [str(w.message) for w in caught if w.category is PerformanceWarning]


COPIED: dict[str, Copied] = {
    "no threads": lambda s: s,
    "columns": lambda s: s.split(X, X, U, 8).vectorize(U).gpu_threads(X),
    "rows": lambda s: s.split(X, X, U, 8).vectorize(U).gpu_threads(Y),
    "single": lambda s: s.gpu_threads(X),
    "12 threads": lambda s: s.split(X, X, U, 8).vectorize(U).split(Y, Y, T, 12).gpu_threads(T),
    "12, outside": lambda s: s.split(Y, Y, T, 12).reorder(X, Y, T).gpu_threads(T),
}


@pytest.mark.parametrize("case", COPIED)
def test_a_copy_by_few_threads_is_one_by_all(case: str) -> None:
    kernel, warned = compiled(COPIED[case])
    (copy,) = kernel.report.copies
    assert (copy.source, copy.to, copy.width) == ("a", "stage", 16)
    assert (copy.threads, copy.of) == (128, 128)
    assert "item" not in kernel.source
    assert "const int i = (int)threadIdx.x + step * 128;" in kernel.source
    assert not warned
    generator = np.random.default_rng(0)
    a = generator.integers(-4, 5, (70, 64)).astype(np.float16)
    b = generator.integers(-4, 5, (64, 64)).astype(np.float16)
    exact = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(kernel.interpret(a, b), exact)
    np.testing.assert_array_equal(run(kernel, a=a, b=b, sizes=exact.shape), exact)


def by_12(s: Any) -> Any:
    return s.split(Y, Y, T, 12).gpu_threads(T)


def sums(_: Any, part: Any) -> Any:
    return part[X, Y]


def doubled(a: Any, _: Any) -> Any:
    return a[X, Y] * hl.cast(F16, 2)


def twice(a: Any, _: Any) -> Any:
    """Each element for two neighbours: no vector has what lanes read."""
    return 2 * a[X // 2, Y]


def hint(copied: Copied, read: Read) -> str:
    """What the one warning says to do."""
    (text,) = compiled(copied, read)[1]
    return text.partition("hint: ")[2]


def test_what_cannot_be_spread_is_said() -> None:
    kernel, warned = compiled(by_12, sums)
    (copy,) = kernel.report.copies
    assert (copy.threads, copy.of, copy.width) == (12, 128, 2)
    assert copy.share > 0.9
    (text,) = warned
    assert "copy of a to stage: 12 of 128 threads, 2 bytes at a time" in text
    assert text.partition("\n")[2] in str(kernel.report)
    again = load_bytes(kernel.to_bytes(machine_code=False))
    assert again.report.copies == kernel.report.copies


def test_more_threads_as_told() -> None:
    """Then only what no directive mends is left."""
    assert "marked with gpu_threads 128 iterations in all" in hint(by_12, sums)
    kernel, _ = compiled(lambda s: s.split(Y, Y, T, 2).gpu_threads(X, T), sums)
    (copy,) = kernel.report.copies
    assert (copy.threads, copy.limit) == (128, CopyLimit.COMPUTED)


def test_neighbours_as_told() -> None:
    """The innermost loop is over what is not innermost in memory; then as it was meant."""
    assert "reorder the loops of `stage`" in hint(lambda s: s.reorder(Y, X), doubled)
    (copy,) = compiled(lambda s: s.reorder(X, Y), doubled)[0].report.copies
    assert (copy.conflicts, copy.width, copy.limit) == (1, 16, CopyLimit.NONE)


MENDED: dict[str, tuple[Copied, Read, str, Copied]] = {
    "start": (
        lambda s: s,
        lambda a, _: a[X + 1, Y],  # element 0 is at x = -1, which is 7 modulo 8
        "`stage.align_bounds(x, 8, r)`",
        lambda s: s.align_bounds(X, 8, 7),
    ),
    "turned": (
        lambda s: s,
        lambda a, _: a[Y, X],
        "`stage.reorder_storage(...)` with the dimension first that is innermost in `a`",
        lambda s: s.reorder_storage(Y, X),
    ),
    "threads": (
        lambda s: s.split(X, X, U, 32).reorder(U, X, Y).gpu_threads(X, Y),
        lambda a, _: a[X, Y],
        "leave gpu_threads of `stage` out",
        lambda s: s.split(X, X, U, 32).reorder(U, X, Y),
    ),
}


@pytest.mark.parametrize("case", MENDED)
def test_done_as_told_there_is_no_warning(case: str) -> None:
    copied, read, said, mended = MENDED[case]
    assert said in hint(copied, read)
    kernel, warned = compiled(mended, read)
    assert not warned
    assert [c.width for c in kernel.report.copies] == [16]


def test_what_no_directive_mends_is_said_to_be_so() -> None:
    assert "takes no neighbours of `a`" in hint(lambda s: s, lambda a, _: a[2 * X, Y])
    assert "its elements are computed" in hint(lambda s: s, twice)


def test_a_computed_stage_as_told() -> None:
    """In a kernel of its own, and its copy staged in its place."""

    def apart(stage: Any, mm: Any, out: Any, xo: Any) -> None:
        a, b = hl.Var("a"), hl.Var("b")
        stage.compute_root().gpu_tile(X, Y, a, b, U, T, 64, 8)
        stage.in_(mm).compute_at(out, xo).store_in(hl.MemoryType.GPUShared)

    assert "and the copy `stage.in_(...)` staged in its place" in hint(lambda s: s, twice)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = hb.compile(staged(None, twice, apart), target="sm_80")
    assert [c.width for c in kernel.report.copies] == [16]


def test_what_each_thread_unrolls_stays_unrolled() -> None:
    """Written as a loop; NVRTC unrolls it."""
    kernel, _ = compiled(
        lambda s: s.split(X, X, U, 32).reorder(U, X, Y).unroll(U).gpu_threads(X, Y), doubled
    )
    _, _, loop = kernel.source.partition("const int item")
    assert loop.partition("stage[")[0].count("#pragma unroll\n") == 1
    assert loop.partition("}")[0].count("stage[") == 1
    generator = np.random.default_rng(0)
    a = generator.integers(-4, 5, (70, 64)).astype(np.float16)
    b = generator.integers(-4, 5, (64, 64)).astype(np.float16)
    exact = 2 * a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(run(kernel, a=a, b=b, sizes=exact.shape), exact)


def test_it_can_be_silenced() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=PerformanceWarning)
        hb.compile(staged(by_12, lambda _, part: part[X, Y]), target="sm_80")


@pytest.mark.parametrize(
    ("step", "conflicts"), [(2, 1), (4, 1), (8, 2), (16, 4), (128, 32), (144, 4), (132, 1)]
)
def test_conflicts(step: int, conflicts: int) -> None:
    assert _conflicts(step) == conflicts
