"""Mistakes that went unnoticed, or that a user was told of in words of ours: each is one error with
a cause and a way out.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from selector.diagnostics import ScheduleError

F32 = hl.Float(32)
x, y = hl.Var("x"), hl.Var("y")


def error_of(output: Any, **options: Any) -> ScheduleError:
    with pytest.raises(ScheduleError) as raised:
        hb.compile(output, target="sm_90a", schedule="auto", cache=False, **options)
    assert raised.value.hint or raised.value.why
    assert raised.value.where is not None
    return raised.value


def doubled() -> hl.Func:
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    out[x, y] = a[x, y] * 2
    return out


def test_two_parameters_of_one_name() -> None:
    """They are one argument if they can be."""
    a, b, out = hl.ImageParam(F32, 2, "a"), hl.ImageParam(F32, 2, "a"), hl.Func("out")
    out[x, y] = a[x, y] + b[x, y]
    kernel = hb.compile(out, target="sm_90a", schedule="auto", cache=False)
    assert (kernel.interpret(a=np.ones((3, 5), np.float32), sizes=(3, 5)) == 2).all()
    for other in (
        hl.Param(F32, "a"),
        hl.ImageParam(hl.UInt(8), 2, "a")[y, x],
    ):
        out = hl.Func("out")
        out[x, y] = a[x, y] * other
        wanted = "the pipeline has two parameters named `a` that are no one argument"
        assert error_of(out).what == wanted
    out = hl.Func("out")
    out[x, y] = a[x, y] * hl.ImageParam(F32, 1, "a")[x]
    with pytest.raises(ScheduleError, match="Halide cannot read the pipeline") as raised:
        hb.autoschedule(out, target="sm_90a")
    assert "a name of its own" in str(raised.value)


def test_an_array_may_be_read_by_several_funcs() -> None:
    a, first, out = hl.ImageParam(F32, 2, "a"), hl.Func("first"), hl.Func("out")
    first[x, y] = a[x, y] * a[0, y]
    out[x, y] = first[x, y] + a[x, 0]
    hb.compile(out, target="sm_90a", schedule="auto", cache=False)


def test_an_output_twice() -> None:
    out = doubled()
    assert error_of([out, out]).what == "`out` is an output twice"


def test_an_index_without_bounds_is_named() -> None:
    """Not the parts that a schedule has taken its Func apart into."""
    a, place, out = hl.ImageParam(F32, 1, "a"), hl.ImageParam(hl.Int(32), 1, "i"), hl.Func("out")
    r = hl.RDom([(0, a.width())])
    out[x] = 0.0
    out[place[r]] += a[r]
    error = error_of(out)
    assert error.what == "dimension 0 of `out` is read or written at any place"
    assert "hl.clamp" in error.hint


def test_it_is_named_so_after_many_other_funcs() -> None:
    """Halide counts names by 16384 hashes: where it has counted one, `out` is `out$7`, and what is
    made of that `out_7_intm$2`.
    """
    source = textwrap.dedent(inspect.getsource(test_an_index_without_bounds_is_named))
    path = Path(__file__)
    text = f"""
import sys
sys.path[:0] = {[str(path.parent), *sys.path]!r}
import halide as hl
kept = [hl.Func(f"func{{n}}_of_many") for n in range(120_000)]
from {path.stem} import *
{source}
test_an_index_without_bounds_is_named()
"""
    subprocess.run([sys.executable, "-c", text], check=True)


@pytest.mark.parametrize("shape", [(-3, 4), (3.5, 4), ("3", 4)])
def test_sizes_that_are_none(shape: Any) -> None:
    with pytest.raises(ScheduleError, match="sizes has") as raised:
        hb.autoschedule(doubled(), target="sm_90a", sizes={"a": shape})
    assert "whole number" in raised.value.why


def test_names_that_are_no_words() -> None:
    """Halide prints its own schedules with them as they are."""
    a, total, out = hl.ImageParam(F32, 2, "a"), hl.Func("of a row"), hl.Func("out")
    r = hl.RDom([(0, a.width())])
    total[y] += a[r, y]
    out[x, y] = a[x, y] / total[y]
    found = hb.autoschedule(out, target="amx")
    assert "not by Halide's autoscheduler" in found.report
    kernel = hb.compile(out, target="amx", cache=False)
    rows = np.random.default_rng(0).random((9, 47), np.float32) + 1
    result = kernel.interpret(a=rows, sizes=rows.shape)
    assert np.allclose(result, rows / rows.sum(1, keepdims=True))
