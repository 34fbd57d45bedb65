"""``hb.tune``: what becomes of every configuration, what is kept, and what goes on after an end."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import tuning_tasks as tasks

import halide_bridge as hb
from selector.diagnostics import ArgumentError, ArtifactError, TargetError, UserError
from selector.tuning import InlineExecutor, Measurement, Status, Trial, Tuning, tune_saved

pytestmark = [pytest.mark.verified, pytest.mark.nvrtc]
WIDTHS = (32, 64, 128)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SELECTOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def by_width(kernel: Any, configuration: Any) -> float:
    return 1e4 / kernel.plan.launches[0].threads


def tuned(space: Any = None, schedule: Any = tasks.double, **options: Any) -> Tuning:
    """A tuning in this process; ``measure`` is quick unless another is given."""
    options = {"target": "sm_80", "measure": by_width, "executor": InlineExecutor(), **options}
    return hb.tune(schedule, space or {"width": WIDTHS}, **options)


def counted(calls: list[Any], inner: Callable[..., float] = by_width) -> Callable[..., float]:
    def measure(kernel: Any, configuration: Any) -> float:
        calls.append(configuration)
        return inner(kernel, configuration)

    return measure


def test_the_fastest_wins() -> None:
    result = tuned()
    assert [t.status for t in result.trials] == [Status.TIMED] * 3
    assert [t.settings for t in result.trials] == [{"width": w} for w in WIDTHS]
    assert result.best.settings == {"width": 128}
    assert [t.settings["width"] for t in result.ranked] == [128, 64, 32]
    assert result.best.microseconds == 1e4 / 128
    assert result.best.stages.keys() >= {"select", "emit"}
    assert result.complete
    assert result.name == "double"
    kernel = result.kernel()
    assert kernel.plan.launches[0].threads == 128
    assert np.array_equal(kernel.interpret(**tasks.arguments()), 2 * tasks.image())
    assert result.table().splitlines()[2].split()[-1] == "width=128"


def test_in_processes_with_everything_that_goes_wrong(tmp_path: Path) -> None:
    space = [
        {"width": 32},
        {"width": 64, "trouble": "crash"},
        {"width": 64, "trouble": "hang"},
        {"width": 64, "trouble": "refuse"},
        {"width": 64, "trouble": "stumble"},
        {"width": 5000},
        {"width": 33},
        {"width": 34},
        {"width": 35},
        {"width": 128},
    ]
    result = hb.tune(
        tasks.double, space, target="sm_80", measure=tasks.measure, limit=6.0, workers=2
    )
    reasons = [(str(t.status), t.stage, t.reason.splitlines()[:1]) for t in result.trials]
    assert result.best.settings == {"width": 128}
    assert [r[0] for r in reasons] == ["timed", *["failed"] * 8, "timed"]
    assert [r[1] for r in reasons[1:9]] == [
        *["schedule"] * 4, "compile", *["run"] * 3,
    ]  # fmt: skip
    texts = [t.reason for t in result.trials[1:9]]
    assert "SIGSEGV: last words" in texts[0]
    assert texts[1] == "stopped after 6 s"
    assert texts[2].startswith("no such schedule")
    assert texts[3] == "ValueError: seven"
    assert "5000" in texts[4]
    assert "SIGSEGV" in texts[5]
    assert texts[6] == "stopped after 6 s"
    assert "and not microseconds" in texts[7]
    table = result.table()
    assert all(text.splitlines()[0] in table for text in texts)


def test_nothing_is_measured_twice() -> None:
    calls: list[Any] = []
    first = tuned(measure=counted(calls), device="here")
    again = tuned(measure=counted(calls), device="here")
    assert len(calls) == 3
    assert [t.cached for t in first.trials] == [False] * 3
    assert [t.cached for t in again.trials] == [True] * 3
    assert [t.microseconds for t in again.trials] == [t.microseconds for t in first.trials]
    tuned({"width": (64, 96, 128)}, measure=counted(calls), device="here")
    assert [c["width"] for c in calls] == [*WIDTHS, 96]


def test_what_has_a_say_in_the_time_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    tuned({"width": (64,)}, measure=counted(calls), device="here")
    tuned({"width": (64,)}, measure=counted(calls), device="there")
    assert len(calls) == 2
    tuned({"width": (64,)}, measure=counted(calls), device="here", target="sm_90a")
    assert len(calls) == 3
    tuned([{"width": 64, "wrong": True}], measure=counted(calls), device="here")
    assert len(calls) == 4  # another program of the same settings but one
    monkeypatch.setattr("selector.tuning.building.versions", lambda: {"selector": "next"})
    tuned({"width": (64,)}, measure=counted(calls), device="here")
    assert len(calls) == 5


def test_failures_are_kept_until_a_retry() -> None:
    calls: list[Any] = []

    def broken(kernel: Any, configuration: Any) -> float:
        if len(calls) <= 2:
            raise RuntimeError("the device is away")
        return by_width(kernel, configuration)

    measure = counted(calls, broken)
    result = tuned({"width": (32, 64)}, measure=measure)
    assert [t.reason for t in result.trials] == ["RuntimeError: the device is away"] * 2
    with pytest.raises(UserError, match="no configuration of double was timed") as caught:
        _ = result.best
    assert "2 x RuntimeError: the device is away" in caught.value.why
    assert [t.cached for t in tuned({"width": (32, 64)}, measure=measure).trials] == [True] * 2
    retried = tuned({"width": (32, 64)}, measure=measure, retry=True)
    assert [t.status for t in retried.trials] == [Status.TIMED] * 2


def test_damaged_files_count_as_missing(own_cache: Path) -> None:
    calls: list[Any] = []
    result = tuned(measure=counted(calls))
    for path in (own_cache / "tuning" / "trials").rglob("*.json"):
        path.write_text(path.read_text()[:40])
    Path(result.trials[0].kernel).write_bytes(b"PK half a kernel")
    Path(result.trials[1].kernel).unlink()
    again = tuned(measure=counted(calls))
    assert [t.status for t in again.trials] == [Status.TIMED] * 3
    assert len(calls) == 6


def test_an_interrupt_leaves_what_is_finished(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Any] = []

    def interrupted(kernel: Any, configuration: Any) -> float:
        if len(calls) == 3:
            raise KeyboardInterrupt
        return by_width(kernel, configuration)

    with pytest.raises(KeyboardInterrupt):
        tuned(measure=counted(calls, interrupted))
    assert "2 of 3 configurations" in capsys.readouterr().err
    result = tuned(measure=counted(calls, interrupted))
    assert [t.cached for t in result.trials] == [True, True, False]
    assert [c["width"] for c in calls] == [32, 64, 128, 128]


@pytest.mark.slow
def test_a_killed_tuning_goes_on(tmp_path: Path) -> None:
    """kill -9 in the middle: the second call measures what the first did not finish."""
    log, script = tmp_path / "log", tmp_path / "script.py"
    script.write_text(
        "import sys, tuning_tasks as tasks, halide_bridge as hb\n"
        "r = hb.tune(tasks.double, {'width': range(40, 72, 4)}, target='sm_80', workers=1,\n"
        "            measure=tasks.measure, progress=lambda t: print(t.cached, flush=True))\n"
        "print(len(r.ranked))\n"
    )
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path), "TUNING_TEST_LOG": str(log),
    }  # fmt: skip
    first = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=variables)
    assert first.stdout is not None
    for _ in range(3):
        assert first.stdout.readline() == b"False\n"
    first.send_signal(signal.SIGKILL)
    first.wait()
    time.sleep(0.5)
    done = subprocess.run([sys.executable, script], env=variables, capture_output=True, text=True)
    lines = done.stdout.split()
    assert lines[-1] == "8", done.stderr
    assert lines[:3] == ["True"] * 3
    measured = log.read_text().split()
    assert len(set(measured)) == 8
    assert len(measured) <= 9  # the one that the first was killed at may be there twice


def test_budgets() -> None:
    result = tuned(most=2)
    assert [str(t.status) for t in result.trials] == ["timed", "timed", "left out"]
    assert not result.complete
    assert result.best.settings == {"width": 64}

    def slow(kernel: Any, configuration: Any) -> float:
        time.sleep(0.3)
        return by_width(kernel, configuration)

    late = tuned({"width": range(2, 60, 2)}, measure=slow, seconds=0.5)
    timed = [t for t in late.trials if t.status is Status.TIMED]
    assert 1 <= len(timed) <= 3
    assert late.trials[: len(timed)] == tuple(timed)
    for mistake in ({"most": 0}, {"limit": 0}):
        with pytest.raises(UserError):
            tuned(**mistake)


def test_built_here_and_timed_there(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    space = {"width": (32, 5000, 64)}
    built = tuned(space, measure=None, build_only=True, folder=folder)
    assert [str(t.status) for t in built.trials] == ["built", "failed", "built"]
    with pytest.raises(UserError, match="was timed"):
        _ = built.best
    moved = folder.rename(tmp_path / "elsewhere")
    calls: list[Any] = []
    timed = tune_saved(moved, measure=counted(calls), executor=InlineExecutor())
    assert [str(t.status) for t in timed.trials] == ["timed", "failed", "timed"]
    assert timed.trials[1].reason == built.trials[1].reason
    assert timed.best.settings == {"width": 64}
    assert timed.kernel().plan.launches[0].threads == 64
    assert (timed.name, timed.target) == (built.name, built.target)
    again = tune_saved(moved, measure=counted(calls), executor=InlineExecutor())
    assert [t.cached for t in again.trials if t.status is Status.TIMED] == [True, True]
    assert len(calls) == 2
    again = tuned(space, measure=None, build_only=True, folder=moved)
    assert again.trials[0].kernel
    assert [t.cached for t in again.trials] == [True] * len(again.trials)
    assert not any(t.cached for t in built.trials)
    with pytest.raises(ArtifactError, match="holds no kernels"):
        tune_saved(tmp_path / "nothing", measure=by_width)
    with pytest.raises(UserError, match="says not where"):
        tuned(measure=None, build_only=True)


def test_saved_kernels_are_timed_without_halide(tmp_path: Path) -> None:
    tuned(measure=None, build_only=True, folder=tmp_path / "kernels")
    script = tmp_path / "there.py"
    script.write_text(
        "import sys\n"
        "class Away:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('halide', 'halide_bridge', 'egglog'):\n"
        "            raise ImportError(name + ' is not there')\n"
        "sys.meta_path.insert(0, Away())\n"
        "from selector.tuning import InlineExecutor, tune_saved\n"
        "by = lambda kernel, settings: kernel.plan.launches[0].threads\n"
        "r = tune_saved('kernels', measure=by, executor=InlineExecutor())\n"
        "print(r.best.settings['width'])\n"
    )
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.stdout == "32\n", done.stderr


def test_without_a_gpu_it_says_so() -> None:
    if not importable_gpu():
        with pytest.raises(TargetError, match="nothing can be timed here") as caught:
            tuned(measure=None, arguments=tasks.arguments)
        assert "build_only=True" in caught.value.hint
        assert "why:" not in caught.value.why


def importable_gpu() -> bool:
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # a missing driver has several faces
        return False


def test_arguments_that_are_none() -> None:
    with pytest.raises(ArgumentError, match="nothing to call"):
        tuned(measure=None)
    with pytest.raises(ArgumentError, match="'interpretr' is none"):
        tuned(measure=None, arguments=tasks.arguments, reference="interpretr")


def test_a_func_of_another_configuration_is_refused() -> None:
    output = tasks.double(32)
    result = tuned({"width": (32, 64)}, lambda width: output)
    assert [str(t.status) for t in result.trials] == ["timed", "failed"]
    assert "same Func for two configurations" in result.trials[1].reason


def test_a_measurement_of_the_users_own_is_checked() -> None:
    def measure(kernel: Any, configuration: Any) -> Measurement:
        wrong = configuration["width"] == 128
        return Measurement(by_width(kernel, configuration), 1, 2, error=wrong * 0.5, tolerance=0.1)

    result = tuned(measure=measure)
    assert [str(t.status) for t in result.trials] == ["timed", "timed", "wrong"]
    assert result.best.settings == {"width": 64}
    assert "relative error 5.0e-01, at most 1e-01" in result.table()


def test_saved_as_json(tmp_path: Path) -> None:
    result = tuned({"width": (32, 5000, 64)}, most=2)
    path = tmp_path / "result.json"
    result.save(path)
    assert Tuning.load(path) == result
    data = json.loads(path.read_text())
    assert data["trials"][0]["settings"] == {"width": 32}
    for text in ("", "[]", '{"format": "other", "version": 1}', path.read_text()[:-9]):
        path.write_text(text)
        with pytest.raises(ArtifactError, match="not a saved tuning"):
            Tuning.load(path)


def test_progress_is_quiet_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    tuned()
    assert capsys.readouterr().err == ""
    seen: list[Trial] = []
    tuned(progress=seen.append)
    assert [t.index for t in seen] == [0, 1, 2]
    tuned(progress=True)
    shown = capsys.readouterr().err
    assert "tuning double: 3/3" in shown
    assert "best 78.12 us (width=128)" in shown
    assert shown.endswith("\r\x1b[2K")


def test_a_partial_function_has_a_name() -> None:
    assert tuned(schedule=partial(tasks.double, trouble="")).name == "double"
