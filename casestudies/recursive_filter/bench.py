"""What the recursive filter is measured against: CuPy's and torchaudio's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.case import Arrays, Peer
from casestudies.recursive_filter.problem import Problem


def cupyx_lfilter(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """``cupyx.scipy.signal.lfilter`` in f32."""
    import cupy
    from cupyx.scipy import signal

    x = inputs["X"].astype(cupy.float32)
    above = cupy.ones(1, cupy.float32)
    below = cupy.asarray([1.0, -problem.a, -problem.b], dtype=cupy.float32)
    return lambda: signal.lfilter(above, below, x, axis=1)


def torchaudio_lfilter(
    problem: Problem, inputs: Arrays, output: Any
) -> Callable[[], object] | None:
    """``torchaudio.functional.lfilter`` in f32; None where torchaudio is not installed."""
    try:
        import torch
        from torchaudio import functional  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    x = torch.from_dlpack(inputs["X"]).float()
    below = torch.tensor([1.0, -problem.a, -problem.b], device=x.device)
    above = torch.tensor([1.0, 0.0, 0.0], device=x.device)
    return lambda: functional.lfilter(x, below, above, clamp=False)


PEERS = (
    Peer("cupyx", "cupyx.scipy.signal.lfilter, f32", cupyx_lfilter, capturable=False),
    Peer("torchaudio", "functional.lfilter, f32", torchaudio_lfilter, capturable=False),
)
