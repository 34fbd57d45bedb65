"""``python -m casestudies tune``: what is built here and what is said where nothing can be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies import cli
from casestudies.common.registry import find_case
from casestudies.common.tune import arguments, reference, timing_of
from casestudies.gemm.problem import Problem
from casestudies.gemm.tuning import space
from selector.tuning.request import shippable
from selector.tuning.space import points_of

pytestmark = pytest.mark.verified


def test_the_space_begins_with_the_schedule_that_is_used() -> None:
    from casestudies.gemm.tiles import groups_for

    for problem in (Problem(4096, 4096, 4096), Problem(256, 256, 64, "s8-s32", "nt")):
        points = points_of(space(problem))
        assert points[0].value == groups_for(problem.shape)
        assert 50 < len(points) < 100


def test_a_worker_can_be_sent_what_makes_the_arrays() -> None:
    problem = Problem(64, 64, 64)
    timing = timing_of(find_case("gemm"), problem, 1)
    assert shippable(timing)
    assert timing["arguments"].func is arguments
    assert timing["reference"].func is reference


@pytest.mark.nvrtc
def test_kernels_are_built_for_another_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "kernels", tmp_path / "result.json"
    command = ["tune", "gemm", "--size", "64", "--build", "--target", "sm_90a", "--most", "1"]
    assert cli.main([*command, "--artifacts", str(folder), "--out", str(out)]) == 0
    assert "1 built" in capsys.readouterr().out
    assert (folder / "space.json").exists()
    (first, *rest) = json.loads(out.read_text())["trials"]
    assert first["status"] == "built"
    assert {t["status"] for t in rest} == {"left out"}


def test_filters_are_tuned_over_their_family() -> None:
    """First come the tiles that are used without tuning; each has its directives."""
    for name in ("conv1d", "conv2d", "downsample", "upsample"):
        case = find_case(name)
        assert case.tuning is not None
        first, *rest = case.tuning.space(case.benchmark[0])
        assert first == case.benchmark[0].tilings.best not in rest
        hb.lower(case.tuning.schedule(case.benchmark[0], rest[0]), target="sm_90a")


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["tune", "resample"], "no space to tune over"),
        (["tune", "gemm", "--build"], "--build needs --artifacts"),
        (["tune", "gemm", "--artifacts", "nowhere"], "holds no kernels to time"),
    ],
)
def test_mistakes_are_said(
    command: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command) == 2
    assert what in capsys.readouterr().err
