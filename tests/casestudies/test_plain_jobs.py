"""The jobs of the sweep without a schedule: what they compute is what their references say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import halide_bridge as hb
from casestudies.common.case import Problem
from casestudies.common.data import case_inputs, decoded, poisoned, relative_error
from casestudies.common.registry import find_case, problem_type

pytestmark = pytest.mark.verified("casestudies/plain")

CONV = {"types": "f16-f16", "batch": 2, "height": 9, "width": 7}
GROUPED = CONV | {"taps": 3, "stride": 1, "groups": 3, "width_of_group": 4}
PICTURE = {"width": 37, "height": 21, "boundary": "repeat", "planes": "one"}
SMALL: list[tuple[str, dict[str, Any]]] = [
    ("filter", PICTURE | {"types": "f16-f16", "kernel": "5 square"}),
    ("filter", PICTURE | {"types": "f16-f32", "kernel": "9 separable", "boundary": "mirror"}),
    ("filter", PICTURE | {"types": "u8-f16", "kernel": "3 square", "boundary": "wrap"}),
    ("filter", PICTURE | {"types": "f16-u8", "kernel": "5 square", "planes": "three planar"}),
    ("filter", PICTURE | {"types": "u8-u8", "kernel": "5 square", "planes": "three interleaved"}),
    ("filter", PICTURE | {"types": "f16-f16", "kernel": "5 square", "boundary": "zero"}),
    ("depthwise", CONV | {"layout": "NHWC", "taps": 3, "stride": 1, "channels": 6}),
    ("depthwise", CONV | {"layout": "NCHW", "taps": 5, "stride": 2, "channels": 6}),
    ("depthwise", GROUPED | {"layout": "NHWC"}),
    ("depthwise", GROUPED | {"layout": "NCHW"}),
    ("layer", CONV | {"layout": "NCHW", "taps": 3, "stride": 1, "channels": 16, "filters": 24}),
    ("layer", CONV | {"layout": "NCHW", "taps": 7, "stride": 2, "channels": 3, "filters": 8}),
    ("layer", CONV | {"layout": "NCHW", "taps": 1, "stride": 1, "channels": 16, "filters": 24}),
    ("layer", CONV | {"layout": "NCHW", "taps": 1, "stride": 2, "channels": 16, "filters": 24}),
    (
        "layer",
        CONV
        | {"layout": "NCHW", "taps": 3, "stride": 1, "channels": 16, "filters": 16, "dilation": 2}
        | {"residual": True},
    ),
    (
        "layer",
        CONV
        | {"layout": "NHWC", "taps": 3, "stride": 1, "channels": 16, "filters": 24}
        | {"types": "s8-s8"},
    ),
    (
        "layer",
        CONV
        | {"layout": "NCHW", "taps": 4, "stride": 2, "channels": 16, "filters": 8}
        | {"height": 12, "width": 10, "transposed": True},
    ),
    (
        "layer",
        CONV
        | {"layout": "NHWC", "taps": 4, "stride": 2, "channels": 16, "filters": 8}
        | {"height": 12, "width": 10, "transposed": True},
    ),
    *(
        ("attention", {"types": "f16-f16", "heads": 2, "length": 70, "depth": 32} | fields)
        for fields in (
            {},
            {"types": "bf16-bf16", "causal": True},
            {"sharing": 2, "length": 3, "keys": 200},
            {"causal": True, "window": 20},
            {"score": "bias"},
            {"score": "soft_cap"},
            {"score": "slopes", "causal": True},
        )
    ),
    ("lengths", {"sequences": 3, "shortest": 0, "longest": 70, "heads": 2, "depth": 32}),
    ("block_mask", {"heads": 2, "length": 300, "depth": 32, "kept": 0.4, "types": "bf16-bf16"}),
    ("rows", {"types": "f16-f16", "function": "softmax", "rows": 5, "columns": 67}),
    ("rows", {"types": "bf16-bf16", "function": "RMSNorm", "rows": 5, "columns": 67}),
    ("rows", {"types": "f16-f16", "function": "LayerNorm and residual", "rows": 5, "columns": 67}),
    ("scan", {"types": "f16-f16", "filter": "order 1", "signals": 3, "samples": 301}),
    ("scan", {"types": "f32-f32", "filter": "order 2", "signals": 1, "samples": 2301}),
    ("scan", {"types": "f32-f32", "filter": "order 4", "signals": 2, "samples": 301}),
    ("scan", {"types": "f16-f16", "filter": "biquads 4", "signals": 2, "samples": 301}),
    ("bank", {"types": "f16-f32", "filters": 5, "taps": 16, "samples": 301}),
    ("bank", {"types": "f16-f32", "points": 16, "rows": 33}),
    ("dct", {"planes": "three interleaved", "tile": 8, "width": 37, "height": 21}),
    ("dct", {"planes": "three interleaved", "tile": 16, "width": 37, "height": 21}),
    *(
        (
            "resize",
            {"planes": "three interleaved", "width": 37, "height": 21}
            | {"types": types, "filter": name, "to_width": wide, "to_height": high},
        )
        for types, name, wide, high in (
            ("f16-f16", "Lanczos-3", 19, 9),
            ("u8-u8", "bicubic", 50, 40),
            ("f16-f16", "area", 12, 7),
        )
    ),
]


def instance(name: str, fields: dict[str, Any]) -> Problem:
    problem: Problem = problem_type(f"plain.{name}")(**fields)
    return problem


def label(value: Any) -> str:
    return value if isinstance(value, str) else "-".join(str(v) for v in value.values())


@pytest.mark.filterwarnings("ignore::selector.diagnostics.PerformanceWarning")
@pytest.mark.parametrize(("name", "fields"), SMALL, ids=label)
def test_a_job_is_what_its_reference_says(name: str, fields: dict[str, Any]) -> None:
    case, problem = find_case(f"plain.{name}"), instance(name, fields)
    assert case.plain is not None
    inputs = case_inputs(case, problem, 7, np)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    kernel = hb.compile(case.plain(problem), target="sm_90a", schedule="auto", sizes={
        spec.name: spec.shape for spec in (*problem.inputs, problem.output)
    })  # fmt: skip
    found = poisoned(problem.output, np)
    found[...] = kernel.interpret(**inputs, sizes=problem.output.shape)
    assert relative_error(found, truth, np) <= case.tolerance[problem.output.element]
