"""Attention with another score, under the schedule of the plain one: numbers from memory, a soft
cap of them, with and without a causal mask, for warps and for warpgroups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from verified import INTERPRETED, MACHINE_CODE, Verified, nvrtc_inputs, text_of

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb
from casestudies.attention.algorithm import Score, Variant, attend
from halide_bridge.schedules import schedule_attention
from selector.families.attention import Tiling

TILES = {"sm_80": Tiling(), "sm_90a": Tiling(2, 64, 64, 2, 64, groups=True)}
CAP = 3.0


def scored(name: str) -> Score:
    """Of ``bias`` (keys, queries, heads) or ``slopes`` (heads); keys past the last have the last
    one's bias, which does not count."""
    bias, slopes = hl.ImageParam(hl.Float(16), 3, "bias"), hl.ImageParam(hl.Float(32), 1, "slopes")

    def score(s: hl.Expr, n: hl.Expr, m: hl.Expr, h: hl.Expr) -> hl.Expr:
        cap, last = hl.f32(CAP), bias.dim(0).extent() - 1
        capped = hl.tanh(s / cap) * cap
        match name:
            case "matrix":
                return s + hl.f32(bias[hl.min(n, last), m, h])
            case "slopes":
                return s + slopes[h] * hl.f32(n - m)
            case "cap":
                return capped
            case _:
                return capped + hl.f32(bias[hl.min(n, last), m, h])

    return score


def truth(name: str, arrays: dict[str, np.ndarray], *, causal: bool) -> np.ndarray:
    q, k, v, bias, slopes = (
        arrays[x].astype(np.float64) for x in ("Q", "K", "V", "bias", "slopes")
    )
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    n, m = np.arange(k.shape[1])[None], np.arange(q.shape[1])[:, None]
    if name in ("cap", "cap and matrix"):
        scores = np.tanh(scores / CAP) * CAP
    if name in ("matrix", "cap and matrix"):
        scores = scores + bias
    if name == "slopes":
        scores = scores + slopes[:, None, None] * (n - m)
    if causal:
        scores = np.where(n <= m, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def compiled(name: str, target: str, *, causal: bool) -> Any:
    tiles = TILES[target]
    pipeline = attend(64, causal=causal, run=tiles.keys, variant=Variant(scored(name)))
    return hb.compile(schedule_attention(pipeline, tiles), target=target)


@INTERPRETED
@pytest.mark.parametrize("target", TILES)
@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("name", ["matrix", "slopes", "cap", "cap and matrix"])
def test_other_scores_are_right(name: str, causal: bool, target: str, verified: Verified) -> None:
    kernel = compiled(name, target, causal=causal)
    assert not kernel.report.misses
    assert ("wgmma" in kernel.source) == (target == "sm_90a")
    if verified(str(kernel.module), text_of(kernel)):
        return
    random = np.random.default_rng(5)
    read = {"matrix": ("bias",), "slopes": ("slopes",), "cap": (), "cap and matrix": ("bias",)}
    for length in (77, 130, 1):
        arrays: dict[str, np.ndarray] = {
            x: random.standard_normal((2, length, 64)).astype(np.float16) for x in "QKV"
        }
        arrays["bias"] = random.standard_normal((2, length, length)).astype(np.float16)
        arrays["slopes"] = np.array([0.1, -0.3], np.float32)
        passed = {x: arrays[x] for x in ("Q", "K", "V", *read[name])}
        result = kernel.interpret(**passed, sizes=(2, length, 64))
        expected = truth(name, arrays, causal=causal)
        assert np.linalg.norm(result - expected) / np.linalg.norm(expected) < 5e-4


@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize("target", TILES)
def test_a_matrix_takes_no_local_memory(target: str, verified: Verified) -> None:
    from selector.runtime.nvrtc import resource_usage

    kernel = compiled("matrix", target, causal=True)
    if verified(*nvrtc_inputs(kernel)):
        return
    (usage,) = resource_usage(kernel.cubin()).values()
    assert not usage.local_accesses
