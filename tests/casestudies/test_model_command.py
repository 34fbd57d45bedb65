"""``python -m casestudies model``: candidates are built here and timed elsewhere; the verdict.

CuPy is NumPy where kernels run (``fake_gpu``), and they are for the CPU.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from scipy import stats  # pyright: ignore

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.cli import main
from casestudies.common.registry import find_case
from casestudies.gemm.problem import Problem
from casestudies.measuring.measure import Row
from casestudies.measuring.model.build import build, candidates_of
from casestudies.measuring.model.families import FAMILIES
from casestudies.measuring.model.filters import problems as filters
from casestudies.measuring.model.fit import Sample, fit, loss
from casestudies.measuring.model.plan import Candidate, Trial, read, write
from casestudies.measuring.model.sizes import LEAST_MACS, MOST_MACS, SWEEP, drawn
from casestudies.measuring.model.verdict import report, spearman, verdicts
from selector.diagnostics import ArtifactError
from selector.families.contraction import ranked, usual
from selector.families.contraction.choice import best
from selector.machine import machine_for
from selector.tuning.timing import Timing

pytestmark = pytest.mark.verified

FAKE = Path(__file__).parent / "fake_gpu"
H200 = machine_for("sm_90a")
SMALL = Problem(96, 72, 128, "f16-f16", "nt")


def row(contender: str, microseconds: float, *, ours: bool = True, error: float = 0.0) -> Row:
    timing = Timing(microseconds, microseconds, microseconds, 1, 1, "graph")
    return Row("gemm", "p", contender, "", error, 1e-3, timing, 1, 1, ours=ours)


def test_sizes_are_drawn_alike() -> None:
    found = list(drawn(20, 7))
    assert found == list(drawn(20, 7)) != list(drawn(20, 8))
    assert all(LEAST_MACS <= p.multiply_adds <= MOST_MACS for p in found)
    assert len({p.name for p in (*SWEEP, *found)}) == len(SWEEP) + 20


@pytest.mark.parametrize("problem", [SMALL, SWEEP[0], SWEEP[-3], Problem(4096, 4096, 4096)])
def test_candidates_are_the_best_and_others(problem: Problem) -> None:
    found = candidates_of(problem, 12, H200)
    tilings = [t for _, t in found]
    assert len(tilings) == len(set(tilings)) <= 13
    assert [t for _, t in ranked(problem.shape, H200)][:5] == tilings[:5]
    assert usual(problem.shape, H200) in tilings
    times = [us for us, _ in found[:12]]
    assert times == sorted(times)
    assert times[-1] > 1.05 * times[4]
    assert best(problem.shape, H200) == tilings[0]


@pytest.mark.nvrtc
def test_candidates_are_built_once(tmp_path: Path) -> None:
    trials = build((SMALL, dataclasses.replace(SMALL, k=136)), 2, H200, tmp_path)
    assert read(tmp_path) == trials
    files = {c.file for t in trials for c in t.candidates}
    assert files == {p.name for p in tmp_path.glob("*.kernel")}
    assert len(files) < sum(len(t.candidates) for t in trials)


@pytest.mark.nvrtc
def test_candidates_of_filters_are_built(tmp_path: Path) -> None:
    assert main(["model", str(tmp_path), "--build", "--family", "filters", "--most", "2",
                 "--drawn", "0", "--match", "conv2d-k3-clamp-1920"]) == 0  # fmt: skip
    (trial,) = read(tmp_path)
    assert (trial.case, trial.instance.name) == ("conv2d", "conv2d-k3-clamp-1920x1080")
    assert [c.tiling for c in trial.candidates] == [
        t for _, t in FAMILIES["filters"].ranked(trial.instance.shape, H200)[:5]
    ]


def test_a_folder_without_a_plan(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no model\.json"):
        read(tmp_path)


def test_what_is_in_a_folder_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    kernel = hb.compile(find_case("gemm").build(SMALL, "plain"), target="amx")
    *tilings, gone = (t for _, t in ranked(SMALL.shape, H200)[:3])
    labels = [t.label for t in tilings]
    for label in labels:
        kernel.save(tmp_path / f"{label}.kernel")
    found = [Candidate(t, f"{t.label}.kernel", 1.0) for t in tilings]
    candidates = (*found, Candidate(gone, "no", 1.0))
    write(tmp_path, "H200", [Trial(dataclasses.asdict(SMALL), candidates)])
    results = tmp_path / "results.json"
    assert main(["model", str(tmp_path), "--run", "--results", str(results)]) == 1  # one is gone
    rows = json.loads(results.read_text())["rows"]
    assert [r["contender"] for r in rows if r["timing"]] == labels
    said = capsys.readouterr().out
    assert SMALL.name in said
    assert "1 problems, 2 schedules" in said
    assert main(["model", str(tmp_path), "--results", str(results)]) == 1
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("products", {"fill": 40.0, "start": 3.0}),
        ("filters", {"warp.start": 900.0, "group.start": 200.0, "warp.store": 1.0}),
    ],
)
def test_constants_are_fitted(name: str, changes: dict[str, float]) -> None:
    """Times of a model with other constants: what is found foretells them better."""
    family = FAMILIES[name]
    constants = family.constants(H200)
    assert set(changes) < set(constants)
    truth = family.foretelling(constants | changes, H200)
    problems: dict[str, list[Sample]] = {}
    for problem in [*family.problems(3, 1)][-3:]:
        shape = problem.shape
        tilings = [t for _, t in family.ranked(shape, H200)][::40]
        problems[problem.name] = [Sample(shape, t, truth(t, shape)) for t in tilings]
    before = loss(problems, family.foretelling(constants, H200))
    fitted, after = fit(problems, constants, lambda c: family.foretelling(c, H200), 150, 1)
    assert loss(problems, truth) == pytest.approx(0, abs=0.02)
    assert after == loss(problems, family.foretelling(fitted, H200)) < 0.8 * before


def test_a_family_foretells_what_its_choice_goes_by() -> None:
    for family in FAMILIES.values():
        shape = next(family.problems(0, 1)).shape
        foretelling = family.foretelling(family.constants(H200), H200)
        assert all(foretelling(t, shape) == us for us, t in family.ranked(shape, H200)[:20])


def test_filters_are_drawn_alike() -> None:
    found = [p.name for p in filters(10, 7)]
    assert found == [p.name for p in filters(10, 7)] != [p.name for p in filters(10, 8)]
    assert len(found) == len({*found})


def test_ranks_are_correlated() -> None:
    one, other = [3.0, 1.0, 2.0, 2.0, 9.0], [30.0, 11.0, 11.0, 25.0, 8.0]
    assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)  # pyright: ignore
    assert spearman(one, [math.exp(x) for x in one]) == pytest.approx(1)
    assert math.isnan(spearman([1.0, 1.0], [1.0, 2.0]))


def test_the_verdict() -> None:
    """Wrong results, libraries and what was not foretold are no candidates."""
    foretold = {"p": {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "wrong": 0.1}, "q": {"a": 1.0}}
    rows = [row("a", 12), row("b", 11), row("c", 15), row("d", 10), row("e", 1),
            row("wrong", 1, error=1), row("cuBLAS", 9, ours=False)]  # fmt: skip
    (found,) = verdicts(foretold, rows)
    assert (found.choice.label, found.best.label, found.library) == ("a", "d", 9)
    assert found.regret == pytest.approx(0.2)
    assert found.of_three == pytest.approx(0.1)
    assert found.correlation == pytest.approx(-0.4)
    assert "rank correlation -0.40" in report([found])
    assert "20.0%" in report([found])
    assert report([]) == "no problem has two candidates that were timed"
