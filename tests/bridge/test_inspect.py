"""Pipelines as their users defined them: what the native module tells, and outputs that are
computed in their wrappers.
"""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from pipelines import variables

import halide_bridge as hb
from halide_bridge import memory
from halide_bridge.native import native
from selector.diagnostics import ScheduleError


def product(depth: int = 64) -> hl.Func:
    """A sum of products that is itself the output."""
    n, m = variables("n m")
    a, b = hl.ImageParam(hl.Float(16), 2, "A"), hl.ImageParam(hl.Float(16), 2, "B")
    k, mm = hl.RDom([(0, depth)], "k"), hl.Func("mm")
    mm[n, m] = hl.f32(0)
    mm[n, m] += hl.f32(a[k.x, m]) * hl.f32(b[n, k.x])
    return mm


def on_warps(mm: hl.Func, out: hl.Func) -> None:
    n, m = out.args()
    no, mo, ni, mi = variables("no mo ni mi")
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    out.tile(n, m, no, mo, ni, mi, 32, 16).vectorize(ni).vectorize(mi).gpu_blocks(no, mo)
    mm.compute_at(out, no).vectorize(n).vectorize(m)
    update = mm.update().split(mm.rvars(0)[0], ko, ki, 16).reorder(ki, n, m, ko)
    update.atomic().vectorize(ki).vectorize(n).vectorize(m)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)


def test_definitions_are_told_as_they_stand() -> None:
    mm = product()
    described = native().inspect([mm])
    funcs = {f["name"]: f for f in described["funcs"]}
    assert list(funcs)[-1] == mm.name()
    assert len(funcs) == 3
    told = funcs[mm.name()]
    assert told["args"] == ("n", "m")
    assert len(told["stages"]) == 2
    _, _, predicate, rvars, touched = told["stages"][1]
    assert (predicate, len(rvars), touched) == (-1, 1, False)
    extent = described["records"][rvars[0][2]]
    assert (extent[0], extent[-1]) == ("IntImm", 64)
    accesses = [r for r in described["records"] if r[0] == "Access"]
    assert {r[2].removesuffix("_im") for r in accesses} >= {"A", "B", mm.name()}


def test_a_handle_is_the_func_itself() -> None:
    mm = product()
    handle = native().inspect([mm])["funcs"][-1]["handle"]
    handle.update().unroll(handle.rvars(0)[0])
    assert native().inspect([mm])["funcs"][-1]["stages"][1][4]


def test_what_is_scheduled_is_told() -> None:
    x, y = variables("x y")
    first, second, out = hl.Func("first"), hl.Func("second"), hl.Func("out")
    first[x, y] = x + y
    second[x, y] = first[x, y] + 1
    out[x, y] = second[x, y] * 2
    second.compute_at(out, y)
    told = {f["name"]: f for f in native().inspect([out])["funcs"]}
    assert [told[f.name()]["scheduled"] for f in (first, second, out)] == [False, True, False]
    assert told[second.name()]["at"] == out.name()


def test_a_copy_has_a_schedule_of_its_own() -> None:
    mm = product()
    (copy,) = native().copy([mm])
    with memory.apart():
        on_warps(copy, copy.in_())
        assert "WMMA" in str(hb.lower(copy)).upper()
    assert not native().inspect([mm])["funcs"][-1]["scheduled"]
    assert "WMMA" not in str(hb.lower(mm)).upper()
    on_warps(mm, mm.in_())
    assert hb.lower(mm).name == "mm"


@pytest.mark.parametrize("sizes", [(33, 47), (16, 32), (5, 70)])
def test_an_output_is_computed_in_a_tensor_unit_and_stored_by_its_wrapper(
    sizes: tuple[int, int],
) -> None:
    mm = product()
    mm.output_buffer().dim(0).set_stride(1)
    on_warps(mm, mm.in_())
    kernel = hb.compile(mm, target="sm_80")
    assert [b.name for b in kernel.module.buffers] == ["A", "B", "mm"]
    assert "mma" in str(kernel.report)
    rows, columns = sizes
    random = np.random.default_rng(3)
    a = random.standard_normal((rows, 64)).astype(np.float16)
    b = random.standard_normal((64, columns)).astype(np.float16)
    result = kernel.interpret(A=a, B=b, sizes=sizes)
    assert np.allclose(result, a.astype(np.float64) @ b.astype(np.float64), atol=1e-2)


def test_what_is_declared_of_an_output_holds_for_its_wrapper() -> None:
    mm = product()
    mm.output_buffer().dim(0).set_bounds(0, 48)
    on_warps(mm, mm.in_())
    output = hb.lower(mm).buffers[-1]
    assert output.dims[0].extent.value == 48  # type: ignore[union-attr]


def test_without_its_wrapper_an_output_has_no_storage_of_its_own() -> None:
    mm = product()
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    with pytest.raises(ScheduleError, match="no storage of its own"):
        hb.lower(mm)
