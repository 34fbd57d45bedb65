"""What upsampling is measured against: cuDNN through torch, as a convolution of one channel to all
phases and a shuffle, and as a transposed convolution.

The transposed one is left out for more than 16 x 16 taps: cuDNN, in benchmark mode, did not get
through its algorithms for 32 x 32 within a minute, and at 16 x 16 it is far behind the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.boundary import VALID
from casestudies.common.case import Arrays, Peer
from casestudies.common.cudnn import with_edges
from casestudies.upsample.problem import Problem

TRANSPOSED = 16  # taps along an axis, at most


def _phases(problem: Problem, weights: Any) -> Any:
    """The taps of each phase as a filter of its own: (phases, 1, taps, taps), in the order that
    torch's pixel shuffle wants.
    """
    taps, factor = problem.phase_taps, problem.factor
    bank = weights.reshape(taps, factor, taps, factor).permute(1, 3, 0, 2)
    return bank.reshape(factor * factor, 1, taps, taps).contiguous()


def shuffled(
    channels_last: bool, compiled: bool
) -> Callable[[Problem, Arrays, Any], Callable[[], object] | None]:
    """torch's convolution in f16 of one channel to a channel for each phase, then
    ``pixel_shuffle``.
    """

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
        from casestudies.common.gpu_torch import torch

        torch.backends.cudnn.benchmark = True
        image = torch.from_dlpack(with_edges(problem, inputs["I"]))[None, None]
        weights = _phases(problem, torch.from_dlpack(inputs["K"]))
        if channels_last:
            image = image.to(memory_format=torch.channels_last)
            weights = weights.to(memory_format=torch.channels_last)
        functional, factor = torch.nn.functional, problem.factor

        def run(image: Any, weights: Any) -> Any:
            return functional.pixel_shuffle(functional.conv2d(image, weights), factor)

        call = torch.compile(run) if compiled else run
        return lambda: call(image, weights)

    return prepare


def transposed(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``conv_transpose2d`` in f16. Each phase's taps are walked backwards there; the outputs at the
    border that only part of the taps reach are cut off by the padding. None for too many taps.
    """
    from casestudies.common.gpu_torch import torch

    taps, factor = problem.phase_taps, problem.factor
    if problem.boundary != VALID or taps * factor > TRANSPOSED:
        return None
    torch.backends.cudnn.benchmark = True
    image = torch.from_dlpack(with_edges(problem, inputs["I"]))[None, None]
    weights = torch.from_dlpack(inputs["K"]).reshape(taps, factor, taps, factor)
    weights = weights.flip(0, 2).reshape(1, 1, taps * factor, taps * factor).contiguous()
    padding = factor * (taps - 1)
    functional = torch.nn.functional
    return lambda: functional.conv_transpose2d(image, weights, stride=factor, padding=padding)


PEERS = (
    Peer(
        "cuDNN NCHW",
        "torch conv2d to 4 phases and pixel_shuffle, f16 out, benchmark mode",
        shuffled(False, False),
    ),
    Peer(
        "cuDNN NHWC",
        "torch conv2d to 4 phases and pixel_shuffle, channels last, f16 out, benchmark mode",
        shuffled(True, False),
    ),
    Peer(
        "cuDNN transposed",
        "torch conv_transpose2d with stride, f16 out, benchmark mode",
        transposed,
    ),
    Peer(
        "torch.compile",
        "torch.compile of conv2d to 4 phases and pixel_shuffle, f16 out",
        shuffled(False, True),
        capturable=False,
    ),
)
