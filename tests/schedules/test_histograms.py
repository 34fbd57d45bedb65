"""Sums of which data choose the element: threads have copies of all, where it is known how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from selector.diagnostics import ArgumentError
from selector.gpu.codegen.program import emit_kernels
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = pytest.mark.verified

F32, I32, U8, U16 = hl.Float(32), hl.Int(32), hl.UInt(8), hl.UInt(16)
x, y, i = (hl.Var(name) for name in "xyi")
Made = tuple[hl.Func, dict[str, Any], Any]
rng = np.random.default_rng(3)


def of_a_line() -> Made:
    a, out = hl.ImageParam(U8, 1, "a"), hl.Func("out")
    out[i] = 0
    out[hl.i32(a[hl.RDom(a)[0]])] += 1
    data = rng.integers(0, 256, 1001).astype(np.uint8)
    return out, {"a": data}, np.bincount(data, minlength=256)


def of_pixels_side_by_side() -> Made:
    a, out = hl.ImageParam(U8, 3, "a"), hl.Func("out")
    r = hl.RDom([(0, 3), (0, a.dim(1).extent()), (0, a.dim(2).extent())])
    out[i] = 0
    out[hl.i32(a[r.x, r.y, r.z])] += 1
    data = rng.integers(0, 256, (19, 77, 3)).astype(np.uint8)
    return out, {"a": data}, np.bincount(data.ravel(), minlength=256)


def weighted() -> Made:
    a, w, out = hl.ImageParam(U16, 2, "a"), hl.ImageParam(F32, 2, "w"), hl.Func("out")
    r = hl.RDom(a)
    out[i] = hl.f32(0)
    out[hl.clamp(hl.i32(a[r.x, r.y]), 10, 99)] += w[r.x, r.y]
    data = {
        "a": rng.integers(0, 120, (30, 130)).astype(np.uint16),
        "w": rng.random((30, 130)).astype(np.float32),
    }
    at = np.clip(data["a"], 10, 99).ravel()
    return out, data, np.bincount(at, data["w"].ravel(), minlength=100)


def largest_of_each() -> Made:
    key, a, out = hl.ImageParam(U8, 1, "key"), hl.ImageParam(I32, 1, "a"), hl.Func("out")
    r = hl.RDom(a)
    out[i] = -1
    at = hl.i32(key[r.x] % hl.u8(7))
    out[at] = hl.max(out[at], a[r.x])
    data = {
        "key": rng.integers(0, 256, 500).astype(np.uint8),
        "a": rng.integers(0, 9999, 500).astype(np.int32),
    }
    wanted = [data["a"][data["key"] % 7 == k].max() for k in range(7)]
    return out, data, np.array(wanted)


def where_it_is_asked() -> Made:
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    r = hl.RDom([(0, a.width()), (0, a.height())])
    r.where(a[r.x, r.y] > 99)
    out[i] = 0
    out[hl.i32(a[r.x, r.y])] += 1
    data = rng.integers(0, 256, (33, 41)).astype(np.uint8)
    return out, {"a": data}, np.bincount(data[data > 99], minlength=256)


def bound_by_the_user() -> Made:
    out, data, wanted = of_a_line()
    out.bound(i, 0, 260)
    return out, data, np.pad(wanted, (0, 4))


MADE = [
    of_a_line,
    of_pixels_side_by_side,
    weighted,
    largest_of_each,
    where_it_is_asked,
    bound_by_the_user,
]


@pytest.mark.parametrize("make", MADE)
def test_threads_have_copies(make: Callable[[], Made]) -> None:
    out, data, wanted = make()
    report = hb.autoschedule(out, target="sm_80").report
    assert f"a copy of its {len(wanted)} elements for each of 64 threads" in report
    found = hb.compile(out, target="sm_80").interpret(**data, sizes=wanted.shape)
    assert np.allclose(found, wanted)


def test_elements_are_as_many_as_the_data_can_choose() -> None:
    out, data, wanted = of_a_line()
    hb.autoschedule(out, target="sm_80")
    kernel = hb.compile(out, target="sm_80")
    assert (kernel.interpret(**data) == wanted).all()
    with pytest.raises(ArgumentError, match="fixed to 256, got 300"):
        kernel.interpret(**data, sizes=(300,))


@pytest.mark.parametrize(("count", "threads"), [(300, 32), (4096, 0)])
def test_of_more_elements_there_are_fewer_copies(count: int, threads: int) -> None:
    a, out = hl.ImageParam(U16, 2, "a"), hl.Func("out")
    r = hl.RDom(a)
    out[i] = 0
    out[hl.clamp(hl.i32(a[r.x, r.y]), 0, count - 1)] += 1
    report = hb.autoschedule(out, target="sm_80").report
    assert (f"for each of {threads} threads" in report) == (threads > 0)
    assert ("for each line" in report) == (threads == 0)
    data = rng.integers(0, count, (21, 50)).astype(np.uint16)
    found = hb.compile(out, target="sm_80").interpret(a=data, sizes=(count,))
    assert (found == np.bincount(data.ravel(), minlength=count)).all()


def test_what_is_loaded_is_loaded_ahead_of_the_updates() -> None:
    out, data, wanted = weighted()
    hb.autoschedule(out, target="sm_80")
    kernel = hb.compile(out, target="sm_80")
    assert "u16 held[16];" in kernel.source
    assert "float held_2[16];" in kernel.source
    kernels, plan = emit_kernels(kernel.module, find_target("sm_80"))
    found = simulate(kernels, plan, data, wanted.shape)
    assert found.faults == ()
    assert np.allclose(found.outputs["out"], wanted, rtol=1e-5)


@pytest.mark.parametrize(("channels", "copied"), [(8, True), (5000, False)])
def test_vectors_that_data_choose_have_copies_where_they_are_short(
    channels: int, copied: bool
) -> None:
    """Points added up by label: else one thread of each channel goes through all of them."""
    points, label, out = (
        hl.ImageParam(F32, 2, "points"),
        hl.ImageParam(U8, 1, "label"),
        hl.Func("out"),
    )
    r = hl.RDom([(0, label.width())], "r")
    out[x, i] = hl.f32(0)
    out[x, hl.i32(label[r])] += points[x, r]
    sizes = {"points": (1 << 20, channels), "label": (1 << 20,), "out": (256, channels)}
    report = hb.autoschedule(out, target="sm_90a", sizes=sizes).report
    assert ("for each line" in report) == copied
    given = {
        "points": rng.random((9001, 7)).astype(np.float32),
        "label": rng.integers(0, 5, 9001).astype(np.uint8),
    }
    wanted = np.zeros((256, 7))
    np.add.at(wanted, given["label"], given["points"])
    kernel = hb.compile(out, target="sm_90a")
    assert np.allclose(kernel.interpret(**given, sizes=wanted.shape), wanted, rtol=1e-4)
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    found = simulate(kernels, plan, given, wanted.shape)
    assert found.faults == ()
    assert np.allclose(found.outputs["out"], wanted, rtol=1e-4)
