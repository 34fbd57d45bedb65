"""What can be said about measuring without a GPU: rotation of buffers, rows and the table."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType, SimpleNamespace

import pytest

from casestudies.common.case import bytes_of
from casestudies.common.registry import gpu_cases
from casestudies.conv1d.problem import Problem as Conv1d
from casestudies.gemm.problem import Problem as Gemm
from casestudies.measuring.host_time import torch_of_gpus
from casestudies.measuring.limits import ceilings_of
from casestudies.measuring.measure import Row, row_of, table
from casestudies.measuring.memory import Room
from casestudies.measuring.record import Record, speed_ups
from selector.tuning import timing
from selector.tuning.rounds import Ratio
from selector.tuning.timing import Timing, rotation

TIMING = Timing(median=26.0, low=25.9, high=26.4, calls=80, repeats=15, method="graph")


def row(error: float | None, timing: Timing | None = TIMING, failure: str = "") -> Row:
    return Row(
        "conv1d", "conv1d-k8", "tensor", "", error, 2e-3, timing, 100_000_000, 10**9, failure
    )


def test_rotation_exceeds_the_cache_twice() -> None:
    cache = 60 * 2**20
    assert rotation(100 * 2**20, cache) == 2
    assert rotation(500 * 2**20, cache) == 1
    assert rotation(4096, cache) == 8


def test_rows_pass_within_the_tolerance() -> None:
    assert row(1e-4).passed
    assert row(None).passed
    assert not row(float("inf")).passed
    assert not row(1e-2).passed
    assert not row(1e-4, failure="RuntimeError: lost").passed


def test_rates() -> None:
    assert abs(row(0.0).terabytes_per_second - 100e6 / 26e-6 / 1e12) < 1e-9
    assert abs(row(0.0).useful_tera_macs - 1e9 / 26e-6 / 1e12) < 1e-9
    assert row(0.0, None).useful_tera_macs == 0


def test_table_marks_what_is_wrong() -> None:
    text = table([row(1e-4), row(0.5), row(1e-4, None), row(None, None, "RuntimeError: lost")])
    lines = text.splitlines()
    assert lines[1].endswith("graph")
    assert lines[2].endswith("WRONG")
    assert lines[3].endswith("checked")
    assert lines[4].endswith("RuntimeError: lost")


def test_a_wrong_untimed_row_is_marked() -> None:
    assert table([row(0.5, None)]).endswith("WRONG")


def test_limits_are_those_of_the_table() -> None:
    """Bytes over 4.23 TB/s or multiply-adds over 494.7 TMAC/s, twice that for bytes, whichever is
    more.
    """
    h200 = ceilings_of("NVIDIA H200")
    assert h200 is not None
    conv = h200.limit_of(Conv1d.of_image(4096, 4096, 64))
    moved = 2 * 4096 * 4096 + 2 * 64 + 4 * 4032 * 4096
    assert conv.microseconds == pytest.approx(moved / 4.23e6)
    assert conv.bound == "memory"
    gemm = h200.limit_of(Gemm(4096, 4096, 4096, "f16-f32"))
    assert gemm.microseconds == pytest.approx(4096**3 / 494.7e6, rel=1e-4)
    assert gemm.bound == "arithmetic"
    bytes_gemm = h200.limit_of(Gemm(4096, 4096, 4096, "s8-s32"))
    assert bytes_gemm.microseconds == pytest.approx(gemm.microseconds / 2)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA T4", None),
    ],
)
def test_gpus_by_name(name: str, found: str | None) -> None:
    ceilings = ceilings_of(name)
    assert (ceilings.gpu if ceilings else None) == found


def test_every_benchmark_problem_has_bytes_and_a_limit() -> None:
    h200 = ceilings_of("NVIDIA H200")
    assert h200 is not None
    for case in gpu_cases():
        for problem in case.benchmark:
            assert bytes_of(problem) >= problem.output.bytes
            assert 1 < h200.limit_of(problem).microseconds < 3000, problem.name


def test_the_share_of_the_limit() -> None:
    reached = dataclasses.replace(row(1e-4), limit=13.0, bound="memory")
    assert reached.share == 0.5
    assert row(1e-4).share is None
    assert "50 %" in table([reached])
    again = row_of(reached.as_dict())
    assert again == reached


def test_a_library_that_fails_is_no_fault() -> None:
    failed = row(None, None, "RuntimeError: not supported")
    assert not failed.passed
    assert dataclasses.replace(failed, ours=False).passed


def test_the_summary_names_the_best_rivals() -> None:
    def rival(name: str, median: float, error: float | None) -> Row:
        timing = dataclasses.replace(TIMING, median=median)
        return dataclasses.replace(
            row(error), contender=name, timing=timing, ours=error is not None
        )

    ours = dataclasses.replace(row(1e-4), limit=13.0)
    rivals = [rival("stock Halide", 52.0, 1e-4), rival("stock Halide fast", 39.0, 1e-4),
              rival("cuDNN", 260.0, None), rival("cupyx", 78.0, None)]  # fmt: skip
    text = speed_ups([ours, *rivals])
    assert "50 %" in text
    assert "1.50x stock Halide fast" in text
    assert "3.00x cupyx" in text
    assert speed_ups(rivals) == ""
    turns = dataclasses.replace(rivals[3], ratio=Ratio(2.99, 2.97, 3.01))
    assert "2.990+-0.020x cupyx" in speed_ups([ours, turns])
    assert row_of(turns.as_dict()) == turns


def test_without_known_ceilings_there_is_no_limit() -> None:
    record = Record(None, 1, [row(1e-4)], {"device": "NVIDIA T4"})
    assert record.as_dict()["ceilings"] is None


def test_torch_without_a_gpu_is_no_library_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is it measured, nor does it get memory or a stream of the GPU."""
    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(is_available=lambda: False)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delitem(sys.modules, "casestudies.common.gpu_torch", raising=False)
    assert torch_of_gpus() is None
    with Room(apart=True).entered(), timing._torch_on(object()):
        pass
