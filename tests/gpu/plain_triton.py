"""Kernels of rows in Triton, as one writes them by hand, for the comparison. Needs Triton, torch.

Each function takes torch's tensors and returns new ones; a row is one block, warps are autotuned.
"""
# pyright: basic, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportMissingImports=false
# ruff: noqa: N803

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from casestudies.ten_tasks.triton_kernels import rope as turned  # noqa: F401 (of a job)

ROWS = [triton.Config({}, num_warps=w) for w in (2, 4, 8, 16, 32)]
PARTS = [triton.Config({"BLOCK": n}, num_warps=w) for n in (2048, 4096, 8192) for w in (4, 8, 16)]
LINES = [triton.Config({"BLOCK": n}, num_warps=w) for n in (1024, 2048, 4096) for w in (4, 8)]


@triton.autotune(ROWS, key=["width"])
@triton.jit
def softmax_kernel(a, out, width, LOG: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    inside = at < width
    value = tl.load(a + row * width + at, mask=inside, other=-float("inf")).to(tl.float32)
    value -= tl.max(value, axis=0)
    weight = tl.exp(value)
    total = tl.sum(weight, axis=0)
    result = value - tl.log(total) if LOG else weight / total
    tl.store(out + row * width + at, result.to(out.dtype.element_ty), mask=inside)


def softmax(a, log=False):
    out, (rows, width) = torch.empty_like(a), a.shape
    softmax_kernel[(rows,)](a, out, width, log, triton.next_power_of_2(width))
    return out


def log_softmax(a):
    return softmax(a, True)


@triton.autotune(ROWS, key=["width"])
@triton.jit
def rms_kernel(a, scale, out, width, WIDTH: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    inside = at < width
    value = tl.load(a + row * width + at, mask=inside, other=0.0).to(tl.float32)
    own = tl.rsqrt(tl.sum(value * value, axis=0) / width + 1e-5)
    result = value * own * tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, result.to(out.dtype.element_ty), mask=inside)


def rms_norm(a, scale):
    out, (rows, width) = torch.empty_like(a), a.shape
    rms_kernel[(rows,)](a, scale, out, width, triton.next_power_of_2(width))
    return out


@triton.autotune(ROWS, key=["width"])
@triton.jit
def norm_kernel(a, b, scale, shift, out, width, WIDTH: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    inside, place = at < width, row * width + at
    value = tl.load(a + place, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(b + place, mask=inside, other=0.0).to(tl.float32)
    value = tl.where(inside, value - tl.sum(value, axis=0) / width, 0.0)
    own = tl.rsqrt(tl.sum(value * value, axis=0) / width + 1e-5)
    w = tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)
    result = value * own * w + tl.load(shift + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)


def norm_of_a_sum(a, b, scale, shift):
    out, (rows, width) = torch.empty_like(a), a.shape
    norm_kernel[(rows,)](a, b, scale, shift, out, width, triton.next_power_of_2(width))
    return out


@triton.autotune(PARTS, key=["width"])
@triton.jit
def entropy_kernel(logits, wanted, out, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    top, total = tl.full((BLOCK,), -1e30, tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, width, BLOCK):
        value = tl.load(logits + row * width + first + at, mask=first + at < width,
                        other=-float("inf")).to(tl.float32)  # fmt: skip
        higher = tl.maximum(top, value)
        total = total * tl.exp(top - higher) + tl.exp(value - higher)
        top = higher
    peak = tl.max(top, axis=0)
    sums = tl.sum(total * tl.exp(top - peak), axis=0)
    right = tl.load(logits + row * width + tl.load(wanted + row)).to(tl.float32)
    tl.store(out + row, tl.log(sums) + peak - right)


def cross_entropy(logits, wanted):
    rows, width = logits.shape
    out = torch.empty(rows, dtype=torch.float32, device=logits.device)
    entropy_kernel[(rows,)](logits, wanted, out, width)
    return out


@triton.autotune(ROWS, key=["width"])
@triton.jit
def least_kernel(a, out, width, WIDTH: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    value = tl.load(a + row * width + at, mask=at < width, other=float("inf"))
    tl.store(out + row, tl.argmin(value, axis=0))


def least_of_rows(a):
    rows, width = a.shape
    out = torch.empty(rows, dtype=torch.int32, device=a.device)
    least_kernel[(rows,)](a, out, width, triton.next_power_of_2(width))
    return out


@triton.autotune(LINES, key=["width"])
@triton.jit
def gelu_kernel(v, b, s, out, width, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, place = at < width, tl.program_id(0).to(tl.int64) * width + at
    value = tl.load(v + place, mask=inside).to(tl.float32)
    value += tl.load(b + at, mask=inside).to(tl.float32)
    bent = libdevice.tanh(0.7978845608 * (value + 0.044715 * value * value * value))
    result = value * 0.5 * (1 + bent) + tl.load(s + place, mask=inside).to(tl.float32)
    tl.store(out + place, result.to(tl.float16), mask=inside)


def biased_gelu(v, b, s):
    out, (rows, width) = torch.empty_like(v), v.shape
    gelu_kernel[lambda meta: (rows, triton.cdiv(width, meta["BLOCK"]))](v, b, s, out, width)
    return out


@triton.autotune(LINES, key=["width"])
@triton.jit
def gated_kernel(both, out, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    gate = tl.load(both + row * 2 * width + at, mask=inside).to(tl.float32)
    value = tl.load(both + row * 2 * width + width + at, mask=inside).to(tl.float32)
    tl.store(out + row * width + at, (gate * tl.sigmoid(gate) * value).to(tl.float16), mask=inside)


def gated(both):
    rows, width = both.shape[0], both.shape[1] // 2
    out = torch.empty((rows, width), dtype=both.dtype, device=both.device)
    gated_kernel[lambda meta: (rows, triton.cdiv(width, meta["BLOCK"]))](both, out, width)
    return out
