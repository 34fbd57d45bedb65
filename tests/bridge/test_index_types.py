"""Indices in other types than int32: what compares them is selected or refused, and right."""

from __future__ import annotations

from collections.abc import Callable

import halide as hl
import numpy as np
import pytest
from tiled import AMX, BF16, F16, SIZE, WMMA, Tiled

import halide_bridge as hb
import selector
from selector.diagnostics import UserError
from selector.ir.bfloat16 import to_bits
from selector.ir.interpreter import interpret

pytestmark = pytest.mark.verified

Guard = Callable[[hl.Type, hl.Var, hl.Var, hl.RVar], hl.Expr]
LIMIT = 77


def limit(t: hl.Type) -> hl.Expr:
    return hl.Param(t, "limit")


TYPES = (hl.Int(64), hl.UInt(32), hl.UInt(8))
GUARDS: dict[str, Guard] = {
    "place": lambda t, x, y, r: hl.cast(t, x * SIZE + r) < limit(t),
    "row": lambda t, x, y, r: hl.cast(t, y * 2 + r) >= limit(t),
    "column": lambda t, x, y, r: hl.cast(t, x) < limit(t),
}
MASKED = ("product", "right")


def pipeline(t: hl.Type, guard: Guard, masked: str, memory: hb.MemoryType) -> hl.Func:
    """A product of which only what the guard lets through counts."""
    operand = BF16 if memory is AMX else F16
    left, right = hl.ImageParam(operand, 2, "A"), hl.ImageParam(operand, 2, "B")

    def value(x: hl.Var, y: hl.Var, r: hl.RVar) -> hl.Expr:
        a, b, zero = left[r, y], right[x, r], hl.cast(operand, 0)
        counts = guard(t, x, y, r)
        match masked:
            case "right":
                b = hl.select(counts, b, zero)
            case _:
                return hl.select(counts, hl.f32(a) * hl.f32(b), hl.f32(0))
        return hl.f32(a) * hl.f32(b)

    return Tiled(value, memory=memory, depth=32 if memory is AMX else 16).build()


def judged(t: hl.Type, guard: Guard, masked: str, memory: hb.MemoryType) -> bool:
    """Whether it is selected; what is must compute what the loops do, and can be explained."""
    target = "amx" if memory is AMX else "sm_80"
    module = hb.lower(pipeline(t, guard, masked, memory), target=target)
    try:
        kernel = selector.compile(module, target=target, cache=False)
    except UserError:
        return False
    random = np.random.default_rng(11)
    shape = (SIZE, SIZE)
    arrays = {n: random.integers(-4, 5, shape).astype(np.float16) for n in ("A", "B")}
    if memory is AMX:
        arrays = {n: to_bits(a.astype(np.float32)) for n, a in arrays.items()}
    expected, found = (
        interpret(m, arrays, scalars={"limit": LIMIT})["out"] for m in (module, kernel.module)
    )
    assert np.array_equal(expected, found)
    assert kernel.source
    assert str(kernel.report)
    return True


@pytest.mark.parametrize("memory", [AMX, WMMA], ids=["amx", "wmma"])
@pytest.mark.parametrize("t", TYPES, ids=str)
def test_guards_are_selected_or_refused(t: hl.Type, memory: hb.MemoryType) -> None:
    selected = {
        (name, masked)
        for name, guard in GUARDS.items()
        for masked in MASKED
        if judged(t, guard, masked, memory)
    }
    if t == hl.Int(64):
        assert {name for name, _ in selected} >= {"place", "column"}


def test_taps_in_two_dimensions_may_be_masked_by_bytes() -> None:
    """Tiles of a reduction over two dimensions are taken apart: numbers of bytes are no places."""
    x, y, xo, xi = (hl.Var(name) for name in ("x", "y", "xo", "xi"))
    image, taps = hl.ImageParam(hl.Float(16), 2, "A"), hl.ImageParam(hl.Float(16), 2, "B")
    r, conv, out = hl.RDom([(0, 8), (0, 2)], "r"), hl.Func("conv"), hl.Func("out")
    first = hl.cast(hl.UInt(8), r.x) <= hl.cast(hl.UInt(8), 3)
    tap = hl.select(first, taps[r.x, r.y], hl.cast(hl.Float(16), 0))
    conv[x, y] = hl.f32(0)
    conv[x, y] += hl.f32(image[x + r.x, y + r.y]) * hl.f32(tap)
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, 128).vectorize(xi).gpu_blocks(xo, y)
    conv.compute_at(out, xo).vectorize(x)
    conv.update().atomic().reorder(r.x, r.y, x, y).vectorize(x).vectorize(r.x).vectorize(r.y)
    hb.store_in(conv, WMMA)
    module = hb.lower(out, target="sm_80")
    try:
        kernel = selector.compile(module, target="sm_80", cache=False)
    except UserError:
        return
    arrays = {"A": np.ones((5, 263), np.float16), "B": np.ones((2, 8), np.float16)}
    found = interpret(kernel.module, arrays, sizes={"out": (4, 256)})["out"]
    assert np.array_equal(found, np.full((4, 256), 8, np.float32))
