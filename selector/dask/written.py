"""Files that are written, block by block, under another name until they are whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from selector.dask.files import KNOWN, NUMPY, TILED, ZARR, needed
from selector.dask.tiff import new_tiff
from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError, UserError


@dataclass(frozen=True, slots=True)
class Written:
    """A file to write: ``begin`` gives what takes blocks by their place, None for a picture;
    ``end`` gives the file its name.
    """

    path: Path

    @property
    def unfinished(self) -> Path:
        return self.path.with_name(f".{self.path.name}.unfinished")

    def check(self, overwrite: bool) -> None:
        """``UserError`` for a file that is there, or of no known kind, or without a folder."""
        if self.path.exists() and not overwrite:
            raise UserError(f"{self.path} is there already", hint="--overwrite replaces it")
        if not self.path.parent.is_dir():
            raise UserError(f"{self.path.parent} is no folder")
        suffix = self.path.suffix.lower()
        if suffix not in (ZARR, NUMPY, *TILED):
            from PIL import Image

            if suffix not in Image.registered_extensions():
                raise UserError(f"cannot write {self.path}", hint=f"files: {KNOWN}")

    def begin(self, shape: Sequence[int], dtype: np.dtype[Any], chunks: Sequence[int]) -> Any:
        """The empty file, in blocks of ``chunks``."""
        self.discard()
        suffix = self.path.suffix.lower()
        if suffix == ZARR:
            return _new_zarr(self.unfinished, self.path.name, shape, dtype, chunks)
        if suffix == NUMPY:
            np.lib.format.open_memmap(self.unfinished, "w+", dtype, tuple(shape)).flush()
            return Mapped(str(self.unfinished))
        return new_tiff(self.unfinished, shape, dtype) if suffix in TILED else None

    def write_picture(self, values: np.ndarray) -> None:
        """A picture, whole."""
        from PIL import Image

        try:
            picture = Image.fromarray(values)
            picture.save(
                self.unfinished, format=Image.registered_extensions()[self.path.suffix.lower()]
            )
        except (TypeError, KeyError, OSError) as error:
            raise ArgumentError(
                f"{values.dtype} of shape {values.shape} is no {self.path.suffix} picture",
                why=str(error),
                hint="write .tif, .zarr or .npy, which hold any type",
            ) from error

    def end(self) -> None:
        """The file has its name, all at once; what had it before is gone."""
        if self.path.is_dir():
            old = self.path.with_name(f".{self.path.name}.replaced")
            os.replace(self.path, old)
            os.replace(self.unfinished, self.path)
            shutil.rmtree(old)
        else:
            os.replace(self.unfinished, self.path)

    def discard(self) -> None:
        """What was not finished."""
        if self.unfinished.is_dir():
            shutil.rmtree(self.unfinished)
        else:
            self.unfinished.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Mapped:
    """A file of NumPy's that takes blocks, in whatever process."""

    path: str

    def __setitem__(self, where: Any, values: np.ndarray) -> None:
        array = np.lib.format.open_memmap(self.path, "r+")
        array[where] = values
        array.flush()


def _new_zarr(
    path: Path, name: str, shape: Sequence[int], dtype: np.dtype[Any], chunks: Sequence[int]
) -> Any:
    """An array; in a name that ends with ``.ome.zarr`` the one level of an image of OME's."""
    zarr = needed("zarr")
    inside = path
    if name.lower().endswith(".ome.zarr"):
        axes = [
            {"name": a, "type": "channel" if a == "c" else "time" if a == "t" else "space"}
            for a in "tczyx"[-len(shape) :]
        ]
        level = {
            "path": "0",
            "coordinateTransformations": [{"type": "scale", "scale": [1.0] * len(shape)}],
        }
        ome = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [level]}]}
        zarr.create_group(store=str(path), attributes={"ome": ome})
        inside = path / "0"
    return zarr.create_array(
        store=str(inside), shape=tuple(shape), dtype=dtype, chunks=tuple(chunks)
    )
