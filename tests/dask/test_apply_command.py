"""``python -m selector apply``: a saved kernel over files, in this process and in others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import halide as hl
import numpy as np
import pytest
from dask_pipelines import image, kernel, random

import halide_bridge as hb

pytest.importorskip("dask")
zarr = pytest.importorskip("zarr")
tifffile = pytest.importorskip("tifffile")
from selector.__main__ import main  # noqa: E402
from selector.dask.files import read  # noqa: E402


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    for name in ("blur", "tensor"):
        kernel(name).save(folder / f"{name}.zip")
    return folder


def image_of(path: Path, values: np.ndarray, chunk: int = 64) -> None:
    if path.suffix == ".tif":
        tifffile.imwrite(path, values, tile=(chunk, chunk))
    elif path.suffix == ".npy":
        np.save(path, values)
    else:
        chunks = (1,) * (values.ndim - 2) + (chunk, chunk)
        zarr.create_array(store=str(path), data=values, chunks=chunks)


@pytest.mark.parametrize("source", ["i.zarr", "i.tif", "i.npy"])
@pytest.mark.parametrize("out", ["o.zarr", "o.ome.zarr", "o.tif", "o.npy"])
def test_the_result_is_that_of_a_call(
    saved: Path, tmp_path: Path, source: str, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    image, taps = random((70, 900), "float16", 1), random((16,), "float16", 2)
    image_of(tmp_path / source, image)
    np.save(tmp_path / "taps.npy", taps)
    command = ["apply", str(saved / "tensor.zip"), f"I={tmp_path / source}"]
    command += [f"K={tmp_path / 'taps.npy'}", "--out", str(tmp_path / out), "--interpret"]
    assert main([*command, "--chunks", "32x256"]) == 0
    expected = kernel("tensor").interpret(image, taps)
    np.testing.assert_array_equal(read(str(tmp_path / out))[...], expected, strict=True)
    blocks = 1 if source == "i.npy" else 12
    size = " x ".join(map(str, expected.shape))
    assert f"{size} of float32, {blocks} blocks" in capsys.readouterr().err
    assert main(command) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0


def test_planes_are_taken_one_by_one(saved: Path, tmp_path: Path) -> None:
    image = random((2, 3, 40, 50), "float32", 1)
    image_of(tmp_path / "i.zarr", image, 32)
    command = ["apply", str(saved / "blur.zip"), f"I={tmp_path / 'i.zarr'}", "--interpret"]
    assert main([*command, "--out", str(tmp_path / "o.ome.zarr")]) == 0
    found = read(str(tmp_path / "o.ome.zarr"))[...]
    expected = [[kernel("blur").interpret(image[t, c]) for c in range(3)] for t in range(2)]
    np.testing.assert_array_equal(found, np.array(expected), strict=True)
    axes = zarr.open(str(tmp_path / "o.ome.zarr"), mode="r").attrs["ome"]["multiscales"][0]["axes"]
    assert [a["name"] for a in axes] == ["c", "z", "y", "x"]


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(saved: Path, tmp_path: Path) -> None:
    """Another computes its blocks; no file has the result's name before it is whole."""
    pytest.importorskip("distributed")
    image = random((700, 700), "float32", 1)
    image_of(tmp_path / "i.zarr", image, 50)
    script = f"""
import os, sys, threading, time
from selector.__main__ import main
from selector.dask import workers

made = workers.LocalCluster
def killed(*args, **kwargs):
    cluster = made(*args, **kwargs)
    def kill():
        while not os.path.isdir({str(tmp_path / ".o.zarr.unfinished" / "c")!r}):
            time.sleep(0.01)
        os.kill(next(iter(cluster.workers.values())).pid, {int(signal.SIGKILL)})
        print("killed", flush=True)
    threading.Thread(target=kill, daemon=True).start()
    return cluster
workers.LocalCluster = killed
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
    (tmp_path / "run.py").write_text(script)
    command = [sys.executable, str(tmp_path / "run.py"), "apply", str(saved / "blur.zip")]
    command += [f"I={tmp_path / 'i.zarr'}", "--out", str(tmp_path / "o.zarr"), "--interpret"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [*command, "--workers", "2", "--chunks", "50x50"], cwd=root, capture_output=True, text=True,
        timeout=300, check=False, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "killed" in done.stdout
    found = read(str(tmp_path / "o.zarr"))[...]
    np.testing.assert_array_equal(found, kernel("blur").interpret(image), strict=True)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["I"], "I is not NAME=FILE"),
        (["I=missing.tif"], "missing.tif does not exist"),
        (["I={image}", "--chunks", "0x3"], "--chunks 0x3 is no size"),
        (["J={image}"], "J"),
        (["I={image}", "--scheduler", "tcp://127.0.0.1:9"], "no scheduler answers"),
    ],
)
def test_mistakes(
    saved: Path, tmp_path: Path, arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    image_of(tmp_path / "i.zarr", random((40, 50), "float32", 1))
    given = [a.format(image=tmp_path / "i.zarr") for a in arguments]
    out = tmp_path / "o.zarr"
    assert main(["apply", str(saved / "blur.zip"), *given, "--out", str(out), "--interpret"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert what in error
    assert [p.name for p in tmp_path.iterdir()] == ["i.zarr"]


def test_a_kernel_of_several_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused for small files as for large ones."""
    x, y = hl.Var("x"), hl.Var("y")
    source, first, second = image(), hl.Func("first"), hl.Func("second")
    first[x, y] = source[x, y] + 1
    second[x, y] = source[x, y] * 2
    for f in (first, second):
        f.gpu_tile(x, y, hl.Var("xi"), hl.Var("yi"), 8, 4)
    hb.compile(hl.Pipeline([first, second]), target="sm_80").save(tmp_path / "two.zip")
    for name in ("i.npy", "i.zarr"):
        image_of(tmp_path / name, random((8, 8), "float32", 1))
        command = ["apply", str(tmp_path / "two.zip"), f"I={tmp_path / name}", "--interpret"]
        assert main([*command, "--out", str(tmp_path / "o.npy")]) == 2
        assert "has 2 outputs" in capsys.readouterr().err
