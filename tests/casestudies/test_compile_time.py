"""The script behind the page on compile time has schedules that compile, for the fewest taps and
for the most.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("halide")

SCRIPT = Path(__file__).parents[1] / "perf" / "compile_time.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compile_time", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.nvrtc
@pytest.mark.parametrize("end", [0, -1])
def test_every_stage_is_timed(script: ModuleType, end: int) -> None:
    point = script.measure(script.TAPS[end], repeats=0)
    assert {*point} == {"taps", "rows", *script.STAGES}
    assert all(value > 0 for value in point.values())


def test_as_many_taps_are_as_few_to_a_search(script: ModuleType) -> None:
    """It is what the page says."""
    few, many = (script.compiled(taps, machine_code=False)[1] for taps in (32, 1024))
    assert many < 1.5 * few


def test_the_plot_is_drawn(script: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    point = {"taps": 16, "rows": 1, **dict.fromkeys(script.STAGES, 1.0)}
    script.draw({"points": [point]}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000
