"""Programs of stages, of any types: the numbers are Halide's, every oracle gives the same bits, and
what is drawn has all that it is said to have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from fuzzing import elements, formats, reference, stages
from fuzzing.draw import draw, narrowed
from fuzzing.elements import HALIDE, computed, loads, wrapped
from fuzzing.features import features
from fuzzing.oracles import build, run_program
from fuzzing.outcome import Outcome
from fuzzing.program import Axis, Program, from_data, to_data
from fuzzing.script import script
from fuzzing.shrink import shrink
from fuzzing.test_fuzz import staged_rows
from fuzzing.writing import pipeline_text

pytestmark = [pytest.mark.verified, pytest.mark.nvrtc, pytest.mark.gcc]


def drawn(count: int) -> Iterator[Program]:
    return (replace(stages.stages(Random(n)), inputs=n) for n in range(count))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_programs_of_stages_are_right(number: int) -> None:
    p = list(drawn(number + 1))[-1]
    outcome = run_program(p)
    assert (outcome.kind, outcome.text, outcome.notes) == ("ok", "", ())
    expected = reference.results(p, reference.inputs(p))
    wrong = [one.astype(np.float64) for one in expected]
    wrong[-1].flat[0] += 1
    assert reference.all_differ(p, expected, wrong)
    assert not reference.all_differ(p, expected, expected)


def test_a_number_that_all_outputs_share_is_computed_beside_them() -> None:
    """The place of the largest tap depends on no output: its Func has no dimension."""
    value = ("tap", "s16", "K")
    stage = ("s0", "s32", "shared", ("first", 3, 2), value)
    parts = (
        ("inputs", (("K", "s16"),)), ("edges", ""), ("stages", (stage,)),
        ("outputs", (("load", "s32", "s0", (0, 0), 1),)), ("together", False),
        ("tile", (16, 8)), ("vector", 2),
    )  # fmt: skip
    p = replace(next(drawn(1)), axes=(Axis(19), Axis(5)), parts=parts, schedule="drawn")
    outcome = run_program(p)
    assert (outcome.kind, outcome.text) == ("ok", "")


def test_all_of_it_is_drawn() -> None:
    found = {f for n in range(4000) for f in features(draw(8, n))}
    wanted = {f"{what} of {kind}" for what in ("array", "output", "stage") for kind in HALIDE}
    wanted |= {f"stage, {place}, {how}" for place in ("root", "shared", "register")
               for how in ("sum", "max", "min", "first", "both", "no reduction")}  # fmt: skip
    wanted |= {"stages, outputs 3", "stages, together True", "result saturated"}
    wanted |= {f"result {kind}" for kind in ("s8", "u8", "s16", "u16")}
    assert wanted <= found


def test_programs_of_stages_are_data() -> None:
    for p in drawn(100):
        assert from_data(to_data(p)) == p
        assert all(load[2] in pipeline_text(p) for e in outputs(p) for load in loads(e))


def outputs(p: Program) -> Any:
    return dict(p.parts)["outputs"]


@pytest.mark.parametrize("kind", [k for k in HALIDE if k not in ("bool", *elements.FLOATS)])
def test_integers_wrap_as_their_type_does(kind: str) -> None:
    low, high = elements.limits(kind)
    values = np.array([low, -1, 0, 1, high], np.int64)
    with np.errstate(over="ignore"):
        assert np.array_equal(wrapped(values + 1, kind), (values + 1).astype(formats.DTYPES[kind]))


def test_expressions_are_computed_as_they_are_written() -> None:
    """Each operation once, by hand."""
    a, b = ("load", "s16", "A", (0,), 1), ("load", "s16", "B", (0,), 1)
    values = {"A": np.array([-32768, -7, 5]), "B": np.array([3, 4, -32768])}

    def of(*e: Any) -> list[int]:
        return computed(e, lambda load: values[load[2]], {"T": np.arange(256) * 2}).tolist()

    assert of("+", "s16", a, b) == [-32765, -3, -32763]
    assert of("-", "s16", a, b) == [32765, -11, -32763]
    assert of("//", "s16", a, 3) == [-10923, -3, 1]
    assert of("%", "s16", a, 3) == [1, 2, 2]
    assert of(">>", "s16", a, 1) == [-16384, -4, 2]
    assert of("<<", "s16", a, 1) == [0, -14, 10]
    assert of("fit", "u8", a) == [0, 0, 5]
    assert of("to", "u8", a) == [0, 249, 5]
    assert of("look", "s16", "T", a) == [0, 0, 10]
    assert of("if", "s16", ("compare", "bool", "<", a, b), a, b) == [-32768, -7, -32768]


def test_sums_are_stored_as_shorter_integers() -> None:
    random, found = Random(5), set[tuple[str, bool]]()
    for _ in range(300):
        p = narrowed(random, replace(staged_rows(), accumulator="s32", result="s32"))
        found.add((p.result, p.saturated))
    kinds = ("s16", "u16", "s8", "u8")
    assert found == {("s32", False), *((k, near) for k in kinds for near in (True, False))}
    p = staged_rows(result="s16", saturated=True)
    assert "saturating_cast" in pipeline_text(p)
    assert run_program(p).kind == "ok"


def test_shrinking_leaves_one_operation() -> None:
    def attempt(p: Program) -> Outcome:
        return Outcome("wrong") if "hl.absd" in pipeline_text(p) else Outcome("ok")

    p = next(p for p in drawn(300) if "hl.absd" in pipeline_text(p))
    small = shrink(p, Outcome("wrong"), attempt, 5)
    assert "hl.absd" in pipeline_text(small)
    assert len(pipeline_text(small)) < len(pipeline_text(p))
    assert len(outputs(small)) == 1


def test_a_printed_program_of_several_outputs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    p = next(p for p in drawn(100) if len(outputs(p)) == 2 and build_is_quick(p))
    exec(script(p, "A title."), {})
    said = [x for x in capsys.readouterr().out.splitlines() if x.startswith("relative error")]
    assert said == [f"relative error 0.0e+00, 0 of {np.prod(p.sizes)} are NaN"] * 2


def build_is_quick(p: Program) -> bool:
    return p.schedule == "drawn" and not dict(p.parts)["stages"] and bool(build(p))
