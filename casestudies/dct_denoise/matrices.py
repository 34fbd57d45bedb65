"""The matrices of the denoiser: the DCT with its window, and back.

The window is the sine window. With the window w, the transform D (orthonormal, 16 points) and n the
pixel's place in the tile, F = D diag(w) and G = diag(1 / norm) D' of both tiles that cover a pixel,
where norm is the sum of w over them: overlap-add and the undoing of the window are in G.
"""

from __future__ import annotations

import numpy as np

TILE, STRIDE = 16, 8
THRESHOLD = 3.0  # standard deviations of the noise in a bin


def transform() -> np.ndarray:
    """The orthonormal DCT-II of 16 points, float64: row k holds bin k."""
    k, n = np.arange(TILE)[:, None], np.arange(TILE)[None, :]
    rows = np.sqrt(2 / TILE) * np.cos(np.pi * k * (2 * n + 1) / (2 * TILE))
    rows[0] /= np.sqrt(2)
    return rows


def window() -> np.ndarray:
    """The window of a tile, float64, 16 values."""
    return np.sin(np.pi * (np.arange(TILE) + 0.5) / TILE)


def forward() -> np.ndarray:
    """``F[k, n]``: bin k of a tile of 16 pixels n; float64, 16 x 16."""
    return transform() * window()


def inverse() -> np.ndarray:
    """``G[p, 16 e + k]``: what bin k of tile e (the earlier, the later) gives to pixel p of the
    eight that both cover; float64, 8 x 32.
    """
    w = window()
    norm = w[:STRIDE] + w[STRIDE:]
    back = transform().T
    return np.concatenate([back[STRIDE:], back[:STRIDE]], axis=1) / norm[:, None]


def threshold(strength: float) -> np.ndarray:
    """Bins up to this are dropped, for noise of standard deviation ``strength`` a pixel; float32,
    one value. Along an axis the window leaves half of the noise's power in a bin.
    """
    return np.array([THRESHOLD * strength * float(np.mean(window() ** 2))], np.float32)
