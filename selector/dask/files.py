"""Arrays in files: Zarr and OME-Zarr, TIFF, NumPy's own and pictures.

What may be larger than memory is read block by block, by the worker that needs the block.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import UserError

BLOCK_BYTES = 32 << 20  # of a block that is read at once, about
LARGE = 64 << 20  # bytes of a file of NumPy's that is read in blocks
TILED = (".tif", ".tiff")
ZARR = ".zarr"
NUMPY = ".npy"
KNOWN = ".zarr, .tif, .tiff, .npy, or a picture that Pillow knows (.png, .jpg, ...)"


@dataclass(frozen=True, slots=True)
class Stored:
    """An array in a file, of which parts are read: whoever has the path has the array."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, where: Any) -> np.ndarray:
        return np.asarray(_open(self.path)[where])


def read(path: str) -> np.ndarray | Stored:
    """The array of a file: itself where it is small or a picture, else to be read in parts.

    Of a Zarr group that is OME's the first, largest level; of a TIFF its first series. A path into
    a Zarr group names one of its arrays: ``slide.zarr/1``. ``UserError`` for what is no such file.
    """
    suffix = _suffix(path)
    if not Path(path).exists():
        raise UserError(f"{path} does not exist")
    if suffix in (ZARR, *TILED):
        return _stored(path)
    try:
        if suffix == NUMPY:
            large = os.path.getsize(path) > LARGE
            return _stored(path) if large else np.load(path, allow_pickle=False)
        from PIL import Image

        with Image.open(path) as picture:
            if picture.mode in ("P", "1"):
                return np.asarray(picture.convert("RGB" if picture.mode == "P" else "L"))
            return np.asarray(picture)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}", why=str(error), hint=f"files: {KNOWN}") from error


def _suffix(path: str) -> str:
    """That of the file, or of the Zarr group that a path leads into."""
    inside = any(part.lower().endswith(ZARR) for part in Path(path).parts)
    return ZARR if inside else Path(path).suffix.lower()


def _stored(path: str) -> Stored:
    try:
        array = _open(path)
    except UserError:
        raise
    except Exception as error:  # whatever a library says of a damaged file
        raise UserError(f"cannot read {path}", why=str(error), hint=f"files: {KNOWN}") from error
    chunks = getattr(array, "shards", None) or getattr(array, "chunks", None)
    shape = tuple(int(n) for n in array.shape)
    return Stored(path, shape, np.dtype(array.dtype), tuple(chunks or (1,) * len(shape)))


def _open(path: str) -> Any:
    """The array of a path, opened once in a process as long as the file is the same."""
    known = os.stat(path)
    return _opened(path, known.st_ino, known.st_mtime_ns)


@lru_cache(16)
def _opened(path: str, _file: int, _changed: int) -> Any:
    suffix = _suffix(path)
    if suffix == NUMPY:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    zarr = needed("zarr")
    if suffix in TILED:
        return zarr.open(needed("tifffile").imread(path, aszarr=True, series=0, level=0), mode="r")
    found = zarr.open(path, mode="r")
    if isinstance(found, zarr.Group):
        level = _first_level(found.attrs)
        if level is None:
            names = ", ".join(sorted(name for name, _ in found.arrays())) or "none"
            raise UserError(
                f"{path} is a group of arrays, not one of OME's",
                why=f"its arrays: {names}",
                hint=f"name one: {path}/NAME",
            )
        found = found[level]
    return found


def _first_level(attributes: Mapping[str, Any]) -> str | None:
    """The path of the largest level of an OME-Zarr image (versions 0.4 and 0.5)."""
    scales = attributes.get("ome", attributes).get("multiscales")
    return str(scales[0]["datasets"][0]["path"]) if scales else None


def needed(name: str) -> Any:
    """A library of the extra ``images``."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"there is no {name} here", why=str(error), hint="pip install tensor-selector[images]"
        ) from error


def blocks(stored: Stored, most_bytes: int = BLOCK_BYTES) -> tuple[int, ...]:
    """Extents of blocks of whole chunks, the last axes as far as they are long, then growing
    together until a block has about ``most_bytes``.
    """
    sizes = [min(c, n) for c, n in zip(stored.chunks, stored.shape, strict=True)]
    growing = [a for a in range(len(sizes)) if sizes[a] < stored.shape[a]][-2:]
    while growing:
        axis = min(growing, key=lambda a: sizes[a])
        larger = min(stored.shape[axis], max(2 * sizes[axis], 1))
        bytes_ = math.prod(sizes) // max(sizes[axis], 1) * larger * stored.dtype.itemsize
        if bytes_ > most_bytes:
            break
        sizes[axis] = larger
        if larger == stored.shape[axis]:
            growing.remove(axis)
    return tuple(sizes)
