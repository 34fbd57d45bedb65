"""What attention is measured against: torch's three stages, as written and compiled, and the fused
kernels of cuDNN and FlashAttention. Variants of the score: flex_attention, which compiles a
function of the score, and fused kernels with a mask that is added (bias and slopes).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from casestudies.attention.problem import SOFT_CAP, Problem
from casestudies.common.case import Arrays, Peer


def operands(problem: Problem, inputs: Arrays) -> tuple[Any, Any, Any]:
    from casestudies.common.gpu_torch import torch

    q, k, v = (torch.from_dlpack(inputs[name]) for name in "QKV")
    q = q.reshape(problem.heads, problem.length, problem.depth)
    if problem.operand == "bf16":
        q, k, v = (x.view(torch.bfloat16) for x in (q, k, v))
    return q, k, v


def added(problem: Problem, inputs: Arrays) -> Any:
    """What is added to the scores, in the operands' type, of heads x queries x keys; None for
    nothing.
    """
    from casestudies.common.gpu_torch import torch

    dtype = torch.bfloat16 if problem.operand == "bf16" else torch.float16
    if problem.window:
        seen = torch.ones((problem.length,) * 2, dtype=torch.bool, device="cuda").tril()
        seen = seen.triu(1 - problem.window)
        zeros = torch.zeros((1, *seen.shape), dtype=dtype, device="cuda")
        return zeros.masked_fill(~seen, -math.inf)
    match problem.score:
        case "bias":
            return torch.from_dlpack(inputs["bias"]).to(dtype)
        case "slopes":
            place = torch.arange(problem.length, device="cuda", dtype=torch.float32)
            distance = (place[None, :] - place[:, None])[None]
            slopes = torch.from_dlpack(inputs["slopes"])
            parts = [(slope * distance).to(dtype) for slope in slopes]
            return torch.cat(parts)
        case _:
            return None


def stages(
    q: Any,
    k: Any,
    v: Any,
    scale: float,
    causal: bool = False,
    mask: Any = None,
    cap: float | None = None,
) -> Any:
    """The three stages, all in the operands' type."""
    from casestudies.common.gpu_torch import torch

    scores = torch.matmul(q, k.transpose(1, 2)) * scale
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    if mask is not None:
        scores = scores + mask
    if causal:
        later = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return torch.matmul(torch.softmax(scores, dim=-1), v)


def of_stages(problem: Problem, inputs: Arrays) -> tuple[Any, ...]:
    cap = SOFT_CAP if problem.score == "soft_cap" else None
    mask = added(problem, inputs)
    return (*operands(problem, inputs), problem.factor, problem.causal, mask, cap)


def three_stages(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    if problem.sharing > 1:
        return None
    arguments = of_stages(problem, inputs)
    return lambda: stages(*arguments)


def compiled(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    from casestudies.common.gpu_torch import torch

    if problem.sharing > 1:
        return None
    arguments = of_stages(problem, inputs)
    call: Any = torch.compile(stages)
    call(*arguments)
    return lambda: call(*arguments)


def fused(
    backend: str, *, masks: bool = False
) -> Callable[[Problem, Arrays, Any], Callable[[], object] | None]:
    """``scaled_dot_product_attention`` with one backend; None where torch has it not. ``masks``:
    only for problems that add something.
    """

    def prepare(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        from casestudies.common.gpu_torch import torch

        which = getattr(SDPBackend, backend)
        q, k, v = (x[None] for x in operands(problem, inputs))
        mask = added(problem, inputs)
        if problem.score == "soft_cap" or (masks and mask is None):
            return None
        causal = problem.causal
        if mask is not None:
            mask, causal = mask[None], False
            if problem.causal:
                later = torch.ones(mask.shape[-2:], dtype=torch.bool, device="cuda").triu(1)
                mask = mask.masked_fill(later, float("-inf"))

        def call() -> object:
            with sdpa_kernel(which):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, is_causal=causal, scale=problem.scale,
                    enable_gqa=problem.sharing > 1,
                )  # fmt: skip

        try:
            call()
        except RuntimeError:
            return None
        return call

    return prepare


@cache
def compiled_flexible() -> Any:
    """One for all calls, which compiles once for each score and size."""
    from torch.nn.attention.flex_attention import flex_attention

    from casestudies.common.gpu_torch import torch

    return torch.compile(flex_attention, dynamic=False)


@cache
def _causal_blocks(length: int, window: int) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(b: Any, h: Any, m: Any, n: Any) -> Any:
        return (n <= m) & (n > m - window) if window else n <= m

    return create_block_mask(seen, None, None, length, length, device="cuda")


def soft_cap(s: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
    return (s / SOFT_CAP).tanh() * SOFT_CAP


def flexible(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``flex_attention``, compiled for the score of the problem; None for the plain one."""
    from casestudies.common.gpu_torch import torch

    if problem.score == "plain" and not problem.window:
        return None
    q, k, v = (x[None] for x in operands(problem, inputs))
    extra = {name: torch.from_dlpack(x) for name, x in inputs.items() if name not in "QKV"}

    def slopes(s: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
        return s + extra["slopes"][h] * (n - m)

    def bias(s: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
        return s + extra["bias"][h, m, n]

    score = {"soft_cap": soft_cap, "slopes": slopes, "bias": bias}.get(problem.score)
    blocks = _causal_blocks(problem.length, problem.window) if problem.causal else None
    attend = compiled_flexible()

    def call() -> object:
        return attend(
            q, k, v, score_mod=score, block_mask=blocks, scale=problem.scale,
            enable_gqa=problem.sharing > 1,
        )  # fmt: skip

    call()
    return call


PEERS = (
    Peer("torch 3 stages", "torch.matmul, softmax, matmul; f16", three_stages),
    Peer("torch.compile", "torch.compile of the three stages; f16", compiled),
    Peer("cuDNN fused", "scaled_dot_product_attention, cuDNN; f16", fused("CUDNN_ATTENTION")),
    Peer(
        "FlashAttention",
        "scaled_dot_product_attention, FlashAttention; f16",
        fused("FLASH_ATTENTION"),
    ),
    Peer(
        "memory-efficient",
        "scaled_dot_product_attention, memory-efficient kernel with a mask that is added; f16",
        fused("EFFICIENT_ATTENTION", masks=True),
    ),
    Peer(
        "flex_attention",
        "torch.compile of flex_attention with the score of the problem; f16",
        flexible,
    ),
)
