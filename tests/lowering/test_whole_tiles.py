"""Masks of ragged tiles: whole tiles do without, and both ways give the same."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.attention.algorithm import attend
from casestudies.attention.schedule import Tiles, tensor
from selector.eqsat.select import select
from selector.ir import parser
from selector.ir.interpreter import interpret
from selector.ir.nodes import IfThenElse, Module, Select
from selector.ir.printer import print_stmt
from selector.ir.traverse import walk_all_exprs, walk_stmt
from selector.ir.types import FLOAT32
from selector.lowering.normalize import normalize
from selector.lowering.whole_tiles import pull_factors, split_masks
from selector.targets import find_target

parse_stmt = partial(parser.parse_stmt, types=dict.fromkeys("xy", FLOAT32))


def selected(*, causal: bool) -> Module:
    tiles = Tiles(2, 16, 32)
    module = hb.lower(tensor(attend(64, causal=causal, run=32), tiles), target="sm_80")
    return select(module, find_target("sm_80")).module


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_with_and_without_masks(causal: bool) -> None:
    module = selected(causal=causal)
    body = pull_factors(split_masks(normalize(module.body)))
    (branch,) = (s for s in walk_stmt(body) if isinstance(s, IfThenElse))
    assert not any(isinstance(e, Select) for e in walk_all_exprs(branch.then))
    assert branch.otherwise is not None
    assert any(isinstance(e, Select) for e in walk_all_exprs(branch.otherwise))
    random = np.random.default_rng(2)
    for length in (5, 32, 75):
        arrays = {n: random.standard_normal((1, length, 64)).astype(np.float16) for n in "QKV"}
        shapes = {"output": (1, length, 64)}
        found = interpret(replace(module, body=body), arrays, sizes=shapes)["output"]
        expected = interpret(module, arrays, sizes=shapes)["output"]
        assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


LOOP = "for (t, 0, n) {{\n {0}\n}}\n"


def test_statements_outside_of_loops_and_sums_keep_their_masks() -> None:
    store = "y[ramp(t*8, 1, 8)] = select(ramp(t*8, 1, 8) < x8(n), x[ramp(0, 1, 8)], x8(0.000000f))"
    for text in (store, LOOP.format(store)):
        s = parse_stmt(text)
        assert split_masks(s) == s


def test_factors_above_zero_come_out_of_a_maximum() -> None:
    def pulled(factor: str) -> str:
        value = f"(float32x2)vector_reduce_max(x[ramp(0, 1, 8)]*x8({factor}))"
        return print_stmt(pull_factors(parse_stmt(f"y[ramp(0, 1, 2)] = {value}")))

    assert "x2(0.500000f)*(float32x2)vector_reduce_max(x[ramp(0, 1, 8)])" in pulled("0.500000f")
    assert "vector_reduce_max(x[ramp(0, 1, 8)]*x8(-0.500000f))" in pulled("-0.500000f")
    assert "vector_reduce_max(x[ramp(0, 1, 8)]*x8(0.000000f))" in pulled("0.000000f")
