"""Sums of which only a narrower value is read are stored as that, in the kernel that sums up; all
others as they are. What is computed stays the same, bit for bit.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from halide_bridge.schedules import auto
from halide_bridge.schedules.recognise import facts
from selector.diagnostics import PerformanceWarning, ScheduleError

pytestmark = EMULATED

F16, I16 = hl.Float(16), hl.Int(16)
x, y, k = (hl.Var(v) for v in "xyk")
SIZE = (23, 139)
ROWS = {"I": (31, 147), "K": (9,)}


def half(e: Any) -> Any:
    return hl.cast(F16, e)


def along_rows() -> tuple[hl.Func, Any]:
    """A sum of taps along x, and its taps."""
    image, taps = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    wide, t = hl.Func("wide"), hl.RDom([(0, 9)], "t")
    wide[x, y] += hl.f32(image[x + t, y]) * hl.f32(taps[t])
    return wide, taps


def product() -> hl.Func:
    a, b = hl.ImageParam(F16, 2, "A"), hl.ImageParam(F16, 2, "B")
    wide, r = hl.Func("wide"), hl.RDom([(0, 48)], "r")
    wide[x, y] += hl.f32(a[r, y]) * hl.f32(b[x, r])
    return wide


def columns(of: hl.Func, value: Callable[[Any], Any], taps: Any) -> hl.Func:
    """Taps along y of what lies in a Func."""
    out, t = hl.Func("out"), hl.RDom([(0, 9)], "t")
    out[x, y] += hl.f32(value(of[x, y + t])) * hl.f32(taps[t])
    return out


def difference(of: hl.Func, value: Callable[[Any], Any]) -> hl.Func:
    out = hl.Func("out")
    out[x, y] = hl.f32(value(of[x, y])) - hl.f32(value(of[x, y + 8]))
    return out


def cast_in_a_func() -> hl.Func:
    wide, _ = along_rows()
    narrow = hl.Func("narrow")
    narrow[x, y] = half(wide[x, y])
    return difference(narrow, lambda e: e)


def cast_after_more_work() -> hl.Func:
    """What is made of the sum first has its bytes: the cast of that has fewer."""
    wide, _ = along_rows()
    bent, narrow = hl.Func("bent"), hl.Func("narrow")
    bent[x, y] = hl.max(wide[x, y] * 2 + 1, 0)
    narrow[x, y] = half(bent[x, y])
    return difference(narrow, lambda e: e)


def cast_in_the_reader() -> hl.Func:
    return difference(along_rows()[0], half)


def cast_in_a_window() -> hl.Func:
    wide, taps = along_rows()
    return columns(wide, half, taps)


def cast_in_several_readers() -> hl.Func:
    (wide, _), out = along_rows(), hl.Func("out")
    other = difference(wide, half)
    out[x, y] = half(wide[x, y + 4]) + half(wide[x, y + 8]) + half(other[x, y])
    return out


def integers_of_a_stencil() -> hl.Func:
    wide, _ = along_rows()
    out = hl.Func("out")
    above, below = (hl.cast(hl.Int(32), hl.cast(I16, wide[x, y + d])) for d in (0, 8))
    out[x, y] = above - below
    return out


def operand_of_a_product() -> hl.Func:
    wide, c = product(), hl.ImageParam(F16, 2, "C")
    out, r = hl.Func("out"), hl.RDom([(0, 40)], "r")
    out[k, y] += hl.f32(half(hl.max(wide[r, y], 0))) * hl.f32(c[k, r])
    return out


PRODUCTS = {"A": (23, 48), "B": (48, 40), "C": (40, 139)}
NARROW: dict[Callable[[], hl.Func], tuple[dict[str, tuple[int, ...]], str]] = {
    cast_in_a_func: (ROWS, "float16"),
    cast_after_more_work: (ROWS, "float16"),
    cast_in_the_reader: (ROWS, "float16"),
    cast_in_a_window: (ROWS, "float16"),
    cast_in_several_readers: (ROWS, "float16"),
    integers_of_a_stencil: (ROWS, "int16"),
    operand_of_a_product: (PRODUCTS, "float16"),
}


def drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {n: random.standard_normal(s).astype(np.float16) for n, s in shapes.items()}


def stored(kernel: Any) -> list[str]:
    """The types of the pictures between kernels."""
    return [str(i.type) for i in kernel.plan.intermediates]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("make", NARROW)
def test_what_is_stored_is_narrow_and_the_same(
    make: Callable[[], hl.Func], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes, kind = NARROW[make]
    arrays = drawn(shapes)
    kernel = hb.compile(make(), target=target, schedule="auto", sizes=SIZE)
    result = kernel.interpret(**arrays, sizes=SIZE)
    assert stored(kernel) == [kind]
    assert kernel.source.count("__global__") == 2
    emulated = check(kernel, **arrays, sizes=SIZE)  # sums in another order round elsewhere
    assert np.linalg.norm(emulated - result) < 1e-4 * np.linalg.norm(result)
    monkeypatch.setattr(auto, "set_narrow", lambda _: [])
    monkeypatch.setattr(facts, "narrowest", lambda *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)  # which is why it is stored narrow
        wide = hb.compile(make(), target=target, schedule="auto", sizes=SIZE)
    assert stored(wide)[0] == "float32"
    same = wide.interpret(**arrays, sizes=SIZE)
    if make is cast_in_a_window:  # a tensor unit sums up in another order
        assert np.linalg.norm(same - result) < 1e-6 * np.linalg.norm(result)
    else:
        assert np.array_equal(same, result)


@pytest.mark.parametrize("make", NARROW)
def test_what_is_written_down_gives_the_same_program(make: Callable[[], hl.Func]) -> None:
    written, again = make(), make()
    schedule = hb.autoschedule(written, target="sm_90a")
    exec(schedule.source, {"hb": hb, "hl": hl, "output": again})
    one, other = (hb.compile(f, target="sm_90a").source for f in (written, again))
    assert one == other


def read_as_it_is() -> Any:
    wide, taps = along_rows()
    out = hl.Func("out")
    out[x, y] = columns(wide, half, taps)[x, y] + wide[x, y + 1]
    return out


def of_two_types() -> Any:
    wide, _ = along_rows()
    out = hl.Func("out")
    out[x, y] = hl.f32(half(wide[x, y])) + hl.f32(hl.cast(I16, wide[x, y + 8]))
    return out


def cast_to_more() -> Any:
    wide, _ = along_rows()
    out = hl.Func("out")
    out[x, y] = hl.cast(hl.Float(64), wide[x, y]) + hl.cast(hl.Float(64), wide[x, y + 8])
    return out


def asked_for() -> Any:
    wide, taps = along_rows()
    return hl.Pipeline([wide, columns(wide, half, taps)])


@pytest.mark.parametrize("make", [read_as_it_is, of_two_types, cast_to_more, asked_for])
def test_what_is_read_as_it_is_stays_wide(make: Callable[[], Any]) -> None:
    schedule = hb.autoschedule(make(), target="sm_90a")
    assert "narrow" not in schedule.source


def test_what_the_user_scheduled_stays() -> None:
    wide, taps = along_rows()
    narrow = hl.Func("narrow")
    narrow[x, y] = half(wide[x, y])
    out = columns(narrow, lambda e: e, taps)
    narrow.compute_inline()
    wide.compute_root()
    assert "narrow: inside" in hb.autoschedule(out, target="sm_90a").report


def test_a_cast_at_ones_own_element_needs_no_memory() -> None:
    wide, _ = along_rows()
    out = hl.Func("out")
    out[x, y] = half(wide[x, y])
    kernel = hb.compile(out, target="sm_90a", schedule="auto", sizes=SIZE)
    assert stored(kernel) == []


def test_one_number_of_a_row_stays_with_the_row() -> None:
    """A mean is read by all elements of its row, in the kernel that has it."""
    rows, r = hl.ImageParam(F16, 2, "R"), hl.RDom([(0, 500)], "r")
    total, mean, out = hl.Func("total"), hl.Func("mean"), hl.Func("out")
    total[y] += hl.f32(rows[r, y])
    mean[y] = half(total[y] / 500)
    out[x, y] = rows[x, y] - mean[y]
    kernel = hb.compile(out, target="sm_90a", schedule="auto", sizes=(90, 500))
    assert stored(kernel) == []
    assert kernel.source.count("__global__") == 1


def test_reads_that_are_no_casts_are_refused() -> None:
    wide, taps = along_rows()
    out = columns(wide, lambda e: e, taps)
    with pytest.raises(ScheduleError, match="`wide` is not cast by all that read it"):
        hb.narrowed(wide, out)
