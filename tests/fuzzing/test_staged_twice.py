"""Staged elements that are computed from others, staged beside them: the fuzzer draws such chains,
and sees what is wrong where nothing refuses those that are filled ahead.
"""

from __future__ import annotations

from itertools import islice
from unittest.mock import MagicMock

import pytest

from fuzzing.choices import index
from fuzzing.oracles import run_program
from fuzzing.program import Axis, Operand, Program, Staging, Sum
from fuzzing.run import Plan, jobs
from selector.gpu.codegen.pipelines import staged

pytestmark = pytest.mark.verified

AHEAD = "it is computed from `...`, which the same loop fills"


def chain(stages: int, before: int, produce: str = "pair") -> Program:
    """A product whose second factor is made of what the same loop stages, so many copies of each
    in flight."""
    staging = Staging("loop", "inner", rounding=8, stages=stages)
    first = Staging("loop", "vectors", rounding=8, stages=before)
    a = Operand("A", "f16", (index((1, "r.x")), index((1, "y"))), staging=staging)
    b = Operand("B", "f16", (index((1, "x")), index((1, "r.x"))), produce=produce,
                staging=staging, before=first)  # fmt: skip
    axes = (Axis(41, 16, 2), Axis(21, 16, 1, 2))
    return Program("twice", "sm_80", "wmma", axes, (Sum(96, 16),), a, b, "f32", at="block")


@pytest.mark.nvrtc
@pytest.mark.gcc
@pytest.mark.parametrize("produce", ["pair", "scale"])
@pytest.mark.parametrize("before", [1, 3])
def test_without_the_refusal_it_is_seen_to_be_wrong(
    produce: str, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = chain(3, before, produce)
    refused = run_program(p)
    assert refused.kind == "refused"
    assert refused.detail.endswith(AHEAD)
    monkeypatch.setattr(staged, "refuse_chains", MagicMock())
    assert run_program(p).place == ("wrong", "emulation")


@pytest.mark.nvrtc
@pytest.mark.gcc
@pytest.mark.parametrize("produce", ["pair", "cast", "scale", "relu"])
def test_what_is_not_filled_ahead_is_right(produce: str) -> None:
    outcome = run_program(chain(1, 1, produce))
    assert (outcome.kind, outcome.text, outcome.notes) == ("ok", "", ())


def test_chains_are_drawn_ahead_and_not() -> None:
    drawn = [p for _, p in islice(jobs(Plan(7, having="staged twice at loop"), set()), 40)]
    copies = {
        (o.staging.stages > 1, o.before.stages > 1)
        for p in drawn
        for o in p.operands
        if o.staging and o.before
    }
    assert copies == {(False, False), (False, True), (True, False), (True, True)}
    assert {p.memory for p in drawn} == {"wmma", "wgmma"}


def test_what_no_program_has_is_said() -> None:
    with pytest.raises(ValueError, match="no feature has 'staged thrice'"):
        next(jobs(Plan(7, having="staged thrice"), set()))
