"""What turns of a thread's loop read of those before stays in registers: right at any length, none
at all included; not where a turn may read something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check

import halide_bridge as hb
from selector.diagnostics import ArgumentError
from selector.ir.nodes import For, ForKind, IntImm, Load, Ramp, Stmt, Store, Var
from selector.ir.simplify import add, mul, sub
from selector.ir.traverse import walk_stmt
from selector.ir.types import FLOAT32
from selector.lowering.carried import carry, hands_on

pytestmark = pytest.mark.verified("tests/emulation")

t, n = hl.Var("t"), hl.Var("n")
F32, F16, I32 = hl.Float(32), hl.Float(16), hl.Int(32)
LENGTHS = [2, 3, 7, 40, 133]


def steps(image: Any, first: int) -> Any:
    return hl.RDom([(first, image.width() - first)])


def envelope(a: Any, y: hl.Func) -> None:
    """Rises fast and falls slowly."""
    r = steps(a, 1)
    y[t, n] = hl.abs(a[t, n])
    new, last = hl.abs(a[r, n]), y[r - 1, n]
    y[r, n] = last + hl.select(new > last, hl.f32(0.25), hl.f32(0.5**6)) * (new - last)


def of_envelope(a: Any) -> Any:
    y = np.abs(a)
    for i in range(1, a.shape[1]):
        by = np.where(y[:, i] > y[:, i - 1], np.float32(0.25), np.float32(0.5**6))
        y[:, i] = y[:, i - 1] + by * (y[:, i] - y[:, i - 1])
    return y


def rounded(a: Any, y: hl.Func) -> None:
    """Two turns back, and rounded to halves in each."""
    r = steps(a, 2)
    y[t, n] = hl.cast(F16, a[t, n])
    sums = a[r, n] + hl.f32(y[r - 1, n]) / 2 - hl.f32(y[r - 2, n]) / 4
    y[r, n] = hl.cast(F16, sums)


def of_rounded(a: Any) -> Any:
    y = a.astype(np.float16)
    for i in range(2, a.shape[1]):
        last, before = (y[:, i - k].astype(np.float32) for k in (1, 2))
        y[:, i] = a[:, i] + last / 2 - before / 4
    return y


def backwards(a: Any, y: hl.Func) -> None:
    """From the end, with less of it at each turn."""
    r, last = steps(a, 1), a.width() - 1
    at = last - r
    y[t, n] = a[t, n]
    y[at, n] = hl.max(a[at, n], y[at + 1, n] * hl.f32(0.5))


def of_backwards(a: Any) -> Any:
    y = a.copy()
    for i in range(a.shape[1] - 2, -1, -1):
        y[:, i] = np.maximum(a[:, i], y[:, i + 1] * np.float32(0.5))
    return y


CASES: dict[str, tuple[Any, Any]] = {
    "envelope": (envelope, of_envelope),
    "rounded": (rounded, of_rounded),
    "backwards": (backwards, of_backwards),
}


def compiled(make: Callable[[Any, hl.Func], None]) -> Any:
    a, y = hl.ImageParam(F32, 2, "a"), hl.Func("y")
    make(a, y)
    hb.autoschedule(y, target="sm_90a")
    return hb.compile(y, target="sm_90a", cache=False)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", CASES)
def test_turns_hand_on_what_they_store(name: str, length: int) -> None:
    make, truth = CASES[name]
    kernel = compiled(make)
    assert "y_last[0]" in kernel.source
    data = np.random.default_rng(length).normal(size=(5, length)).astype(np.float32)
    found = np.asarray(check(kernel, a=data, sizes=(5, length))).astype(np.float32)
    assert np.allclose(found, truth(data.copy()).astype(np.float32), rtol=1e-6, atol=1e-7)


def test_a_tuple_has_registers_for_each_value() -> None:
    a, y, out = hl.ImageParam(F32, 2, "a"), hl.Func("y"), hl.Func("out")
    r = steps(a, 1)
    y[t, n] = hl.Tuple([a[0, n], hl.f32(1)])
    mean, spread = y[r - 1, n][0], y[r - 1, n][1] + hl.f32(0.25)
    gain = spread / (spread + hl.f32(0.5))
    y[r, n] = hl.Tuple([mean + gain * (a[r, n] - mean), (1 - gain) * spread])
    out[t, n] = y[t, n][0]
    hb.autoschedule(out, target="sm_90a")
    kernel = hb.compile(out, target="sm_90a", cache=False)
    assert "y_0_last[0]" in kernel.source
    assert "y_1_last[0]" in kernel.source
    data = np.random.default_rng(1).random((3, 41)).astype(np.float32)
    found = np.asarray(check(kernel, a=data, sizes=(3, 41)))
    wanted, at = data.copy(), np.float32(1)
    for i in range(1, 41):
        at = at + np.float32(0.25)
        gain = at / (at + np.float32(0.5))
        wanted[:, i] = wanted[:, i - 1] + gain * (data[:, i] - wanted[:, i - 1])
        at = (1 - gain) * at
    assert np.allclose(found, wanted, rtol=1e-5)


def chosen(a: Any, y: hl.Func) -> None:
    """The data say which of those before is read."""
    r = steps(a, 1)
    y[t, n] = a[t, n]
    y[r, n] = a[r, n] + y[hl.clamp(hl.i32(a[r, n] * 3), 0, r - 1), n] / 2


def of_chosen(a: Any) -> Any:
    y = a.copy()
    for i in range(1, a.shape[1]):
        at = np.clip((a[:, i] * np.float32(3)).astype(int), 0, i - 1)
        y[:, i] = a[:, i] + y[np.arange(len(a)), at] / 2
    return y


def left_out(a: Any, y: hl.Func) -> None:
    """Some turns store nothing."""
    r = hl.RDom([(1, a.width() - 1)])
    r.where(a[r, n] > 0)
    y[t, n] = a[t, n]
    y[r, n] = hl.select(y[r - 1, n] > 2, y[r - 1, n] / 2, y[r - 1, n] + a[r, n])


def of_left_out(a: Any) -> Any:
    y = a.copy()
    for i in range(1, a.shape[1]):
        new = np.where(y[:, i - 1] > 2, y[:, i - 1] / 2, y[:, i - 1] + a[:, i])
        y[:, i] = np.where(a[:, i] > 0, new, y[:, i])
    return y


@pytest.mark.parametrize(("make", "truth"), [(chosen, of_chosen), (left_out, of_left_out)])
def test_what_may_be_something_else_is_read(make: Any, truth: Any) -> None:
    kernel = compiled(make)
    assert "_last[" not in kernel.source
    data = np.random.default_rng(2).normal(size=(5, 133)).astype(np.float32)
    found = np.asarray(check(kernel, a=data, sizes=(5, 133)))
    assert np.allclose(found, truth(data), rtol=1e-5, atol=1e-6)


def test_few_lines_have_blocks_of_few_threads() -> None:
    for sizes, threads in (({"y": (1000, 4096), "a": (1000, 4096)}, 32), (None, 256)):
        a, y = hl.ImageParam(F32, 2, "a"), hl.Func("y")
        envelope(a, y)
        assert f" {threads} threads" in hb.autoschedule(y, target="sm_90a", sizes=sizes).report


def test_a_call_may_ask_for_fewer_lines_but_for_no_fewer_steps() -> None:
    kernel = compiled(envelope)
    data = np.random.default_rng(3).normal(size=(5, 90)).astype(np.float32)
    found = np.asarray(check(kernel, a=data, sizes=(3, 90)))
    assert np.allclose(found, of_envelope(data)[:3], rtol=1e-6)
    with pytest.raises(ArgumentError, match="axis 1 needs 90 elements"):
        kernel.interpret(a=data, sizes=(3, 41))


def in_a_thread(body: Stmt) -> For:
    return For("i", IntImm(0), IntImm(32), ForKind.GPU_THREAD, body)


def test_vectors_are_left_as_they_are() -> None:
    four = Ramp(mul(Var("t"), IntImm(4)), IntImm(1), 4)
    store = Store("y", four, Load(FLOAT32.with_lanes(4), "y", four))
    nest = in_a_thread(For("t", IntImm(1), Var("n"), ForKind.SERIAL, store))
    assert carry(nest) == nest


def test_only_the_loop_that_hands_on_is_one() -> None:
    """Not one around it, in whose turns it begins."""
    row, turn = Var("r"), Var("t")
    index = add(mul(row, IntImm(64)), turn)
    store = Store("y", index, Load(FLOAT32, "y", sub(index, IntImm(1))))
    inner = For("t", IntImm(1), IntImm(63), ForKind.SERIAL, store)
    outer = carry(in_a_thread(For("r", IntImm(0), Var("n"), ForKind.SERIAL, inner)))
    loops = {x.name: hands_on(x) for x in walk_stmt(outer) if isinstance(x, For)}
    assert loops == {"i": False, "r": False, "t": True}
