"""Vector stores of a thread to an intermediate: which leave as 16 bytes, and what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb

F16, S8 = hl.Float(16), hl.Int(8)


def copied(
    source: Callable[[hl.ImageParam, hl.Var, hl.Var], hl.Expr],
    element: hl.Type = F16,
    lanes: int = 8,
    padded: int = 8,
) -> Any:
    """A kernel that makes an intermediate, ``lanes`` of a row a thread, and one that adds 1."""
    x, y, xo, yo, xi, yi, xv = (hl.Var(name) for name in ("x", "y", "xo", "yo", "xi", "yi", "xv"))
    image, copy, out = hl.ImageParam(element, 2, "I"), hl.Func("copy"), hl.Func("out")
    copy[x, y] = source(image, x, y)
    out[x, y] = copy[x, y] + hl.cast(element, 1)
    copy.compute_root().align_storage(x, padded)
    copy.tile(x, y, xo, yo, xi, yi, 8 * lanes, 4).split(xi, xi, xv, lanes)
    copy.vectorize(xv).gpu_threads(xi, yi).gpu_blocks(xo, yo)
    out.tile(x, y, xo, yo, xi, yi, 32, 4).gpu_threads(xi, yi).gpu_blocks(xo, yo)
    return hb.compile(out, target="sm_80")


def shifted(image: hl.ImageParam, x: hl.Var, y: hl.Var) -> hl.Expr:
    return image[x, y]


def across(image: hl.ImageParam, x: hl.Var, y: hl.Var) -> hl.Expr:
    return image[y, x]


def doubled(image: hl.ImageParam, x: hl.Var, y: hl.Var) -> hl.Expr:
    return image[x, y] + image[x, y]


@pytest.mark.parametrize(
    ("source", "element", "lanes", "wide", "moved"),
    [
        (shifted, F16, 8, True, True),
        (shifted, S8, 32, True, True),
        (across, S8, 16, True, False),
        (doubled, F16, 8, True, False),
        (shifted, F16, 4, False, False),  # 8 bytes
    ],
)
def test_runs_of_16_bytes(
    source: Any, element: hl.Type, lanes: int, wide: bool, moved: bool
) -> None:
    kernel = copied(source, element, lanes)
    assert ("*(uint4*)" in kernel.source) == wide
    assert ("load_shifted" in kernel.source) == moved
    rng = np.random.default_rng(2)
    data = rng.integers(-50, 50, (37, 37)).astype(np.float16 if element == F16 else np.int8)
    result = kernel.interpret(I=data, sizes=(37, 37))
    expected = {across: data.T, doubled: data + data}.get(source, data) + data.dtype.type(1)
    assert (result == expected).all()


@pytest.mark.nvrtc
@pytest.mark.parametrize("source", [shifted, across])
def test_machine_code(source: Any) -> None:
    from selector.runtime.nvrtc import resource_usage, sass

    kernel = copied(source)
    texts = list(sass(kernel.cubin()).values())
    assert sum("STG.E.128" in text for text in texts) == 1
    assert not any(usage.local_accesses for usage in resource_usage(kernel.cubin()).values())


def test_outputs_may_start_anywhere() -> None:
    """What is not known of the address of an array of the call, a flag says."""
    x, y, xo, xi, xv = (hl.Var(name) for name in ("x", "y", "xo", "xi", "xv"))
    image, out = hl.ImageParam(F16, 2, "I"), hl.Func("out")
    out[x, y] = image[x, y]
    out.split(x, xo, xi, 256).split(xi, xi, xv, 8).vectorize(xv).gpu_threads(xi).gpu_blocks(xo, y)
    source = hb.compile(out, target="sm_80").source
    assert "load_shifted" not in source
    assert source.index("if (aligned_out_16)") < source.index("*(uint4*)(out")
