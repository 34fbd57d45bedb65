"""Blocks that stay: the next tile's queries wait for those that read the last one's."""

from __future__ import annotations

import re

import numpy as np
import pytest

import halide_bridge as hb
from casestudies.attention import build
from casestudies.attention.problem import Problem
from emulation import run
from emulation.launch import ORDERS
from emulation.problems import Fault

pytestmark = [pytest.mark.gcc, pytest.mark.verified]
PROBLEM = Problem(4, 500, 64)  # several tiles a block


def test_turns_of_attention_wait_for_each_other() -> None:
    kernel = hb.compile(hb.persistent(build(PROBLEM, "wgmma"), 1), target="sm_90a")
    rng, shape = np.random.default_rng(3), (PROBLEM.heads, PROBLEM.length, PROBLEM.depth)
    arrays = {name: rng.standard_normal(shape).astype(np.float16) for name in "QKV"}
    q, k, v = (arrays[name].astype(np.float64) for name in "QKV")
    weights = np.exp(np.einsum("hqd,hkd->hqk", q, k) / PROBLEM.depth**0.5)
    truth = weights @ v / weights.sum(-1, keepdims=True)

    def error(source: str, order: int) -> float:
        found = run(kernel, sizes=shape, order=order, source=source, **arrays)
        return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))

    def is_right(source: str) -> bool:
        try:
            return all(error(source, order) < 1e-3 for order in ORDERS)
        except Fault:  # a barrier that is arrived at too often, or that nobody meets
            return False

    source = kernel.plan.source
    assert is_right(source)
    waits = list(re.finditer(r"barrier_await\(tile_(free|full), [^;]*;", source))
    # Free before threads copy and before the copy engine is asked, full before what multiplies.
    assert [w[1] for w in waits] == ["free", "free", "full"]
    for found in waits[1:]:  # each is needed where there are maps
        assert not is_right(source[: found.start()] + ";" + source[found.end() :])
