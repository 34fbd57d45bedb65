"""The command ``host-time`` on kernels for the CPU, where CuPy is NumPy (``fake_gpu``)."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

import halide_bridge as hb
from casestudies.cli import main
from casestudies.common import runner
from casestudies.common.registry import find_case
from casestudies.conv1d.problem import Problem
from casestudies.measuring import artifacts, host_time

FAKE = Path(__file__).parent / "fake_gpu" / "cupy" / "__init__.py"
SMALL, LARGE = Problem(67, 3, 24), Problem(130, 20, 24)


def fake_cupy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cupy", FAKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy())
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(runner, "gpu_available", lambda: True)
    monkeypatch.setattr(host_time, "BATCHES", 10)
    kernel = hb.compile(find_case("conv1d").build(SMALL, "plain"), target="amx")
    kernel.save(tmp_path / "conv.kernel")
    saved = artifacts.SavedKernel("conv1d", SMALL.program, "amx", "conv.kernel")
    jobs = (
        artifacts.job("conv1d", "benchmark", LARGE),
        artifacts.job("conv1d", "small", SMALL),
    )
    artifacts.write(tmp_path, artifacts.Manifest((saved,), (), jobs))
    return tmp_path


@pytest.mark.gcc
def test_the_smallest_problem_of_a_program_is_called(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "host.json"
    assert main(["host-time", "conv1d", "--artifacts", str(folder), "--out", str(out)]) == 0
    data = json.loads(out.read_text())
    assert {r["problem"] for r in data["rows"]} == {SMALL.name}
    assert [r["way"] for r in data["rows"]] == ["CuPy, out=", "CuPy"]
    assert all(0 < r["p10"] <= r["median"] for r in data["rows"])
    assert SMALL.name in capsys.readouterr().out


def test_nothing_to_call(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["host-time", "gemm", "--artifacts", str(folder)]) == 2
    assert "there is no kernel to call" in capsys.readouterr().err
