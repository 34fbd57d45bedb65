"""The case studies over Dask arrays: tensor instructions, edges, colour planes, layers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import halide_bridge as hb
from casestudies.common.registry import find_case

da = pytest.importorskip("dask.array")
from selector.dask import apply  # noqa: E402

CASES: tuple[tuple[str, dict[str, Any], tuple[Any, ...]], ...] = (
    ("conv1d", {"width": 700, "height": 9, "taps": 16}, (4, 300)),
    ("conv1d", {"width": 700, "height": 9, "taps": 64, "boundary": "zero"}, ((1, 8), 150)),
    ("conv1d", {"width": 700, "height": 9, "taps": 16, "boundary": "clamp"}, (9, (1, 600, 99))),
    ("conv2d", {"width": 300, "height": 50, "taps": 8}, (30, 170)),
    ("conv2d", {"width": 300, "height": 50, "taps": 8, "boundary": "clamp"}, (30, 170)),
    ("downsample", {"width": 150, "height": 140, "taps": 8}, (100, 200)),
    ("upsample", {"width": 301, "height": 140, "taps": 8}, (30, 100)),
    ("upsample", {"width": 301, "height": 140, "taps": 8, "boundary": "zero"}, (30, 100)),
    ("dct_denoise", {"width": 150, "height": 70, "planes": 3}, ((1, 2), 33, 100)),
    (
        "conv_layer",
        {"batch": 2, "height": 5, "width": 140, "channels": 16, "filters": 16},
        (1, 3, 100, -1),
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sizes", "chunks"), CASES, ids=lambda v: str(v)[:24])
def test_a_case_in_blocks(name: str, sizes: dict[str, Any], chunks: tuple[Any, ...]) -> None:
    case = find_case(name)
    problem = importlib.import_module(f"casestudies.{name}.problem").Problem(**sizes)
    output = case.scheduled(problem, "tensor", "sm_80")
    kernel = hb.compile(output, target="sm_80", name="output")
    rng = np.random.default_rng(1)
    arrays = {
        s.name: rng.standard_normal(s.shape).astype(s.dtype)
        for s in problem.inputs
    }  # fmt: skip
    shape = problem.output.shape
    whole = kernel.interpret(sizes=shape, **arrays)
    image = next(n for n in ("I", "X") if n in arrays)
    arrays[image] = da.from_array(arrays[image], chunks=chunks)
    blocks = apply(kernel, sizes=shape, interpret=True, **arrays)
    assert blocks.npartitions > 1
    np.testing.assert_array_equal(blocks.compute(scheduler="sync"), whole, strict=True)
