# pyright: reportPrivateUsage=false
"""Which schedules of a layer are the best: what is not looked at is no better."""

from __future__ import annotations

from functools import partial

import pytest
from clock import assert_quick
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.families.layers import choice
from selector.families.layers.tiling import Shape
from selector.machine import machine_named

HOPPER = machine_named("H200")
SIDES = st.sampled_from([1, 5, 7, 14, 28, 37, 56, 112])


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    side, step = draw(st.sampled_from([1, 3, 5])), draw(st.sampled_from([1, 1, 2]))
    return Shape(
        (draw(SIDES), draw(SIDES), draw(st.sampled_from([1, 2, 8, 32]))),
        draw(st.sampled_from([8, 48, 64, 100, 128, 512, 2048])),
        draw(st.sampled_from([3, 32, 64, 100, 256, 1024])),
        side * side,
        draw(st.sampled_from([1, 2])),
        draw(st.sampled_from([1, 1, 4])),
        (step, step, 1) if step > 1 else (),
        draw(st.sampled_from([0, 1, 2])),
        (side - 1, side - 1, 0) if side > 1 else (),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
    )


@settings(max_examples=12, deadline=None)
@given(shapes())
def test_the_best_are_those_of_all(shape: Shape) -> None:
    assert HOPPER is not None
    each = [
        (least, choice._cycles(t, shape, HOPPER))
        for one in choice._pixels(shape)
        for least, n in choice._least(one, shape, HOPPER)
        for t in choice._tilings(one, n, shape, HOPPER)
    ]
    assert all(least <= cycles * (1 + 1e-9) for least, cycles in each)
    found = [cycles for cycles, _ in choice._best(shape, HOPPER, 3)]
    assert found == sorted(cycles for _, cycles in each)[:3]


@settings(max_examples=12, deadline=None)
@given(shapes())
def test_filters_that_are_left_out_have_no_tilings(shape: Shape) -> None:
    assert HOPPER is not None
    for one in choice._pixels(shape):
        tried = {n for _, n in choice._least(one, shape, HOPPER)}
        for n in choice._filters(shape, one):
            assert n in tried or not [*choice._tilings(one, n, shape, HOPPER)]


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("side", [1, 3])
def test_a_pick_is_quick(planes: bool, side: int) -> None:
    assert HOPPER is not None
    reach = (side - 1, side - 1, 0) if side > 1 else ()
    shape = Shape((14, 14, 32), 256, 256, side * side, reach=reach, rows=1, planes=planes)
    assert_quick(partial(choice.candidates, shape, HOPPER), 0.03)
