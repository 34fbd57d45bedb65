"""What a row reads again after a certain number of elements is read once, by one thread."""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from casestudies.ten_tasks.algorithm import rope

x, y, z, w = (hl.Var(name) for name in "xyzw")


def repeated(length: int | None, turn: int) -> hl.Func:
    a, out = hl.ImageParam(hl.Float(32), 2, "a"), hl.Func("out")
    out[x, y] = a[x % turn, y] * hl.f32(x)
    if length is not None:
        out.bound(x, 0, length)
    return out


@pytest.mark.parametrize(
    ("length", "turn", "fires"),
    [(64, 32, True), (48, 16, True), (64, 24, False), (512, 16, False), (None, 32, False)],
)
def test_a_few_turns_of_a_known_length_are_of_one_thread(
    length: int | None, turn: int, fires: bool
) -> None:
    report = hb.autoschedule(repeated(length, turn), target="sm_80").report
    assert (f"neighbours each in every {turn}" in report) == fires
    kernel = hb.compile(repeated(length, turn), target="sm_80", schedule="auto")
    data = np.random.default_rng(1).random((11, turn), dtype=np.float32)
    shape = (11, length or 50)
    wanted = data[:, np.arange(shape[1]) % turn] * np.arange(shape[1])
    assert np.allclose(kernel.interpret(a=data, sizes=shape), wanted, rtol=1e-6)


@EMULATED
@pytest.mark.parametrize("size", [(2, 7, 3, 64), (1, 5, 33, 64)])
def test_rotated_halves(size: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    _, length, _, depth = size
    a = rng.standard_normal(size).astype(np.float16)
    sin, cos = (rng.random((length, depth // 2)).astype(np.float16) for _ in range(2))
    kernel = hb.compile(rope(), target="sm_90a", schedule="auto")
    assert "floor_div" not in kernel.source  # a block knows its row
    found: Any = check(kernel, input=a, sin=sin, cos=cos, sizes=size)
    v, s, t = a.astype(float), sin.astype(float)[:, None], cos.astype(float)[:, None]
    re, im = v[..., : depth // 2], v[..., depth // 2 :]
    wanted = np.concatenate([re * t - im * s, re * s + im * t], -1)
    assert np.allclose(found, wanted, atol=4e-3)
