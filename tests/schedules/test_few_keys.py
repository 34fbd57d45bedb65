"""Attention whose number of keys is a constant: Halide makes no loop of one turn, so a turn has
fewer keys than there are.
"""

from __future__ import annotations

import math

import pytest
from test_plain_attention import ONE_LOOP, Pipeline, assert_right
from verified import EMULATED

import halide_bridge as hb
from selector.families import attention
from selector.machine import machine_for

pytestmark = EMULATED

CASES = {
    "a window of 7 x 7 pixels": Pipeline(32, keys=49),
    "few, channels many": Pipeline(64, keys=17),
    "as many as a turn has": Pipeline(64, keys=64),
    "of two turns": Pipeline(40, "bshd", "bshd", "bshd", keys=65),
    "no future": Pipeline(16, masks=("score",), low=-math.inf, keys=37),
    "no future, of several turns": Pipeline(32, masks=("score",), low=-math.inf, keys=200),
}


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", CASES)
def test_few_keys_are_one_loop_and_right(name: str, target: str) -> None:
    case = CASES[name]
    output, schedule = case.scheduled(target)
    assert schedule.report.count(ONE_LOOP) == 3, schedule.report
    assert_right(case, hb.compile(output, target=target), (2, 2, 70, case.keys), target)


def test_one_turn_is_no_loop() -> None:
    case = Pipeline(16, keys=16)
    output, schedule = case.scheduled()
    assert "not one loop over keys: 16 keys are one turn" in schedule.report
    assert_right(case, hb.compile(output, target="sm_90a"), (1, 2, 33, 16))


def test_the_model_knows_what_is_a_constant() -> None:
    machine = machine_for("sm_90a")
    assert machine is not None
    for keys in (17, 49, 64, 128, 200):
        found = attention.pick(attention.Shape(96, 500, keys, 64, fixed=True), machine)
        assert found is not None
        assert found.keys < keys
