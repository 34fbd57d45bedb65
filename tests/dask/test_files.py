"""Arrays in files: what is written is what is read, in blocks and whole."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_pipelines import random
from hypothesis import given
from hypothesis import strategies as st

from selector.diagnostics import ArgumentError, UserError

pytest.importorskip("dask")
zarr = pytest.importorskip("zarr")
tifffile = pytest.importorskip("tifffile")
from selector.dask import files  # noqa: E402
from selector.dask.files import Stored, blocks, read  # noqa: E402
from selector.dask.written import Written  # noqa: E402


def written(path: Path, values: np.ndarray, chunks: tuple[int, ...]) -> None:
    target = Written(path)
    target.check(overwrite=False)
    taking = target.begin(values.shape, values.dtype, chunks)
    if taking is None:
        target.write_picture(values)
    else:
        for y in range(0, values.shape[0], chunks[0]):
            for x in range(0, values.shape[1], chunks[1]):
                place = slice(y, y + chunks[0]), slice(x, x + chunks[1])
                taking[place] = values[place]
    target.end()


@pytest.mark.parametrize("name", ["a.zarr", "a.ome.zarr", "a.npy", "a.tif"])
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("uint8", (700, 1100)),
        ("float32", (513, 512)),
        ("uint16", (70, 600, 3)),
        ("float16", (1, 1)),
    ],
)
def test_what_is_written_is_read(
    tmp_path: Path, name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    values = (random(shape, "float32", 1) * 50 + 100).astype(dtype)
    written(tmp_path / name, values, (300, 200, *shape[2:]))
    found = read(str(tmp_path / name))
    assert isinstance(found, Stored) == (name != "a.npy")
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found[...], values, strict=True)
    np.testing.assert_array_equal(found[3:60, 5:300], values[3:60, 5:300], strict=True)
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 3), (20, 30, 4)])
def test_a_picture(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = (random(shape, "float32", 1) * 50 + 100).astype("uint8")
    written(tmp_path / "a.png", values, (20, 30))
    np.testing.assert_array_equal(read(str(tmp_path / "a.png")), values, strict=True)


def test_a_picture_of_floats_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError) as caught:
        written(tmp_path / "a.png", random((2, 3, 2), "float32", 1), (2, 3, 2))
    assert caught.value.what == "float32 of shape (2, 3, 2) is no .png picture"


def test_the_first_level_of_an_image_of_ome(tmp_path: Path) -> None:
    """As versions 0.4 and 0.5 write it."""
    values = random((2, 1, 40, 50), "float32", 1)
    for version, inside in (("0.4", False), ("0.5", True)):
        path = tmp_path / f"{version}.zarr"
        scales = {"multiscales": [{"datasets": [{"path": "full"}, {"path": "half"}]}]}
        made = zarr.create_group(
            store=str(path), zarr_format=3 if inside else 2,
            attributes={"ome": scales} if inside else scales,
        )  # fmt: skip
        made.create_array("full", data=values, chunks=(1, 1, 16, 16))
        made.create_array("half", data=values[..., ::2, ::2])
        found = read(str(path))
        assert isinstance(found, Stored)
        np.testing.assert_array_equal(found[...], values, strict=True)
        half = read(str(path / "half"))
        np.testing.assert_array_equal(half[...], values[..., ::2, ::2], strict=True)


def test_an_image_of_ome_is_read_by_its_description(tmp_path: Path) -> None:
    written(tmp_path / "a.ome.zarr", random((40, 50), "float32", 1), (16, 16))
    ome = zarr.open(str(tmp_path / "a.ome.zarr"), mode="r").attrs["ome"]
    (scale,) = ome["multiscales"]
    assert [a["name"] for a in scale["axes"]] == ["y", "x"]
    assert scale["datasets"][0]["coordinateTransformations"][0]["scale"] == [1.0, 1.0]


def test_large_files_of_numpy_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", np.arange(60.0).reshape(6, 10))
    monkeypatch.setattr(files, "LARGE", 100)
    found = pickle.loads(pickle.dumps(read(str(tmp_path / "a.npy"))))
    assert isinstance(found, Stored)
    np.testing.assert_array_equal(found[2:4, 5:], np.arange(60.0).reshape(6, 10)[2:4, 5:])


def refused(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        read(str(path))
    assert caught.value.hint or "does not exist" in caught.value.what
    return caught.value


def test_what_is_no_array_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "a.tif").what
    for name in ("a.tif", "a.npy", "a.png", "a.txt"):
        (tmp_path / name).write_bytes(b"not an image at all")
        assert "cannot read" in refused(tmp_path / name).what
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "cannot read" in refused(tmp_path / "objects.npy").what
    (tmp_path / "b.zarr").mkdir()
    assert "cannot read" in refused(tmp_path / "b.zarr").what
    zarr.create_group(store=str(tmp_path / "c.zarr")).create_array("deep", data=np.zeros(3))
    error = refused(tmp_path / "c.zarr")
    assert error.why == "its arrays: deep"


def test_what_is_there_is_replaced_only_when_it_is_asked(tmp_path: Path) -> None:
    for name in ("a.npy", "a.zarr", "a.tif"):
        first, second = random((5, 6), "float32", 1), random((5, 6), "float32", 2)
        written(tmp_path / name, first, (5, 6))
        target = Written(tmp_path / name)
        with pytest.raises(UserError) as caught:
            target.check(overwrite=False)
        assert caught.value.hint == "--overwrite replaces it"
        target.begin(second.shape, second.dtype, second.shape)  # and it is lost before its end
        target.discard()
        np.testing.assert_array_equal(read(str(tmp_path / name))[...], first)
        target.check(overwrite=True)
        written_again = target.begin(second.shape, second.dtype, second.shape)
        written_again[:, :] = second
        target.end()
        np.testing.assert_array_equal(read(str(tmp_path / name))[...], second)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "a.tif", "a.zarr"]


def test_a_target_of_no_known_kind(tmp_path: Path) -> None:
    for path, what in (("a.xyz", "cannot write"), ("no/a.npy", "is no folder")):
        with pytest.raises(UserError) as caught:
            Written(tmp_path / path).check(overwrite=False)
        assert what in caught.value.what


def test_an_image_of_many_planes_is_no_tiff(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError) as caught:
        written(tmp_path / "a.tif", np.zeros((5, 6, 7)), (5, 6, 7))
    assert caught.value.hint == "write .zarr or .npy"


@given(st.data())
def test_blocks_are_of_whole_chunks(data: Any) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 100_000)) for _ in range(rank))
    chunks = tuple(data.draw(st.integers(1, 3000)) for _ in range(rank))
    stored = Stored("a.zarr", shape, np.dtype("uint16"), chunks)
    found = blocks(stored)
    for size, chunk, extent in zip(found, chunks, shape, strict=True):
        assert size == extent or size % chunk == 0
        assert min(chunk, extent) <= size <= extent
    least = math.prod(min(c, n) for c, n in zip(chunks, shape, strict=True)) * 2
    assert math.prod(found) * 2 <= max(least, files.BLOCK_BYTES)
