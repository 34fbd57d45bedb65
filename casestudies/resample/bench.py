"""What the resampling is measured against: dense products with the same weights, and libraries'
own functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.case import Arrays, Peer
from casestudies.resample.problem import Problem
from casestudies.resample.reference import weights


def two_products(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """cuBLAS: dense weights times image times dense weights, f16; the weights are made before."""
    import cupy

    from casestudies.common.gpu_torch import torch

    image = torch.from_dlpack(inputs["I"])

    def matrix(size: int, count: int) -> Any:
        return torch.from_dlpack(cupy.asarray(weights(size, count).astype("float16")))

    rows = matrix(problem.height, problem.to_height)
    columns = matrix(problem.width, problem.to_width).t()
    return lambda: torch.matmul(torch.matmul(rows, image), columns)


def torch_interpolate(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """torch's antialiased bicubic filter, which reads two thirds of the pixels."""
    from casestudies.common.gpu_torch import torch

    image = torch.from_dlpack(inputs["I"])[None]
    size = (problem.to_height, problem.to_width)
    interpolate = torch.nn.functional.interpolate
    return lambda: interpolate(image, size=size, mode="bicubic", antialias=True)


def jax_resize(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``jax.image.resize`` with lanczos3, compiled for the size; waits for each result."""
    try:
        import jax
    except ImportError:
        return None
    if jax.default_backend() == "cpu":  # built for CPUs, it is no library of the GPU
        return None
    image = jax.dlpack.from_dlpack(inputs["I"])
    shape = problem.output.shape
    resize: Any = jax.jit(lambda i: jax.image.resize(i, shape, "lanczos3"))  # pyright: ignore
    resize(image).block_until_ready()
    return lambda: resize(image).block_until_ready()


PEERS = (
    Peer("cuBLAS", "torch.matmul twice, dense f16 weights, weights not timed", two_products),
    Peer("jax", "jax.image.resize lanczos3, jit, f16, waits", jax_resize, capturable=False),
    Peer("torch", "interpolate, bicubic, antialias (not Lanczos), f16", torch_interpolate),
)
