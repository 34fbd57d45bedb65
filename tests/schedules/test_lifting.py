"""Updates that go in steps and read what lies between these run in parallel: lifting in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import pytest
from plain_emulated import emulated
from plain_pipelines import F32, Plain, floats

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

x, y = hl.Var("x"), hl.Var("y")
ONE = "one thread: an update may read"


def lifted(along: int = 0) -> Plain:
    """A wavelet of 5 and 3 taps, by its steps: what is between, and then what that leaves."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    length = a.dim(along).extent()

    def at(place: Any) -> tuple[Any, Any]:
        return (place, y) if along == 0 else (x, place)

    out[x, y] = a[x, y]
    odd, even = hl.RDom([(0, (length - 1) / 2)]), hl.RDom([(1, (length - 2) / 2)])
    for place, weight in ((2 * odd.x + 1, -1 / 2), (2 * even.x, 1 / 4)):
        beside = out[*at(place - 1)] + out[*at(place + 1)]
        out[*at(place)] = out[*at(place)] + beside * weight
    return Plain(out, [(a, floats(31, 75))], (31, 75))


def lifted_columns() -> Plain:
    return lifted(1)


def a_signal() -> Plain:
    """All of it by one dimension: it had one thread."""
    a, out = hl.ImageParam(F32, 1, "a"), hl.Func("out")
    r = hl.RDom([(0, (a.dim(0).extent() - 1) / 3)])
    out[x] = a[x]
    out[3 * r.x + 1] = (out[3 * r.x] + out[3 * r.x + 2]) / 2
    return Plain(out, [(a, floats(301))], (301,))


@pytest.mark.parametrize("make", [lifted, lifted_columns, a_signal])
def test_they_are_what_halide_computes(make: Callable[[], Plain]) -> None:
    schedule, kernel = emulated(make)
    assert ONE not in schedule.report
    assert "for (int out_s1_r" not in kernel.source


@pytest.mark.parametrize("back", [2, 4])
def test_what_reads_other_steps_is_not_taken_apart(back: int) -> None:
    a, out = hl.ImageParam(F32, 1, "a"), hl.Func("out")
    r = hl.RDom([(2, (a.dim(0).extent() - 5) / 2)])
    out[x] = a[x]
    out[2 * r.x] = hl.sqrt(out[2 * r.x - back] + 1)
    assert ONE in hb.autoschedule(out, target="sm_90a").report
