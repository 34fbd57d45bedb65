"""The corpus of variants as loop IR: all are selected, and right. Run as a program it prints the
rates.
"""

from __future__ import annotations

from functools import cache

import pytest
from machines import MACHINES
from outcomes import Outcome, assert_expected, assert_rate, judged, summary
from random_variants import drawn
from statement_variants import variants
from text_variants import Variant, filters, products

pytestmark = pytest.mark.verified

DRAWN = 60


@cache
def corpus(machine: str) -> dict[str, Variant]:
    """The variants of a machine by name."""
    m = MACHINES[machine]
    found = [*products(m), *filters(m), *variants(m), *drawn(m, DRAWN)]
    table = {v.name: v for v in found}
    assert len(table) == len(found), "names are unique"
    return table


@cache
def outcome(machine: str, name: str) -> Outcome:
    v = corpus(machine)[name]
    return judged(v.module(), v.inputs(), v.expected, v.machine)


CASES = [(machine, name) for machine in MACHINES for name in corpus(machine)]


@pytest.mark.parametrize(("machine", "name"), CASES)
def test_variant(machine: str, name: str) -> None:
    v = corpus(machine)[name]
    assert_expected(outcome(machine, name), v.machine, v.statements, v.why)


@pytest.mark.parametrize("machine", MACHINES)
def test_rate(machine: str) -> None:
    assert_rate([v.why for v in corpus(machine).values()], 230)


if __name__ == "__main__":
    for machine in MACHINES:
        print(summary(machine, {name: outcome(machine, name) for name in corpus(machine)}))
