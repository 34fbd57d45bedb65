"""What the matrix product is measured against: cuBLAS through torch, output allocated
beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.case import Arrays, Peer
from casestudies.gemm.problem import Problem


def cublas(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``torch.mm`` with ``out=`` in the operands' type, ``torch._int_mm`` for s8 (None where it has
    no kernel).
    """
    import torch

    a, b = (torch.from_dlpack(inputs[name]) for name in ("A", "B"))
    if problem.operand == "s8":
        if problem.m <= 16 or problem.n % 8 or problem.k % 8:
            return None
        result = torch.empty(problem.output.shape, dtype=torch.int32, device=a.device)
        return lambda: torch._int_mm(a, b, out=result)
    if problem.operand == "bf16":
        a, b = a.view(torch.bfloat16), b.view(torch.bfloat16)
    result = torch.empty(problem.output.shape, dtype=a.dtype, device=a.device)
    return lambda: torch.mm(a, b, out=result)


def cublas_f32_out(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``torch.mm(..., out_dtype=float32)``; None where torch cannot."""
    import torch

    if problem.types != "f16-f32":
        return None
    a, b = (torch.from_dlpack(inputs[name]) for name in ("A", "B"))
    try:
        torch.mm(a, b, out_dtype=torch.float32)
    except (TypeError, RuntimeError):
        return None
    return lambda: torch.mm(a, b, out_dtype=torch.float32)


PEERS = (
    Peer("cuBLAS", "torch.mm with out=, result in the operands' type (s8: torch._int_mm)", cublas),
    Peer("cuBLAS f32 out", "torch.mm, out_dtype=float32", cublas_f32_out),
)
