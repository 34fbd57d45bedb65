"""Attention of few queries on many keys that nobody scheduled: blocks have parts of the keys, and
what they find is joined. Right at ragged sizes, as selected, simulated and emitted.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import math
from typing import Any

import halide as hl
import numpy as np
import pytest
from test_plain_attention import BESIDE, ONE_LOOP, ORDERS, Pipeline, assert_right, error
from verified import EMULATED

import halide_bridge as hb
from selector.diagnostics import ScheduleError, UserError
from selector.gpu.codegen.program import emit_kernels
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = EMULATED

PARTS = "hb.in_parts("
DIVIDED = (
    "heads behind", "heads between", "another order of the result", "batch and heads between",
    "no batch", "rows of no whole 16 bytes", "shared keys of many channels", "powers of e",
    "a soft cap",
)  # fmt: skip
FEW = {name: ORDERS[name] for name in DIVIDED}
REFUSED = ("channels that nobody bounds", "more channels of values")  # whose sums are cut in pieces
WHOLE = {
    "masked exponents": ORDERS["masked exponents"],
    "a window": ORDERS["a window"],
    "a bias": ORDERS["a bias"],
    "lengths, infinitely low": ORDERS["lengths"],
}
RAGGED = ((1, 4, 1, 1), (2, 4, 1, 300), (1, 4, 3, 257), (1, 4, 70, 640))


def scheduled(case: Pipeline, heads: int = 4) -> tuple[Any, hb.Schedule]:
    """For one query and many keys."""
    extents = {"b": 1, "h": heads, "s": 8192}
    sizes = {
        "Q": case.sizes(case.given, **{**extents, "s": 1}),
        "K": case.sizes(case.given, **{**extents, "h": heads // case.sharing}),
        "output": case.sizes(case.stored, **{**extents, "s": 1}, d=case.channels or case.depth),
    }
    output = case.build()
    return output, hb.autoschedule(output, target="sm_90a", sizes=sizes)


@pytest.mark.parametrize("name", FEW)
def test_blocks_have_parts_of_the_keys_and_are_right(name: str) -> None:
    case = FEW[name]
    output, schedule = scheduled(case)
    assert PARTS in schedule.source
    assert schedule.report.count(ONE_LOOP) == 3, schedule.report
    kernel = hb.compile(output, target="sm_90a")
    assert kernel.source.count("__global__") == 2
    for sizes in RAGGED:
        assert_right(case, kernel, sizes)


@pytest.mark.parametrize("name", WHOLE)
def test_where_a_part_may_have_no_key_that_counts_a_block_has_all(name: str) -> None:
    output, schedule = scheduled(WHOLE[name])
    assert PARTS not in schedule.source
    assert schedule.report.count(ONE_LOOP) == 3, schedule.report
    assert hb.compile(output, target="sm_90a").source.count("__global__") == 1


@pytest.mark.parametrize("name", REFUSED)
def test_where_parts_have_no_registers_a_block_has_all(name: str) -> None:
    case = ORDERS[name]
    output, schedule = scheduled(case)
    assert PARTS not in schedule.source
    assert schedule.report.count(ONE_LOOP) == 3, schedule.report
    assert_right(case, hb.compile(output, target="sm_90a"), RAGGED[1])


def test_many_queries_have_no_parts() -> None:
    assert PARTS not in ORDERS["heads behind"].scheduled()[1].source


@pytest.mark.parametrize("name", ["shared keys, odd heads", "shared keys of many channels"])
def test_heads_that_share_keys_are_rows_of_one(name: str) -> None:
    """The last group may have fewer heads than others; those that are there are all asked for."""
    case = Pipeline(64, sharing=4) if name == "shared keys, odd heads" else FEW[name]
    output, schedule = scheduled(case, heads=32)
    assert "_rows = hb.in_parts(" in schedule.source
    kernel = hb.compile(output, target="sm_90a")
    arrays = case.drawn(1, 8, 3, 257)
    heads = case.given.index("h")
    exact = case.exact(arrays)
    for count in (8, 6):
        some = arrays | {"Q": arrays["Q"].take(range(count), heads)}
        truth = exact.take(range(count), case.stored.index("h"))
        kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
        run = simulate(kernels, plan, some, truth.shape)
        assert run.faults == ()
        for result in (kernel.interpret(**some, sizes=truth.shape), *run.outputs.values()):
            assert error(result, truth) < BESIDE
    with pytest.raises(UserError, match="Q"):
        kernel.interpret(**arrays | {"Q": arrays["Q"].take(range(4), heads)}, sizes=exact.shape)


@pytest.mark.parametrize("name", ["heads between", "shared keys of many channels"])
def test_what_is_written_down_gives_the_same_program(name: str) -> None:
    case = FEW[name]
    (one, schedule), other = scheduled(case, heads=32), case.build()
    exec(schedule.source, {"hb": hb, "hl": hl, "output": other})
    assert hb.compile(one, target="sm_90a").source == hb.compile(other, target="sm_90a").source


@pytest.mark.parametrize(
    "power",
    [
        lambda s, top: s * s - top * top,
        lambda s, top: hl.select(s > top, s - top, hl.f32(-1)),
        lambda s, top: hl.select(top > 0, s - top, hl.f32(-math.inf)),
        lambda s, top: (s - top) / top,
    ],
)
def test_powers_that_do_not_go_down_are_refused(power: Any) -> None:
    n, m, d = (hl.Var(name) for name in "nmd")
    a = hl.ImageParam(hl.Float(32), 2, "A")
    scores, top, total, weight, mixed, output = map(
        hl.Func, ("scores", "top", "total", "weight", "mixed", "output")
    )
    c, r = hl.RDom([(0, 16)], "c"), hl.RDom([(0, a.dim(1).extent())], "r")
    scores[n, m] = hl.f32(0)
    scores[n, m] += a[c.x, m] * a[c.x, n]
    top[m] = hl.f32(-1e30)
    top[m] = hl.max(top[m], scores[r.x, m])
    weight[n, m] = hl.exp(power(scores[n, m], top[m]))
    total[m] = hl.f32(0)
    total[m] += weight[r.x, m]
    mixed[d, m] = hl.f32(0)
    mixed[d, m] += weight[r.x, m] * a[d, r.x]
    output[d, m] = mixed[d, m] / total[m]
    sums = top, total, mixed
    with pytest.raises(ScheduleError, match="no sums that parts can be joined of"):
        hb.in_parts(output, sums, weight, scores, ((1,), (1,), (0, 1)), 64, 16)


def test_channels_without_a_number_stay_alone() -> None:
    """A value that is none, or infinite, says nothing of other channels, wherever parts keep what
    they found of their powers.
    """
    case = FEW["no batch"]
    output, schedule = scheduled(case)
    assert PARTS in schedule.source
    kernel = hb.compile(output, target="sm_90a")
    arrays = case.drawn(1, 4, 1, 700)
    channel = case.given.index("d")
    values = arrays["V"] = arrays["V"].copy()
    odd = (np.nan, -np.inf, np.inf)
    for c, value in enumerate(odd):
        place: list[Any] = [0] * values.ndim
        place[channel] = c
        values[tuple(place)] = value
    with np.errstate(invalid="ignore"):
        exact = case.exact(arrays)
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    (result,) = simulate(kernels, plan, arrays, exact.shape).outputs.values()
    counts = np.isfinite(exact)
    assert counts.sum() == exact.size - len(odd)
    np.testing.assert_array_equal(np.isfinite(result), counts)
    assert error(result[counts], exact[counts]) < BESIDE
