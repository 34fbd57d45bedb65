"""The corpus of variants as Halide pipelines: all are selected, and right. Run as a program it
prints the rates.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "gpu"))

from corpus_case import Case, output_shapes, random_inputs
from halide_tiles import GROUPS
from halide_variants import Pipeline, around, rows
from machines import MACHINES, Machine, real
from masked_products import masked_products
from outcomes import Outcome, assert_expected, assert_rate, judged, summary
from placed_variants import placed
from written_variants import written

import halide_bridge as hb
from selector.diagnostics import ScheduleError

pytestmark = pytest.mark.verified


@cache
def corpus(machine: str) -> dict[str, Pipeline]:
    """The pipelines of a machine by name."""
    found = [
        p for group in (rows, around, written, placed, masked_products, *GROUPS) for p in group()
    ]
    table = {p.name: p for p in found if machine in p.machines}
    assert len({p.name for p in found}) == len(found), "names are unique"
    return table


def compiled(p: Pipeline, m: Machine) -> Outcome:
    try:
        module = hb.lower(p.build(m), target=m.target, name="variant")
    except ScheduleError as error:
        return Outcome((), error.why, 0.0)
    kinds = {b.name: str(b.type) for b in module.buffers}
    case = Case(p.name, lambda: None, (p.size,), shapes=p.shapes, scalars=p.scalars,
                values=p.values)  # fmt: skip
    return judged(
        module,
        random_inputs(case, module, p.size, 1),
        lambda x: p.reference({k: real(v, kinds[k]) for k, v in x.items()}, p.size),
        m,
        scalars=p.scalars,
        sizes=output_shapes(module, p.size),
    )


@cache
def outcome(machine: str, name: str) -> Outcome:
    return compiled(corpus(machine)[name], MACHINES[machine])


CASES = [(machine, name) for machine in MACHINES for name in corpus(machine)]


@pytest.mark.parametrize(("machine", "name"), CASES)
def test_variant(machine: str, name: str) -> None:
    p = corpus(machine)[name]
    assert_expected(outcome(machine, name), MACHINES[machine], p.statements, p.why)


@pytest.mark.parametrize("machine", MACHINES)
def test_rate(machine: str) -> None:
    assert_rate([v.why for v in corpus(machine).values()], 500)


def standing(machine: str) -> list[str]:
    """Variants by laws, one of all that Halide makes one program of: most laws are its own."""
    m = MACHINES[machine]
    programs = {
        str(hb.lower(p.build(m), target=m.target, name="variant")): p.name for p in written()
    }
    return [*programs.values()]


@pytest.mark.parametrize("machine", MACHINES)
def test_few_that_halide_leaves_standing_are_refused(machine: str) -> None:
    names = standing(machine)
    assert len(names) >= 50
    refused = [name for name in names if outcome(machine, name).why]
    assert len(refused) <= len(names) / 10, refused


if __name__ == "__main__":
    for machine in MACHINES:
        print(summary(machine, {name: outcome(machine, name) for name in corpus(machine)}))
        names = standing(machine)
        refused = sum(bool(outcome(machine, name).why) for name in names)
        print(f"{machine}: of {len(names)} by laws that Halide leaves standing {refused} refused")
