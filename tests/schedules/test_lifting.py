"""Updates that go in steps and read what lies between these run in parallel: lifting in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from plain_pipelines import F32, Plain, floats
from test_plain_pipelines import by_halide, close

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

x, y = hl.Var("x"), hl.Var("y")
ONE = "one thread: an update may read"


def lifted(along: int = 0) -> Plain:
    """A wavelet of 5 and 3 taps, by its steps: what is between, and then what that leaves."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    length = a.dim(along).extent()

    def at(place: Any) -> Any:
        inside = hl.clamp(place, 0, length - 1)
        return out[inside, y] if along == 0 else out[x, inside]

    def set_at(place: Any, value: Any) -> None:
        if along == 0:
            out[place, y] = value
        else:
            out[x, place] = value

    out[x, y] = a[x, y]
    odd, even = hl.RDom([(0, (length - 1) / 2)]), hl.RDom([(1, (length - 2) / 2)])
    place, other = 2 * odd.x + 1, 2 * even.x
    before, behind = (out[place + k, y] if along == 0 else out[x, place + k] for k in (-1, 1))
    own = out[place, y] if along == 0 else out[x, place]
    set_at(place, own - (before + behind) / 2)
    before, behind = (out[other + k, y] if along == 0 else out[x, other + k] for k in (-1, 1))
    own = out[other, y] if along == 0 else out[x, other]
    set_at(other, own + (before + behind) / 4)
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
    case = make()
    assert ONE not in hb.autoschedule(case.outputs, target="sm_90a").report
    kernel = hb.compile(case.outputs, target="sm_90a", cache=False)
    assert "for (int out_s1_r" not in kernel.source
    arrays: dict[str, Any] = {p.name(): value for p, value in case.arguments}
    found = emulation.check(kernel, sizes=case.sizes, **arrays)
    (wanted,) = by_halide(make())
    assert close(np.asarray(found), wanted, case.tolerance)


@pytest.mark.parametrize("back", [2, 4])
def test_what_reads_other_steps_is_not_taken_apart(back: int) -> None:
    a, out = hl.ImageParam(F32, 1, "a"), hl.Func("out")
    r = hl.RDom([(2, (a.dim(0).extent() - 5) / 2)])
    out[x] = a[x]
    out[2 * r.x] = hl.sqrt(out[2 * r.x - back] + 1)
    assert ONE in hb.autoschedule(out, target="sm_90a").report
