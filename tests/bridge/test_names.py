"""Names that Halide counts for a process are numbered anew for each program."""

from __future__ import annotations

import re

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from selector.ir.interpreter import interpret
from selector.ir.module import Module


def sines(variable: str = "x") -> Module:
    """A program whose sine reads several things twice, which Halide computes once."""
    x, image = hl.Var(variable), hl.ImageParam(hl.Float(32), 1, "image")
    sine, out = hl.Func("sine"), hl.Func("out")
    sine[x] = hl.fast_sin(hl.f32(hl.max(x, image.width())))
    out[x] = sine[x] + image[x]
    sine.compute_root()
    return hb.lower(out.compute_root(), target="sm_80")


def test_what_is_computed_once_is_numbered_from_zero() -> None:
    first = str(sines())
    assert "let sine.s0.t0 = " in first
    assert str(sines()) == first


@pytest.mark.parametrize("variable", ["t7", "t0", "t1"])
def test_what_a_user_calls_like_it_stays(variable: str) -> None:
    """And is none of those."""
    module, usual = sines(variable), sines()
    text = str(module)
    assert f"for (sine.s0.{variable}, " in text
    lets = re.findall(r"let (\S+) =", text)
    assert len(set(lets)) == len(lets) == len(re.findall(r"let (\S+) =", str(usual)))
    image = np.zeros(16, np.float32)
    found, truth = (
        interpret(m, {"image": image}, sizes={"out": (16,)})["out"] for m in (module, usual)
    )
    assert np.array_equal(found, truth)


def test_variables_of_one_way_of_a_specialised_func_stay() -> None:
    x, image = hl.Var("x"), hl.ImageParam(hl.Float(32), 1, "image")
    out, t3, t5 = hl.Func("out"), hl.Var("t3"), hl.Var("t5")
    out[x] = image[x]
    out.specialize(image.width() > 5).split(x, t3, t5, 4)
    text = str(hb.lower(out, target="sm_80"))
    assert "for (out.s0.x.t3, " in text
    assert "for (out.s0.x.t5, " in text
