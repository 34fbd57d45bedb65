"""A colour picture made of formulas, for tests and for the gallery.

    python -m casestudies.data.colours      writes colours.png beside this file

A zone plate (every frequency in every direction), gradients of hue, bars with sharp edges, strokes
as thin as a letter's, and a shaded ball.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

SIZE = 256
FILE = Path(__file__).resolve().parent / "colours.png"
# A fount of one's own: five rows of five pixels each, written as bits.
LETTERS = ((14, 17, 31, 17, 17), (30, 17, 30, 17, 30), (14, 16, 16, 16, 14), (31, 4, 4, 4, 4),
           (17, 27, 21, 17, 17), (31, 16, 30, 16, 31), (17, 10, 4, 10, 17))  # fmt: skip


def picture(size: int = SIZE) -> np.ndarray:
    """Float32 in [0, 1], shape (size, size, 3)."""
    half = size // 2
    top = np.concatenate((zone_plate(half), hues(half)), axis=1)
    bottom = np.concatenate((strokes(half), ball(half)), axis=1)
    return np.concatenate((top, bottom)).astype(np.float32)


def zone_plate(size: int) -> np.ndarray:
    """Rings whose frequency grows to half a cycle a pixel at the edge; planes a third apart."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    phase = np.pi * (x * x + y * y) / size
    return np.stack([0.5 + 0.5 * np.cos(phase + 2 * np.pi * c / 3) for c in range(3)], axis=-1)


def hues(size: int) -> np.ndarray:
    """Hue from left to right, from dark to light downwards, with bars of full colour below."""
    x, y = np.meshgrid(np.arange(size) / size, np.arange(size) / size)
    wheel = np.stack([hue_plane(x, c) for c in range(3)], axis=-1)
    shaded = np.where(y[..., None] < 0.5, 2 * y[..., None] * wheel, 1 - 2 * (1 - y[..., None])
                      * (1 - wheel))  # fmt: skip
    bars = np.stack([(np.floor(8 * x).astype(int) >> c) & 1 for c in range(3)], axis=-1)
    return np.where(y[..., None] > 0.75, bars, shaded)


def hue_plane(hue: np.ndarray, plane: int) -> np.ndarray:
    """Red, green or blue of a hue in [0, 1]."""
    distance = np.abs((hue - plane / 3 + 0.5) % 1 - 0.5)
    return np.clip(2 - 6 * distance, 0, 1)


def strokes(size: int) -> np.ndarray:
    """Lines of letters that shrink from four pixels a stroke to one, dark on light."""
    page = np.full((size, size, 3), 0.93)
    row, line = 4, 0
    for stroke in (4, 3, 2, 2, 1, 1, 1):
        for at, column in enumerate(range(4, size - 5 * stroke, 6 * stroke)):
            bits = LETTERS[(at + line) % len(LETTERS)]
            glyph = np.array([[word >> (4 - c) & 1 for c in range(5)] for word in bits])
            shape = np.kron(glyph, np.ones((stroke, stroke)))[: size - row, :, None] > 0
            ink = np.array([0.1, 0.1, 0.4]) if line % 2 else np.array([0.45, 0.05, 0.05])
            box = page[row : row + 5 * stroke, column : column + 5 * stroke]
            box[:] = np.where(shape, ink, box)
        row, line = row + 5 * stroke + 5, line + 1
    return page


def ball(size: int) -> np.ndarray:
    """A ball lit from the upper left in front of a floor of squares."""
    y, x = np.mgrid[:size, :size] / (size - 1) * 2 - 1
    squares = (np.floor(6 * x) + np.floor(6 * y)) % 2
    floor = 0.35 + 0.25 * squares[..., None] * np.array([1.0, 0.9, 0.7])
    radius = x * x + y * y
    z = np.sqrt(np.clip(0.64 - radius, 0, None))
    light = np.clip((-0.5 * x - 0.6 * y + 0.62 * z) / 0.8, 0, 1)[..., None]
    shine = np.clip(light, 0, 1) ** 24
    shaded = 0.08 + 0.75 * light * np.array([0.9, 0.45, 0.1]) + 0.4 * shine
    return np.clip(np.where(radius[..., None] < 0.64, shaded, floor), 0, 1)


def main() -> None:
    from casestudies.common.images import save

    save(FILE, picture())


if __name__ == "__main__":
    main()
