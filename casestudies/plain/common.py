"""What the plain jobs share: numbers, images as they continue beyond their edges, torch's view
of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.case import Arrays, Problem, bytes_of

REPEAT, MIRROR, ZERO, WRAP = BOUNDARIES = ("repeat", "mirror", "zero", "wrap")
TOLERANCE = {"f32": 2e-3, "f16": 5e-3, "bf16": 1e-2, "s32": 0.0, "s8": 2e-3, "u8": 2e-3}
SHIFT = 8  # of a sum of bytes, of a filter
THRESHOLD = 0.3  # of what is small, among bins of the DCT
SOFTMAX, RMS, LAYER = "softmax", "RMSNorm", "LayerNorm and residual"
BLOCK = 128  # queries or keys of a block of a mask
EPSILON = 1e-5  # beside the mean of squares
Prepare = Callable[[Any, Arrays, Any], Callable[[], object] | None]


def copied(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """As many bytes, read once and written once."""
    import cupy

    half = -(-bytes_of(problem) // 2)
    source, target = (cupy.empty(half, cupy.uint8) for _ in range(2))
    return lambda: cupy.copyto(target, source)


def continued(image: Any, axis: int, before: int, after: int, boundary: str, xp: Any) -> Any:
    """An array with so many elements more on both sides of an axis."""
    size = image.shape[axis]
    at = xp.arange(-before, size + after)
    inside = (at >= 0) & (at < size)
    if boundary == WRAP:
        at = at % size
    elif boundary == MIRROR:
        at = at % (2 * size)
        at = xp.where(at < size, at, 2 * size - 1 - at)
    found = xp.take(image, xp.clip(at, 0, size - 1), axis=axis)
    if boundary == ZERO:
        shape = [1] * image.ndim
        shape[axis] = -1
        found = found * inside.reshape(shape).astype(found.dtype)
    return found


def correlated(image: Any, weights: Any, axis: int) -> Any:
    """``sum_k weights[k] * image[i + k]`` along an axis."""
    count = image.shape[axis] - len(weights) + 1
    result: Any = 0
    for k in range(len(weights)):
        part = [slice(None)] * image.ndim
        part[axis] = slice(k, k + count)
        result = result + weights[k] * image[tuple(part)]
    return result


def tensor(array: Any, element: str = "") -> Any:
    """torch's view of an array; ``element`` bf16 travels as bits."""
    from casestudies.common.gpu_torch import torch

    found = torch.from_dlpack(array)
    return found.view(torch.bfloat16) if element == "bf16" else found
