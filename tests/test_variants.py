"""Kernels of two revisions to time in turns: what is there, and what need not be timed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.verified

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, str(ROOT / "tests" / "gpu" / "build_variants.py")]
PROBLEM = "conv1d-k32-4064x4096"


def built(folder: Path, *options: str) -> str:
    command = [*COMMAND, str(folder), "--match", PROBLEM, *options]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.mark.nvrtc
def test_what_has_the_same_code_is_not_timed(tmp_path: Path) -> None:
    assert "1 problems to time" in built(tmp_path / "all", "--against", str(ROOT), "--same")
    place = tmp_path / "all" / PROBLEM
    assert {p.name for p in place.glob("*.kernel")} == {"old.kernel", "new.kernel"}
    about = json.loads((place / "old.json").read_text())
    assert about == json.loads((place / "new.json").read_text())
    assert about["problem"]["taps"] == 32
    assert "0 problems to time, 1 have the same code" in built(
        tmp_path / "some", "--against", str(ROOT)
    )


def test_what_differs_stays(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "gpu"))
    from build_variants import drop_same

    for problem, old in (("one", "a"), ("two", "b")):
        (tmp_path / problem).mkdir()
        for label, launches in (("old", old), ("new", "a")):
            (tmp_path / problem / f"{label}.kernel").touch()
            (tmp_path / problem / f"{label}.cubin").write_bytes(bytes(64))
            (tmp_path / problem / f"{label}.launches").write_text(launches)
    assert drop_same(tmp_path) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["two"]


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    done = subprocess.run(
        [*COMMAND, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "is not empty" in done.stderr


def test_old_code_is_that_of_its_checkout_beside_an_editable_installation(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "gpu"))
    from build_variants import STARTER

    (tmp_path / "selector").mkdir()
    (tmp_path / "selector" / "__init__.py").write_text("REVISION = 'old'\n")
    script = tmp_path / "script.py"
    script.write_text("import sys, selector\nprint(selector.REVISION, sys.argv[1:])\n")
    command = [sys.executable, "-c", STARTER, str(tmp_path), str(script), "--label"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "old ['--label']\n"
