"""Pictures and random inputs of the denoiser."""

from __future__ import annotations

from typing import Any

import numpy as np

from casestudies.common.case import Arrays, Pictures
from casestudies.common.images import fit
from casestudies.dct_denoise import matrices
from casestudies.dct_denoise.problem import Problem


def matrix_inputs(problem: Problem, xp: Any) -> Arrays:
    """All inputs but the picture."""
    return {
        "F": xp.asarray(np.ascontiguousarray(matrices.forward(), np.float16)),
        "G": xp.asarray(np.ascontiguousarray(matrices.inverse(), np.float16)),
        "T": xp.asarray(matrices.threshold(problem.strength)),
    }


def random_inputs(problem: Problem, seed: int, xp: Any) -> Arrays:
    """Waves of random direction under noise of the strength that is to be taken away: some bins of
    a tile are far above the threshold, the others around and below it, as in a picture.
    """
    generator = np.random.default_rng(seed)
    shape = problem.output.shape
    down, across = np.arange(shape[1])[:, None], np.arange(shape[2])[None, :]
    planes = np.full(shape, 0.5, np.float32)
    for plane in planes:
        for _ in range(4):
            angle, phase = generator.uniform(0, 2 * np.pi, 2)
            turn = generator.uniform(0.02, 1.0)
            at = turn * (np.cos(angle) * across + np.sin(angle) * down) + phase
            plane += generator.uniform(0.02, 0.12) * np.sin(at, dtype=np.float32)
    planes += problem.strength * generator.standard_normal(shape, dtype=np.float32)
    return {"I": xp.asarray(planes.astype(np.float16)), **matrix_inputs(problem, xp)}


def picture_inputs(problem: Problem, picture: np.ndarray) -> Arrays:
    """A gray or an RGB picture as planes, with the matrices."""
    fitted = fit(picture, problem.height, problem.width)
    planes = fitted[None] if fitted.ndim == 2 else np.moveaxis(fitted, -1, 0)
    chosen = np.broadcast_to(planes[: problem.planes], problem.output.shape)
    image = np.ascontiguousarray(chosen, dtype=np.float16)
    return {"I": image, **matrix_inputs(problem, np)}


def as_picture(problem: Problem, output: np.ndarray) -> np.ndarray:
    """Planes as a picture of shape (height, width) or (height, width, 3)."""
    planes = output.astype(np.float32)
    return planes[0] if problem.planes == 1 else np.ascontiguousarray(np.moveaxis(planes, 0, -1))


PICTURES = Pictures(3, picture_inputs, as_picture)
