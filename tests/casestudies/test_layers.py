"""The machine-learning cases beyond what all cases are tested for: references, hard inputs, what
goes through memory.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.attention import CASE as ATTENTION
from casestudies.attention.problem import SCORES, SOFT_CAP
from casestudies.attention.problem import Problem as Attention
from casestudies.common.data import decoded, random_inputs, relative_error
from casestudies.conv_layer import CASE as CONV_LAYER
from casestudies.conv_layer.problem import Problem as Layer
from selector.diagnostics import UserError

pytestmark = pytest.mark.verified


def test_conv_layer_reference_is_a_sum_over_windows() -> None:
    problem = Layer(2, 5, 6, 3, 4)
    inputs = decoded(problem, random_inputs(problem, 5, np), np)
    windows = np.lib.stride_tricks.sliding_window_view(inputs["I"], (3, 3), axis=(1, 2))
    expected = np.einsum("nyxcst,stcf->nyxf", windows, inputs["K"]) + inputs["bias"]
    truth = CONV_LAYER.reference(problem, inputs, np)
    np.testing.assert_allclose(truth, np.maximum(expected, 0), rtol=1e-11, atol=1e-12)
    assert (truth == 0).any()


def test_attention_reference_is_a_mean_of_values() -> None:
    problem = Attention(2, 7, 16)
    inputs = decoded(problem, random_inputs(problem, 6, np), np)
    q, k, v = (inputs[name] for name in "QKV")
    weights = np.exp(np.einsum("hmd,hnd->hmn", q, k) / 4)
    expected = np.einsum("hmn,hnd->hmd", weights, v) / weights.sum(-1)[..., None]
    np.testing.assert_allclose(ATTENTION.reference(problem, inputs, np), expected, rtol=1e-11)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_variants_are_what_their_names_say(score: str, causal: bool) -> None:
    """Query by query, as the names have it elsewhere."""
    problem = Attention(2, 5, 16, causal, score, scale=0.5)
    inputs = decoded(problem, ATTENTION.random(problem, 6, np), np)  # type: ignore[misc]
    truth = ATTENTION.reference(problem, inputs, np)
    q, k, v = (inputs[name] for name in "QKV")
    for h, m in np.ndindex(2, 5):
        keys = range(m + 1) if causal else range(5)
        s = np.array([q[h, m] @ k[h, n] / 2 for n in keys])
        match score:
            case "soft_cap":
                s = SOFT_CAP * np.tanh(s / SOFT_CAP)
            case "slopes":
                s = s + [inputs["slopes"][h] * (n - m) for n in keys]
            case "bias":
                s = s + inputs["bias"][h, m, : len(keys)]
            case _:
                pass
        weights = np.exp(s) / np.exp(s).sum()
        np.testing.assert_allclose(truth[h, m], weights @ v[h, : len(keys)], rtol=1e-11)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("length", [5, 64, 70])
def test_attention_with_scores_of_any_size(sign: int, length: int) -> None:
    """Scores near 500, whose exponentials no float holds, and near -500, where the keys that fill
    up the last run would win.
    """
    problem = Attention(1, length, 64)
    inputs = random_inputs(problem, 8, np)
    direction = np.full(64, 8.0, np.float16)
    inputs["Q"] = (direction + inputs["Q"] / 8).astype(np.float16)
    inputs["K"] = (sign * direction + inputs["K"] / 8).astype(np.float16)
    truth = ATTENTION.reference(problem, decoded(problem, inputs, np), np)
    kernel = hb.compile(ATTENTION.build(problem, "wgmma"), target="sm_90a")
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    assert relative_error(result, truth, np) < 2e-3


@pytest.mark.parametrize("name", ["mma", "wgmma"])
def test_scores_and_weights_stay_in_registers(name: str) -> None:
    """One kernel; rows are numbers of their lanes, weights the operand of the next product."""
    problem = Attention(1, 1, 64)
    source = hb.compile(ATTENTION.build(problem, name), target="sm_90a").source
    (kernel,) = source.split("__global__")[1:]
    assert re.search(r"__shfl_xor_sync", kernel)
    assert not re.search(r"\(smem \+ \d+[^)]*\);.*\b(scores|peak|total|weight)\b", source)
    held = (
        r"mma_\w+\(mixed\w*\[\d+\], weight\[\d+\]"
        if name == "mma"
        else (r"wgmma_m64n64k16_f16_f32_rt\(mixed, weight\[\d+\]")
    )
    assert re.search(held, kernel)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layer(1, 4, 4, 0, 8), "0 to 8 channels, is not a size"),
        (lambda: Attention(1, 0, 64), "1 heads of 0 x 64 is not a size"),
        (lambda: Attention(1, 8, 0), "1 heads of 8 x 0 is not a size"),
        (lambda: Attention(1, 8, 64, score="alibi"), "attention has no score 'alibi'"),
    ],
)
def test_impossible_sizes_say_so(make: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()  # type: ignore[operator]


def test_options() -> None:
    assert CONV_LAYER.options({}) == Layer(4096, 64, 64, 16, 16)
    assert CONV_LAYER.options({"size": (7, 5), "batch": 3, "channels": 8, "filters": 24}) == Layer(
        3, 5, 7, 8, 24
    )
    assert CONV_LAYER.options({"size": (7, 5, 2)}) == Layer(2, 5, 7, 16, 16)
    assert ATTENTION.options({"size": (9,)}) == Attention(64, 9, 64)
    assert ATTENTION.options({"size": (9, 2)}) == Attention(2, 9, 64)
    assert ATTENTION.options({}) == Attention(64, 4096, 64)
    assert ATTENTION.options({"heads": 2, "length": 17, "depth": 128}) == Attention(2, 17, 128)
    assert ATTENTION.options({"score": "bias", "scale": 0.5, "causal": 1}) == Attention(
        64, 4096, 64, True, "bias", 0.5
    )
