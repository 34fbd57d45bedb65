"""The gallery is what its command makes, and small; the colour picture is that of its formulas."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casestudies.cli import main
from casestudies.common import images
from casestudies.common.gallery import COLOURS, FOLDER, NOISY, PAGE, PHOTOGRAPH, entries, psnr
from casestudies.common.registry import all_cases
from casestudies.data import colours

pytestmark = pytest.mark.verified

MOST_BYTES = 1_500_000
STEP = 1.01 / 255


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("halide")
    folder = tmp_path_factory.mktemp("gallery")
    assert main(["gallery", "--out", str(folder), "--device", "cpu"]) == 0
    return folder


def test_the_gallery_is_what_is_made(made: Path) -> None:
    """But for the last bit of a sum, which may drop or keep a bin of the denoiser."""
    names = {path.name for path in FOLDER.iterdir()}
    assert {path.name for path in made.iterdir()} == names
    for name in names - {PAGE}:
        now, hung = images.load(made / name, 3), images.load(FOLDER / name, 3)
        assert now.shape == hung.shape
        assert (now == hung).all() or psnr(now, hung) > 50, name
    assert (made / PAGE).read_text() == (FOLDER / PAGE).read_text()


def test_every_case_with_pictures_hangs_there() -> None:
    page = (FOLDER / PAGE).read_text()
    for case in all_cases():
        assert (f"## {case.name}\n" in page) is (case.pictures is not None)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES


def test_its_commands_make_its_pictures(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("halide")
    entry = next(e for e in entries() if e.case == "resample")
    shutil.copy(FOLDER / entry.picture.file, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert entry.command in (FOLDER / PAGE).read_text()
    assert main([*shlex.split(entry.command)[3:], "--device", "cpu"]) == 0
    again, hung = (images.load(f / entry.result, 3) for f in (tmp_path, FOLDER))
    np.testing.assert_allclose(again, hung, atol=STEP)


def test_noise_is_taken_away() -> None:
    entry = next(e for e in entries() if e.picture is NOISY)
    names = (PHOTOGRAPH.file, NOISY.file, entry.result)
    clean, noisy, result = (images.load(FOLDER / name, 3) for name in names)
    assert psnr(noisy, clean) < 21
    assert psnr(result, clean) > psnr(noisy, clean) + 6


def test_the_colour_picture() -> None:
    made, kept = colours.picture(), images.load(colours.FILE, 3)
    assert kept.shape == (256, 256, 3)
    np.testing.assert_allclose(kept, made, atol=STEP)
    np.testing.assert_array_equal(images.load(FOLDER / COLOURS.file, 3), kept)
    assert kept.std(axis=(0, 1)).min() > 0.2
