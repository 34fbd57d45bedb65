"""Masks of ragged tiles: whole tiles do without, and both ways give the same."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.attention.algorithm import attend
from halide_bridge.schedules import schedule_attention
from selector.eqsat.select import select
from selector.families.attention import Tiling
from selector.ir import parser
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.nodes import IfThenElse, Select, Stmt, Store
from selector.ir.printer import print_stmt
from selector.ir.traverse import walk_all_exprs, walk_stmt
from selector.ir.types import FLOAT32
from selector.lowering.normalize import normalize
from selector.lowering.whole_tiles import pull_factors, split_masks
from selector.targets import find_target

parse_stmt = partial(parser.parse_stmt, types=dict.fromkeys("xy", FLOAT32))


def selected(**options: Any) -> Module:
    tiles = Tiling(2, 16, 32)
    module = hb.lower(schedule_attention(attend(64, run=32, **options), tiles), target="sm_80")
    return select(module, find_target("sm_80")).module


def check_the_same(module: Module, body: Stmt) -> None:
    random = np.random.default_rng(2)
    for length in (5, 32, 75):
        arrays = {n: random.standard_normal((1, length, 64)).astype(np.float16) for n in "QKV"}
        shapes = {"output": (1, length, 64)}
        found = interpret(replace(module, body=body), arrays, sizes=shapes)["output"]
        expected = interpret(module, arrays, sizes=shapes)["output"]
        assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


def has_masks(s: Stmt) -> bool:
    return any(isinstance(e, Select) for e in walk_all_exprs(s))


@pytest.mark.parametrize("causal", [False, True])
def test_ragged_tiles_are_masked_in_place(causal: bool) -> None:
    module = selected(causal=causal)
    body = pull_factors(split_masks(normalize(module.body)))
    (branch,) = (s for s in walk_stmt(body) if isinstance(s, IfThenElse))
    masks = [s for s in walk_stmt(branch) if isinstance(s, Store)]
    assert len(masks) == 1
    assert branch.otherwise is None
    assert [s for s in walk_stmt(body) if isinstance(s, Store) and has_masks(s)] == masks
    check_the_same(module, body)


def test_statements_are_there_twice_where_the_mask_cannot_go_to_the_tile() -> None:
    """Of -inf a negative multiple is inf, which is not nothing."""
    module = selected(scale=-0.125)
    body = pull_factors(split_masks(normalize(module.body)))
    (branch,) = (s for s in walk_stmt(body) if isinstance(s, IfThenElse))
    assert branch.otherwise is not None
    assert not has_masks(branch.then)
    assert has_masks(branch.otherwise)
    check_the_same(module, body)


TILE = """
m[ramp(0, 1, 2)] = x2({start})
for (t, 0, n) {{
 allocate a[float32 * 16] in WMMAAccumulator
 a[ramp(0, 1, 16)] = (float32x16)tile.fill(x16(0.000000f))
 {first}
 y[ramp(0, 1, 2)] = y[ramp(0, 1, 2)] + (float32x2)vector_reduce_add({term})
 {last}
}}
"""
READ = "(float32x16)tile.read(a[ramp(0, 1, 16)])"
MASK = "x2(ramp(t*8, 1, 8)) < x16({0})"
GROWS = (
    "m[ramp(0, 1, 2)] = max((float32x2)vector_reduce_max(select({mask}, x16({factor})*{read}, "
    "x16({low}))), m[ramp(0, 1, 2)])"
)
POWER = (
    "(float32x16)pow_f32(x16({base}), "
    "select({mask}, {read} - m[ramp(x8(0), x8(1), 2)], x16({low})))"
)


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({}, True),
        ({"start": "-900.000000f"}, False),  # the maximum may lie below what it was taken of
        ({"start": "-200.000000f"}, True),
        ({"factor": "-0.500000f"}, False),
        ({"low": "-100.000000f"}, False),  # 2^-100 is not 0
        ({"base": "0.500000f"}, False),
        ({"base": "3.000000f"}, False),
        ({"limit": "n + 1"}, False),  # two masks for one tile
        ({"term": READ}, False),  # a read behind no mask
        ({"last": f"y[ramp(0, 1, 16)] = {READ}"}, False),  # not behind the sums
        ({"last": "x[ramp(0, 1, 2)] = m[ramp(0, 1, 2)]"}, True),
    ],
)  # fmt: skip
def test_masks_go_to_tiles_where_that_is_the_same(change: dict[str, str], moves: bool) -> None:
    values = {
        "start": "-300.000000f", "factor": "0.500000f", "low": "-300.000000f", "base": "2.000000f",
        "limit": "n", "last": "",
    } | change  # fmt: skip
    mask = MASK.format("n")
    term = POWER.format(mask=MASK.format(values["limit"]), read=READ, **values)
    first = GROWS.format(mask=mask, read=READ, **values)
    text = TILE.format_map({"term": term, "first": first, **values})
    types = dict.fromkeys("xya", FLOAT32) | {"m": FLOAT32}
    body = split_masks(parser.parse_stmt(text, types=types))
    (branch,) = (s for s in walk_stmt(body) if isinstance(s, IfThenElse))
    assert (branch.otherwise is None) is moves


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
