"""Operands that no memory holds: gathered, converted, masked or computed where they are read, taps
by any formula, and windows that begin anywhere between phases. Right at sizes that no tile divides,
as selected (the interpreter) and as emitted (the simulator), beside float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import halide as hl
import numpy as np
import pytest
from tiled import AMX, BF16, F16, F32, I8, I16, I32, U8, WMMA, Tiled, names_selected

import halide_bridge as hb
from selector.diagnostics import SelectionError
from selector.gpu.codegen.program import emit_kernels
from selector.ir.bfloat16 import from_bits, to_bits
from selector.runtime import nvrtc
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = pytest.mark.verified

Arrays = dict[str, np.ndarray]
U16 = hl.UInt(16)
WIDTH, HEIGHT, TAPS = 300, 2, 8


def f32(e: hl.Expr) -> hl.Expr:
    return hl.cast(F32, e)


def f16(e: hl.Expr | float) -> hl.Expr:
    return hl.cast(F16, e)


def i32(e: hl.Expr) -> hl.Expr:
    return hl.cast(I32, e)


@dataclass(frozen=True)
class Sum:
    """The terms of a sum, and what they are in float64; ``a`` and ``b`` are the types of its
    inputs, ``shapes`` their extents."""

    terms: Callable[..., hl.Expr]
    truth: Callable[..., np.ndarray]
    a: hl.Type = field(default_factory=lambda: F16)
    b: hl.Type = field(default_factory=lambda: F16)
    total: hl.Type = field(default_factory=lambda: F32)
    taps: int = TAPS
    lanes: int = 256


def made(t: hl.Type, *shape: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if t in (U16, I16):
        low, high = (0, 65535) if t == U16 else (-32768, 32767)
        return rng.integers(low, high, shape).astype(np.uint16 if t == U16 else np.int16)
    if t in (U8, I8):
        kind = np.uint8 if t == U8 else np.int8
        return rng.integers(0 if t == U8 else -90, 90, shape).astype(kind)
    return rng.uniform(-1, 1, shape).astype(np.float16 if t == F16 else np.float32)


# ------------------------------------------------------------------ products

ROWS = np.arange(64)


PRODUCTS = {
    "a maximum with zero": Sum(
        lambda a, b, x, y, r: f32(hl.max(a[r, y], f16(0))) * f32(b[x, r]),
        lambda a, b: np.maximum(a, 0) @ b,
    ),
    "floats rounded by the user": Sum(
        lambda a, b, x, y, r: f32(f16(a[r, y])) * f32(b[x, r]),
        lambda a, b: a.astype(np.float16).astype(float) @ b, a=F32,
    ),
    "bytes by halves": Sum(
        lambda a, b, x, y, r: f32(a[r, y]) * f32(b[x, r]), lambda a, b: a @ b, a=U8
    ),
    "a zero point": Sum(
        lambda a, b, x, y, r: (i32(a[r, y]) - 128) * i32(b[x, r]), lambda a, b: (a - 128) @ b,
        a=U8, b=I8, total=I32,
    ),
    "bytes of two kinds in int16": Sum(
        lambda a, b, x, y, r: i32(hl.cast(I16, a[r, y]) * hl.cast(I16, b[x, r])),
        lambda a, b: a @ b, a=U8, b=I8, total=I32,
    ),
    "rows up to the edge": Sum(
        lambda a, b, x, y, r: f32(a[r, hl.clamp(y - 1, 0, 60)]) * f32(b[x, r]),
        lambda a, b: a[np.clip(ROWS - 1, 0, 60)] @ b,
    ),
    "columns that wrap around": Sum(
        lambda a, b, x, y, r: f32(a[(r + 3) % 64, y]) * f32(b[x, r]),
        lambda a, b: a[:, (ROWS + 3) % 64] @ b,
    ),
    "a condition as a factor": Sum(
        lambda a, b, x, y, r: f32(a[r, y]) * f32(r <= y) * f32(b[x, r]),
        lambda a, b: np.tril(a) @ b,
    ),
    "the one or the other": Sum(
        lambda a, b, x, y, r: hl.select((r < 10) | (r > y), f32(a[r, y]) * f32(b[x, r]), 0.0),
        lambda a, b: np.where((ROWS < 10) | (ROWS[:, None] < ROWS), a, 0) @ b,
    ),
    "by remainders": Sum(
        lambda a, b, x, y, r: hl.select(r % 3 == y % 3, f32(a[r, y]) * f32(b[x, r]), 0.0),
        lambda a, b: np.where(ROWS[:, None] % 3 == ROWS % 3, a, 0) @ b,
    ),
    "of two sources": Sum(
        lambda a, b, x, y, r: hl.select(y < 32, f32(a[r, y]), f32(-a[r, y])) * f32(b[x, r]),
        lambda a, b: np.where(ROWS[:, None] < 32, a, -a) @ b,
    ),
    "operands that are added": Sum(
        lambda a, b, x, y, r: (f32(a[r, y]) + f32(a[y, r])) * f32(b[x, r]),
        lambda a, b: (a + a.T) @ b,
    ),
    "half of one operand": Sum(
        lambda a, b, x, y, r: f32(a[r, y]) * (f32(b[x, r]) - 0.5 * f32(b[r, x])),
        lambda a, b: a @ (b - b.T / 2),
    ),
    "products in doubles": Sum(
        lambda a, b, x, y, r: f32(hl.f64(a[r, y]) * hl.f64(b[x, r])), lambda a, b: a @ b
    ),
    "widening products": Sum(
        lambda a, b, x, y, r: i32(hl.widening_mul(a[r, y], b[x, r])),
        lambda a, b: a @ b, a=U8, b=I8, total=I32,
    ),
    "bytes of one another": Sum(
        lambda a, b, x, y, r: (i32(a[r, y]) - i32(a[y, r])) * i32(b[x, r]),
        lambda a, b: (a - a.T) @ b, a=U8, b=I8, total=I32,
    ),
    "a triangle of results": Sum(
        lambda a, b, x, y, r: hl.select((x < y) & (r < 50), f32(a[r, y]) * f32(b[x, r]), 0.0),
        lambda a, b: np.tril(a[:, :50] @ b[:50], -1),
    ),
    "rows with factors": Sum(
        lambda a, b, x, y, r: f32(a[5, y]) * f32(a[r, y]) * f32(b[x, r]) * f32(b[x, 7]),
        lambda a, b: a[:, 5:6] * (a @ b) * b[7],
    ),
    "a difference of products": Sum(
        lambda a, b, x, y, r: f32(a[r, y]) * f32(b[x, r]) - f32(a[y, r]) * f32(b[x, 63 - r]),
        lambda a, b: a @ b - a.T @ b[::-1],
    ),
}  # fmt: skip


def image(name: str, t: hl.Type, dimensions: int = 2) -> hl.ImageParam:
    return hl.ImageParam(t, dimensions, name)


def product(s: Sum, memory: hb.MemoryType = WMMA) -> hl.Func:
    a, b = image("A", s.a), image("B", s.b)
    depth = 32 if s.total == I32 else 16
    value = lambda x, y, r: s.terms(a, b, x, y, r)  # noqa: E731
    return Tiled(value, accumulator=s.total, depth=depth, memory=memory).build()


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product(name: str) -> None:
    s = PRODUCTS[name]
    arrays = {"A": made(s.a, 64, 64, seed=1), "B": made(s.b, 64, 64, seed=2)}
    check(s, product(s), arrays, s.truth(*(arrays[n].astype(float) for n in "AB")))


# ------------------------------------------------------------------ convolutions


def windows(image_: np.ndarray, starts: np.ndarray, taps: int = TAPS) -> np.ndarray:
    """Pixels (y, x, t) of the windows that begin at these columns."""
    return image_[:, starts[:, None] + np.arange(taps)]


X, T = np.arange(WIDTH), np.arange(TAPS)


def by_phase(start: Callable[[np.ndarray], np.ndarray], phases: int) -> Callable[..., np.ndarray]:
    """Windows that begin at ``start(x) // phases``, their taps those of phase ``start(x) %
    phases``."""
    at = start(X)
    tap = phases * T + (at % phases)[:, None]
    return lambda i, k: (windows(i, at // phases) * k[tap]).sum(2)


def phased(start: Callable[[hl.Expr], hl.Expr], phases: int) -> Callable[..., hl.Expr]:
    return lambda i, k, x, y, t: (
        f32(i[start(x) / phases + t, y]) * f32(k[phases * t + start(x) % phases])
    )


FILTERS = {
    "bytes by halves": Sum(
        lambda i, k, x, y, t: f32(i[x + t, y]) * f32(k[t]),
        lambda i, k: windows(i, X) @ k, a=U8,
    ),
    "an image up to its edge": Sum(
        lambda i, k, x, y, t: f32(i[hl.clamp(x + t - 4, 0, 299), y]) * f32(k[t]),
        lambda i, k: i[:, np.clip(X[:, None] + T - 4, 0, 299)] @ k,
    ),
    "a mirrored image": Sum(
        lambda i, k, x, y, t: f32(i[i32(hl.abs(x + t - 4)), y]) * f32(k[t]),
        lambda i, k: i[:, np.abs(X[:, None] + T - 4)] @ k,
    ),
    "an index in fewer bits": Sum(
        lambda i, k, x, y, t: f32(i[x + i32(hl.cast(I16, t)), y]) * f32(k[t]),
        lambda i, k: windows(i, X) @ k,
    ),
    "an index that wraps around": Sum(
        lambda i, k, x, y, t: f32(i[x + t, y]) * f32(k[i32(hl.cast(U8, t * 64)) / 64]),
        lambda i, k: windows(i, X) @ k[T % 4],
    ),
    "every other pixel left out": Sum(
        lambda i, k, x, y, t: hl.select((x + t) % 2 == 0, f32(i[x + t, y]) * f32(k[t]), 0.0),
        lambda i, k: np.where((X[:, None] + T) % 2 == 0, windows(i, X), 0) @ k,
    ),
    "even taps of elements": Sum(
        lambda i, k, x, y, t: f32(hl.select(t % 2 == 0, i[x + t, y], f16(0))) * f32(k[t]),
        lambda i, k: windows(i, X) @ np.where(T % 2 == 0, k, 0),
    ),
    "a tap more in every other row, of elements": Sum(
        lambda i, k, x, y, t: f32(hl.select(t <= 5 + y % 2, i[x + t, y], f16(0))) * f32(k[t]),
        lambda i, k: np.where(5 + np.arange(HEIGHT)[:, None, None] % 2 >= T, windows(i, X), 0) @ k,
    ),
    "a product or its negative": Sum(
        lambda i, k, x, y, t: hl.select(
            t % 2 == 0, f32(i[x + t, y]) * f32(k[t]), -(f32(i[x + t, y]) * f32(k[t]))
        ),
        lambda i, k: windows(i, X) @ (k * (1 - 2 * (T % 2))),
    ),
    "one of two products with the same pixels": Sum(
        lambda i, k, x, y, t: hl.select(
            t < 3, f32(i[x + t, y]) * f32(k[t]), f32(i[x + t, y]) * f32(k[7 - t])
        ),
        lambda i, k: windows(i, X) @ k[np.where(T < 3, T, 7 - T)],
    ),
    "differences of pixels": Sum(
        lambda i, k, x, y, t: f32(i[x + t + 1, y] - i[x + t, y]) * f32(k[t]),
        lambda i, k: (windows(i, X + 1) - windows(i, X)).astype(np.float16).astype(float) @ k,
    ),
    "taps up to one": Sum(
        lambda i, k, x, y, t: f32(i[x + t, y]) * f32(k[hl.min(t, 5)]),
        lambda i, k: windows(i, X) @ k[np.minimum(T, 5)],
    ),
    "taps folded": Sum(
        lambda i, k, x, y, t: f32(i[x + t, y]) * f32(k[hl.select(t < 4, t, 7 - t)]),
        lambda i, k: windows(i, X) @ k[np.where(T < 4, T, 7 - T)],
    ),
    "taps of alternating signs": Sum(
        lambda i, k, x, y, t: f32(i[x + t, y]) * hl.select(t % 2 == 0, f32(k[t]), -f32(k[t])),
        lambda i, k: windows(i, X) @ (k[:TAPS] * (1 - 2 * (T % 2))),
    ),
    "taps by a formula": Sum(
        lambda i, k, x, y, t: f32(i[x + t, y]) * f32(f16(hl.exp(-f32(t * t) * hl.f32(0.1)))),
        lambda i, k: windows(i, X) @ np.exp(-T * T * 0.1).astype(np.float16).astype(float),
    ),
    "a box": Sum(
        lambda i, k, x, y, t: f32(i[x + t, y]) * 0.125,
        lambda i, k: windows(i, X).mean(2),
    ),
    "a symmetric filter": Sum(
        lambda i, k, x, y, t: (f32(i[x + t, y]) + f32(i[x + 15 - t, y])) * f32(k[t]),
        lambda i, k: (windows(i, X) + windows(i, X + 8)[..., ::-1]) @ k,
    ),
    "an antisymmetric filter": Sum(
        lambda i, k, x, y, t: (f32(i[x + 15 - t, y]) - f32(i[x + t, y])) * f32(k[t]),
        lambda i, k: (windows(i, X + 8)[..., ::-1] - windows(i, X)) @ k,
    ),
    "a symmetric filter of bytes": Sum(
        lambda i, k, x, y, t: i32(hl.cast(U16, i[x + t, y]) + hl.cast(U16, i[x + 15 - t, y]))
        * i32(k[t]),
        lambda i, k: (windows(i, X) + windows(i, X + 8)[..., ::-1]) @ k, a=U8, b=I8, total=I32,
    ),
    "words and bytes": Sum(
        lambda i, k, x, y, t: i32(i[x + t, y]) * i32(k[t]),
        lambda i, k: windows(i, X) @ k, a=U16, b=I8, total=I32,
    ),
    "bytes and words": Sum(
        lambda i, k, x, y, t: i32(i[x + t, y]) * i32(k[t]),
        lambda i, k: windows(i, X) @ k, a=U8, b=I16, total=I32,
    ),
    "pixels with a gain": Sum(
        lambda i, k, x, y, t: hl.select(x < 250, f32(i[x, 1]), 0.0) * f32(i[x + t, y]) * f32(k[t]),
        lambda i, k: np.where(X < 250, i[1, X], 0) * (windows(i, X) @ k),
    ),
    "an unsharp mask": Sum(
        lambda i, k, x, y, t: f32(i[x + t, y]) * (hl.select(t == 4, 2.0, 0.0) - f32(k[t])),
        lambda i, k: 2 * i[:, X + 4] - windows(i, X) @ k,
    ),
    "one phase twice": Sum(
        lambda i, k, x, y, t: f32(i[x / 2 + t, y]) * f32(k[t]), lambda i, k: windows(i, X // 2) @ k
    ),
    "phases from one on": Sum(phased(lambda x: x + 1, 2), by_phase(lambda x: x + 1, 2), taps=16),
    "phases from minus one on": Sum(
        phased(lambda x: x + 3, 4), by_phase(lambda x: x + 3, 4), taps=32
    ),
    "three pixels for two": Sum(
        phased(lambda x: 2 * x, 3), by_phase(lambda x: 2 * x, 3), taps=24, lanes=384
    ),
    "two pixels for three": Sum(phased(lambda x: 3 * x, 2), by_phase(lambda x: 3 * x, 2), taps=16),
    "four pixels for three, from two on": Sum(
        phased(lambda x: 3 * x + 2, 4), by_phase(lambda x: 3 * x + 2, 4), taps=32
    ),
}  # fmt: skip


def filtered(s: Sum) -> hl.Func:
    pixels, taps = image("A", s.a), image("B", s.b, 1)
    x, y, xo, xi = (hl.Var(n) for n in ("x", "y", "xo", "xi"))
    t = hl.RDom([(0, TAPS)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.cast(s.total, 0)
    conv[x, y] += s.terms(pixels, taps, x, y, t.x)
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, s.lanes).vectorize(xi).gpu_blocks(xo, y)
    conv.compute_at(out, xo).bound_extent(x, s.lanes).vectorize(x)
    conv.update().reorder(t.x, x).atomic().vectorize(t.x).vectorize(x)
    return hb.store_in(conv, WMMA) and out


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter(name: str) -> None:
    s = FILTERS[name]
    arrays = {"A": made(s.a, HEIGHT, 640, seed=1), "B": made(s.b, s.taps, seed=2)}
    if "edge" in name:
        arrays["A"] = arrays["A"][:, :WIDTH].copy()
    truth = s.truth(*(arrays[n].astype(float) for n in "AB"))
    if name in ("a box", "taps by a formula"):
        del arrays["B"]
    check(s, filtered(s), arrays, truth)


def check(s: Sum, output: hl.Func, arrays: Arrays, truth: np.ndarray) -> None:
    """Selected, and right: as selected, and as emitted."""
    kernel = hb.compile(output, target="sm_80", cache=False)
    assert kernel.report.updates
    assert all(e.block is not None for e in kernel.report.updates)
    assert error(kernel.interpret(**arrays, sizes=truth.shape), truth) < 2e-6
    kernels, plan = emit_kernels(kernel.module, find_target("sm_80"))
    found = simulate(kernels, plan, arrays, truth.shape)
    assert found.faults == ()
    assert error(found.outputs["out"], truth) < 2e-6


def test_zero_points_are_taken_out() -> None:
    """``sum((a - z)*(b - w))`` has four sums; ones are the other operand of three."""
    z, w = hl.Param(I32, "z"), hl.Param(I32, "w")

    def terms(a, b, x, y, r):  # type: ignore[no-untyped-def]
        return (i32(a[r, y]) - z) * (i32(b[x, r]) - w)

    s = Sum(terms, lambda a, b: (a - 7) @ (b - 3), a=U8, b=U8, total=I32)
    arrays = {"A": made(U8, 64, 64, seed=1), "B": made(U8, 64, 64, seed=2)}
    kernel = hb.compile(product(s), target="sm_80", cache=False)
    assert len([e for e in kernel.report.updates if e.block is not None]) == 4
    assert {e.where.func for e in kernel.report.updates} == {"mm"}
    truth = s.truth(*(x.astype(float) for x in arrays.values()))
    assert np.array_equal(kernel.interpret(**arrays, z=7, w=3), truth)


def test_a_complex_product_has_an_accumulator_for_what_is_subtracted() -> None:
    a, b = image("A", F16, 3), image("B", F16, 3)

    def real(x, y, r):  # type: ignore[no-untyped-def]
        return f32(a[0, r, y]) * f32(b[0, x, r]) - f32(a[1, r, y]) * f32(b[1, x, r])

    kernel = hb.compile(Tiled(real).build(), target="sm_80", cache=False)
    assert "mm_part1" in kernel.source
    arrays = {n: made(F16, 64, 64, 2, seed=i) for i, n in enumerate("AB")}
    left, right = (v[..., 0].astype(float) + 1j * v[..., 1] for v in arrays.values())
    assert error(kernel.interpret(**arrays), (left @ right).real) < 2e-6


def test_a_split_product_is_nearly_one_of_floats() -> None:
    a, b = image("A", F32), image("B", F32)
    split = Tiled(lambda x, y, r: hb.split_product(a[r, y], b[x, r])).build()
    halves = Tiled(lambda x, y, r: f32(f16(a[r, y])) * f32(f16(b[x, r]))).build()
    arrays = {n: np.abs(made(F32, 64, 64, seed=i)) + np.float32(1 / 8) for i, n in enumerate("AB")}
    truth = arrays["A"].astype(float) @ arrays["B"].astype(float)
    kernels = [hb.compile(out, target="sm_80", cache=False) for out in (split, halves)]
    assert [len(names_selected(out, "sm_80")) for out in (split, halves)] == [3, 1]
    said = [{e.precision for e in k.report.updates} for k in kernels]
    assert said[0] == {
        "each product of floats is off by at most 3 * 2^-22 of itself, as long as both values are "
        "from 2^-3 to 65504 (smaller ones are off by 2^-25)"
    }
    assert said[1] == {""}
    assert str(kernels[0].report).count("3 * 2^-22") == len(kernels[0].report.updates)
    off = [np.max(np.abs(k.interpret(**arrays) - truth) / truth) for k in kernels]
    assert off[0] < 3 * 2.0**-22 + 64 * 2.0**-24  # sums of floats are rounded, too
    assert off[1] > 2.0**-14


def test_tile_registers_are_loaded_from_what_is_computed() -> None:
    a, b = image("A", BF16), image("B", BF16)

    def terms(x, y, r):  # type: ignore[no-untyped-def]
        return f32(hl.max(a[r, hl.clamp(y - 1, 0, 60)], hl.cast(BF16, 0))) * f32(b[x, r])

    kernel = hb.compile(Tiled(terms, memory=AMX, depth=32).build(), target="amx", cache=False)
    assert [e.block is not None for e in kernel.report.updates] == [True]
    arrays = {n: to_bits(made(F32, 64, 64, seed=i)) for i, n in enumerate("AB")}
    left, right = (from_bits(v).astype(float) for v in arrays.values())
    truth = np.maximum(left[np.clip(ROWS - 1, 0, 60)], 0) @ right
    assert error(kernel.interpret(**arrays), truth) < 2e-6


def error(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", ["a zero point", "phases from one on", "a mirrored image"])
def test_it_is_cuda(name: str) -> None:
    output = filtered(FILTERS[name]) if name in FILTERS else product(PRODUCTS[name])
    kernel = hb.compile(output, target="sm_90a", cache=False)
    assert nvrtc.compile_to_cubin(kernel.source, "sm_90a")


def test_the_report_says_what_is_computed() -> None:
    kernel = hb.compile(product(PRODUCTS["a maximum with zero"]), target="sm_80", cache=False)
    (update,) = kernel.report.updates
    assert update.temporaries == ("256 values of A, computed one by one where they are read",)
    kernel = hb.compile(filtered(FILTERS["taps up to one"]), target="sm_80", cache=False)
    (update,) = kernel.report.updates
    assert update.temporaries == ("toeplitz 15 x 8 of B (stride 1, dilation 1)",)


REFUSED = {
    "a product of three floats": lambda a, b, x, y, r: f32(a[r, y]) * f32(a[y, r]) * f32(b[x, r]),
    "a product that overflows": lambda a, b, x, y, r: f32(
        i32(hl.cast(I16, i32(a[r, y])) * hl.cast(I16, i32(b[x, r])))
    ),
    "an element or its square": lambda a, b, x, y, r: (
        hl.select(r < 3, f32(a[r, y]), f32(a[r, y]) * f32(a[r, y])) * f32(b[x, r])
    ),
    "a root in float": lambda a, b, x, y, r: hl.sqrt(f32(a[r, y])) * f32(b[x, r]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_rounded_or_is_no_matrix_is_refused(name: str) -> None:
    with pytest.raises(SelectionError):
        names_selected(product(Sum(REFUSED[name], lambda a, b: a)), "sm_80")
