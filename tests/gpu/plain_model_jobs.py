"""Jobs (``plain_jobs``) of matrices' rows and columns, and of parts of models."""

from __future__ import annotations

from typing import Any

import torch
from plain_jobs import F16, F32, I32, Job, one
from torch.nn import functional

S8 = torch.int8
ROWS, ODD, TOKENS = (8192, 4096), (16384, 1001), (8192, 4096)


def over_rms(tokens: Any, scale: Any) -> Any:
    v = tokens if tokens.dtype == torch.float64 else tokens.float()
    return (v / (v * v).mean(1, keepdim=True).add(1e-5).sqrt() * scale).to(tokens.dtype)


def norm_of_a_sum(own: Any, skipped: Any, scale: Any, shift: Any) -> Any:
    return functional.layer_norm(own + skipped, own.shape[1:], scale, shift, 1e-5)


def entropy(logits: Any, wanted: Any) -> Any:
    kind = torch.promote_types(logits.dtype, F32)
    at = wanted.long().clamp(0, logits.shape[1] - 1)
    return functional.cross_entropy(logits.to(kind), at, reduction="none")


def spread(table: Any) -> Any:
    variance, mean = torch.var_mean(table, 0, correction=0)
    return mean, variance


def gelu(v: Any, b: Any, s: Any) -> Any:
    return functional.gelu(v + b, approximate="tanh") + s


def gated(both: Any) -> Any:
    gate, value = both.chunk(2, 1)
    return functional.silu(gate) * value


def turned(a: Any, sin: Any, cos: Any) -> Any:
    (re, im), (s, c) = a.chunk(2, -1), (sin[:, None], cos[:, None])
    return torch.cat((re * c - im * s, re * s + im * c), -1)


def mlp(tokens: Any, up: Any, down: Any, b1: Any, b2: Any) -> Any:
    hidden = functional.gelu(functional.linear(tokens, up, b1), approximate="tanh")
    return functional.linear(hidden, down, b2)


def quantised(tokens: Any, weights: Any, scale: Any) -> Any:
    if scale.dtype == torch.float64:
        sums = tokens.double() @ weights.double().t()
    else:
        sums = torch._int_mm(tokens, weights.t())
    return (sums * scale).round().clamp(-128, 127).to(S8)


def power(signal: Any, cos: Any, sin: Any) -> Any:
    if signal.dtype == F16:
        re, im = (torch.mm(signal, m, out_dtype=F32) for m in (cos, sin))
    else:
        re, im = signal @ cos, signal @ sin
    return re * re + im * im


def nearest(points: Any, centres: Any) -> Any:
    return torch.cdist(points, centres).argmin(1).int()


def k_means(points: Any, centres: Any) -> Any:
    label = torch.cdist(points, centres).argmin(1)
    sums = torch.zeros_like(centres).index_add_(0, label, points)
    count = torch.bincount(label, minlength=16).clamp(min=1)
    return sums / count[:, None]


def softmax_of(name: str, pipeline: str, shape: tuple[int, int], kind: torch.dtype) -> Job:
    error = 1e-5 if kind == F32 else 1e-3
    return Job(name, pipeline, {"scores": (shape, kind)}, one(shape, kind),
               lambda scores: torch.softmax(scores, 1), error, largest=9.0,
               triton="softmax")  # fmt: skip


MODELS = [
    softmax_of("softmax of 4096", "softmax", (4096, 4096), F32),
    softmax_of("softmax of 1001", "softmax", ODD, F32),
    softmax_of("softmax of 4096, 16 bits", "softmax_of_halves", (4096, 4096), F16),
    softmax_of("softmax of 1001, 16 bits", "softmax_of_halves", (30000, 1001), F16),
    Job("log-softmax of 50257", "log_softmax", {"logits": ((1024, 50257), F16)},
        one((1024, 50257), F16), lambda v: torch.log_softmax(v, 1), 1e-3, largest=9.0,
        triton="log_softmax"),
    Job("RMS norm of 4096", "rms_norm", {"tokens": (TOKENS, F16), "scale": ((4096,), F32)},
        one(TOKENS, F16), over_rms, 1e-3, triton="rms_norm"),
    Job("RMS norm of 1001", "rms_norm", {"tokens": (ODD, F16), "scale": ((1001,), F32)},
        one(ODD, F16), over_rms, 1e-3, triton="rms_norm"),
    Job("layer norm of a sum", "norm_of_a_sum",
        {"own": ((16384, 1024), F16), "skipped": ((16384, 1024), F16), "scale": ((1024,), F16),
         "shift": ((1024,), F16)}, one((16384, 1024), F16), norm_of_a_sum, 2e-3,
        triton="norm_of_a_sum"),
    Job("layer norm of a sum, 768", "norm_of_a_sum",
        {"own": ((32768, 768), F16), "skipped": ((32768, 768), F16), "scale": ((768,), F16),
         "shift": ((768,), F16)}, one((32768, 768), F16), norm_of_a_sum, 2e-3,
        triton="norm_of_a_sum"),
    Job("cross entropy of 32000", "cross_entropy",
        {"logits": ((4096, 32000), F16), "wanted": ((4096,), I32)}, one((4096,), F32), entropy,
        1e-3, triton="cross_entropy"),
    Job("least of rows", "least_of_rows", {"table": (ROWS, F32)}, one((8192,), I32),
        lambda table: table.argmin(1).int(), 0, triton="least_of_rows"),
    Job("spread of columns", "spread_of_columns", {"table": (ROWS, F32)},
        dict.fromkeys(("mean", "variance"), ((4096,), F32)), spread, 1e-4),
    Job("running sums of rows", "running_sums", {"table": ((4096, 4096), F32)},
        one((4096, 4096), F32), lambda table: table.cumsum(1), 1e-4),
    Job("GELU with bias and residual", "biased_gelu",
        {"v": (TOKENS, F16), "b": ((4096,), F16), "s": (TOKENS, F16)}, one(TOKENS, F16), gelu,
        2e-3, triton="biased_gelu"),
    Job("SwiGLU", "gated", {"both": ((4096, 2 * 11008), F16)}, one((4096, 11008), F16), gated, 2e-3,
        triton="gated"),
    Job("rotary positions", "turned_heads",
        {"a": ((4, 1024, 48, 64), F16), "sin": ((1024, 32), F16), "cos": ((1024, 32), F16)},
        one((4, 1024, 48, 64), F16), turned, 2e-3, triton="turned"),
    Job("attention", "attention", dict.fromkeys(("q", "keys", "values"), ((4, 16, 2048, 64), F16)),
        one((4, 16, 2048, 64), F16),
        lambda *a: functional.scaled_dot_product_attention(*a), 2e-3),
    Job("MLP", "mlp",
        {"tokens": ((4096, 1024), F16), "up": ((4096, 1024), F16), "down": ((1024, 4096), F16),
         "b1": ((4096,), F16), "b2": ((1024,), F16)}, one((4096, 1024), F16), mlp, 5e-3,
        largest=0.05),
    Job("quantised layer", "quantised_layer",
        {"tokens": ((4096, 2048), S8), "weights": ((2048, 2048), S8), "scale": ((2048,), F32)},
        one((4096, 2048), S8), quantised, 1,
        largest=2e-4),
    Job("power spectrum by matrices", "power_spectrum",
        {"signal": ((16384, 512), F16), "cos": ((512, 512), F16), "sin": ((512, 512), F16)},
        one((16384, 512), F32), power, 2e-3),
    Job("nearest of 256 centres", "nearest_centroid",
        {"points": ((1 << 18, 7), F32), "centres": ((256, 7), F32)}, one((1 << 18,), I32), nearest,
        0, astray=1e-4),
    Job("k-means step", "k_means_step",
        {"points": ((1 << 20, 8), F32), "centres": ((16, 8), F32)}, one((16, 8), F32), k_means,
        1e-3),
]  # fmt: skip
