"""What threads compute as they fill shared memory comes by vectors where all of it is inside, and
element by element elsewhere.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.memory import LoadVector, StoreVector
from selector.gpu.ir.nodes import walk
from selector.gpu.ir.text import parse_kernels, print_kernels
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = pytest.mark.verified

U8, F16, F32 = hl.UInt(8), hl.Float(16), hl.Float(32)
x, y = hl.Var("x"), hl.Var("y")
TAPS, AROUND = 9, 4
Array = np.ndarray[Any, Any]
Value = Callable[[Any], Any]


def half(e: Any) -> Any:
    return hl.f32(hl.cast(F16, e))


def bright(e: Any) -> Any:
    return hl.max(e, hl.cast(F16, 0.25))


def blurred(kind: Any, value: Value, *, edge: bool = True) -> hl.Func:
    image, taps = hl.ImageParam(kind, 2, "image"), hl.ImageParam(F16, 2, "taps")
    r, out, total = hl.RDom([(0, TAPS), (0, TAPS)], "r"), hl.Func("out"), hl.Func("total")
    source = hl.BoundaryConditions.repeat_edge(image) if edge else image
    beside = AROUND if edge else 0
    pixel = value(source[x + r.x - beside, y + r.y - beside])
    total[x, y] += pixel * hl.f32(taps[r.x, r.y])
    out[x, y] = total[x, y]
    hb.autoschedule(out, target="sm_90a", sizes=(4000, 3000))
    return out


KINDS: dict[str, tuple[Any, Any, Value, Callable[[Array], Array]]] = {
    "bytes": (U8, np.uint8, lambda e: half(hl.f32(e) / 255.0), lambda v: v / 255),
    "floats": (F32, np.float32, half, lambda v: v),
    "halves": (F16, np.float16, lambda e: half(bright(e)), lambda v: np.maximum(v, 0.25)),
}


def drawn(kind: Any, shape: tuple[int, ...]) -> Array:
    random = np.random.default_rng(7)
    return (random.random(shape) * (255 if kind is np.uint8 else 1)).astype(kind)


def wanted(values: Array, taps: Array, shape: tuple[int, int]) -> Array:
    rows, columns = shape
    return sum(
        float(taps[j, i]) * values[j : j + rows, i : i + columns]
        for j in range(TAPS)
        for i in range(TAPS)
    )


def fills_of(kernels: Any, run: Any) -> list[int]:
    """Of the vectors that are stored in shared memory, those that some thread stored."""
    stores = [n for k in kernels for n in walk(k.body) if isinstance(n, StoreVector)]
    return [id(n) for n in stores if "_in_total" in str(n.to) and id(n) in run.reached]


@pytest.mark.parametrize("flags", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_fills_by_vectors_are_right(name: str, flags: bool) -> None:
    """Inside and at edges, aligned or not, with rows of any length; in text form as well."""
    kind, dtype, value, plain = KINDS[name]
    kernel = hb.compile(blurred(kind, value), target="sm_90a")
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    assert parse_kernels(print_kernels(kernels)) == kernels
    for shape in ((70, 400), (33, 405)):
        image, taps = drawn(dtype, shape), drawn(np.float16, (TAPS, TAPS))
        arrays = {"image": image, "taps": taps}
        run = simulate(kernels, plan, arrays, shape, flags=flags)
        assert run.faults == ()
        assert fills_of(kernels, run)
        truth = wanted(np.pad(plain(image.astype(float)), AROUND, "edge"), taps, shape)
        assert np.linalg.norm(run.outputs["out"] - truth) < 1e-3 * np.linalg.norm(truth)
        result = check(kernel, image=image, taps=taps, sizes=shape)
        assert np.allclose(result, run.outputs["out"], rtol=1e-5)


def test_blocks_at_an_edge_go_by_elements() -> None:
    kind, dtype, value, _ = KINDS["bytes"]
    kernel = hb.compile(blurred(kind, value), target="sm_90a")
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    small = {"image": drawn(dtype, (20, 100)), "taps": drawn(np.float16, (TAPS, TAPS))}
    run = simulate(kernels, plan, small, (20, 100))
    assert run.faults == ()
    assert not fills_of(kernels, run)


def test_elements_that_lie_anywhere_come_one_by_one() -> None:
    """A table's are no vectors, so nothing is."""
    image, table = hl.ImageParam(U8, 2, "image"), hl.ImageParam(F16, 1, "table")
    taps, r, total = (
        hl.ImageParam(F16, 2, "taps"),
        hl.RDom([(0, TAPS), (0, TAPS)]),
        hl.Func("total"),
    )
    out, light = hl.Func("out"), hl.Func("light")
    light[x, y] = table[hl.i32(image[x, y])]
    total[x, y] += hl.f32(light[x + r.x, y + r.y]) * hl.f32(taps[r.x, r.y])
    out[x, y] = total[x, y]
    hb.autoschedule(out, target="sm_90a", sizes=(4000, 3000))
    kernel = hb.compile(out, target="sm_90a")
    kernels, _ = emit_kernels(kernel.module, find_target("sm_90a"))
    near = [n for k in kernels for n in walk(k.body) if isinstance(n, LoadVector)]
    assert not any("table" in str(n.source) for n in near)
