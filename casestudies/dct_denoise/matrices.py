"""The matrices of the denoiser: the DCT, and back with the window.

With the transform D (orthonormal, 16 points), the sine window w and n the pixel's place in its
tile, F = D, and G = diag(w^2) D' of both tiles that cover a pixel. The squares of w sum to one over
the two, so that the window, overlap-add and the undoing of the window are all in G. A window ahead
of the transform as well would spread flat areas over small bins, which coring then takes away: the
tiles would show (the photograph of the tests: 0.2 dB less, and a ripple of 0.03 on flat gray).
"""

from __future__ import annotations

import numpy as np

from casestudies.dct_denoise.problem import STRIDE, TILE

THRESHOLD = 3.0  # standard deviations of the noise in a bin


def transform() -> np.ndarray:
    """The orthonormal DCT-II of 16 points, float64: row k holds bin k."""
    k, n = np.arange(TILE)[:, None], np.arange(TILE)[None, :]
    rows = np.sqrt(2 / TILE) * np.cos(np.pi * k * (2 * n + 1) / (2 * TILE))
    rows[0] /= np.sqrt(2)
    return rows


def window() -> np.ndarray:
    """What a tile's 16 pixels weigh in the sum of tiles, float64; one and one eight further on sum
    to one.
    """
    return np.sin(np.pi * (np.arange(TILE) + 0.5) / TILE) ** 2


def forward() -> np.ndarray:
    """``F[k, n]``: bin k of a tile of 16 pixels n; float64, 16 x 16."""
    return transform()


def inverse() -> np.ndarray:
    """``G[p, 16 e + k]``: what bin k of tile e (the earlier, the later) gives to pixel p of the
    eight that both cover; float64, 8 x 32.
    """
    back = window()[:, None] * transform().T
    return np.concatenate([back[STRIDE:], back[:STRIDE]], axis=1)


def threshold(strength: float) -> np.ndarray:
    """Bins up to this are dropped, for noise of standard deviation ``strength`` a pixel, which is
    that of a bin, too; one value, f16.
    """
    return np.array([THRESHOLD * strength], np.float16)
