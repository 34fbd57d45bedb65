"""The command line: what it prints, writes and returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from casestudies.cli import main
from casestudies.common import runner
from casestudies.common.images import PHOTOGRAPH, fit, gaussian, load
from casestudies.common.registry import NAMES, all_cases, find_case
from casestudies.measuring import benching
from selector.diagnostics import UserError


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "gpu_available", lambda: False)
    monkeypatch.setattr(benching, "has_amx", lambda: False)


def test_list(capsys: Any) -> None:
    assert main(["list"]) == 0
    assert "conv2d" in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in data] == list(NAMES)
    assert len(data[0]["benchmark"]) == 16


def test_run_on_a_picture(tmp_path: Path, capsys: Any) -> None:
    picture = tmp_path / "in.png"
    Image.fromarray(np.arange(64 * 90, dtype=np.uint8).reshape(64, 90)).save(picture)
    result = tmp_path / "deep" / "out.png"
    code = main(["run", "conv1d", "--taps", "16", "--image", str(picture), "--out", str(result)])
    printed = capsys.readouterr()
    assert code == 0
    assert "relative error" in printed.out
    assert "ok" in printed.out
    assert "interpreter" in printed.out
    assert "mma" in printed.out
    assert str(result) in printed.out
    with Image.open(result) as written:
        assert written.size == (90 - 16, 64)


def test_run_as_json(tmp_path: Path, capsys: Any) -> None:
    out = str(tmp_path / "c.npy")
    assert main(["run", "gemm", "--size", "40x48x33", "--json", "--out", out]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["passed"] is True
    assert data["error"] < data["tolerance"]
    assert data["problem"] == "gemm-f16-f32-40x48x33"
    assert np.load(out).shape == (40, 48)


def test_run_on_tiles(capsys: Any) -> None:
    """Without ``--schedule`` a case's first one is taken; it needs no GPU, and here no AMX."""
    command = "run amx_matmul --size 20x18x32 --types u8-s8 --layout vnni --json"
    assert main(command.split()) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schedule"] == "amx"
    assert data["error"] == 0
    assert data["where"] == "the CPU"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("run conv3d", "no case study 'conv3d'"),
        ("run gemm --image x.png", "takes no image"),
        ("run gemm --taps 3", "has no --taps"),
        ("run gemm --size 3x4", "a size is N or MxNxK, not 3x4"),
        ("run gemm --types f8-f8", "--types cannot be 'f8-f8'"),
        ("run conv1d --types f16-f32", "has no --types"),
        ("run conv1d --size 1x2x3", "a size is WIDTHxHEIGHT, or one number for both, not 1x2x3"),
        ("run conv1d --size 16 --taps 16", "must be wider than the taps"),
        ("run conv1d --image nowhere.png", "no such picture"),
        ("run conv1d --taps 0", "0 is not positive"),
        ("run conv1d --taps many", "--taps cannot be 'many'"),
        ("run conv1d --frob 3", "conv1d has no --frob"),
        ("run conv1d --frob=3", "options: --taps"),
        ("bench gemm --frob 3", "options: --types f16-f32|"),
        ("run conv1d --sound x.wav", "takes no sound"),
        ("run gemm --out c.png", "--out takes .npy"),
        ("run gemm --schedule fast", "schedules: tensor, "),
        ("run conv1d --device gpu", "no GPU"),
        ("run conv1d --schedule cuda --device cpu", "on a GPU only"),
        ("run conv1d --target sm_12 --size 64 --taps 8", "unknown target 'sm_12'"),
        ("bench conv1d", "no GPU"),
        ("bench amx_matmul", "no AMX tiles"),
        ("run amx_matmul --schedule tensor", "schedules: amx, amx-reference"),
        ("run amx_matmul --layout vnni --size 3", "multiple of 2"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(command: str, message: str, capsys: Any) -> None:
    assert main(command.split()) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "command", ["run conv1d --size axb", "run conv1d --size 0x4", "frobnicate", "list --frob"]
)
def test_unreadable_options_are_refused_by_the_parser(command: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as stop:
        main(command.split())
    assert stop.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_a_text_file_is_no_picture(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "note.png"
    path.write_text("not a picture")
    assert main(["run", "conv1d", "--image", str(path)]) == 2
    assert "as a picture" in capsys.readouterr().err


def test_unknown_suffix_of_out(tmp_path: Path, capsys: Any) -> None:
    command = ["run", "conv1d", "--size", "40x4", "--taps", "8", "--out", str(tmp_path / "a.tiff")]
    assert main(command) == 2
    assert ".png or .npy" in capsys.readouterr().err


def test_the_photograph() -> None:
    assert PHOTOGRAPH.stat().st_size <= 200 * 1024
    picture = load()
    assert picture.shape == (512, 512)
    assert 0 <= picture.min() < 0.1
    assert 0.9 < picture.max() <= 1
    assert (PHOTOGRAPH.parent / "README.md").read_text().count("CC0") == 1


def test_fit_crops_and_mirrors() -> None:
    picture = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (fit(picture, 1, 2) == [[0, 1]]).all()
    assert (fit(picture, 3, 7)[0] == [0, 1, 2, 2, 1, 0, 0]).all()
    assert (fit(picture, 3, 7)[2] == fit(picture, 3, 7)[1]).all()


@pytest.mark.parametrize("taps", [1, 8, 31])
def test_a_blur_keeps_the_brightness(taps: int) -> None:
    weights = gaussian(taps)
    assert weights.shape == (taps,)
    assert abs(weights.sum() - 1) < 1e-6
    assert (weights == weights[::-1]).all()


PICTURES = [case.name for case in all_cases() if case.pictures]


@pytest.mark.parametrize("name", PICTURES)
def test_one_number_is_both_extents_of_a_picture(name: str) -> None:
    case = find_case(name)
    assert case.options({"size": (256,)}) == case.options({"size": (256, 256)})
    assert case.options({"size": 256}) == case.options({"size": (256, 256)})


@pytest.mark.parametrize("case", [case.name for case in all_cases()])
@pytest.mark.parametrize("size", [(1, 2, 3, 4), (0,), (64.0,), "64"], ids=str)
def test_what_is_no_size_is_said_so(case: str, size: Any) -> None:
    with pytest.raises(UserError, match=r"a size is .*, not "):
        find_case(case).options({"size": size})
