"""The driver: phases stop at their caps and say so, broken rules have a position."""

from __future__ import annotations

import pytest
from clock import assert_quick
from tensor_programs import SM80, convolution, matmul

from selector.diagnostics import InternalError, ParseError, SelectionError
from selector.eqsat import saturate, select
from selector.eqsat.saturate import Engine
from selector.eqsat.solve import forget


@pytest.fixture(autouse=True)
def _clean_memo():
    forget()
    yield
    forget()


def test_a_cap_is_reported(monkeypatch: pytest.MonkeyPatch):
    short = tuple((name, schedule, 1) for name, schedule, _ in saturate.PHASES)
    monkeypatch.setattr(saturate, "PHASES", short)
    with pytest.raises(SelectionError) as caught:
        select(matmul(32, 32, 16, style="sums"), SM80)
    assert "stopped at its cap in: " in caught.value.why


def test_a_cap_that_does_not_matter_is_reported_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(saturate, "MAX_TUPLES", 10)
    short = tuple(
        (name, schedule.replace("repeat 3", "repeat 30"), n)
        for name, schedule, n in saturate.PHASES
    )
    monkeypatch.setattr(saturate, "PHASES", short)
    report = select(convolution(256, 8), SM80).report
    assert "application" in report.updates[0].capped
    assert "stopped at its cap" in str(report)


def test_a_broken_rule_file_has_a_position():
    with pytest.raises(ParseError) as caught:
        Engine("").load("mine.egg", "\n(rewrite (Broadcast v) v :ruleset axioms)")
    assert "mine.egg" in caught.value.what
    assert "2:" in caught.value.why


def test_an_unsound_union_stops_the_run():
    engine = Engine("")
    engine.load(
        "wrong.egg", '(rewrite (Broadcast v n) v :when ((> n 1)) :ruleset axioms :name "wrong")'
    )
    with pytest.raises(InternalError, match="egglog stopped"):
        engine.probe('(let $e (Broadcast (Ramp (Sym "a") (Int 1) 4) 2))')


def test_a_rule_can_be_left_out():
    engine = Engine("", frozenset({"broadcast-one"}))
    assert "broadcast-one" not in engine.probe('(let $e (Broadcast (Sym "a") 1))').matches


def test_selection_is_quick_once_the_rules_are_loaded():
    """About 25 ms of processor time."""
    module = convolution(256, 255)
    select(module, SM80)

    def again() -> None:
        forget()
        select(module, SM80)

    assert_quick(again, 0.06)
