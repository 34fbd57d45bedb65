"""What the denoiser is measured against: PyTorch's unfold, matmul and fold, as they are and
compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.case import Arrays, Peer
from casestudies.dct_denoise import matrices
from casestudies.dct_denoise.problem import STRIDE, TILE, Problem


def torch_denoiser(problem: Problem, inputs: Arrays) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of torch tensors that does the job, and its arguments on the GPU."""
    from casestudies.common.gpu_torch import torch

    image = torch.from_dlpack(inputs["I"])
    forward = torch.from_dlpack(inputs["F"])
    weighted = matrices.window()[:, None] * matrices.transform().T
    back = torch.tensor(weighted, dtype=torch.float16, device=image.device)
    threshold = float(inputs["T"][0])
    down, across = problem.tiles
    height, width = STRIDE * (down - 1), STRIDE * (across - 1)
    sizes = (height + TILE, width + TILE)
    border = (STRIDE, STRIDE + width - problem.width, STRIDE, STRIDE + height - problem.height)

    def run(image: Any, forward: Any, back: Any) -> Any:
        padded = torch.nn.functional.pad(image[:, None], border, mode="replicate")
        tiles = torch.nn.functional.unfold(padded, TILE, stride=STRIDE)
        tiles = tiles.transpose(1, 2).reshape(-1, TILE, TILE)
        bins = forward @ tiles @ forward.T
        cored = torch.where(bins.abs() > threshold, bins, torch.zeros_like(bins))
        tiles = (back @ cored @ back.T).reshape(problem.planes, -1, TILE * TILE)
        summed = torch.nn.functional.fold(tiles.transpose(1, 2), sizes, TILE, stride=STRIDE)
        inner = summed[:, 0, STRIDE : STRIDE + height, STRIDE : STRIDE + width]
        return inner[:, : problem.height, : problem.width]

    return run, (image, forward, back)


def eager(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """torch's functions one by one."""
    run, arguments = torch_denoiser(problem, inputs)
    return lambda: run(*arguments)


def compiled(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """The same through ``torch.compile``."""
    from casestudies.common.gpu_torch import torch

    run, arguments = torch_denoiser(problem, inputs)
    fused = torch.compile(run)
    fused(*arguments)  # compiles
    return lambda: fused(*arguments)


PEERS = (
    Peer(
        "torch.compile",
        "torch.compile of pad, unfold, two matmuls, where, two matmuls, fold; f16",
        compiled,
    ),
    Peer("torch", "the same functions of torch one by one; f16", eager),
)
