"""Products of single floats by warpgroups: what is staged is rounded to tf32 on its way, by the
copy engine or by the threads that copy instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from numpy.typing import NDArray

import halide_bridge as hb
from halide_bridge.schedules import Contraction, Operand, contract
from selector.diagnostics import ScheduleError, SelectionError
from selector.families.contraction import Shape, Tiling, why_not
from selector.gpu.codegen.program import emit_kernels
from selector.ir.tf32 import to_tf32
from selector.runtime.plan_json import plan_from_json, plan_to_json
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = pytest.mark.verified

Array = NDArray[Any]
F32 = hl.Float(32)
TF32 = ("tf32",)
EXACT = 1e-6  # of sums in single floats
TILING = Tiling(n=64, m=64, k=32, parts_m=1, stages=3, depth=8, band=2)


def product(layout: str) -> Contraction:
    """``layout``: as that of the case study."""
    x, y = hl.Var("x"), hl.Var("y")
    a, b = (hl.ImageParam(F32, 2, name) for name in "AB")
    out, total = hl.Func("out"), hl.Func("total")
    k = hl.RDom([(0, a.dim("nt".index(layout[0])).extent())], "k")
    left = a[k, y] if layout[0] == "n" else a[y, k]
    total[x, y] += left * (b[x, k] if layout[1] == "n" else b[k, x])
    out[x, y] = total[x, y]
    operands = Operand(a, "A", layout[0] == "n"), Operand(b, "B", layout[1] == "t")
    return Contraction(out, total, *operands, x, y, k)


def scheduled(layout: str, tiling: Tiling) -> Any:
    return hb.compile(contract(product(layout), tiling), target="sm_90a", instructions=TF32)


def operands(layout: str, m: int, n: int, k: int) -> tuple[dict[str, Array], Array]:
    draw = np.random.default_rng(m * n + k)
    a, b = (draw.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    a[0, :4] = 1 + np.array([1, 3, 5, 7]) * 2.0**-11  # half way between two
    wanted = to_tf32(a, even=True).astype(np.float64) @ to_tf32(b, even=True)
    lying = a if layout[0] == "n" else a.T, b if layout[1] == "n" else b.T
    return dict(zip("AB", map(np.ascontiguousarray, lying), strict=True)), wanted


def off(found: Array, wanted: Array) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize(
    ("layout", "tiling"),
    [
        ("nt", TILING),
        ("nt", replace(TILING, self_fed=True)),
        ("nt", replace(TILING, n=128, m=128, parts_m=2, persistent=1)),
        ("nt", replace(TILING, n=24, k=8, cluster=1)),
        ("nt", replace(TILING, m=128, parts_m=2, cluster=2)),
        ("nt", replace(TILING, m=16, k=64, swapped=True)),
        ("nt", replace(TILING, part=64)),
        ("nn", replace(TILING, n=96, copied="B")),
        ("tn", replace(TILING, copied="AB")),
    ],
    ids=lambda x: getattr(x, "label", x),
)
def test_what_is_staged_is_rounded(layout: str, tiling: Tiling) -> None:
    """And no more is lost, whoever stages it."""
    kernel = scheduled(layout, tiling)
    kernels, plan = emit_kernels(kernel.module, kernel.target)
    for sizes in ((128, 72, 96), (70, 67, 101)):  # with tensor maps, and where rows begin anywhere
        m, n, _ = sizes
        shape = Shape(*sizes, 4, 4, layout[0] == "n", layout[1] == "t")
        assert not why_not(tiling, shape, find_target("sm_90a"))
        arrays, wanted = operands(layout, *sizes)
        assert off(emulation.check(kernel, sizes=(m, n), **arrays), wanted) <= EXACT
        for maps in (True, False):
            found = simulate(kernels, plan, arrays, (m, n), maps=maps)
            assert found.faults == ()
            (output,) = found.outputs.values()
            assert off(output, wanted) <= EXACT


def staged_once(scale: float, pitch: int) -> hl.Func:
    """A product whose operands are staged, in steps, without a ring; ``scale`` != 1: computed."""
    x, y, xo, xi, yo, yi = (hl.Var(name) for name in ("x", "y", "xo", "xi", "yo", "yi"))
    a, b = (hl.ImageParam(F32, 2, name) for name in "AB")
    k, total, out = hl.RDom([(0, a.dim(0).extent())], "k"), hl.Func("total"), hl.Func("out")
    left = hl.Func("left")
    left[x, y] = a[x, y] * scale if scale != 1 else a[x, y]
    total[x, y] += left[k, y] * b[k, x]
    out[x, y] = total[x, y]
    out.split(x, xo, xi, 64).split(y, yo, yi, 64).reorder(xi, yi, xo, yo).gpu_blocks(xo, yo)
    out.vectorize(xi).vectorize(yi)
    total.compute_at(out, xo).bound_extent(x, 64).bound_extent(y, 64).vectorize(x).vectorize(y)
    hb.store_in(total, hb.MemoryType.WGMMAAccumulator)
    steps, depth, inner = (hl.RVar(name) for name in ("steps", "depth", "inner"))
    update = total.update().split(k.x, steps, depth, 16).split(depth, depth, inner, 8)
    update.reorder(inner, x, y, depth, steps).atomic().unroll(depth)
    update.vectorize(inner).vectorize(x).vectorize(y)
    for staged in (left, b.in_(total)):
        along, rows = staged.args()
        staged.compute_at(total, steps).store_in(hl.MemoryType.GPUShared)
        staged.bound_extent(along, 16).bound_extent(rows, 64).align_storage(along, pitch)
        staged.vectorize(along).vectorize(rows)
    return out


@pytest.mark.parametrize("scale", [1.0, 0.75])
@pytest.mark.parametrize("pitch", [16, 40])
def test_what_is_staged_without_a_ring_is_rounded(scale: float, pitch: int) -> None:
    """Copies, and what threads compute: drawn by the fuzzer, wgmma cut what nobody had rounded."""
    kernel = hb.compile(staged_once(scale, pitch), target="sm_90a", instructions=TF32)
    kernels, plan = emit_kernels(kernel.module, kernel.target)
    for m, n, k in ((128, 72, 96), (70, 67, 101)):
        arrays, _ = operands("nt", m, n, k)
        left = to_tf32(arrays["A"] * np.float32(scale), even=True).astype(np.float64)
        wanted = left @ to_tf32(arrays["B"], even=True).T
        assert off(emulation.check(kernel, sizes=(m, n), **arrays), wanted) <= EXACT
        found = simulate(kernels, plan, arrays, (m, n))
        assert found.faults == ()
        assert off(next(iter(found.outputs.values())), wanted) <= EXACT


def test_an_artifact_keeps_what_maps_round() -> None:
    kernel = scheduled("nt", TILING)
    loaded = plan_from_json(plan_to_json(kernel.plan), kernel.plan.source)
    assert loaded == kernel.plan
    assert [getattr(a, "rounds", False) for a in loaded.launches[0].arguments].count(True) == 2


def test_single_floats_across_the_sum_are_refused() -> None:
    with pytest.raises(ScheduleError, match="cannot be an operand of wgmma") as error:
        scheduled("nn", TILING)
    assert "wgmma reads single floats along the sum only" in error.value.why


def chained(kind: hl.Type) -> hl.Func:
    """A product of a product that stays in registers."""
    n, m, mo, mi = (hl.Var(name) for name in ("n", "m", "mo", "mi"))
    a, b, w = (hl.ImageParam(kind, 2, name) for name in "ABW")
    k, j = hl.RDom([(0, 48)], "k"), hl.RDom([(0, 32)], "j")
    first, kept, second, out = (hl.Func(name) for name in ("first", "kept", "second", "out"))
    first[n, m] += hl.f32(a[k.x, m]) * hl.f32(b[k.x, n])
    kept[n, m] = hl.cast(kind, hl.max(first[n, m], 0.0))
    second[n, m] += hl.f32(kept[j.x, m]) * hl.f32(w[j.x, n])
    out[n, m] = second[n, m]
    out.bound(n, 0, 32).split(m, mo, mi, 64).vectorize(n).vectorize(mi).gpu_blocks(mo)
    for f, r in ((first, k), (second, j)):
        f.compute_at(out, mo).bound_extent(n, 32).bound_extent(m, 64).vectorize(n).vectorize(m)
        steps, depth = hl.RVar("steps"), hl.RVar("depth")
        update = f.update().split(r.x, steps, depth, 32 // kind.bytes())
        update.reorder(depth, n, m, steps).atomic().unroll(steps)
        update.vectorize(n).vectorize(m).vectorize(depth)
        hb.store_in(f, hb.MemoryType.WGMMAAccumulator)
    kept.compute_at(out, mo).store_in(hl.MemoryType.Register)
    kept.bound_extent(n, 32).bound_extent(m, 64).vectorize(n).vectorize(m)
    for source, at, depth, rows in ((a, first, 48, 64), (b, first, 48, 32), (w, second, 32, 32)):
        staged = source.in_(at)
        x, y = staged.args()
        staged.compute_at(out, mo).store_in(hl.MemoryType.GPUShared)
        staged.bound_extent(x, depth).bound_extent(y, rows).vectorize(x).vectorize(y)
    return out


def test_single_floats_in_registers_are_refused() -> None:
    """Nobody would round them; halves stay there."""
    assert hb.compile(chained(hl.Float(16)), target="sm_90a").report
    with pytest.raises(ScheduleError, match="does not lie in shared memory"):
        hb.compile(chained(F32), target="sm_90a", instructions=TF32)


@pytest.mark.parametrize("allowed", [None, ("wgmma",)])
def test_groups_round_nothing_unasked(allowed: tuple[str, ...] | None) -> None:
    with pytest.raises(SelectionError) as error:
        hb.compile(contract(product("nt"), TILING), target="sm_90a", instructions=allowed)
    assert 'instructions=("tf32",)' in error.value.hint


def test_a_product_that_nobody_scheduled_is_of_the_instructions_that_are_named() -> None:
    names = {"tf32": "wgmma.m64", "mma.m16n8k8.tf32.f32": "mma.m16n8k8.tf32.f32"}
    for allowed, begin in names.items():
        kernel = hb.compile(
            product("nt").output, target="sm_90a", schedule="auto", sizes=(4096, 4096),
            instructions=(allowed,),
        )  # fmt: skip
        blocks = {u.block.instruction for u in kernel.report.updates if u.block is not None}
        assert all(name.startswith(begin) for name in blocks)
        assert len(blocks) == 1
