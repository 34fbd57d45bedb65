"""Halide pipelines without tensor statements on the CPU: compiled C against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import corpus_types
import halide as hl
import numpy as np
import pytest
from c_programs import AMX, executable, poisoned
from corpus_case import Case, input_shapes, output_shapes, random_inputs, variables

import halide_bridge as hb
from selector.cpu import emit
from selector.diagnostics import ScheduleError
from selector.ir.bfloat16 import from_bits
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.nodes import For, ForKind
from selector.ir.traverse import walk_stmt

pytestmark = pytest.mark.verified

GUARD = hl.TailStrategy.GuardWithIf
Run = Callable[..., Any]
F32 = hl.Float(32)


def compare(case: Case, module: Module, size: tuple[int, ...], run: Run | None = None) -> None:
    """Every output over poison; sums may be taken in another order."""
    run = run or executable(emit(module, AMX))
    arrays, shapes = random_inputs(case, module, size, 3), output_shapes(module, size)
    types = {b.name: str(b.type) for b in module.buffers}
    outs = {name: poisoned(shape, types[name]) for name, shape in shapes.items()}
    run([], {**arrays, **case.scalars}, out=outs)
    expected = interpret(module, arrays, case.scalars, sizes=shapes)
    for name, found in outs.items():
        wanted = expected[name]
        if types[name] == "bfloat16":
            found, wanted = from_bits(found), from_bits(wanted)
        tolerance = max(case.tolerance, 1e-6) * 10
        np.testing.assert_allclose(found, wanted, tolerance, 1e-7, err_msg=name)


ELEMENTWISE = {c.name: c for c in list(corpus_types.ELEMENTWISE)[::3]}


def on_the_cpu(out: hl.Func, x: hl.Var, y: hl.Var, *_: int) -> hl.Func:
    return out.vectorize(x, 8, GUARD).parallel(y)


@pytest.mark.slow
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The element-wise corpus of the GPU, scheduled for a CPU."""
    monkeypatch.setattr(corpus_types, "tiled", on_the_cpu)
    case = ELEMENTWISE[name]
    compare(case, hb.lower(case.build(), target="amx", name=name), case.sizes[0])


PIPELINES: dict[str, Callable[[], hl.Func]] = {}


def pipeline(build: Callable[[], hl.Func]) -> Callable[[], hl.Func]:
    PIPELINES[build.__name__] = build
    return build


def stencil() -> tuple[hl.Func, hl.Func, list[hl.Var]]:
    x, y, xi, yi = variables("x y xi yi")
    image, rows, out = hl.ImageParam(F32, 2, "image"), hl.Func("rows"), hl.Func("out")
    rows[x, y] = image[x, y] + image[x + 1, y] + image[x + 2, y]
    out[x, y] = rows[x, y] + rows[x, y + 1] + rows[x, y + 2]
    return rows, out, [x, y, xi, yi]


@pipeline
def stages_in_tiles() -> hl.Func:
    rows, out, (x, y, xi, yi) = stencil()
    out.tile(x, y, xi, yi, 32, 8).vectorize(xi, 8).parallel(y)
    rows.compute_at(out, x).vectorize(x, 8)
    return out


@pipeline
def stages_on_the_heap() -> hl.Func:
    rows, out, (x, y, _, _) = stencil()
    out.parallel(y).vectorize(x, 8)
    rows.compute_root().parallel(y).vectorize(x, 8)
    return out


@pipeline
def plain_loops() -> hl.Func:
    rows, out, _ = stencil()
    rows.compute_root()
    return out


@pipeline
def sliding_window() -> hl.Func:
    rows, out, (_, y, _, _) = stencil()
    rows.store_root().compute_at(out, y)
    return out


@pipeline
def repeated_edges() -> hl.Func:
    x, y = variables("x y")
    image, out = hl.ImageParam(F32, 2, "image"), hl.Func("out")
    image.dim(0).set_bounds(0, 40)
    image.dim(1).set_bounds(0, 21)
    edge = hl.BoundaryConditions.repeat_edge(image)
    out[x, y] = edge[x - 2, y] + edge[x + 2, y - 1]
    return out.vectorize(x, 8)


@pipeline
def table() -> hl.Func:
    x, y = variables("x y")
    place, values = hl.ImageParam(hl.Int(32), 2, "place"), hl.ImageParam(F32, 1, "values")
    out = hl.Func("out")
    out[x, y] = values[hl.clamp(place[x, y], 0, 15)]
    values.dim(0).set_bounds(0, 16)
    return out.vectorize(x, 8, GUARD)


@pipeline
def matrix_product() -> hl.Func:
    x, y = variables("x y")
    a, b = hl.ImageParam(F32, 2, "a"), hl.ImageParam(F32, 2, "b")
    total, out, k = hl.Func("total"), hl.Func("out"), hl.RDom([(0, 37)], "k")
    total[x, y] = hl.f32(0.0)
    total[x, y] += a[k.x, y] * b[x, k.x]
    out[x, y] = total[x, y]
    out.vectorize(x, 8, GUARD).parallel(y)
    total.compute_at(out, y).vectorize(x, 8)
    total.update().vectorize(x, 8)
    return out


@pipeline
def row_maxima() -> hl.Func:
    (x,) = variables("x")
    a = hl.ImageParam(hl.Int(16), 2, "a")
    most, out, k = hl.Func("most"), hl.Func("out"), hl.RDom([(0, 32)], "k")
    most[x] = hl.i16(-30000)
    most[x] = hl.max(most[x], a[k.x, x])
    out[x] = most[x]
    most.compute_at(out, x)
    most.update().atomic().vectorize(k.x, 8)
    return out


@pipeline
def running_sums() -> hl.Func:
    x, y = variables("x y")
    a, out, k = hl.ImageParam(F32, 2, "a"), hl.Func("out"), hl.RDom([(1, 20)], "k")
    out[x, y] = a[x, y]
    out[k.x, y] = out[k.x, y] + out[k.x - 1, y]
    return out.bound(x, 0, 21)


@pipeline
def divisions() -> hl.Func:
    x, y = variables("x y")
    a, out = hl.ImageParam(hl.Int(32), 2, "a"), hl.Func("out")
    out[x, y] = a[x, y] / 7 * 3 + a[x, y] % 5 + (a[x, y] - 50) / (x % 3 - 1) + x / 3 * (y % 4)
    return out.vectorize(x, 8, GUARD)


@pipeline
def transposition() -> hl.Func:
    x, y, xi, yi = variables("x y xi yi")
    a, out = hl.ImageParam(hl.UInt(8), 2, "a"), hl.Func("out")
    out[x, y] = a[y, x]
    return out.tile(x, y, xi, yi, 16, 16, GUARD).vectorize(xi)


@pipeline
def reversed_rows() -> hl.Func:
    x, y = variables("x y")
    a, out = hl.ImageParam(hl.UInt(8), 2, "a"), hl.Func("out")
    a.dim(0).set_bounds(0, 40)
    out[x, y] = a[39 - x, y]
    return out.bound(x, 0, 40).vectorize(x, 8)


@pipeline
def shifted_in_place() -> hl.Func:
    x, y = variables("x y")
    a, moved, out = hl.ImageParam(F32, 2, "a"), hl.Func("moved"), hl.Func("out")
    moved[x, y] = a[x, y]
    moved[x, y] = moved[x, y] * moved[x, y]
    out[x, y] = moved[x, y] + 1
    moved.compute_root().vectorize(x, 8)
    moved.update().vectorize(x, 8)
    return out


@pipeline
def halves_of_an_image() -> hl.Func:
    x, y = variables("x y")
    a, out = hl.ImageParam(hl.UInt(8), 2, "a"), hl.Func("out")
    four = (hl.u16(a[2 * x + i, 2 * y + j]) for i in (0, 1) for j in (0, 1))
    out[x, y] = hl.u8(sum(four, hl.u16(0)) / 4)
    return out.vectorize(x, 16, GUARD).parallel(y, 4)


@pipeline
def parallel_in_parallel() -> hl.Func:
    x, y, z = variables("x y z")
    a, out = hl.ImageParam(F32, 3, "a"), hl.Func("out")
    out[x, y, z] = a[x, y, z] * 2
    return out.parallel(z).parallel(y).vectorize(x, 4, GUARD)


@pipeline
def prefetched() -> hl.Func:
    """Halide keeps nothing of it in loops whose bounds checks are off: harmless."""
    x, y = variables("x y")
    image, out = hl.ImageParam(F32, 2, "image"), hl.Func("out")
    out[x, y] = image[x, y] * 2
    return out.prefetch(image, y, y, 2)


@cache
def compiled(name: str) -> tuple[Module, Run]:
    """A pipeline and its C, for all sizes."""
    module = hb.lower(PIPELINES[name](), target="amx", name=name)
    return module, executable(emit(module, AMX))


@pytest.mark.parametrize("size", [(40, 21, 3), (33, 17, 2), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines(name: str, size: tuple[int, ...]) -> None:
    module, run = compiled(name)
    out = module.buffers[-1]
    fixed = [getattr(d.extent, "value", None) for d in out.dims]
    size = tuple(f or s for f, s in zip(fixed, size, strict=False))
    case = Case(name, PIPELINES[name], (size,))
    assert all(input_shapes(case, module, size).values())
    compare(case, module, size, run)


def kinds(module: Module) -> list[ForKind]:
    return [s.kind for s in walk_stmt(module.body) if isinstance(s, For)]


def test_parallel_loops_stay_parallel() -> None:
    module = hb.lower(parallel_in_parallel(), target="amx")
    assert kinds(module)[:2] == [ForKind.PARALLEL, ForKind.PARALLEL]
    source = emit(module, AMX).source
    assert source.count("#pragma omp parallel for schedule(static) collapse(2)") == 1
    assert "#pragma omp" not in emit(hb.lower(plain_loops(), target="amx"), AMX).source


def test_stages_name_the_func_and_the_line() -> None:
    rows, out, (_, y, _, _) = stencil()
    rows.compute_at(out, y)
    hb.pipeline_stages(rows, 3)
    with pytest.raises(ScheduleError) as caught:
        emit(hb.lower(out, target="amx"), AMX)
    first, where, *_ = str(caught.value).splitlines()
    assert first == "stages of `rows` cannot overlap on a CPU"
    assert where.startswith("  where: in `rows`, ")
    assert "test_c_plain.py:" in where


def test_three_loops_are_shared_at_once() -> None:
    a, out = hl.ImageParam(F32, 3, "a"), hl.Func("out")
    x, y, z = (hl.Var(name) for name in ("x", "y", "z"))
    out[x, y, z] = a[x, y, z] + 1
    out.parallel(x).parallel(y).parallel(z)
    plan = emit(hb.lower(out, target="amx"), AMX)
    assert plan.source.count("#pragma omp parallel for schedule(static) collapse(3)") == 1
    data = np.random.default_rng(0).random((2, 13, 9), dtype=np.float32)
    found = poisoned(data.shape, "float32")
    executable(plan)([], {"a": data}, out=found)
    np.testing.assert_array_equal(found, data + 1)


@pytest.mark.parametrize("width", [1, 15, 16, 40])
def test_a_test_of_all_lanes_together(width: int) -> None:
    """What a reduction that is cut into vectors asks of each: whether all of it is there."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    y, u, r = hl.Var("y"), hl.Var("u"), hl.RDom([(0, a.width())], "r")
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    out[y] = 0.0
    out[y] += a[r.x, y]
    parts = out.update(0).split(r.x, ro, ri, 16).rfactor(ri, u)
    parts.compute_root().vectorize(u).update(0).reorder(u, ro).vectorize(u)
    module = hb.lower(out, target="amx")
    assert "vector_reduce_and" in str(module)
    data = np.random.default_rng(0).random((3, width), dtype=np.float32)
    found = poisoned((3,), "float32")
    executable(emit(module, AMX))([], {"a": data}, out=found)
    np.testing.assert_allclose(found, data.sum(1, dtype=np.float64), rtol=1e-6)
