"""Launches that start while the one before them ends: where a kernel waits, and which do."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb
from selector.runtime import nvrtc

NEXT, WAIT = "next_may_start();", "await_launches();"


def chain(length: int) -> object:
    """Each stage adds its two neighbours in the one before and a number of another array; a launch
    each.
    """
    x, xo, xi = hl.Var("x"), hl.Var("xo"), hl.Var("xi")
    image, other = hl.ImageParam(hl.Float(32), 1, "I"), hl.ImageParam(hl.Float(32), 1, "B")
    values: hl.ImageParam | hl.Func = image
    for number in range(length):
        stage = hl.Func(f"stage{number}")
        staged = hl.Func(f"staged{number}")
        staged[x] = other[x]
        stage[x] = values[x] + values[x + 1] + staged[x]
        if number < length - 1:
            stage.compute_root()
        stage.gpu_tile(x, xo, xi, 64)
        staged.compute_at(stage, xo).store_in(hl.MemoryType.GPUShared).vectorize(x, 4)
        values = stage
    return values


def bodies(source: str) -> list[str]:
    return re.split(r'extern "C"', source)[1:]


def test_each_launch_but_the_last_lets_the_next_start_and_each_but_the_first_waits() -> None:
    kernel = hb.compile(chain(3), target="sm_90a")
    assert [launch.early for launch in kernel.plan.launches] == [False, True, True]
    found = [(b.count(NEXT), b.count(WAIT)) for b in bodies(kernel.source)]
    assert found == [(1, 0), (1, 1), (0, 1)]
    a, b = (np.random.default_rng(n).standard_normal(203).astype(np.float32) for n in (1, 2))
    result = kernel.interpret(I=a, B=b, sizes=(200,))
    truth = a.astype(np.float64)
    for _ in range(3):
        size = len(truth) - 1
        truth = truth[:-1] + truth[1:] + b[:size]
    np.testing.assert_allclose(result, truth[:200], rtol=1e-5, atol=1e-5)


def test_what_no_launch_writes_is_copied_before_the_wait() -> None:
    last = bodies(hb.compile(chain(2), target="sm_90a").source)[-1]
    before, after = last.split(WAIT)
    assert "from = B + " in before
    assert "stage0[" not in before
    assert "stage1[" not in before
    assert "stage0[" in after


def test_a_launch_that_shares_nothing_with_those_before_waits_at_its_end() -> None:
    """Whoever waits for it waits for the others as well."""
    x, xo, xi = hl.Var("x"), hl.Var("xo"), hl.Var("xi")
    a, b = (hl.ImageParam(hl.Float(32), 1, name) for name in "AB")
    first, second, out = hl.Func("first"), hl.Func("second"), hl.Func("out")
    first[x], second[x] = a[x] * 2, b[x] * 3
    out[x] = first[x] + second[x]
    for stage, wide in ((first.compute_root(), 64), (second.compute_root(), 32), (out, 64)):
        stage.gpu_tile(x, xo, xi, wide)  # of other blocks: they are no one kernel
    kernel = hb.compile(out, target="sm_90a")
    names = [launch.entry for launch in kernel.plan.launches]
    found = {n: b for n in names for b in bodies(kernel.source) if f" {n}(" in b}
    one, two, last = (found[n] for n in names)
    assert WAIT not in one
    assert two.rstrip().removesuffix("}").rstrip().endswith(WAIT)
    before, _ = last.split(WAIT)
    assert "first[" not in before
    assert "second[" not in before


def test_a_single_launch_and_older_targets_have_none() -> None:
    for target, length in (("sm_90a", 1), ("sm_80", 3)):
        kernel = hb.compile(chain(length), target=target)
        assert not any(launch.early for launch in kernel.plan.launches)
        assert "griddepcontrol" not in kernel.source


def test_launches_that_run_once_neither_wait_nor_count() -> None:
    x, xo, xi = hl.Var("x"), hl.Var("xo"), hl.Var("xi")
    image = hl.ImageParam(hl.Float(32), 1, "I")
    table, middle, out = hl.Func("table"), hl.Func("middle"), hl.Func("out")
    table[x] = hl.f32(x % 7 + image.width())
    middle[x] = image[x] * table[x]
    out[x] = middle[x] + table[x]
    for stage in (table.compute_root(), middle.compute_root()):
        stage.gpu_tile(x, xo, xi, 64)
    out.gpu_tile(x, xo, xi, 32)  # other blocks: the two are no one kernel
    kernel = hb.compile(out, target="sm_90a")
    flags = [(launch.once, launch.early) for launch in kernel.plan.launches]
    assert flags == [(True, False), (False, False), (False, True)]
    found = [(NEXT in b, WAIT in b) for b in bodies(kernel.source)]
    assert found == [(False, False), (True, False), (False, True)]


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
def test_the_machine_code_waits() -> None:
    kernel = hb.compile(chain(2), target="sm_90a")
    first, second = nvrtc.sass(kernel.cubin()).values()
    if "ACQBULK" in first:
        first, second = second, first
    assert "PREEXIT" in first
    assert "ACQBULK" in second
