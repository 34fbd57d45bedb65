"""Every notebook runs from its first cell to its last, and shows what it is stored with.

`pytest --update-golden` stores what they show.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NEEDS = {"torch": ("torch",), "jax": ("jax",), "images": ("dask", "zarr", "tifffile")}

pytestmark = pytest.mark.verified


def shown(notebook: Any) -> list[list[tuple[str, ...]]]:
    """What each cell prints, and the kinds of what it shows."""
    cells: list[list[tuple[str, ...]]] = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        printed = "".join(o["text"] for o in outputs if o["output_type"] == "stream")
        kinds = [tuple(sorted(o["data"])) for o in outputs if "data" in o]
        cells.append([(printed,), *kinds])
    return cells


def test_there_is_one_for_each_door() -> None:
    assert [p.stem for p in NOTEBOOKS] == ["cpp", "halide", "images", "jax", "torch"]


@pytest.mark.slow
@pytest.mark.nvrtc
@pytest.mark.gcc
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_shows_what_it_is_stored_with(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    for library in NEEDS.get(path.stem, ()):
        pytest.importorskip(library)
    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(path, as_version=4)
    stored = shown(notebook)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    if request.config.getoption("--update-golden"):
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # when it ran
        nbformat.write(notebook, path)
        return
    assert shown(notebook) == stored
