"""What the matrix product is measured against: cuBLAS through torch, output allocated beforehand
where torch takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from casestudies.common.case import Arrays, Peer
from casestudies.gemm.problem import Problem, elements


def _matrices(problem: Problem, inputs: Arrays) -> list[Any]:
    """A as (m, k) and B as (k, n), or as many of each: views, where they are stored transposed."""
    from casestudies.common.gpu_torch import torch

    arrays = [torch.from_dlpack(inputs[name]) for name in "AB"]
    if problem.operand == "bf16":
        arrays = [array.view(torch.bfloat16) for array in arrays]
    sides = zip(arrays, problem.layout, strict=True)
    return [array.mT if side == "t" else array for array, side in sides]


def cublas(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``torch.mm`` (several: ``torch.bmm``) with ``out=`` in the operands' type, ``torch._int_mm``
    for s8 (None where it has no kernel).
    """
    from casestudies.common.gpu_torch import torch

    a, b = _matrices(problem, inputs)
    if problem.epilogue:
        return None
    if problem.operand == "s8":
        if problem.types != "s8-s32" or problem.batch > 1:
            return None
        if problem.m <= 16 or problem.n % 8 or problem.k % 8:
            return None
        result = torch.empty(problem.output.shape, dtype=torch.int32, device=a.device)
        return lambda: torch._int_mm(a, b, out=result)
    result = torch.empty(problem.output.shape, dtype=a.dtype, device=a.device)
    multiply = torch.bmm if problem.batch > 1 else torch.mm
    return lambda: multiply(a, b, out=result)


def cublas_f32_out(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``torch.mm(..., out_dtype=float32)``; None where torch cannot."""
    from casestudies.common.gpu_torch import torch

    if problem.types not in ("f16-f32", "bf16-f32") or problem.epilogue:
        return None
    a, b = _matrices(problem, inputs)
    multiply = torch.bmm if problem.batch > 1 else torch.mm
    try:
        multiply(a, b, out_dtype=torch.float32)
    except (TypeError, RuntimeError):
        return None
    return lambda: multiply(a, b, out_dtype=torch.float32)


def cublaslt_bias_relu(
    problem: Problem, inputs: Arrays, output: Any
) -> Callable[[], object] | None:
    """``torch._addmm_activation``, the bias rounded to the operands' type; None for others."""
    from casestudies.common.gpu_torch import torch

    operand, _, result = elements(problem.types)
    if problem.epilogue != "bias-relu" or operand != result or problem.batch > 1:
        return None
    a, b = _matrices(problem, inputs)
    bias = torch.from_dlpack(inputs["bias"]).to(a.dtype)
    return lambda: torch._addmm_activation(bias, a, b)


def cudnn_1x1(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``torch.cudnn_convolution_relu`` with 1 x 1 taps over a row of pixels, channels last,
    benchmark mode; None for other layouts and epilogues.
    """
    from casestudies.common.gpu_torch import torch

    operand, _, result = elements(problem.types)
    if (problem.layout, problem.epilogue) != ("nt", "bias-relu") or operand != result:
        return None
    torch.backends.cudnn.benchmark = True
    a, b = _matrices(problem, inputs)
    pixels, weights = a[None, None].permute(0, 3, 1, 2), b.T[:, None, None].permute(0, 3, 1, 2)
    bias = torch.from_dlpack(inputs["bias"]).to(a.dtype)
    return lambda: torch.cudnn_convolution_relu(pixels, weights, bias, (1, 1), (0, 0), (1, 1), 1)


def cublas_scaled(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``torch._int_mm``, then scaled, rounded and saturated by torch, in place; None for others."""
    from casestudies.common.gpu_torch import torch

    exact = replace(problem, types="s8-s32", epilogue="") if problem.types == "s8-s8" else problem
    call = cublas(exact, inputs, output)
    if problem.types != "s8-s8" or call is None:
        return None
    scale = torch.from_dlpack(inputs["scale"])
    shape = problem.output.shape
    scaled = torch.empty(shape, dtype=torch.float32, device=scale.device)
    result = torch.empty(shape, dtype=torch.int8, device=scale.device)

    def narrowed() -> object:
        torch.mul(call(), scale, out=scaled)
        return result.copy_(scaled.round_().clamp_(-128, 127))

    return narrowed


def cublas_columns(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    """``torch._int_mm`` of a copy of B column by column, which cuBLAS multiplies much faster than B
    row by row; the copy is part of the call. None for other types and for B's that lie so.
    """
    from casestudies.common.gpu_torch import torch

    call = cublas(problem, inputs, output)
    if problem.types != "s8-s32" or problem.layout[1] == "t" or call is None:
        return None
    a, b = _matrices(problem, inputs)
    result = torch.empty(problem.output.shape, dtype=torch.int32, device=a.device)
    return lambda: torch._int_mm(a, b.t().contiguous().t(), out=result)


PEERS = (
    Peer(
        "cuBLAS",
        "torch.mm or bmm with out=, result in the operands' type (s8: torch._int_mm)",
        cublas,
    ),
    Peer("cuBLAS f32 out", "torch.mm, out_dtype=float32", cublas_f32_out),
    Peer("cuBLASLt bias, ReLU", "torch._addmm_activation", cublaslt_bias_relu),
    Peer("cuDNN 1 x 1", "torch.cudnn_convolution_relu, channels last", cudnn_1x1),
    Peer("cuBLAS, then torch", "torch._int_mm; mul, round, clamp, to int8", cublas_scaled),
    Peer("cuBLAS columns", "torch._int_mm, B copied by columns in the call", cublas_columns),
)
