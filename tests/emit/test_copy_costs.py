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
from selector.emit.copy_costs import _conflicts

F16 = hl.Float(16)
X, Y, U, T = (hl.Var(n) for n in ("x", "y", "u", "t"))
Read = Callable[[Any, Any], Any]
Copied = Callable[[Any], Any]


def staged(copied: Copied, read: Read = lambda a, _: a[X, Y]) -> hl.Func:
    """Tiles of 64 x 64 of a product by four warps, the rows of its left factor staged in shared
    memory as ``copied`` schedules it."""
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


def test_what_cannot_be_spread_is_said() -> None:
    kernel, warned = compiled(by_12, lambda _, part: part[X, Y])
    (copy,) = kernel.report.copies
    assert (copy.threads, copy.of, copy.width) == (12, 128, 2)
    assert copy.share > 0.9
    (text,) = warned
    assert "copy of a to stage: 12 of 128 threads, 2 bytes at a time" in text
    assert "leave gpu_threads of `stage` out" in text
    assert text.partition("\n")[2] in str(kernel.report)
    again = load_bytes(kernel.to_bytes(machine_code=False))
    assert again.report.copies == kernel.report.copies


def test_elements_one_by_one_are_said() -> None:
    kernel, (text,) = compiled(COPIED["no threads"], lambda a, _: a[X + 1, Y])
    (copy,) = kernel.report.copies
    assert (copy.threads, copy.width) == (128, 2)
    assert "start at multiples of 16 bytes of `a`" in text
    assert not compiled(COPIED["no threads"], lambda a, _: a[X + 8, Y])[1]


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
