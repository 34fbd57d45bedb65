"""Pictures for the case studies: a photograph that ships with them, files of the user, results as
PNG.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from selector.diagnostics import UserError

_DATA = Path(__file__).resolve().parent.parent / "data"
PHOTOGRAPH = _DATA / "photographer.png"
COLOURS = _DATA / "colours.png"


def load(path: Path = PHOTOGRAPH, planes: int = 1) -> np.ndarray:
    """A picture as float32 in [0, 1]: gray levels, shape (height, width), or for 3 ``planes`` RGB,
    shape (height, width, 3). ``UserError`` if it cannot be read.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            if picture.mode.startswith("I"):  # 16 bits, which Pillow would clip to 8
                gray = np.asarray(picture, dtype=np.float32) / 65535
                return gray if planes == 1 else np.repeat(gray[..., None], 3, axis=2)
            levels = picture.convert("L" if planes == 1 else "RGB")
            return np.asarray(levels, dtype=np.float32) / 255
    except FileNotFoundError:
        raise UserError(f"no such picture: {path}") from None
    except (UnidentifiedImageError, OSError) as error:
        raise UserError(f"cannot read {path} as a picture", why=str(error)) from None


def fit(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture, gray or RGB, of exactly that height and width: the top left corner of mirrored
    copies side by side.
    """
    rows = _mirrored(picture.shape[0], height)
    columns = _mirrored(picture.shape[1], width)
    return picture[np.ix_(rows, columns)]


def _mirrored(extent: int, wanted: int) -> np.ndarray[Any, Any]:
    index = np.arange(wanted) % (2 * extent)
    return np.where(index < extent, index, 2 * extent - 1 - index)


def save(path: Path, values: np.ndarray) -> None:
    """Write gray levels or RGB in [0, 1], shape (height, width) or (height, width, 3), as a PNG;
    values outside are clipped.
    """
    from PIL import Image

    levels = np.clip(np.rint(values.astype(np.float32) * 255), 0, 255).astype(np.uint8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels).save(path, format="PNG")
    except OSError as error:
        raise UserError(f"cannot write {path}", why=str(error)) from None


def gaussian(taps: int) -> np.ndarray:
    """Weights of a blur over ``taps`` pixels that sum to one; four standard deviations wide."""
    at = np.arange(taps) - (taps - 1) / 2
    weights = np.exp(-0.5 * (at / max(taps / 4, 0.5)) ** 2)
    return (weights / weights.sum()).astype(np.float32)
