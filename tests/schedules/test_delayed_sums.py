"""Sums of what lies side by side for neighbouring results, at places that data move and clamps hold
inside: threads go along the results, not along the sum.
"""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from plain_emulated import emulated
from plain_pipelines import F32, I32, Plain, floats

pytestmark = pytest.mark.verified("tests/emulation")


def beams() -> Plain:
    """Signals that are delayed by direction, and added up."""
    signals, delays = hl.ImageParam(F32, 2, "signals"), hl.ImageParam(I32, 2, "delays")
    weights, out = hl.ImageParam(F32, 1, "weights"), hl.Func("out")
    t, beam, r = hl.Var("t"), hl.Var("beam"), hl.RDom([(0, signals.height())])
    at = hl.clamp(t + delays[r, beam], 0, signals.width() - 1)
    out[t, beam] = hl.f32(0)
    out[t, beam] += weights[r] * signals[at, r]
    shifts = np.random.default_rng(1).integers(-9, 9, (5, 16)).astype(np.int32)
    arrays = [(signals, floats(16, 301)), (delays, shifts), (weights, floats(16, seed=2))]
    return Plain(out, arrays, (5, 301), 1e-5)


def test_threads_go_along_time() -> None:
    assert "out: in a kernel of its own, 32 x 8 threads" in emulated(beams)[0].report
