"""Pipelines that look as if a tensor unit could do them: refused in the user's names, with a hint
that is then followed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

import dictionary
import halide as hl
import numpy as np
import pytest
from tiled import AMX, BF16, F16, F32, I8, I32, U8, Tiled, names_selected, random

import halide_bridge as hb
from selector.diagnostics import EmitError, PerformanceWarning, ScheduleError, SelectionError
from selector.report import Report

pytestmark = pytest.mark.verified

Build = Callable[[], hl.Func]


def image(name: str, t: hl.Type = F16, dimensions: int = 2) -> hl.ImageParam:
    return hl.ImageParam(t, dimensions, name)


def f32(e: hl.Expr) -> hl.Expr:
    return hl.cast(F32, e)


def i32(e: hl.Expr) -> hl.Expr:
    return hl.cast(I32, e)


A, B = image("A"), image("B")
A_BF16, B_BF16 = image("A", BF16), image("B", BF16)
A_F32, B_F32 = image("A", F32), image("B", F32)
U, S = image("U", U8), image("S", I8)
U2 = image("U2", U8)


def product(x: hl.Var, y: hl.Var, r: hl.RVar) -> hl.Expr:
    """Halves, for GPUs."""
    return f32(A[r, y]) * f32(B[x, r])


def product_bf16(x: hl.Var, y: hl.Var, r: hl.RVar) -> hl.Expr:
    return f32(A_BF16[r, y]) * f32(B_BF16[x, r])


def gpu(value=product, **more) -> Build:  # type: ignore[no-untyped-def]
    return Tiled(value, **more).build


def groups(value) -> Build:  # type: ignore[no-untyped-def]
    """In a warpgroup's registers: operands are memory. A warp's may be computed."""
    return Tiled(value, memory=hb.MemoryType.WGMMAAccumulator).build


def amx(value=product_bf16, **more) -> Build:  # type: ignore[no-untyped-def]
    return Tiled(value, memory=AMX, **({"depth": 32} | more)).build


@dataclass(frozen=True)
class Scenario:
    """A pipeline that is refused, what is said, and the pipeline that follows the hint."""

    build: Build
    why: str
    hint: str
    fixed: Build | None = None
    target: str = "sm_80"
    instructions: tuple[str, ...] | None = None
    stage: str = "update"
    error: type[Exception] = field(default=SelectionError)


def copied(name: str, value: Callable[[hl.Var, hl.Var], hl.Expr]) -> hl.Func:
    """A Func of two dimensions, to be computed before."""
    func, u, v = hl.Func(name), hl.Var("u"), hl.Var("v")
    func[u, v] = value(u, v)
    return func


def with_copy(name: str, value: Callable[[hl.Var, hl.Var], hl.Expr]) -> Build:
    """The product whose left operand is a Func of its own."""
    rows = copied(name, value)
    return gpu(lambda x, y, r: f32(rows[r, y]) * f32(B[x, r]), staged=(rows,))


def loops(update: hl.Stage, r: hl.RVar, depth: int) -> tuple[hl.RVar, hl.RVar]:
    outer, inner = hl.RVar("ro"), hl.RVar("ri")
    update.split(r, outer, inner, depth)
    return outer, inner


def serial_sum(update: hl.Stage, x: hl.Var, y: hl.Var, r: hl.RVar, depth: int) -> None:
    outer, inner = loops(update, r, depth)
    update.reorder(inner, x, y, outer).vectorize(x).vectorize(y)


def sum_outside(update: hl.Stage, x: hl.Var, y: hl.Var, r: hl.RVar, depth: int) -> None:
    outer, inner = loops(update, r, depth)
    update.reorder(x, y, inner, outer).atomic().vectorize(x).vectorize(y).vectorize(inner)


def sum_alone(update: hl.Stage, x: hl.Var, y: hl.Var, r: hl.RVar, depth: int) -> None:
    outer, inner = loops(update, r, depth)
    update.reorder(inner, x, y, outer).atomic().vectorize(inner)


def unrolled_tile(update: hl.Stage, x: hl.Var, y: hl.Var, r: hl.RVar, depth: int) -> None:
    update.unroll(x, 2)


def one_row(update: hl.Stage, x: hl.Var, y: hl.Var, r: hl.RVar, depth: int) -> None:
    outer, inner = loops(update, r, depth)
    update.reorder(inner, x, y, outer).atomic().vectorize(inner).vectorize(x)


def part_of_the_sum(update: hl.Stage, x: hl.Var, y: hl.Var, r: hl.RVar, depth: int) -> None:
    outer, inner = loops(update, r, depth)
    middle, part = hl.RVar("rm"), hl.RVar("rp")
    update.split(inner, middle, part, 4).reorder(part, x, y, middle, outer).atomic()
    update.vectorize(part).vectorize(x).vectorize(y)


def guarded(update: hl.Stage, x: hl.Var, y: hl.Var, r: hl.RVar, depth: int) -> None:
    outer, inner = loops(update, r, depth)
    u, v = hl.Var("u"), hl.Var("v")
    update.split(y, u, v, 16, hl.TailStrategy.GuardWithIf)
    update.reorder(inner, x, v, u, outer).atomic()
    update.vectorize(inner).vectorize(x).vectorize(v)


def transposed(mm: hl.Func, x: hl.Var, y: hl.Var) -> hl.Expr:
    return mm[y, x]


SQUARED = "expand the square, (a - b)**2 = a*a - 2*a*b + b*b"
FROM_A = "copy what is read of `A` into a Func"

SCENARIOS: dict[str, Scenario] = {
    # the unit
    "AMXTile on a GPU": Scenario(
        amx(product, depth=16), "`mm` is placed in amx memory, and target sm_80 has",
        "compile for amx, or place the Func in MemoryType.WMMAAccumulator", gpu(),
    ),
    "WMMAAccumulator on AMX": Scenario(
        Tiled(product_bf16, depth=32, on="amx").build,
        "`mm` is placed in wmma memory, and target amx has no",
        "or place the Func in MemoryType.AMXTile", amx(), target="amx",
    ),
    # types
    "halves on AMX": Scenario(
        amx(product), "target amx has no instruction for float16 x float16 -> float32",
        "store the operands as bfloat16 x bfloat16 -> float32", amx(), target="amx",
    ),
    "operands that occur twice, added first": Scenario(
        groups(lambda x, y, r: f32(A[r, y] + A[r, y]) * f32(B[x, r])),
        "an operand is computed on the fly from `A`", "compute it into its own Func",
        with_copy("twice", lambda u, v: A[u, v] + A[u, v]), target="sm_90a",
    ),
    "operands that occur twice in a product of three": Scenario(
        gpu(lambda x, y, r: f32(A[r, y]) * f32(A[r, y]) * f32(B[x, r])),
        "the terms of the sum are products of 3 operands: `A` and `A` and `B`",
        "multiply two of them in a Func of their own first",
        with_copy("squares", lambda u, v: A[u, v] * A[u, v]),
    ),
    "floats": Scenario(
        gpu(lambda x, y, r: A_F32[r, y] * B_F32[x, r]),
        "no instruction for float32 x float32 -> float32 that does not round them",
        '`instructions=("tf32",)` allows that', gpu(),
    ),
    "floats on warpgroups": Scenario(
        groups(lambda x, y, r: A_F32[r, y] * B_F32[x, r]),
        "no instruction for float32 x float32 -> float32 that does not round them",
        '`instructions=("tf32",)` allows that', gpu(), target="sm_90a",
    ),
    "bfloat16 by float": Scenario(
        amx(lambda x, y, r: f32(A_BF16[r, y]) * B_F32[x, r]),
        "the operands have different types, bfloat16 (`A`) and float32 (`B`)",
        "convert one into the other's type in its own Func", amx(), target="amx",
    ),
    "floats converted in the update": Scenario(
        groups(lambda x, y, r: f32(hl.cast(F16, A_F32[r, y])) * f32(B[x, r])),
        "`A` is float32 in memory and converted to float16 inside the update",
        "convert it in a Func of its own (float16",
        with_copy("halves", lambda u, v: hl.cast(F16, A_F32[u, v])), target="sm_90a",
    ),
    "bytes decoded in the update": Scenario(
        groups(lambda x, y, r: f32(hb.e4m3(U[r, y])) * f32(B[x, r])),
        "the bytes of `U` are decoded in the update, as e4m3",
        "decode it in a Func of its own (float16 has all of its values",
        with_copy("halves", lambda u, v: hb.e4m3(U[u, v])), target="sm_90a",
    ),
    "bytes decoded in the update, both": Scenario(
        groups(lambda x, y, r: f32(hb.e4m3(U[r, y])) * f32(hb.e5m2(U2[x, r]))),
        "the bytes of `U` are decoded in the update, as e4m3",
        '`instructions=("fp8",)` multiplies them, in sums of about 14 bits; or decode',
        with_copy("halves", lambda u, v: hb.e4m3(U[u, v])), target="sm_90a",
    ),
    "a product in halves": Scenario(
        gpu(lambda x, y, r: f32(A[r, y] * B[x, r])),
        "the product is taken in the operands' type, float16, and cast to float32 afterwards",
        "`hl.f32(a)*hl.f32(b)`", gpu(),
    ),
    # the sum
    "the largest product": Scenario(
        gpu(combine=hl.max), "it reduces with `max`; tensor instructions only add",
        "keep `mm` out of tensor memory",
    ),
    "the smallest product on AMX": Scenario(
        amx(combine=hl.min), "it reduces with `min`; tensor instructions only add",
        "keep `mm` out of tensor memory", target="amx",
    ),
    "weighted products": Scenario(
        gpu(lambda x, y, r: product(x, y, r) * f32(image("W")[r, y])),
        "the terms of the sum are products of 3 operands: `A` and `B` and `W`",
        "multiply two of them in a Func of their own first",
        with_copy("weighted", lambda u, v: A[u, v] * image("W")[u, v]),
    ),
    "squared differences": Scenario(
        gpu(lambda x, y, r: (f32(A[r, y]) - f32(B[x, r])) * (f32(A[r, y]) - f32(B[x, r]))),
        "it sums squared differences", SQUARED, gpu(),
    ),
    "squared differences on AMX": Scenario(
        amx(lambda x, y, r: hl.pow(f32(A_BF16[r, y]) - f32(B_BF16[x, r]), 2)),
        "it sums squared differences", SQUARED, amx(), target="amx",
    ),
    "absolute differences": Scenario(
        gpu(lambda x, y, r: hl.abs(f32(A[r, y]) - f32(B[x, r]))),
        "the terms of the sum are not products of two operands: ", "only sums of products",
    ),
    "a sum of rows": Scenario(
        groups(lambda x, y, r: f32(A[r, y])),
        "the terms of the sum are not products of two operands",
        "multiply `A` by a Func of ones (of type float16",
        lambda: _with_ones(lambda ones: lambda x, y, r: f32(A[r, y]) * f32(ones[x, r])),
        target="sm_90a",
    ),
    "another value instead of zero": Scenario(
        gpu(lambda x, y, r: hl.select(x < 10, product(x, y, r), 1.0)),
        "a select that does not end in zero", "`select(condition, a*b, 0)`",
        gpu(lambda x, y, r: hl.select(x < 10, product(x, y, r), 0.0)),
    ),
    "positive values only": Scenario(
        groups(lambda x, y, r: hl.select(f32(A[r, y]) > 0, product(x, y, r), 0.0)),
        "is not affine in the vectorized variables", "a Func that prepares the operand",
        with_copy("positive", lambda u, v: hl.max(A[u, v], hl.cast(F16, 0))), target="sm_90a",
    ),
    "a sum times a number": Scenario(
        groups(lambda x, y, r: f32(A[r, y]) * 3.0),
        "one operand is the same value in every lane, 3.0", "multiply where `mm` is read",
        lambda: _with_ones(
            lambda ones: lambda x, y, r: f32(A[r, y]) * f32(ones[x, r]),
            read=lambda mm, x, y: mm[x, y] * 3.0,
        ),
        target="sm_90a",
    ),
    "operands added first": Scenario(
        groups(lambda x, y, r: f32(A[r, y] + image("C")[r, y]) * f32(B[x, r])),
        "an operand is computed on the fly from `A` and `C`", "compute it into its own Func",
        with_copy("both", lambda u, v: A[u, v] + image("C")[u, v]), target="sm_90a",
    ),
    "a condition on both operands as a factor": Scenario(
        gpu(lambda x, y, r: product(x, y, r) * f32(x + y < r)),
        "products with a condition as a factor, `", "write `select(condition, a*b, 0)`",
        gpu(lambda x, y, r: hl.select(r < 50, product(x, y, r), 0.0)),
    ),
    # indices
    "rows looked up": Scenario(
        groups(lambda x, y, r: f32(A[r, hl.clamp(image("J", I32, 1)[y], 0, 9)]) * f32(B[x, r])),
        "`A` is read at an index that is looked up in `J`", FROM_A,
        with_copy("rows", lambda u, v: A[u, hl.clamp(image("J", I32, 1)[v], 0, 9)]),
        target="sm_90a",
    ),
    "columns that wrap around": Scenario(
        groups(lambda x, y, r: f32(A[(r + 3) % 64, y]) * f32(B[x, r])),
        "`A` is read at an index that is wrapped around at 64", FROM_A,
        with_copy("turned", lambda u, v: A[(u + 3) % 64, v]), target="sm_90a",
    ),
    "rows divided by three": Scenario(
        groups(lambda x, y, r: f32(A[r, (y + 1) // 3]) * f32(B[x, r])),
        "`A` is read at an index that is divided by 3", FROM_A,
        with_copy("thirds", lambda u, v: A[u, (v + 1) // 3]), target="sm_90a",
    ),
    "columns clamped to the edge": Scenario(
        groups(lambda x, y, r: f32(A[hl.clamp(r - 1, 0, 60), y]) * f32(B[x, r])),
        "`A` is read at an index that is clamped", "so that the clamp happens there",
        with_copy("edge", lambda u, v: A[hl.clamp(u - 1, 0, 60), v]), target="sm_90a",
    ),
    "a diagonal product": Scenario(
        gpu(lambda x, y, r: f32(A[r, x]) * f32(B[x, r])),
        "both operands vary along n: `A` is read with stride A.stride.1 and `B` with stride 1",
        "loop over that dimension instead of vectorizing it", gpu(),
    ),
    # tiles
    "a tile of 4 rows": Scenario(
        gpu(tile=(64, 4)), "its tile is 4 x 64 (m x n); no instruction's shape divides it",
        "make it 8 x 64, a multiple of 8 x 32", gpu(tile=(64, 8)),
    ),
    "a tile of 12 x 12": Scenario(
        gpu(tile=(12, 12)), "its tile is 12 x 12 (m x n)", "make it 16 x 16", gpu(),
    ),
    "instructions that do not divide the tile": Scenario(
        gpu(tile=(8, 32)), "its tile is 32 x 8 (m x n); no instruction's shape divides it",
        "or lift the restriction: wmma.mma.m32n8k16.f16.f32 fits",
        gpu(tile=(16, 16)), instructions=("wmma.mma.m16n16k16.f16.f32",),
    ),
    "instructions of another type": Scenario(
        gpu(), "among those that `instructions=` allows",
        "lift the restriction: wmma.mma.m16n16k16",
        instructions=("wmma.mma.m16n16k16.s8.s32",),
    ),
    "more tiles than registers": Scenario(
        amx(tile=(64, 32), depth=4), "`mm` needs 8 tile registers for its sums",
        "32 x 32, 16 x 96 or 48 x 32 fit", amx(tile=(32, 32)), target="amx",
    ),
    # the schedule
    "the sum in a loop": Scenario(
        gpu(update=serial_sum), "its 256 outputs are vectorized and its sum is not",
        "`mm.update().atomic().vectorize(r)", gpu(), error=ScheduleError,
    ),
    "the sum in a loop on AMX": Scenario(
        amx(update=serial_sum), "its 256 outputs are vectorized and its sum is not",
        "`mm.update().atomic().vectorize(r)", amx(), target="amx", error=ScheduleError,
    ),
    "the sum outside the tile": Scenario(
        gpu(update=sum_outside), "its sum is vectorized outside of the tile",
        "vectorize a reduction variable innermost", gpu(), error=ScheduleError,
    ),
    "nothing vectorized": Scenario(
        gpu(update=unrolled_tile), "no reduction over vector lanes: it was not vectorized",
        "vectorize a reduction variable innermost", gpu(), error=ScheduleError,
    ),
    "a condition of a maximum": Scenario(
        gpu(combine=hl.max, where=lambda x, y, r: r != 50),
        "a condition guards it, under which Halide takes vectors apart: `((mm.s1.r$x.ro*16)",
        "add what is summed to the element itself, `f[...] += a*b`: then a condition",
        gpu(where=lambda x, y, r: r != 50), error=ScheduleError,
    ),
    "a condition of rows and columns": Scenario(
        gpu(where=lambda x, y, r: r <= x + y), "varies along rows and columns of the tile",
        "a condition of its own that `&` joins", gpu(where=lambda x, y, r: (r <= x) & (r <= y)),
    ),
    "the sum alone as a vector": Scenario(
        gpu(update=sum_alone),
        "`mm` is stored by scalar code, in the loops over `x` and `y` (16 x 16)",
        "vectorize `x` and `y` in the update, innermost first", gpu(),
    ),
    "one row at a time": Scenario(
        gpu(update=one_row), "its 16 lanes are no multiple of any instruction's m x n (128, 256)",
        "vectorize the dimension that is unrolled as well", gpu(),
    ),
    # the accumulator
    "a read by scalar code": Scenario(
        gpu(scalar_read=True), "`mm` is read by scalar code: a tile is read as one",
        "vectorize the reading stage (`out`) over the whole tile of `mm`", gpu(), stage="read",
    ),
    "a read by scalar code on AMX": Scenario(
        amx(scalar_read=True), "`mm` is read by scalar code: a tile is read as one",
        "vectorize the reading stage (`out`) over the whole tile of `mm`", amx(), target="amx",
        stage="read",
    ),
    "one and a half tiles": Scenario(
        gpu(tile=(16, 24), update=guarded),
        "`mm` is stored across the tiles of 16 into which its update cuts it",
        "let the extent be a multiple of 16", gpu(), stage="init",
    ),
    "columns in reverse": Scenario(
        gpu(read=lambda mm, x, y: mm[63 - x, y]), "`mm` is read with stride -1",
        "in the order in which it is stored", gpu(), stage="read",
    ),
    "a transposed read": Scenario(
        gpu(read=transposed), "a tile is read as one dense vector",
        "vectorize the reading stage (`out`) over the whole tile of `mm`", gpu(), stage="read",
    ),
}  # fmt: skip


def _with_ones(value, **more) -> hl.Func:  # type: ignore[no-untyped-def]
    ones = copied("ones", lambda u, v: hl.cast(F16, 1))
    return Tiled(value(ones), staged=(ones,), **more).build()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_pipeline_is_refused_in_the_users_names(name: str) -> None:
    s = SCENARIOS[name]
    with pytest.raises(s.error) as caught:
        hb.compile(s.build(), target=s.target, cache=False, instructions=s.instructions)
    error = caught.value
    assert isinstance(error, SelectionError | ScheduleError)
    assert s.why in error.why
    assert s.hint in error.hint
    dictionary.check("pipelines", name, error)
    assert error.where is not None
    assert error.where.func == ("mm" if s.stage != "read" else "out")
    assert s.stage in error.where.stage
    assert "tiled.py:" in error.where.location or s.stage == "read"


@pytest.mark.parametrize("name", [n for n, s in SCENARIOS.items() if s.fixed is not None])
def test_what_the_hint_says_is_selected(name: str) -> None:
    s = SCENARIOS[name]
    assert s.fixed is not None
    output = s.fixed()
    assert names_selected(output, s.target)


TWICE: dict[str, Callable[..., hl.Expr]] = {
    "(a + a)*b": lambda a, b: (f32(a) + f32(a)) * f32(b),
    "max(a, a)*b": lambda a, b: f32(hl.max(a, a)) * f32(b),
    "a*b + a*b": lambda a, b: f32(a) * f32(b) + f32(a) * f32(b),
}


@pytest.mark.parametrize("name", TWICE)
def test_an_operand_that_occurs_twice_is_one(name: str) -> None:
    """Halide binds it by a let; its value is that of the let, whatever the tile is."""
    value = TWICE[name]
    tile = gpu(lambda x, y, r: value(A[r, y], B[x, r]))
    a, b = random(np.float16, 64, 64), random(np.float16, 64, 64, seed=1)
    times = 1 if "max" in name else 2
    kernel = hb.compile(tile(), target="sm_80")
    assert names_selected(tile(), "sm_80")
    truth = times * (a.astype(np.float64) @ b.astype(np.float64))
    assert np.array_equal(kernel.interpret(A=a, B=b), truth)
    assert names_selected(filtered(value), "sm_80")


def filtered(value: Callable[..., hl.Expr]) -> hl.Func:
    """A convolution of rows with 32 taps, 256 outputs at once."""
    rows, taps = image("I"), image("K", dimensions=1)
    conv, output = hl.Func("conv"), hl.Func("output")
    x, y, xo, xi = (hl.Var(n) for n in ("x", "y", "xo", "xi"))
    t = hl.RDom([(0, 32)], "t")
    conv[x, y] = f32(0)
    conv[x, y] += value(rows[x + t.x, y], taps[t.x])
    output[x, y] = conv[x, y]
    output.split(x, xo, xi, 256).reorder(xi, xo, y).vectorize(xi).gpu_blocks(xo, y)
    conv.compute_at(output, xo).vectorize(x)
    conv.update().atomic().vectorize(x).vectorize(t.x)
    return hb.store_in(conv, hb.MemoryType.WMMAAccumulator) and output


def banks(extent: hl.Expr | int | None = None, channels: int | None = None) -> hl.Func:
    """Filters of 8 taps: a bank of ``channels`` over every second pixel, or of ``extent`` rows of
    taps, one after the other."""
    rows, taps = image("I"), image("K")
    conv, output = hl.Func("conv"), hl.Func("output")
    x, y, c, xo, xi = (hl.Var(n) for n in ("x", "y", "c", "xo", "xi"))
    t = hl.RDom([(0, 8), (0, 1 if extent is None else extent)], "t")
    conv[x, c, y] = f32(0)
    bank = c if extent is None else t.y
    conv[x, c, y] += f32(rows[2 * x + t.x, y]) * f32(taps[t.x, bank])
    output[x, c, y] = conv[x, c, y]
    if channels is not None:
        output.bound(c, 0, channels)
    output.split(x, xo, xi, 256).reorder(xi, c, xo, y).vectorize(xi).gpu_blocks(xo, y)
    conv.compute_at(output, c).vectorize(x)
    conv.update().reorder(t.x, x, c, y, t.y).atomic().vectorize(x).vectorize(t.x)
    return hb.store_in(conv, hb.MemoryType.WMMAAccumulator) and output


TAPS = hl.Param(hl.Int(32), "taps", 5)
BANKS: dict[str, tuple[Build, str, Build]] = {
    "over the output": (banks, "`output.bound(c, 0, extent)`", lambda: banks(channels=2)),
    "over the taps": (
        lambda: banks(TAPS), "give the reduction domain constant extents", lambda: banks(5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BANKS)
def test_taps_of_a_loop_without_an_end(name: str) -> None:
    """The hint names the loop's own way to a constant extent."""
    refused, hint, fixed = BANKS[name]
    with pytest.raises(EmitError, match="the taps in `K` depend on the loop") as caught:
        hb.compile(refused(), target="sm_80", cache=False)
    assert hint in caught.value.hint
    assert names_selected(fixed(), "sm_80")


def by_warpgroup(step: int = 1, across: int = 1, copied_first: bool = False) -> hl.Func:
    """A product whose first factor is every ``step``-th row and ``across``-th column of ``A``."""
    n, m, no, mo, ni, mi, u, v = (hl.Var(x) for x in ("n", "m", "no", "mo", "ni", "mi", "u", "v"))
    k, ko, ki = hl.RDom([(0, 64)], "k"), hl.RVar("ko"), hl.RVar("ki")
    mm, out, picked = hl.Func("mm"), hl.Func("out"), hl.Func("picked")
    picked[u, v] = A[u * across, v * step]
    left = picked[k.x, m] if copied_first else A[k.x * across, m * step]
    mm[n, m] = f32(0)
    mm[n, m] += f32(left) * f32(B[n, k.x])
    out[n, m] = mm[n, m]
    out.tile(n, m, no, mo, ni, mi, 32, 64).vectorize(ni).vectorize(mi).gpu_blocks(no, mo)
    mm.compute_at(out, no).vectorize(n).vectorize(m)
    update = mm.update().split(k.x, ko, ki, 16).reorder(ki, n, m, ko).atomic()
    update.vectorize(n).vectorize(m).vectorize(ki)
    for staged in (picked if copied_first else A.in_(mm), B.in_(mm)):
        staged.compute_at(mm, ko).store_in(hl.MemoryType.GPUShared).vectorize(staged.args()[0])
    return hb.store_in(mm, hb.MemoryType.WGMMAAccumulator) and out


@pytest.mark.parametrize("strides", [{"step": 2}, {"across": 2}], ids=["rows", "columns"])
def test_operands_of_a_warpgroup_that_lie_apart(strides: dict[str, int]) -> None:
    with pytest.raises(ScheduleError, match="cannot be an operand of wgmma") as caught:
        hb.compile(by_warpgroup(**strides), target="sm_90a", cache=False)
    apart = "its rows are read" if "step" in strides else "its columns 2, where"
    assert apart in caught.value.why
    assert "`f(u, v) = a(u, 2*v)`" in caught.value.hint
    with pytest.warns(PerformanceWarning) if "across" in strides else nullcontext():
        assert names_selected(by_warpgroup(**strides, copied_first=True), "sm_90a")


@pytest.mark.parametrize(("a", "b"), [(U, S), (S, U)], ids=["u8.s8", "s8.u8"])
def test_bytes_of_two_kinds(a: hl.ImageParam, b: hl.ImageParam) -> None:
    build = gpu(lambda x, y, r: i32(a[r, y]) * i32(b[x, r]), accumulator=I32, depth=32)
    kernel = hb.compile(build(), target="sm_80")
    (name,) = names_selected(build(), "sm_80")
    assert name == f"mma.m16n8k32.{'u8.s8' if a is U else 's8.u8'}.s32"
    assert f"s32.{'u8.s8' if a is U else 's8.u8'}.s32" in kernel.source
    values = {"U": random(np.uint8, 64, 64) + np.uint8(200), "S": random(np.int8, 64, 64, seed=1)}
    left, right = values["U" if a is U else "S"], values["S" if a is U else "U"]
    truth = left.astype(np.int32) @ right.astype(np.int32)
    assert np.array_equal(kernel.interpret(**values), truth)


def test_part_of_the_sum_is_enough() -> None:
    names = names_selected(gpu(update=part_of_the_sum)(), "sm_80")
    assert names == ["wmma.mma.m16n16k16.f16.f32"]


def test_any_tile_is_an_amx_tile() -> None:
    for tile in ((12, 12), (5, 3), (48, 16)):
        assert names_selected(amx(tile=tile)(), "amx")


PLAIN = [n for n, s in SCENARIOS.items() if s.error is SelectionError and s.stage == "update"]
PLAIN.remove("AMXTile on a GPU")  # has no blocks


@pytest.mark.parametrize("name", PLAIN)
def test_without_strict_it_is_plain_code_and_the_report_says_why(name: str) -> None:
    s = SCENARIOS[name]
    arguments = {"target": s.target, "cache": False, "instructions": s.instructions}
    with pytest.warns(UserWarning, match="not everything was selected"):
        kernel = hb.compile(s.build(), strict=False, **arguments)
    assert kernel.source
    assert isinstance(kernel.report, Report)
    assert any(s.why in m.miss and s.hint in m.hint for m in kernel.report.misses)
