"""What can be said about measuring without a GPU: rotation of buffers, rows and the table."""

from __future__ import annotations

from casestudies.common.measure import Row, table
from casestudies.common.timing import Timing, rotation

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
