"""What the matrix product is measured against: cuBLAS through torch, output allocated
beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.case import Arrays, Peer
from casestudies.gemm.problem import Problem


def _matrices(problem: Problem, inputs: Arrays) -> list[Any]:
    """A as (m, k) and B as (k, n): views, where they are stored transposed."""
    import torch

    return [
        torch.from_dlpack(inputs[name]).T if side == "t" else torch.from_dlpack(inputs[name])
        for name, side in zip("AB", problem.layout, strict=True)
    ]


def cublas(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``torch.mm`` with ``out=`` in the operands' type, ``torch._int_mm`` for s8 (None where it has
    no kernel).
    """
    import torch

    a, b = _matrices(problem, inputs)
    if problem.epilogue:
        return None
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

    if problem.types != "f16-f32" or problem.epilogue:
        return None
    a, b = _matrices(problem, inputs)
    try:
        torch.mm(a, b, out_dtype=torch.float32)
    except (TypeError, RuntimeError):
        return None
    return lambda: torch.mm(a, b, out_dtype=torch.float32)


def cublas_columns(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``torch._int_mm`` of a copy of B column by column, which cuBLAS multiplies much faster than B
    row by row; the copy is part of the call. None for other types and for B's that lie so.
    """
    import torch

    call = cublas(problem, inputs, output)
    if problem.operand != "s8" or problem.layout[1] == "t" or call is None:
        return None
    a, b = _matrices(problem, inputs)
    result = torch.empty(problem.output.shape, dtype=torch.int32, device=a.device)
    return lambda: torch._int_mm(a, b.t().contiguous().t(), out=result)


PEERS = (
    Peer("cuBLAS", "torch.mm with out=, result in the operands' type (s8: torch._int_mm)", cublas),
    Peer("cuBLAS f32 out", "torch.mm, out_dtype=float32", cublas_f32_out),
    Peer("cuBLAS columns", "torch._int_mm, B copied by columns in the call", cublas_columns),
)
