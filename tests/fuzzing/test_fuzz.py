"""The fuzzer finds what is planted, says it shortly, and finds nothing in a fixed minute of it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import halide_bridge as hb
from fuzzing import chains, oracles, reference, report
from fuzzing.draw import draw, index, unscheduled
from fuzzing.features import features
from fuzzing.oracles import build, run_program
from fuzzing.outcome import FAILURES, Outcome, template
from fuzzing.program import (
    Axis,
    Mask,
    Operand,
    Program,
    Staging,
    Sum,
    from_data,
    to_data,
)
from fuzzing.run import Plan, jobs, main, run
from fuzzing.script import script
from fuzzing.shrink import shrink
from fuzzing.workers import Pool, Worker
from fuzzing.writing import pipeline_text
from selector.api import Kernel, compile_module
from selector.diagnostics import SelectionError, UserError
from selector.runtime.artifact import Artifact

pytestmark = pytest.mark.verified

SEED, PROGRAMS = 20261122, 60


def staged_rows(**changes: Any) -> Program:
    """Windows of rows that are staged, which is right everywhere."""
    a = Operand("A", "f16", (index((1, "x"), (1, "r.x")), index((1, "y"))),
                staging=Staging("block", "inner", rounding=8))  # fmt: skip
    b = Operand("B", "f16", (index((1, "r.x")),))
    axes = (Axis(300, 128), Axis(5, 1, 1, 2))
    return replace(
        Program("rows", "sm_80", "wmma", axes, (Sum(16, 16),), a, b, "f32"), **changes
    )  # fmt: skip


def test_a_seed_always_draws_the_same_distinct_programs():
    first, again = [[draw(3, n) for n in range(300)] for _ in range(2)]
    assert first == again
    assert len({p.digest for p in first}) > 290
    assert draw(4, 0) != first[0]
    assert all(from_data(to_data(p)) == p for p in first)


def test_inputs_do_not_make_another_program():
    p = draw(3, 0)
    assert replace(p, inputs=p.inputs + 1).digest == p.digest
    assert list(jobs(Plan(3, programs=1), {p.digest})) == []


@pytest.mark.parametrize("number", range(6))
def test_what_is_printed_is_what_was_built(number: int):
    p = draw(5, number)
    space: dict[str, Any] = {}
    exec(script(p, "A title.").split("DTYPES = ")[0], space)
    printed, built = (lowered(output, p) for output in (space["pipeline"](), build(p)))
    assert printed == built


def lowered(output: Any, p: Program) -> str:
    """The module without places in the text, or why there is none."""
    try:
        return re.sub(r' at "[^"]*"', "", str(hb.lower(output, target=p.target, name="drawn")))
    except UserError as error:
        return template(str(error))


@pytest.mark.parametrize("kind", ["f16", "bf16", "s8"])
def test_a_printed_program_runs(kind: str, capsys: pytest.CaptureFixture[str]):
    p = staged_rows()
    sums = "s32" if kind == "s8" else "f32"
    p = replace(p, a=replace(p.a, type=kind), b=replace(p.b, type=kind), accumulator=sums,
                result=sums)  # fmt: skip
    exec(script(p, "A title."), {})
    assert capsys.readouterr().out.startswith("relative error 0.0e+00, 0 of 1500 are NaN")


def test_a_printed_program_of_16_bits_without_a_sign_runs(capsys: pytest.CaptureFixture[str]):
    p = staged_rows(result="u16", saturated=True)
    exec(script(p, "A title."), {})
    assert capsys.readouterr().out.startswith("relative error 0.0e+00, 0 of 1500 are NaN")


def test_the_printed_inputs_are_those_that_were_used():
    p = staged_rows()
    space: dict[str, Any] = {}
    exec(script(p, "A title.").split("kernel = ")[0], space)
    for name, array in reference.inputs(p).items():
        assert np.array_equal(space["arrays"][name], array)


def test_a_right_program_is_right():
    outcome = run_program(staged_rows())
    assert (outcome.kind, outcome.detail, outcome.notes) == ("ok", "", ())


def matrices(**changes: Any) -> Program:
    """A matrix product whose depth of 32 is two unrolled steps."""
    a = Operand("A", "f16", (index((1, "r.x")), index((1, "y"))))
    b = Operand("B", "f16", (index((1, "x")), index((1, "r.x"))))
    axes = (Axis(32, 16, 2), Axis(32, 16, 2, bounded=True))
    p = Program("product", "sm_80", "wmma", axes, (Sum(32, 16, 32),), a, b, "f32", at="block")
    return replace(p, **changes)


def late_rows() -> Program:
    """Strided windows of staged rows, whose first row of taps does not count: nothing is staged of
    what it would read."""
    staging = Staging("block", "threads", run=4, rounding=0)
    a = Operand("A", "bf16", (index((2, "x"), (1, "r.x")), index((2, "y"), (1, "r.y"))),
                staging=staging)  # fmt: skip
    return staged_rows(
        a=a, b=Operand("B", "bf16", (index((1, "r.x")), index((1, "r.y")))),
        axes=(Axis(700, 512), Axis(5, 1, 1, 4)), sums=(Sum(9, 9), Sum(5)),
        masks=(Mask("where", index((1, "r.y"), offset=-1)),),
    )  # fmt: skip


FOUND = {
    "iterations that a condition leaves out": late_rows(),
    "a step all of which is masked": matrices(
        masks=(Mask("select", index((-1, "r.x"), offset=11)),)
    ),
    "tiles all of which are masked": matrices(masks=(Mask("left", index((-1, "y"), offset=15)),)),
    "a sum of two accumulators that is scaled": staged_rows(
        second="accumulator", epilogue=("scale",)
    ),
    "a stage of bfloat16, which Halide's own run does not round": staged_rows(
        a=replace(staged_rows().a, type="bf16", produce="scale"),
        b=Operand("B", "bf16", (index((1, "r.x")),)), values="real", inputs=3,
    ),
}  # fmt: skip


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", FOUND)
def test_what_it_found_is_mended(name: str):
    outcome = run_program(FOUND[name])
    assert (outcome.kind, outcome.text) == ("ok", "")


@pytest.mark.nvrtc
@pytest.mark.parametrize("memory", ["wmma", "wgmma"])
@pytest.mark.parametrize("form", [chains.chain, chains.online])
def test_programs_of_several_sums_are_right(form: Callable[[Random], Program], memory: str):
    drawn = (form(Random(number)) for number in count())
    p = next(p for p in drawn if p.memory == memory)
    outcome = run_program(p)
    assert (outcome.kind, outcome.text, outcome.notes) == ("ok", "", ())
    wrong = reference.result(p, reference.inputs(p))
    wrong.flat[wrong.size // 2] += 1
    assert reference.differs(p, reference.result(p, reference.inputs(p)), wrong)


def test_a_refusal_is_told_as_a_template():
    p = staged_rows(axes=(Axis(300, 96), Axis(5, 1)), instructions=("wmma.mma.m16n16k16.f16.f32",))
    outcome = run_program(p)
    assert outcome.kind == "refused"
    assert outcome.detail.startswith("SelectionError: `...` (update) cannot go to the tensor unit")
    assert not any(c.isdigit() for c in outcome.detail)


@pytest.mark.nvrtc
def test_a_planted_error_in_the_emitted_text_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(oracles, "_select", without_waits)
    outcome = run_program(staged_rows(margin=5))  # rows of whole 16 bytes
    assert outcome.place == ("wrong", "emulation"), outcome.text


def without_waits(p: Program, module: Any) -> Kernel:
    """The kernel, which reads what it copies before it is there."""
    kernel = compile_module(module, target=p.target, cache=False)
    made: Artifact = kernel._artifact
    source = made.plan.source.replace("copy_wait<0>();", "")
    assert source != made.plan.source
    plan = replace(made.plan, source=source)
    return Kernel(replace(made, plan=plan), kernel._clock, None)


def test_a_planted_error_in_the_selected_program_is_found(monkeypatch: pytest.MonkeyPatch):
    def wrong(c: oracles.Compiled) -> Any:
        found = np.array(c.kernel.interpret(**c.arrays, sizes=c.shape))
        found[3, 7] += 1
        return found

    monkeypatch.setitem(oracles.ORACLES, "selected", wrong)
    outcome = run_program(staged_rows())
    assert (outcome.kind, outcome.detail) == ("wrong", "selected (values)")
    assert "1 of 1500 wrong, first [3, 7]" in outcome.text


def test_text_that_does_not_compile_is_our_fault(monkeypatch: pytest.MonkeyPatch):
    def broken(p: Program, module: Any) -> Kernel:
        kernel = without_waits(p, module)
        made: Artifact = kernel._artifact
        plan = replace(made.plan, source=made.plan.source.replace("{", "{ lost = 1;", 1))
        return Kernel(replace(made, plan=plan), kernel._clock, None)

    monkeypatch.setattr(oracles, "_select", broken)
    assert run_program(staged_rows()).kind == "nvrtc"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (np.nan, "1 of 1500 are NaN or infinite, first [1, 2]"),
        (np.inf, "1 of 1500 are NaN or infinite, first [1, 2]"),
        (1e3, "1 of 1500 wrong, first [1, 2]"),
        (0.0, ""),
    ],
)
def test_one_wrong_element_is_seen(change: float, said: str):
    p = staged_rows()
    expected = reference.result(p, reference.inputs(p))
    found = expected.astype(np.float32)
    found[1, 2] += change
    assert reference.differs(p, expected, found).endswith(said)
    assert bool(reference.differs(p, expected, found)) == bool(said)


def test_products_that_cancel_are_measured_by_their_size():
    """Rounded factors are off by their own size, which says nothing of what is left of the sum."""
    p = staged_rows(values="real")
    p = replace(p, a=replace(p.a, type="f32"), b=replace(p.b, type="f32"))
    arrays = reference.inputs(p)
    arrays["B"][...] = np.where(np.arange(arrays["B"].size) % 2, 1, -1).reshape(arrays["B"].shape)
    arrays["A"][...] = 1 + arrays["A"] / 100
    expected, size = reference.result(p, arrays), reference.spread(p, arrays)
    assert size > 20 * np.sqrt(np.mean(expected**2))
    off = expected + 0.9 * reference.tolerance(p)[0] * size
    assert reference.differs(p, expected, off)
    assert not reference.differs(p, expected, off, size=size)
    assert reference.differs(p, expected, 2 * off - expected, size=size)


def test_the_reference_is_the_definition():
    """Against sums written out for one program with a stride, a mask and an epilogue."""
    mask = Mask("select", index((-1, "r.x"), offset=4))
    p = staged_rows(masks=(mask,), epilogue=("relu", "scale"))
    p = replace(p, a=replace(p.a, index=(index((2, "x"), (3, "r.x"), offset=1), index((1, "y")))))
    arrays = reference.inputs(p)
    image, taps = arrays["A"].astype(float), arrays["B"].astype(float)
    total = sum(taps[t] * image[:, 1 + 3 * t :: 2][:, :300] for t in range(5))
    assert np.array_equal(reference.result(p, arrays), 2 * np.maximum(total, 0))


def test_shrinking_keeps_what_fails_and_little_else():
    def attempt(p: Program) -> Outcome:
        strided = any(t.factor > 1 for t in p.a.index[0].terms)
        failed = strided and any(m.kind == "where" for m in p.masks)
        return Outcome("wrong", "emulation") if failed else Outcome("ok")

    p = staged_rows(
        masks=(Mask("where", index((-1, "r.x"), offset=7)),), epilogue=("relu", "bias"),
        start="bias", after="shared", margin=5, directives=(("resident_blocks", 2),),
    )  # fmt: skip
    p = replace(p, a=replace(p.a, index=(index((3, "x"), (2, "r.x")), p.a.index[1])))
    small = shrink(p, Outcome("wrong", "emulation"), attempt)
    assert attempt(small).kind == "wrong"
    assert (small.epilogue, small.start, small.after, small.directives) == ((), "zero", "", ())
    assert small.a.staging is None
    assert small.margin == 0
    assert small.sizes == (1, 1)
    assert len(pipeline_text(small).splitlines()) < len(pipeline_text(p).splitlines()) - 8


def test_shrinking_stops_in_time():
    begin = time.monotonic()

    def slow(p: Program) -> Outcome:
        time.sleep(0.05)
        return Outcome("wrong")

    shrink(draw(3, 2), Outcome("wrong"), slow, seconds=0.2)
    assert time.monotonic() - begin < 2


def exits(connection: Connection, gpu: bool, quiet: bool) -> None:
    connection.recv()
    connection.send(("stage", "machine code"))
    os._exit(3)


def sleeps(connection: Connection, gpu: bool, quiet: bool) -> None:
    connection.recv()
    connection.send(("stage", "emulation"))
    time.sleep(60)


def test_a_crash_costs_its_program():
    outcome = Worker(work=exits).run(draw(1, 0))
    assert (outcome.kind, outcome.detail) == ("crash", "exit code 3 in machine code")


def test_a_hang_costs_its_program():
    begin = time.monotonic()
    worker = Worker(work=sleeps, limit=5.0)
    outcome = worker.run(draw(1, 0))
    assert (outcome.kind, outcome.detail) == ("hang", "in emulation")
    assert worker.process is None
    assert time.monotonic() - begin < 30


def test_a_report_goes_on_where_it_was_cut_off(tmp_path: Path):
    path = tmp_path / "report.jsonl"
    plan = Plan(seed=7, programs=2, report=path)
    assert [r["number"] for r in run(plan)] == [0, 1]
    path.write_text(path.read_text() + '{"seed": 7, "num')
    records = run(replace(plan, programs=3))
    assert [r["number"] for r in records] == [0, 1, 2]
    assert len(list(report.read(path))) == 3
    found = report.summary(records)
    assert found["programs"] == 3
    assert sum(found["kinds"].values()) == 3
    assert all(f in report.table(found) for p in (draw(7, 2),) for f in features(p))


def test_reports_are_told_together(tmp_path: Path):
    reports = [tmp_path / "one.jsonl", tmp_path / "other.jsonl"]
    slow = Outcome("ok", seconds={"lower": 1.5, "machine code": 7.0, "emulation": 30.0})
    refused = Outcome("refused", "SelectionError: `...`", "`total` cannot go", {"lower": 2.0})
    for path, seed, outcome in zip(reports, (7, 8), (slow, refused), strict=True):
        path.write_text(json.dumps(report.record(seed, 3, draw(seed, 3), outcome)))
    both = tmp_path / "both.jsonl"
    assert main(["--summarize", *map(str, reports), "--report", str(both)]) == 0
    found = json.loads(both.with_suffix(".summary.json").read_text())
    assert found["kinds"] == {"ok": 1, "refused": 1}
    assert found["longest compile"] == {"seconds": 8.5, "program": "7/3"}
    (message,) = found["messages"]
    assert (message["example"], message["text"]) == ("8/3", "`total` cannot go")


def test_messages_lose_names_and_numbers():
    error = SelectionError("`conv` (update) cannot go", why="its 384 lanes of `a.s0.x$2` in 'b'")
    assert template(str(error)) == "`...` (update) cannot go"
    assert template(error.why) == "its N lanes of `...` in '...'"


@pytest.mark.slow
@pytest.mark.nvrtc
@pytest.mark.parametrize(
    "programs", [PROGRAMS // 4, pytest.param(PROGRAMS, marks=pytest.mark.nightly)]
)
def test_fuzzing_finds_nothing(programs: int):
    """A fixed seed and a fixed number of programs: about a second of a core for each."""
    plan = Plan(SEED, programs=programs)
    done = list(Pool(1).run(jobs(plan, set())))
    assert len(done) == programs
    failed = [(n, o) for n, _, o in done if o.kind in FAILURES]
    assert not failed, "\n\n".join(
        f"{o.kind}: {o.detail}\n{o.text}\n{script(draw(SEED, n), f'Seed {SEED}, program {n}.')}"
        for n, o in failed
    )
    assert sum(o.compiled for _, _, o in done) >= programs // 2


@pytest.mark.parametrize("number", [0, 5, 9])
def test_what_is_drawn_is_right_in_the_schedule_of_the_compiler(number: int):
    p = unscheduled(draw(11, number), 11, number)
    assert "autoschedule" in pipeline_text(p)
    outcome = run_program(p)
    assert (outcome.kind, outcome.detail) == ("ok", "")
