"""Sums that are more than one update: what is drawn is right; if it were not, it would be seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fuzzing import chains, reference, updates
from fuzzing.choices import index
from fuzzing.draw import draw, unscheduled
from fuzzing.features import features
from fuzzing.oracles import run_program
from fuzzing.program import Axis, Mask, Operand, Program, Sum
from fuzzing.writing import pipeline_text

pytestmark = [pytest.mark.verified, pytest.mark.nvrtc, pytest.mark.gcc]


def product(**changes: Any) -> Program:
    """A matrix product that the compiler schedules."""
    a = Operand("A", "f16", (index((1, "r.x")), index((1, "y"))))
    b = Operand("B", "f16", (index((1, "x")), index((1, "r.x"))))
    p = Program("product", "sm_80", "", (Axis(41), Axis(21)), (Sum(96, 96),), a, b, "f32",
                schedule="sized")  # fmt: skip
    return replace(p, **changes)


def of_bytes(**changes: Any) -> Program:
    a, b = (replace(o, type="s8") for o in product().operands)
    return product(a=a, b=b, accumulator="s32", result="s32", **changes)


PROGRAMS = {
    "other updates": product(updates=("relu", "column", "row", "double")),
    "a recurrence": product(updates=("relu", "running")),
    "a second sum among them": product(second="update", updates=("double", "second", "relu")),
    "two sums of a tuple": product(second="value", updates=("relu",)),
    "the largest element beside": product(beside="largest", updates=("row", "running")),
    "subtracted": product(minus=True, alone=True, start="bias"),
    "two sums subtracted": product(minus=True, second="accumulator", start="one"),
    "scaled": product(factor="column", alone=True),
    "some outputs": product(masks=(Mask("where", index((1, "x"), (-1, "y"))),), start="one"),
    "zero points": of_bytes(zero_points="AB", alone=True),
    "a zero point of one array twice": replace(
        of_bytes(zero_points="A"),
        b=replace(of_bytes().a, index=(index((1, "r.x")), index((1, "x")))),
    ),
    "from before 0": product(sums=(Sum(96, 96, begin=-3),)),
    "some terms from 8 on": product(
        sums=(Sum(96, 96, begin=8),), masks=(Mask("where", index((-1, "r.x"), offset=40)),)
    ),
    "from a parameter": product(sums=(Sum(96, 96, begin=5, given=True),)),
    "extents declared": product(declared=True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_right(name: str) -> None:
    p = PROGRAMS[name]
    outcome = run_program(p)
    assert (outcome.kind, outcome.text, outcome.notes) == ("ok", "", ())
    without = replace(
        p, updates=(), beside="", second="", minus=False, zero_points="", factor="", masks=()
    )
    if without != p:
        plain = reference.result(without, reference.inputs(without))
        assert reference.differs(p, reference.result(p, reference.inputs(p)), plain)


def test_a_tensor_unit_has_sums_among_updates() -> None:
    p = PROGRAMS["a second sum among them"]
    assert "scheduled by sums_apart" in run_program(p).used


def test_all_of_it_is_drawn() -> None:
    found = {f for n in range(1500) for f in features(unscheduled(draw(8, n), 8, n))}
    wanted = {f"update {name}" for name in (*updates.UPDATES, "second")}
    wanted |= {"second value", "sum and largest", "products subtracted", "sum is the output"}
    wanted |= {"extents declared", "sums from elsewhere", "sums from where a parameter says"}
    wanted |= {f"zero points {names}" for names in ("A", "B", "AB")} | {"factor column"}
    wanted |= {f"online, constant {names}" for names in ("keys", "queries", "keys and queries")}
    assert wanted <= found


@pytest.mark.parametrize("form", [chains.chain, chains.online])
def test_sums_of_sums_that_nobody_schedules_are_right(form: Callable[[Random], Program]) -> None:
    p = chains.unscheduled(Random(3), form(Random(5)))
    assert "hb.autoschedule" in pipeline_text(p)
    outcome = run_program(p)
    assert (outcome.kind, outcome.text, outcome.notes) == ("ok", "", ())


def test_a_schedule_by_hand_has_what_it_can() -> None:
    """Its sums are one update of one value."""
    for n in range(300):
        p = updates.around_sums(Random(n), replace(product(), schedule="drawn"))
        assert p == replace(p, updates=(), beside="", zero_points="", alone=False)
