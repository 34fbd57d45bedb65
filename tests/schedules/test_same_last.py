"""Products whose terms are multiplied by what is the same for all of an element, or subtracted, or
whose factors have more bits than their values need, go to a tensor unit without being asked to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from plain_pipelines import F16, F32, I32
from plain_sums import I8, stored, x, y

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from selector.runtime.nvrtc import compile_to_cubin

pytestmark = pytest.mark.verified

Array = np.ndarray[Any, np.dtype[Any]]
Term = Callable[[Any, Any, "Inputs", Any], Any]
Truth = Callable[[Array, Array, Array, Array], Array]
BF16 = hl.BFloat(16)
ROWS, COLUMNS, DEPTH = 70, 41, 96
f32, i32 = hl.f32, hl.i32
DOWN, ALONG = np.arange(ROWS)[:, None], np.arange(COLUMNS)[None]


class Inputs:
    """Rows of ``a`` by columns of ``b``; ``s`` has a number for each column, ``t`` for each row."""

    def __init__(self, kinds: tuple[hl.Type, hl.Type], scale: hl.Type) -> None:
        self.kinds = kinds
        self.a, self.b = hl.ImageParam(kinds[0], 2, "a"), hl.ImageParam(kinds[1], 2, "b")
        self.s, self.t = hl.ImageParam(scale, 1, "s"), hl.ImageParam(scale, 1, "t")

    def arrays(self) -> dict[str, Array]:
        rng = np.random.default_rng(1)

        def drawn(kind: hl.Type, *shape: int) -> Array:
            if kind in (F16, F32):
                return rng.standard_normal(shape).astype(np.float16 if kind == F16 else np.float32)
            least = 0 if kind.is_uint() else -128
            bits = {(8, 0): np.uint8, (8, -128): np.int8, (32, -128): np.int32}[kind.bits(), least]
            return rng.integers(least, least + 256, shape).astype(bits)

        a, b = drawn(self.kinds[0], ROWS, DEPTH), drawn(self.kinds[1], DEPTH, COLUMNS)
        scale = self.s.type()
        return {"a": a, "b": b, "s": drawn(scale, COLUMNS), "t": drawn(scale, ROWS)}


def summed_of(term: Term, inputs: Inputs, subtracted: bool = False) -> tuple[Any, Any]:
    """A sum, and what reads it."""
    total, k = hl.Func("total"), hl.RDom([(0, DEPTH)], "k")
    whole = inputs.kinds[0] == I8 == inputs.kinds[1] and inputs.s.type() == I32
    total[x, y] = i32(0) if whole else f32(0)
    one = term(inputs.a[k, y], inputs.b[x, k], inputs, k)
    total[x, y] = total[x, y] - one if subtracted else total[x, y] + one
    return total, stored(total)


HALVES, BYTES = (F16, F16), (I8, I8)
SAME: dict[str, tuple[Term, Truth, tuple[hl.Type, hl.Type]]] = {
    "a scale of the column": (
        lambda a, b, i, k: f32(a) * f32(b) * i.s[x], lambda a, b, s, t: (a @ b) * s, HALVES
    ),
    "scales of both operands": (
        lambda a, b, i, k: (i.t[y] * f32(a)) * (f32(b) * i.s[x]),
        lambda a, b, s, t: t[:, None] * (a @ b) * s, HALVES,
    ),
    "what depends on the place": (
        lambda a, b, i, k: f32(a) * f32(b) * f32(y + 1) / f32(x + 3),
        lambda a, b, s, t: (a @ b) * (DOWN + 1) / (ALONG + 3), HALVES,
    ),
    "a negative": (lambda a, b, i, k: -(f32(a) * f32(b)), lambda a, b, s, t: -(a @ b), HALVES),
    "a negative operand": (
        lambda a, b, i, k: f32(b) * (-f32(a)), lambda a, b, s, t: -(a @ b), HALVES
    ),
    "integers": (
        lambda a, b, i, k: i32(a) * i32(b) * i.s[x] * (y - 3),
        lambda a, b, s, t: (a @ b) * s * (DOWN - 3), BYTES,
    ),
}  # fmt: skip
NARROW: dict[str, tuple[Term, Truth, tuple[hl.Type, hl.Type]]] = {
    "the positive part": (
        lambda a, b, i, k: hl.max(f32(a), 0.0) * f32(b),
        lambda a, b, s, t: np.maximum(a, 0) @ b, HALVES,
    ),
    "absolute values within limits": (
        lambda a, b, i, k: f32(a) * hl.min(hl.abs(f32(b)), 0.5),
        lambda a, b, s, t: a @ np.minimum(abs(b), 0.5), HALVES,
    ),
    "some terms of one operand": (
        lambda a, b, i, k: f32(a) * hl.select(k.x < 50, f32(b), 0.0),
        lambda a, b, s, t: a[:, :50] @ b[:50], HALVES,
    ),
    "weights of a byte": (
        lambda a, b, i, k: f32(a) * f32(b) * i.s[x], lambda a, b, s, t: (a @ b) * s, (F16, I8)
    ),
    "bytes in floats": (lambda a, b, i, k: f32(a) * f32(b), lambda a, b, s, t: a @ b, BYTES),
}  # fmt: skip


def compiled(out: Any, target: str) -> Any:
    return hb.compile(out, target=target, schedule="auto", sizes=(2048, 2048))


def close(kernel: Any, inputs: Inputs, truth: Truth, sign: int = 1) -> None:
    given = inputs.arrays()
    exact = truth(*(v.astype(float) for v in given.values())) * sign
    used = {b.name for b in kernel.plan.buffers}
    found = kernel.interpret(**{n: v for n, v in given.items() if n in used}, sizes=(ROWS, COLUMNS))
    assert np.linalg.norm(found - exact) <= 1e-5 * np.linalg.norm(exact)


@pytest.mark.nvrtc
@pytest.mark.parametrize("subtracted", [False, True], ids=["added", "subtracted"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", [*SAME, *NARROW])
def test_a_tensor_unit_has_the_product(name: str, target: str, subtracted: bool) -> None:
    term, truth, kinds = {**SAME, **NARROW}[name]
    inputs = Inputs(kinds, I32 if name == "integers" else F32)
    _, out = summed_of(term, inputs, subtracted)
    kernel = compiled(out, target)
    (update,) = kernel.report.updates
    assert update.block is not None
    assert compile_to_cubin(kernel.source, target)
    close(kernel, inputs, truth, -1 if subtracted else 1)


@pytest.mark.parametrize("name", ["a scale of the column", "weights of a byte"])
def test_the_schedule_says_so(name: str) -> None:
    term, truth, kinds = {**SAME, **NARROW}[name]
    inputs = Inputs(kinds, F32)
    said = hb.autoschedule(summed_of(term, inputs)[1], target="sm_90a", sizes=(2048, 2048)).source
    assert 'hb.multiplied_last(f["total"], f["out"])' in said
    assert ('hb.narrow_factors(f["total"])' in said) == (name in NARROW)
    again = summed_of(term, inputs)[1]
    exec(said, {"output": again, "hl": hl, "hb": hb})
    close(hb.compile(again, target="sm_90a"), inputs, truth)


OTHERS: dict[str, tuple[Term, Truth]] = {
    "what changes along the sum": (
        lambda a, b, i, k: f32(a) * f32(b) * hl.exp(f32(k.x) * -0.5),
        lambda a, b, s, t: (a * np.exp(np.arange(DEPTH) * -0.5)) @ b,
    ),
    "more than 16 bits": (
        lambda a, b, i, k: (f32(a) + 1.0) * f32(b), lambda a, b, s, t: (a + 1) @ b
    ),
    "a constant of more than 16 bits": (
        lambda a, b, i, k: hl.min(f32(a), hl.f32(0.1)) * f32(b),
        lambda a, b, s, t: np.minimum(a, np.float32(0.1)) @ b,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_as_they_were(name: str) -> None:
    term, truth = OTHERS[name]
    inputs = Inputs(HALVES, F32)
    total, out = summed_of(term, inputs)
    kernel = compiled(out, "sm_90a")
    assert all(update.block is None for update in kernel.report.updates)
    close(kernel, inputs, truth)
    with pytest.raises(ScheduleError, match="multiplied by nothing that is the same"):
        hb.multiplied_last(total, out)
    with pytest.raises(ScheduleError, match="are not all values of 16 bits"):
        hb.narrow_factors(total)


@pytest.mark.parametrize(("sizes", "said"), [((2048, 2048), "by wgmma"), ((3, 2), "empty")])
def test_a_sum_that_is_stored_itself_needs_large_tiles(sizes: tuple[int, int], said: str) -> None:
    inputs = Inputs(HALVES, F32)
    total, _ = summed_of(SAME["a scale of the column"][0], inputs)
    report = hb.autoschedule(total, target="sm_90a", sizes=sizes).report
    assert said in report


def test_a_sum_of_no_products_has_no_reason_to_be_on_a_tensor_unit() -> None:
    """It is subtracted and is stored itself, and that is all."""
    image, k = hl.ImageParam(F32, 2, "image"), hl.RDom([(0, DEPTH)], "k")
    total = hl.Func("total")
    total[y] = f32(0)
    total[y] -= image[k, y]
    report = hb.autoschedule(total, target="sm_90a", sizes=(2048,)).report
    assert "tensor unit" not in report


def test_what_a_sum_begins_with_is_not_multiplied() -> None:
    inputs, k = Inputs(HALVES, F32), hl.RDom([(0, DEPTH)], "k")
    total = hl.Func("total")
    total[x, y] = f32(1)
    total[x, y] += f32(inputs.a[k, y]) * f32(inputs.b[x, k]) * inputs.s[x]
    out = stored(total)
    with pytest.raises(ScheduleError, match="does not begin at zero"):
        hb.multiplied_last(total, out)
    close(compiled(out, "sm_90a"), inputs, lambda a, b, s, t: 1 + (a @ b) * s)


def test_bfloat16_has_the_values_of_bytes() -> None:
    inputs = Inputs((BF16, I8), F32)
    total, out = summed_of(lambda a, b, i, k: f32(a) * f32(b), inputs)
    hb.narrow_factors(total)
    kernel = compiled(out, "sm_90a")
    (update,) = kernel.report.updates
    assert update.block is not None
    assert "bf16" in update.block.instruction


def test_an_image_by_itself_shifted_is_a_window() -> None:
    """Both factors are of one image, which is not staged as one copy for a thread."""
    a, t = hl.ImageParam(F16, 2, "a"), hl.RDom([(0, 64)], "t")
    total = hl.Func("total")
    total[x, y] = f32(0)
    total[x, y] += f32(a[x + t, y]) * f32(a[t, y])
    kernel = hb.compile(stored(total), target="sm_90a", schedule="auto", sizes=(20, 100))
    image = np.random.default_rng(2).standard_normal((20, 164)).astype(np.float16)
    rows = [np.correlate(row, row[:64], "valid") for row in image.astype(float)]
    found = kernel.interpret(a=image, sizes=(20, 100))
    assert np.allclose(found, np.stack(rows)[:, :100], rtol=1e-4, atol=1e-4)
