"""Every pipeline that stock Halide's AMX error test rejects (halide/Halide, main,
test/correctness/tiled_matmul_errors.cpp), under its name there: selected here, with numbers
compared with float64, or refused with a cause and a way out that is then taken."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import halide as hl
import numpy as np
import pytest
from tiled import AMX, I8, I16, I32, Tiled, random

import halide_bridge as hb
from selector.diagnostics import ScheduleError, SelectionError, UserError
from selector.eqsat.saturate import Engine, Saturation
from selector.eqsat.solve import forget

pytestmark = [pytest.mark.chains, pytest.mark.verified]


def matrix(name: str, t: hl.Type = I8) -> hl.ImageParam:
    return hl.ImageParam(t, 2, name)


def packed(name: str, t: hl.Type = I8, group: int = 4) -> hl.ImageParam:
    """A right operand in groups of k: (k % 4, x, k / 4)."""
    b = hl.ImageParam(t, 3, name)
    b.dim(0).set_bounds(0, group).set_stride(1)
    b.dim(1).set_stride(group)
    return b


def wide(e: hl.Expr, t: hl.Type = I32) -> hl.Expr:
    return hl.cast(t, e)


def amx(value, tile: tuple[int, int] = (8, 8), **more) -> Tiled:  # type: ignore[no-untyped-def]
    settings = {"accumulator": I32, "memory": AMX, "depth": 8} | more
    return Tiled(value, tile=tile, **settings)


A, B, VNNI = matrix("A"), matrix("B"), packed("B")


def rows_times_vnni(x: hl.Var, y: hl.Var, r: hl.RVar) -> hl.Expr:
    return wide(A[r, y]) * wide(VNNI[r % 4, x, r // 4])


def refused(output: hl.Func) -> UserError:
    with pytest.raises((SelectionError, ScheduleError)) as caught:
        hb.compile(output, target="amx", cache=False)
    error = caught.value
    assert error.why
    assert error.hint
    assert error.where is not None
    assert "test_upstream_amx.py" in error.where.location or "tiled.py" in error.where.location
    return error


def check(tiled: Tiled, truth: np.ndarray, **arrays: np.ndarray) -> str:
    """Selected, and the numbers are those of float64; the instruction."""
    kernel = hb.compile(tiled.build(), target="amx", cache=False)
    (update,) = kernel.report.updates
    result = np.asarray(kernel.interpret(**arrays, sizes=(64, 64)), np.float64)
    assert np.linalg.norm(result - truth) <= 1e-6 * np.linalg.norm(truth)
    assert update.block is not None
    return update.block.instruction


ROWS, COLUMNS = random(np.int8, 64, 64, seed=1), random(np.int8, 64, 64, seed=2)
TRUTH = ROWS.astype(np.float64) @ COLUMNS.astype(np.float64)
GROUPS = COLUMNS.reshape(16, 4, 64).transpose(0, 2, 1).copy()


def test_too_large_is_selected() -> None:
    name = check(amx(rows_times_vnni, (32, 16)), TRUTH, A=ROWS, B=GROUPS)
    assert name.startswith("amx.tdpbssd")


def test_explaining_it_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one of its rules the search for its instruction has no end."""
    rows: list[int] = []
    saturate = Engine.saturate

    def counted(*args) -> Saturation:  # type: ignore[no-untyped-def]
        rows.append((found := saturate(*args)).rows)
        return found

    monkeypatch.setattr(Engine, "saturate", counted)
    forget()
    with ThreadPoolExecutor(1) as other:  # which has found no chain yet
        kernel = other.submit(
            lambda: hb.compile(amx(rows_times_vnni).build(), target="amx", cache=False)
        ).result()
    (update,) = kernel.report.updates
    assert "broadcast-one" in update.rules
    assert max(rows) < 20_000


def test_too_many_rows_are_selected() -> None:
    check(amx(rows_times_vnni, (16, 32)), TRUTH, A=ROWS, B=GROUPS)


def test_tiles_beyond_the_registers_are_refused() -> None:
    error = refused(amx(rows_times_vnni, (64, 32)).build())
    assert error.why.startswith("`mm` needs 8 tile registers for its sums (a block of 32 x 64")
    assert "32 x 32, 16 x 96 or 48 x 32 fit" in error.hint
    check(amx(rows_times_vnni, (32, 32)), TRUTH, A=ROWS, B=GROUPS)


def test_bad_result_type() -> None:
    def value(x: hl.Var, y: hl.Var, r: hl.RVar) -> hl.Expr:
        return wide(A[r, y], I16) * wide(VNNI[r % 4, x, r // 4], I16)

    error = refused(amx(value, accumulator=I16).build())
    assert error.why.startswith("no instruction multiplies int8 by int8 into int16")
    assert error.hint.startswith("accumulate in int32")
    fixed = amx(rows_times_vnni, read=lambda mm, x, y: hl.cast(I16, mm[x, y]))
    check(fixed, TRUTH, A=ROWS, B=GROUPS)


def test_naive_rhs_is_selected() -> None:
    tiled = amx(lambda x, y, r: wide(A[r, y]) * wide(B[x, r]))
    assert check(tiled, TRUTH, A=ROWS, B=COLUMNS).startswith("amx.tdpbssd")


def test_indirect() -> None:
    indices = hl.ImageParam(I32, 1, "row_indices")

    def row(y: hl.Var) -> hl.Expr:
        return hl.clamp(indices[y], 0, 10)

    u, v = hl.Var("u"), hl.Var("v")
    rows = hl.Func("rows")
    rows[u, v] = A[u, row(v)]
    before = amx(lambda x, y, r: wide(rows[r, y]) * wide(VNNI[r % 4, x, r // 4]), staged=(rows,))
    there = amx(lambda x, y, r: wide(A[r, row(y)]) * wide(VNNI[r % 4, x, r // 4]))
    table = np.random.default_rng(3).integers(0, 11, 64).astype(np.int32)
    truth = ROWS[table].astype(np.float64) @ COLUMNS.astype(np.float64)
    for tiled in (before, there):
        check(tiled, truth, A=ROWS, B=GROUPS, row_indices=table)


def test_conv1d() -> None:
    image, kernels = matrix("input"), packed("kernels")

    def value(x: hl.Var, y: hl.Var, r: hl.RVar) -> hl.Expr:
        return wide(image[x + r, y]) * wide(kernels[r % 4, x, r // 4])

    error = refused(amx(value, extent=32).build())
    assert error.why.startswith(
        "both operands vary along n: `input` is read with stride 1 and `kernels` with stride 4"
    )
    assert error.hint.startswith("one of them must not depend on n: loop over that dimension")
    fixed = amx(value, (1, 16), extent=32)
    pixels, taps = random(np.int8, 64, 95, seed=4), random(np.int8, 8, 64, 4, seed=5)
    weights = taps.transpose(1, 0, 2).reshape(64, 32).astype(np.float64)
    truth = np.stack([pixels[:, x : x + 32] @ weights[x] for x in range(64)], 1)
    check(fixed, truth, input=pixels, kernels=taps)


def test_conv1d_with_one_kernel_is_selected() -> None:
    image, kernel = matrix("input"), hl.ImageParam(I8, 1, "kernel")
    tiled = amx(lambda x, y, r: wide(image[x + r, y]) * wide(kernel[r]), (16, 16), extent=32)
    pixels, taps = random(np.int8, 64, 95, seed=4), random(np.int8, 32, seed=5)
    truth = np.stack([pixels[:, x : x + 32] @ taps.astype(np.float64) for x in range(64)], 1)
    check(tiled, truth, input=pixels, kernel=taps)


def test_no_matmul() -> None:
    x, y, xo, yo, xi, yi = (hl.Var(n) for n in ("x", "y", "xo", "yo", "xi", "yi"))
    f, out = hl.Func("f"), hl.Func("out")
    f[x, y] = 0
    out[x, y] = f[x, y]
    f.compute_at(out, xo).vectorize(x, 8).vectorize(y, 8)
    hb.store_in(f, AMX)
    out.tile(x, y, xo, yo, xi, yi, 8, 8).vectorize(xi).vectorize(yi)
    error = refused(out)
    assert error.what == "`f` is placed in AMXTile and has no update definition"
    assert "mark the Func that holds the sum" in error.hint


def test_widening_16bit() -> None:
    a, b = matrix("A", I16), packed("B", I16)
    error = refused(amx(lambda x, y, r: wide(a[r, y]) * wide(b[r % 4, x, r // 4])).build())
    assert error.why.startswith("no instruction multiplies int16 by int16 into int32")
    assert "store the operands in a type that has one: int8 x int8 -> int32" in error.hint
    check(amx(rows_times_vnni), TRUTH, A=ROWS, B=GROUPS)


def two_products(second: int) -> hl.Func:
    """Two updates of one accumulator, the second on tiles of ``second`` x ``second``."""
    x, y, xo, yo, xi, yi = (hl.Var(n) for n in ("x", "y", "xo", "yo", "xi", "yi"))
    c, d = matrix("C"), packed("D")
    r1, r2 = hl.RDom([(0, 64)], "r1"), hl.RDom([(0, 64)], "r2")
    mm, out = hl.Func("mm"), hl.Func("out")
    mm[x, y] = 0
    mm[x, y] += wide(A[r1.x, y]) * wide(VNNI[r1.x % 4, x, r1.x // 4])
    mm[x, y] += wide(c[r2.x, y]) * wide(d[r2.x % 4, x, r2.x // 4])
    out[x, y] = mm[x, y]
    out.bound(x, 0, 64).bound(y, 0, 64)
    out.tile(x, y, xo, yo, xi, yi, 8, 8).vectorize(xi).vectorize(yi)
    mm.compute_at(out, xo).vectorize(x).vectorize(y)
    for update, r, size in ((mm.update(0), r1, 8), (mm.update(1), r2, second)):
        outer, inner, u, v = hl.RVar("ro"), hl.RVar("ri"), hl.Var("u"), hl.Var("v")
        update.split(r.x, outer, inner, 8).tile(x, y, u, v, size, size)
        update.reorder(inner, u, v, outer, x, y).atomic()
        update.vectorize(inner).vectorize(u).vectorize(v)
    return hb.store_in(mm, AMX) and out


def test_inconsistent_tiles() -> None:
    error = refused(two_products(4))
    assert error.why.startswith("`mm` is stored by scalar code, in the loops over `u` and `v`")
    assert "each must cover its dimension of the tile" in error.hint
    kernel = hb.compile(two_products(8), target="amx", cache=False)
    assert sum(u.copies for u in kernel.report.updates) == 2
    c, d = random(np.int8, 64, 64, seed=6), random(np.int8, 64, 64, seed=7)
    more = d.reshape(16, 4, 64).transpose(0, 2, 1).copy()
    got = kernel.interpret(A=ROWS, B=GROUPS, C=c, D=more, sizes=(64, 64))
    np.testing.assert_array_equal(got, TRUTH + c.astype(np.float64) @ d.astype(np.float64))


def test_not_a_matmul_pattern() -> None:
    words = matrix("A", I32)
    error = refused(amx(lambda x, y, r: words[r, y]).build())
    assert (
        "are not products of two operands, and no instruction of target amx multiplies int32"
        in (error.why)
    )
    assert "store `A` in a type that has one (int8 x int8; " in error.hint
    assert "and multiply it by a Func of ones" in error.hint
    u, v = hl.Var("u"), hl.Var("v")
    ones = hl.Func("ones")
    ones[u, v] = hl.cast(I8, 1)
    fixed = amx(lambda x, y, r: wide(A[r, y]) * wide(ones[x, r]), staged=(ones,))
    truth = np.repeat(ROWS.astype(np.float64).sum(1)[:, None], 64, 1)
    check(fixed, truth, A=ROWS)


def test_matmul_by_constant() -> None:
    def three(x: hl.Expr, r: hl.Expr) -> hl.Expr:
        return hl.select(x == r, hl.cast(I8, 3), hl.cast(I8, 0))

    u, v = hl.Var("u"), hl.Var("v")
    diagonal = hl.Func("diagonal")
    diagonal[u, v] = three(u, v)
    before = amx(lambda x, y, r: wide(A[r, y]) * wide(diagonal[x, r]), staged=(diagonal,))
    there = amx(lambda x, y, r: wide(A[r, y]) * wide(three(x, r)))
    for tiled in (before, there):
        check(tiled, 3.0 * ROWS.astype(np.float64), A=ROWS)
