"""The GPU's side of tuning: poisoned outputs, comparison, rotation, times.

CuPy is NumPy here (``tests/casestudies/fake_gpu``), and kernels are for the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import tuning_tasks as tasks

import halide_bridge as hb
from selector.diagnostics import ArgumentError, TargetError, UserError
from selector.tuning import InlineExecutor, Status, Tuning
from selector.tuning import bench as benches
from selector.tuning.bench import HOPELESS, Bench, Facts, signature, time_kernel
from selector.tuning.course import no_times
from selector.tuning.executor import Failure, SpoiledWorkerError
from selector.tuning.request import shippable, shipped
from selector.tuning.timing import Timing

pytestmark = pytest.mark.verified

FAKE = Path(__file__).resolve().parents[1] / "casestudies" / "fake_gpu"


@pytest.fixture(autouse=True)
def fake_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("SELECTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(FAKE)
    for name in [n for n in sys.modules if n.split(".")[0] == "cupy"]:
        monkeypatch.delitem(sys.modules, name)
    from selector.tuning import timing

    timing.timing_stream.cache_clear()
    benches._ready.clear()
    gpu = Facts("a GPU", "1", "amx", "these", 90)
    monkeypatch.setattr(benches, "facts", lambda bench: gpu)
    monkeypatch.setattr("selector.tuning.engine.runs_on", lambda target, capability: True)
    yield
    sys.modules.pop("cupy", None)
    timing.timing_stream.cache_clear()


@pytest.fixture(scope="module")
def kernel() -> bytes:
    return hb.compile(tasks.on_processor(8), target="amx", cache=False).to_bytes()


def test_a_right_kernel_is_timed(kernel: bytes) -> None:
    timed = time_kernel(Bench(tasks.arguments, tasks.doubled), kernel)
    measured = timed.measurement
    assert measured.is_right
    assert measured.error is not None
    assert measured.error < 1e-6
    assert measured.tolerance == 2e-3
    assert 0 < measured.low <= measured.microseconds <= measured.high
    assert measured.calls > 1
    assert timed.outputs is None


def test_sizes_are_for_the_first_call_alone(kernel: bytes) -> None:
    bench = Bench(tasks.arguments, tasks.doubled, sizes=tasks.SIZES)
    assert time_kernel(bench, kernel).measurement.is_right


def test_a_kernel_that_went_astray_is_to_blame_itself(
    kernel: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mistake shows when the GPU is waited for, which a user's error must not skip."""
    import cupy

    monkeypatch.setattr(cupy.cuda.Device, "lost", True)
    with pytest.raises(SpoiledWorkerError):
        time_kernel(Bench({"J": tasks.image()}), kernel)


def test_results_are_kept_if_asked(kernel: bytes) -> None:
    timed = time_kernel(Bench(tasks.arguments()), kernel, True)
    assert timed.measurement.error is None
    assert timed.outputs is not None
    assert np.array_equal(timed.outputs["output"], 2 * tasks.image())


@pytest.mark.parametrize("what", ["nothing", "half", "nan"])
def test_what_is_wrong_is_not_timed(
    kernel: bytes, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that writes nothing at all or half of its output in the checked call, or NaN."""
    broken_from(monkeypatch, what, checked=True)
    measured = time_kernel(Bench(tasks.arguments, tasks.doubled), kernel).measurement
    assert not measured.is_right
    assert measured.error == HOPELESS
    assert measured.microseconds == 0


def broken_from(monkeypatch: pytest.MonkeyPatch, what: str, checked: bool) -> None:
    from selector.api import Kernel

    original = Kernel.__call__

    def call(self: Any, *args: Any, out: Any = None, **named: Any) -> Any:
        if out is None:
            return original(self, *args, **named)
        array = out["output"]
        if what == "half":
            array[:2] = 2 * named["I"][:2]
        elif what == "nan":
            array[...] = np.nan
        return out

    assert checked
    monkeypatch.setattr(Kernel, "__call__", call)


def test_the_reference_may_be_arrays_by_name(kernel: bytes) -> None:
    right = tasks.doubled(tasks.arguments())
    for reference in (right, {"output": right}, lambda arguments: {"output": right}):
        assert time_kernel(Bench(tasks.arguments, reference), kernel).measurement.is_right
    strict = Bench(tasks.arguments, right * (1 + 1e-4), tolerance=1e-5)
    assert not time_kernel(strict, kernel).measurement.is_right
    for reference, what in ((right.T, "has shape"), ({"other": right}, "has no output")):
        with pytest.raises(ArgumentError, match=what):
            time_kernel(Bench(tasks.arguments, reference), kernel)


def test_arguments_that_do_not_fit_are_the_users(kernel: bytes) -> None:
    for arguments in ({"J": tasks.image()}, {"I": tasks.image().astype(np.float64)}, [1]):
        with pytest.raises(UserError):
            time_kernel(Bench(arguments), kernel)  # type: ignore[arg-type]


def test_whatever_else_goes_wrong_costs_the_process(
    kernel: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any, **__: Any) -> None:
        raise RuntimeError("an illegal address")

    monkeypatch.setattr("selector.tuning.bench.time_calls", lost)
    with pytest.raises(SpoiledWorkerError):
        time_kernel(Bench(tasks.arguments), kernel)


def test_signatures_are_shapes_types_and_scalars() -> None:
    arrays = [
        {"I": np.zeros((2, 3), np.float32)},
        {"I": np.zeros((3, 2), np.float32)},
        {"I": np.zeros((2, 3), np.float16)},
        {"J": np.zeros((2, 3), np.float32)},
        {"I": np.zeros((2, 3), np.float32), "b": 1.0},
        {"I": np.zeros((2, 3), np.float32), "b": 2.0},
    ]
    assert len({signature(a) for a in arrays}) == len(arrays)
    assert signature(arrays[0]) == signature({"I": np.ones((2, 3), np.float32)})
    assert signature(arrays[0]) != signature(arrays[0], (4, 4))


# ------------------------------------------------------------------------- the whole way


def tuned(space: list[dict[str, Any]], **options: Any) -> Tuning:
    options = {"target": "amx", "executor": InlineExecutor(), **options}
    return hb.tune(tasks.on_processor, space, tasks.arguments, **options)


RIGHT = [{"width": 4}, {"width": 8}]
WRONG = {"width": 16, "factor": 3.0}


@pytest.mark.parametrize(
    "reference", [tasks.doubled, lambda arguments: tasks.doubled(arguments), "interpreter"]
)
def test_a_wrong_configuration_never_wins(reference: Any) -> None:
    result = tuned([*RIGHT, WRONG], reference=reference)
    assert [t.status for t in result.trials] == [Status.TIMED, Status.TIMED, Status.WRONG]
    assert result.best.settings["width"] in (4, 8)
    assert result.device == "a GPU"
    assert "relative error 5.0e-01" in result.trials[2].reason
    assert result.checked_against == ("interpreter" if reference == "interpreter" else "reference")


def test_the_interpreter_says_what_the_first_one_means() -> None:
    """It is the truth about compilers, not about schedules that change the algorithm."""
    result = tuned([WRONG, *RIGHT], reference="interpreter")
    assert [t.status for t in result.trials] == [Status.TIMED, Status.WRONG, Status.WRONG]


def test_without_a_reference_all_have_to_agree() -> None:
    agreed = tuned(RIGHT)
    assert agreed.checked_against == "configuration 0 (width=4)"
    assert [t.status for t in agreed.trials] == [Status.TIMED] * 2
    assert agreed.trials[1].measurement is not None
    assert agreed.trials[1].measurement.error == 0
    assert agreed.best in agreed.trials
    result = tuned([WRONG, *RIGHT])
    assert [t.status for t in result.trials] == [Status.TIMED, Status.WRONG, Status.WRONG]
    with pytest.raises(UserError, match="nothing says which is right") as caught:
        _ = result.best
    assert "reference=" in caught.value.hint


def test_a_first_one_that_fails_is_not_compared_with() -> None:
    result = tuned([{"width": 4, "factor": "no"}, *RIGHT])
    assert [str(t.status) for t in result.trials] == ["failed", "timed", "timed"]
    assert result.checked_against == "configuration 1 (width=4)"


def test_known_results_are_compared_with_in_a_later_run() -> None:
    assert not any(t.cached for t in tuned(RIGHT).trials)
    more = tuned([*RIGHT, {"width": 12}, WRONG])
    assert [t.cached for t in more.trials] == [True, True, False, False]
    assert [str(t.status) for t in more.trials] == ["timed", "timed", "timed", "wrong"]
    # Another first one: what was compared with the old one says nothing about it.
    other = tuned([{"width": 12}, *RIGHT])
    assert [t.cached for t in other.trials] == [False, False, False]
    assert other.checked_against == "configuration 0 (width=12)"
    assert [t.cached for t in tuned(RIGHT, reference=tasks.doubled).trials] == [False, False]


def test_functions_that_cannot_be_sent_are_called_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shippable(tasks.arguments)
    assert not shippable(lambda: None)
    sent = Bench(tasks.arguments, tasks.doubled)
    assert shipped(sent) is sent
    for made in (
        shipped(Bench(tasks.arguments, lambda arguments: tasks.doubled(arguments))),
        shipped(Bench(lambda: tasks.arguments(), tasks.doubled)),
        shipped(Bench(tasks.arguments(), tasks.doubled)),
    ):
        assert isinstance(made.arguments, dict)
        assert np.array_equal(made.reference, tasks.doubled(tasks.arguments()))
        assert shippable(made)


def test_a_gpu_that_is_not_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selector.tuning.engine.runs_on", lambda target, capability: False)
    with pytest.raises(TargetError, match="do not run on a GPU"):
        tuned(RIGHT)


def test_a_reference_that_cannot_be_computed() -> None:
    def fails(arguments: Any) -> Any:
        raise ValueError("no reference today")

    with pytest.raises((UserError, ValueError), match="no reference today"):
        tuned(RIGHT, reference=fails)


def test_why_the_worker_cannot_begin() -> None:
    away = no_times(
        Failure("TargetError", "there is no CUDA GPU here\n  why:   CUDA sees no device")
    )
    assert isinstance(away, TargetError)
    assert away.why == "there is no CUDA GPU here: CUDA sees no device"
    other = no_times(Failure("ValueError", "ValueError: no reference today"))
    assert not isinstance(other, TargetError)
    assert "no reference today" in str(other)


def test_the_best_few_are_measured_again_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first comes out ahead at first, at a lucky moment; the third is too far off."""
    times = iter((10.0, 10.2, 13.0, *(12.0, 9.0) * 3))
    monkeypatch.setattr(
        "selector.tuning.bench.time_calls",
        lambda calls: Timing(next(times), 8.0, 14.0, 10, 15, "graph"),
    )
    result = tuned([*RIGHT, {"width": 12}])
    assert [t.microseconds for t in result.trials] == [12.0, 9.0, 13.0]
    assert [t.measurement and t.measurement.rounds for t in result.trials] == [4, 4, 1]
    assert result.best.settings == {"width": 8}
    again = tuned([*RIGHT, {"width": 12}])  # nothing is left to measure
    assert [t.microseconds for t in again.trials] == [12.0, 9.0, 13.0]
