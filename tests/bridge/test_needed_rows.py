"""Funcs inside a pipeline of which only what somebody needs is stored: their own variable is split
with GuardWithIf. Of others whole tiles are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl
from emulation import check

import halide_bridge as hb
from selector.ir.nodes import Store
from selector.ir.traverse import walk_stmt

GUARD = hl.TailStrategy.GuardWithIf


def doubled(tail: Any = None, *, update: bool = False) -> Any:
    """The sums of neighbours of twice an image, in two kernels."""
    x, y, xo, xi, yo, yi = (hl.Var(n) for n in ("x", "y", "xo", "xi", "yo", "yi"))
    image = hl.ImageParam(hl.Float(32), 2, "image")
    twice, out = hl.Func("twice"), hl.Func("out")
    twice[x, y] = image[x, y] * 2
    if update:
        twice[x, y] += 1.0
    out[x, y] = twice[x, y] + twice[x, y + 1]
    out.gpu_tile(x, y, xo, yo, xi, yi, 32, 4)
    twice.compute_root()
    tails = () if tail is None else (tail,)
    for stage in (twice, *([twice.update()] if update else [])):
        stage.split(x, xo, xi, 32).split(y, yo, yi, 8, *tails).reorder(xi, yi, xo, yo)
        stage.gpu_blocks(xo, yo).gpu_threads(xi, yi)
    return out


def predicates(output: Any) -> list[bool]:
    """Of the statements that store it, whether there is a condition."""
    body = hb.lower(output, target="sm_90a").body
    stores = (s for s in walk_stmt(body) if isinstance(s, Store) and s.buffer == "twice")
    return [s.predicate is not None for s in stores]


def test_what_nobody_needs_is_not_stored() -> None:
    assert predicates(doubled(GUARD)) == [True]


@pytest.mark.parametrize(
    "output", [doubled(), doubled(hl.TailStrategy.RoundUp), doubled(GUARD, update=True)]
)
def test_of_others_whole_tiles_are(output: Any) -> None:
    assert not any(predicates(output))


@pytest.mark.parametrize("height", [1, 7, 8, 30])
@pytest.mark.parametrize("tail", [GUARD, None], ids=["needed", "whole"])
def test_it_is_right(tail: Any, height: int) -> None:
    kernel = hb.compile(doubled(tail), target="sm_90a")
    image = np.random.default_rng(height).standard_normal((height + 1, 37)).astype(np.float32)
    truth = 2 * (image[1:] + image[:-1])
    for found in (
        kernel.interpret(image=image, sizes=(height, 37)),
        check(kernel, image=image, sizes=(height, 37)),
    ):
        np.testing.assert_allclose(found, truth, rtol=1e-6)
