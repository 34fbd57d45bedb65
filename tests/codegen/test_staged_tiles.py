"""What is computed on an accumulator with more than itself: a staged matrix, the place of an
element, a function of f16's accuracy. Variants of attention have all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import halide as hl
import pytest
from verified import MACHINE_CODE, Verified, nvrtc_inputs

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.attention import CASE
from casestudies.attention.algorithm import Variant, attend
from casestudies.attention.problem import SCORES, Problem
from halide_bridge.schedules import schedule_attention
from selector.families.attention import Tiling
from selector.gpu.codegen.warpgroups.iterations import read_by_threads
from selector.ir.nodes import IntImm, Load, Store, Var
from selector.ir.types import FLOAT16
from selector.runtime import nvrtc


def source(score: str, *, causal: bool = False, target: str = "sm_90a") -> str:
    problem = Problem(1, 64, 64, causal, score)
    return hb.compile(CASE.scheduled(problem, "tensor", target), target=target).source


def test_a_staged_matrix_comes_as_boxes_and_is_read_in_pairs() -> None:
    """One word for two elements: 32 elements of a lane are 16 words, and no element is read from
    global memory.
    """
    text = source("bias")
    assert "tensor_copy3(shared_address((all_bias_in_scores_peak" in text
    loop = text[text.index("_fresh(scores_peak") :]
    words = re.findall(r"half_of\((pair_in_panels<.*?>\(.*?\)), ([01])\)", loop)
    assert len(words) == 32
    assert {odd for _, odd in words} == {"0", "1"}
    assert len({word for word, _ in words}) == 16
    assert not re.search(r"\bbias\[", loop)


def test_the_report_says_what_is_computed_in_place() -> None:
    problem = Problem(1, 64, 64, score="bias")
    report = hb.compile(CASE.scheduled(problem, "tensor", "sm_90a"), target="sm_90a").report
    (entry,) = (s for s in report.statements if s.stage == "apply")
    assert "each element of the tile, where it lies" in entry.text()
    assert entry.where.func == "scores_peak"
    assert not entry.miss


def test_warps_read_a_staged_matrix_in_pairs_as_well() -> None:
    text = source("bias", target="sm_80")
    words = re.findall(r"half_of\((pair_at\(.*?\)), [01]\)", text)
    assert words
    assert len(set(words)) == len(words) / 2


def test_places_are_converted_once() -> None:
    """64 distances of a lane, four statements of 32 columns: four conversions."""
    text = source("slopes")
    loop = text[text.rindex("_fresh(scores_peak") :]  # behind the first iteration
    scores = re.findall(r"scores_peak\[\d+\]\[\d\] = .*?;", loop)
    assert len(scores) >= 64
    assert not any("(float)" in s for s in scores)
    assert len(re.findall(r"const float place\w* = step\w* \* \(float\)", loop)) == 2
    steps = re.findall(r"scores_peak\[1\]\[\d\] = .*?place\w*(?: \+ step\w* \* )?(.*?)\)?;", loop)
    assert steps[:4] == ["8.0f", "9.0f", "", "1.0f"]


def of_places(number: Callable[[hl.Expr], hl.Expr]) -> str:
    """With the root of a place added to a score."""

    def score(s: hl.Expr, n: hl.Expr, m: hl.Expr, h: hl.Expr) -> hl.Expr:
        return s + hl.sqrt(number(n + 3 * m))

    tiles = Tiling(2, 64, 64, 2, 64, groups=True)
    pipeline = schedule_attention(attend(64, run=64, variant=Variant(score)), tiles)
    return hb.compile(pipeline, target="sm_90a").source


def test_places_alone_are_added_to() -> None:
    steps = re.findall(r"sqrtf\(place\w*(?: \+ )?([\d.]*f?)\)", of_places(hl.f32))
    assert steps[4:8] == ["8.0f", "9.0f", "32.0f", "33.0f"]


def test_unsigned_places_wrap_around() -> None:
    text = of_places(lambda place: hl.f32(hl.cast(hl.UInt(32), place)))
    assert "sqrtf(" in text
    assert "sqrtf((place" not in text


@pytest.mark.parametrize("rounded", [False, True])
def test_the_tangent_is_approximate_where_it_is_rounded_anyway(rounded: bool) -> None:
    """Rounded to f16 and widened again: not more is lost. Else all of f32."""
    x = hl.Var("x")
    source, output = hl.ImageParam(hl.Float(32), 1, "I"), hl.Func("output")
    value = hl.tanh(source[x])
    output[x] = hl.f32(hl.cast(hl.Float(16), value)) if rounded else value
    xo, xi = hl.Var("xo"), hl.Var("xi")
    output.gpu_tile(x, xo, xi, 64)
    text = hb.compile(output, target="sm_80").source
    assert ("tanh_approximate(" in text) == rounded
    assert ("tanhf(" in text) == (not rounded)


def test_threads_that_read_a_slot() -> None:
    """A store that loads what is staged, and no product, is one by threads."""
    load = Load(FLOAT16, "staged", Var("x"))
    assert read_by_threads([Store("other", IntImm(0), load)], {"staged"})
    assert not read_by_threads([Store("other", IntImm(0), load)], {"others"})


@pytest.mark.slow
@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("score", SCORES[1:])
@pytest.mark.parametrize("causal", [False, True])
def test_variants_take_no_local_memory(
    score: str, depth: int, causal: bool, verified: Verified
) -> None:
    problem = Problem(1, 64, depth, causal, score)
    kernel = hb.compile(CASE.scheduled(problem, "tensor", "sm_90a"), target="sm_90a")
    if verified(*nvrtc_inputs(kernel)):
        return
    (usage,) = nvrtc.resource_usage(kernel.cubin()).values()
    assert not usage.local_accesses
    assert not usage.stack_bytes
