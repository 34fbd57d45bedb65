"""The ten tasks in Triton, as one writes them by hand, for the comparison. Needs Triton and torch.

Each function takes torch's tensors and returns a new one; sizes are any. Tiles are autotuned.
"""
# pyright: basic, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportMissingImports=false
# ruff: noqa: N803

import torch
import triton
import triton.language as tl

LINES = [triton.Config({"BLOCK": n}, num_warps=w) for n in (1024, 2048, 4096) for w in (4, 8)]
ROWS = [triton.Config({}, num_warps=w) for w in (4, 8, 16)]
HEADS = [triton.Config({"HEADS": n}, num_warps=w) for n in (8, 16, 64) for w in (2, 4)]
TILES = [
    triton.Config({"M": m, "N": n, "K": k, "BAND": 8}, num_warps=w, num_stages=s)
    for m, n, k, w, s in (
        (128, 256, 64, 8, 3),
        (128, 256, 64, 8, 4),
        (128, 128, 64, 4, 4),
        (128, 128, 64, 8, 3),
        (64, 128, 64, 4, 4),
        (64, 64, 128, 4, 4),
        (64, 32, 64, 4, 5),
    )
]
QUERIES = [
    triton.Config({"M": m, "N": n}, num_warps=w, num_stages=s)
    for m, n, w, s in ((128, 128, 8, 2), (128, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 3))
]


@triton.autotune(LINES, key=["count"])
@triton.jit
def add_kernel(a, b, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    total = tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside)
    tl.store(out + at, total, mask=inside)


def add(a, b):
    out = torch.empty_like(a)
    add_kernel[lambda meta: (triton.cdiv(a.numel(), meta["BLOCK"]),)](a, b, out, a.numel())
    return out


@triton.autotune(LINES, key=["count"])
@triton.jit
def silu_kernel(a, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(a + at, mask=inside).to(tl.float32)
    tl.store(out + at, (value * tl.sigmoid(value)).to(tl.float16), mask=inside)


def silu(a):
    out = torch.empty_like(a)
    silu_kernel[lambda meta: (triton.cdiv(a.numel(), meta["BLOCK"]),)](a, out, a.numel())
    return out


@triton.autotune(ROWS, key=["width"])
@triton.jit
def softmax_kernel(a, out, pitch, width, WIDTH: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, WIDTH)
    inside = at < width
    value = tl.load(a + row * pitch + at, mask=inside, other=-float("inf")).to(tl.float32)
    weight = tl.exp(value - tl.max(value, axis=0))
    result = weight / tl.sum(weight, axis=0)
    tl.store(out + row * pitch + at, result.to(tl.float16), mask=inside)


def softmax(a):
    out, (rows, width) = torch.empty_like(a), a.shape
    softmax_kernel[(rows,)](a, out, a.stride(0), width, triton.next_power_of_2(width))
    return out


@triton.autotune(ROWS, key=["width"])
@triton.jit
def rms_norm_kernel(a, out, pitch, width, eps, WIDTH: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, WIDTH)
    inside = at < width
    value = tl.load(a + row * pitch + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / width + eps)
    tl.store(out + row * pitch + at, (value * scale).to(tl.float16), mask=inside)


def rms_norm(a):
    out, (rows, width) = torch.empty_like(a), a.shape
    rms_norm_kernel[(rows,)](a, out, a.stride(0), width, 1e-6, triton.next_power_of_2(width))
    return out


@triton.autotune(HEADS, key=["heads", "length"])
@triton.jit
def rope_kernel(a, sin, cos, out, length, heads, HALF: tl.constexpr, HEADS: tl.constexpr):
    place, first = tl.program_id(0), tl.program_id(1) * HEADS
    d, head = tl.arange(0, HALF), first + tl.arange(0, HEADS)
    angle = place % length * HALF + d
    s = tl.load(sin + angle).to(tl.float32)[None, :]
    c = tl.load(cos + angle).to(tl.float32)[None, :]
    at = (place * heads + head[:, None]) * (2 * HALF) + d[None, :]
    inside = head[:, None] < heads
    re = tl.load(a + at, mask=inside).to(tl.float32)
    im = tl.load(a + at + HALF, mask=inside).to(tl.float32)
    tl.store(out + at, (re * c - im * s).to(tl.float16), mask=inside)
    tl.store(out + at + HALF, (re * s + im * c).to(tl.float16), mask=inside)


def rope(a, sin, cos):
    out, (batch, length, heads, depth) = torch.empty_like(a), a.shape
    rope_kernel[lambda meta: (batch * length, triton.cdiv(heads, meta["HEADS"]))](
        a, sin, cos, out, length, heads, depth // 2
    )
    return out


@triton.jit
def place_of(rows, columns, M: tl.constexpr, N: tl.constexpr, BAND: tl.constexpr):
    """The tile of a block: so many rows of tiles are a band, for the L2 cache."""
    block, across = tl.program_id(0), tl.cdiv(columns, N)
    band = block // (BAND * across)
    high = min(tl.cdiv(rows, M) - band * BAND, BAND)
    within = block % (BAND * across)
    return band * BAND + within % high, within // high


@triton.jit
def product(
    a, b, rows, columns, depth, a_pitch, b_pitch, down, across,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    i, j, k = down * M + tl.arange(0, M), across * N + tl.arange(0, N), tl.arange(0, K)
    a += (i % rows)[:, None] * a_pitch + k[None, :]
    b += k[:, None] * b_pitch + (j % columns)[None, :]
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, depth, K):
        x = tl.load(a, mask=k[None, :] < depth - first, other=0.0)
        y = tl.load(b, mask=k[:, None] < depth - first, other=0.0)
        total = tl.dot(x, y, total)
        a += K
        b += K * b_pitch
    return i, j, total


@triton.autotune(TILES, key=["rows", "columns", "depth"])
@triton.jit
def mm_kernel(
    a, b, out, rows, columns, depth, a_pitch, b_pitch, a_batch, b_batch, out_batch,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    down, across = place_of(rows, columns, M, N, BAND)
    i, j, total = product(
        a + batch * a_batch, b + batch * b_batch, rows, columns, depth, a_pitch, b_pitch,
        down, across, M, N, K,
    )  # fmt: skip
    at = out + batch * out_batch + i[:, None] * columns + j[None, :]
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    tl.store(at, total.to(tl.float16), mask=inside)


def bmm(a, b):
    (batch, rows, depth), columns = a.shape, b.shape[2]
    out = torch.empty((batch, rows, columns), dtype=a.dtype, device=a.device)

    def grid(meta):
        return triton.cdiv(rows, meta["M"]) * triton.cdiv(columns, meta["N"]), batch

    mm_kernel[grid](
        a, b, out, rows, columns, depth, a.stride(1), b.stride(1),
        a.stride(0), b.stride(0), out.stride(0),
    )  # fmt: skip
    return out


def mm(a, b):
    return bmm(a[None], b[None])[0]


@triton.autotune(TILES, key=["rows", "columns", "depth"])
@triton.jit
def addmm_kernel(
    bias, a, b, out, rows, columns, depth, a_pitch, b_pitch, beta, alpha,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    down, across = place_of(rows, columns, M, N, BAND)
    i, j, total = product(a, b, rows, columns, depth, a_pitch, b_pitch, down, across, M, N, K)
    at = i[:, None] * columns + j[None, :]
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    total = alpha * total + beta * tl.load(bias + at, mask=inside).to(tl.float32)
    tl.store(out + at, total.to(tl.float16), mask=inside)


def addmm(bias, a, b, beta, alpha):
    (rows, depth), columns = a.shape, b.shape[1]
    out = torch.empty((rows, columns), dtype=a.dtype, device=a.device)

    def grid(meta):
        return (triton.cdiv(rows, meta["M"]) * triton.cdiv(columns, meta["N"]),)

    addmm_kernel[grid](bias, a, b, out, rows, columns, depth, a.stride(0), b.stride(0), beta, alpha)
    return out


@triton.autotune(TILES, key=["pixels", "filters", "channels"])
@triton.jit
def conv2d_kernel(
    image, w, out, pixels, filters, channels, high, wide, image_high, image_wide,
    R: tl.constexpr, S: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    down, across = place_of(pixels, filters, M, N, BAND)
    i, j, c = down * M + tl.arange(0, M), across * N + tl.arange(0, N), tl.arange(0, K)
    pixel = i % pixels
    corner = pixel // (high * wide) * image_high + pixel // wide % high
    corner = (corner * image_wide + pixel % wide) * channels
    taps = (j % filters)[None, :] * (R * S * channels)
    total = tl.zeros((M, N), tl.float32)
    runs = tl.cdiv(channels, K)
    for turn in range(R * S * runs):
        tap, first = turn // runs, turn % runs * K
        at = (tap // S * image_wide + tap % S) * channels + first
        inside = c < channels - first
        x = tl.load(image + (corner + at)[:, None] + c[None, :], mask=inside[None, :], other=0.0)
        row = tap * channels + first + c
        y = tl.load(w + taps + row[:, None], mask=inside[:, None], other=0.0)
        total = tl.dot(x, y, total)
    inside = (i[:, None] < pixels) & (j[None, :] < filters)
    tl.store(out + i[:, None] * filters + j[None, :], total.to(tl.float16), mask=inside)


def conv2d(image, w):
    """Channels are innermost: (N, H, W, C), (K, R, S, C)."""
    (batch, image_high, image_wide, channels), (filters, r, s, _) = image.shape, w.shape
    high, wide = image_high - r + 1, image_wide - s + 1
    out = torch.empty((batch, high, wide, filters), dtype=image.dtype, device=image.device)
    pixels = batch * high * wide

    def grid(meta):
        return (triton.cdiv(pixels, meta["M"]) * triton.cdiv(filters, meta["N"]),)

    conv2d_kernel[grid](
        image, w, out, pixels, filters, channels, high, wide, image_high, image_wide, r, s
    )
    return out


@triton.autotune(QUERIES, key=["length", "keys"])
@triton.jit
def sdpa_kernel(
    q, k, v, out, length, keys, factor, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64)
    i, n, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    at = head * length * D + i[:, None] * D + d[None, :]
    query = tl.load(q + at, mask=i[:, None] < length, other=0.0)
    k += head * keys * D + n[None, :] * D + d[:, None]
    v += head * keys * D + n[:, None] * D + d[None, :]
    peak = tl.full((M,), -float("inf"), tl.float32)
    total, mixed = tl.zeros((M,), tl.float32), tl.zeros((M, D), tl.float32)
    for first in range(0, keys, N):
        seen = n < keys - first
        scores = tl.dot(query, tl.load(k + first * D, mask=seen[None, :], other=0.0)) * factor
        scores = tl.where(seen[None, :], scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weight, less = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        total = total * less + tl.sum(weight, axis=1)
        values = tl.load(v + first * D, mask=seen[:, None], other=0.0)
        mixed = tl.dot(weight.to(tl.float16), values, mixed * less[:, None])
        peak = higher
    result = (mixed / total[:, None]).to(tl.float16)
    tl.store(out + at, result, mask=i[:, None] < length)


def sdpa(q, k, v):
    out, (batch, heads, length, depth) = torch.empty_like(q), q.shape
    factor = depth**-0.5 * 1.4426950408889634  # powers are powers of 2
    sdpa_kernel[lambda meta: (triton.cdiv(length, meta["M"]), batch * heads)](
        q, k, v, out, length, k.shape[2], factor, depth
    )
    return out
