"""What attention is measured against: torch's three stages, as written and compiled, and the fused
kernels of cuDNN and FlashAttention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.attention.problem import Problem
from casestudies.common.case import Arrays, Peer


def operands(inputs: Arrays) -> tuple[Any, Any, Any]:
    import torch

    q, k, v = (torch.from_dlpack(inputs[name]) for name in "QKV")
    return q, k, v


def stages(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """The three stages, all in f16."""
    import torch

    scores = torch.matmul(q, k.transpose(1, 2)) * (q.shape[-1] ** -0.5)
    if causal:
        later = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return torch.matmul(torch.softmax(scores, dim=-1), v)


def three_stages(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    q, k, v = operands(inputs)
    return lambda: stages(q, k, v, problem.causal)


def compiled(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    import torch

    q, k, v = operands(inputs)
    call: Any = torch.compile(stages)
    call(q, k, v, problem.causal)
    return lambda: call(q, k, v, problem.causal)


def fused(backend: str) -> Callable[[Problem, Arrays, Any], Callable[[], object] | None]:
    """``scaled_dot_product_attention`` with one backend; None where torch has it not."""

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        which = getattr(SDPBackend, backend)
        q, k, v = (x[None] for x in operands(inputs))

        def call() -> object:
            with sdpa_kernel(which):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=problem.causal
                )

        try:
            call()
        except RuntimeError:
            return None
        return call

    return prepare


PEERS = (
    Peer("torch 3 stages", "torch.matmul, softmax, matmul; f16", three_stages),
    Peer("torch.compile", "torch.compile of the three stages; f16", compiled),
    Peer(
        "cuDNN fused",
        "scaled_dot_product_attention, cuDNN; f16",
        fused("CUDNN_ATTENTION"),
    ),
    Peer(
        "FlashAttention",
        "scaled_dot_product_attention, FlashAttention; f16",
        fused("FLASH_ATTENTION"),
    ),
)
