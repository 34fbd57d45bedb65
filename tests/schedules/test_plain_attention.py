"""Attention that nobody scheduled is one loop over the keys, in whatever order its dimensions lie:
which pipelines are, which are not, and both are right at ragged sizes, as selected, as simulated
and as emitted.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from casestudies.plain.algorithms import attention
from casestudies.plain.attention import Problem
from halide_bridge.schedules.recognise.attention import online_of
from halide_bridge.schedules.recognise.program import read_program
from selector.gpu.codegen.program import emit_kernels
from selector.ir.nodes import For, ForKind, IfThenElse
from selector.ir.printer import print_expr
from selector.ir.traverse import free_vars, walk_stmt
from selector.lowering.normalize import normalize
from selector.lowering.whole_tiles import split_masks
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = EMULATED

F16, F32 = hl.Float(16), hl.Float(32)
Array = np.ndarray[Any, Any]
BESIDE = 5e-4  # weights of f16
LOWEST = hl.f32(-1e30)
ONE_LOOP = "in the loop over keys that the product is in"


def single(e: Any) -> Any:
    return hl.cast(F32, e)


@dataclass(frozen=True)
class Pipeline:
    """Of Q, K and V. Orders of dimensions as NumPy has them, by letters: batch, heads, sequence,
    depth; ``inner``: that of the scores, ``stored``: that of the result. ``sharing``: heads of one
    matrix of keys and values. ``total``, ``mixed``: what the sums start with. ``turned``: how many
    keys on is the value of a key. ``channels`` of a value, ``bounded``: and the user says so.
    ``masks``: what has nothing of the keys behind a query, scores ``low`` instead; with a
    ``window``, nothing of those that lie so far ahead of it either; ``negated``: the mask says
    which these are. ``natural``: powers of e. Scores are held within a ``cap``, have a ``bias``
    added, an array of keys, queries and heads; of each batch only the first ``lengths`` keys count.
    ``start``: what the largest score begins as. ``keys``: how many there are, if that is a number.
    """

    depth: int = 64
    given: str = "bhsd"
    inner: str = "bhsd"
    stored: str = "bhsd"
    sharing: int = 1
    total: float = 0
    mixed: float = 0
    turned: int = 0
    channels: int = 0
    bounded: bool = True
    masks: tuple[str, ...] = ()
    low: float = -1e30
    window: int = 0
    negated: bool = False
    natural: bool = False
    cap: float = 0
    bias: bool = False
    lengths: bool = False
    start: float = -1e30
    keys: int = 0

    def build(self) -> Any:
        """The output Func."""
        v = {name: hl.Var(name) for name in "bhmnd"}
        q, k, w = (hl.ImageParam(F16, len(self.given), name) for name in "QKV")
        n, m, d = v["n"], v["m"], v["d"]
        channel = hl.RDom([(0, self.depth)], "c")
        keys = hl.RDom([(0, self.keys or k.dim(self.given[::-1].index("s")).extent())], "r")

        def at(array: Any, row: Any, column: Any, sharing: int = 1) -> Any:
            head = v["h"] / sharing if sharing > 1 else v["h"]
            places = {"b": v["b"], "h": head, "s": row, "d": column}
            return array[tuple(places[name] for name in reversed(self.given))]

        def rows(order: str) -> list[Any]:
            places = {"b": v["b"], "h": v["h"], "s": m}
            return [places[name] for name in reversed(order) if name != "d"]

        own = rows(self.inner)
        names = ("scores", "scaled", "peak", "weight", "total", "rounded", "mixed", "output")
        scores, scaled, peak, weight, total, rounded, mixed, output = map(hl.Func, names)
        scores[n, *own] = hl.f32(0)
        key = single(at(k, n, channel.x, self.sharing))
        scores[n, *own] += single(at(q, m, channel.x)) * key
        factor = 1 if self.natural else math.log2(math.e)
        score = scores[n, *own] * hl.f32(factor / math.sqrt(self.depth))
        if self.cap:
            score = hl.tanh(score / self.cap) * self.cap
        if self.bias:
            score += single(hl.ImageParam(F16, 1 + len(own), "B")[n, *own]) * hl.f32(factor)
        if self.lengths:
            counts = n < hl.ImageParam(hl.Int(32), 1, "L")[v["b"]]
            score = hl.select(counts, score, hl.f32(self.low))

        def seen(n: Any, value: Any, where: str, other: Any = LOWEST) -> Any:
            if where not in self.masks:
                return value
            if self.negated:
                return hl.select(n > m, other, value)
            counts = (n <= m) & (n > m - self.window) if self.window else n <= m
            return hl.select(counts, value, other)

        scaled[n, *own] = seen(n, score, "score", hl.f32(self.low))
        peak[tuple(own)] = hl.f32(self.start)
        greater = seen(keys.x, scaled[keys.x, *own], "peak")
        peak[tuple(own)] = hl.max(peak[tuple(own)], greater)
        exponent = seen(n, scaled[n, *own] - peak[tuple(own)], "exponent")
        power = hl.exp(exponent) if self.natural else hl.pow(hl.f32(2), exponent)
        weight[n, *own] = seen(n, power, "weight", hl.f32(0))
        total[tuple(own)] = hl.f32(self.total)
        total[tuple(own)] += weight[keys.x, *own]
        rounded[n, *own] = hl.cast(F16, weight[n, *own])
        mixed[d, *own] = hl.f32(self.mixed)
        place = keys.x + self.turned if self.turned else keys.x
        value = single(at(w, place, d, self.sharing))
        mixed[d, *own] += single(rounded[keys.x, *own]) * value
        stored = rows(self.stored)
        output[d, *stored] = hl.cast(F16, mixed[d, *own] / total[tuple(own)])
        if self.bounded:
            output.bound(d, 0, self.depth)
        return output

    def sizes(self, order: str, **extents: int) -> tuple[int, ...]:
        return tuple({"d": self.depth, **extents}[name] for name in order)

    def drawn(self, batch: int, heads: int, queries: int, keys: int) -> dict[str, Array]:
        random, held = np.random.default_rng(7), heads // self.sharing
        shapes = {
            "Q": self.sizes(self.given, b=batch, h=heads, s=queries),
            "K": self.sizes(self.given, b=batch, h=held, s=keys),
            "V": self.sizes(
                self.given, b=batch, h=held, s=keys + self.turned, d=self.channels or self.depth
            ),
        }
        if self.bias:
            rows = self.sizes(self.inner[:-1], b=batch, h=heads, s=queries)
            shapes["B"] = (*rows, keys)
        arrays: dict[str, Array] = {
            n: random.standard_normal(s).astype(np.float16) for n, s in shapes.items()
        }
        if self.lengths:
            arrays["L"] = random.integers(1, keys + 1, batch).astype(np.int32)
        return arrays

    def exact(self, arrays: dict[str, Array]) -> Array:
        """In float64, in the order of the result."""
        batch = "b" if "b" in self.given else ""
        q, k, w = (np.einsum(f"{self.given}->{batch}hsd", arrays[n].astype(float)) for n in "QKV")
        k, w = (np.repeat(a, self.sharing, axis=-3) for a in (k, w[..., self.turned :, :]))
        scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(self.depth)
        if self.cap:
            cap = self.cap if self.natural else self.cap / math.log2(math.e)
            scores = np.tanh(scores / cap) * cap
        if self.bias:
            order = self.inner.replace("s", "m").replace("d", "n")
            scores = scores + np.einsum(f"{order}->{batch}hmn", arrays["B"].astype(float))
        if self.lengths:
            behind = np.arange(scores.shape[-1]) >= arrays["L"][:, None, None, None]
            scores = np.where(behind, -np.inf, scores)
        if self.masks:
            counts = np.tri(*scores.shape[-2:])
            if self.window:
                counts -= np.tri(*scores.shape[-2:], k=-self.window)
            scores = np.where(counts > 0, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        result = (weights @ w + self.mixed) / (weights.sum(-1, keepdims=True) + self.total)
        return np.einsum(f"{batch}hsd->{self.stored}", result)

    def scheduled(self, target: str = "sm_90a") -> tuple[Any, hb.Schedule]:
        """The output with the schedule for sizes that fill a GPU: it has to be right at others."""
        extents = {"b": 2, "h": 8, "s": 2048}
        sizes = {
            "Q": self.sizes(self.given, **extents),
            "K": self.sizes(self.given, **{**extents, "h": 8 // self.sharing}),
            "output": self.sizes(self.stored, **extents, d=self.channels or self.depth),
        }
        output = self.build()
        return output, hb.autoschedule(output, target=target, sizes=sizes)


def assert_right(
    case: Pipeline, kernel: Any, sizes: tuple[int, int, int, int], target: str = "sm_90a"
) -> None:
    arrays = case.drawn(*sizes)
    exact = case.exact(arrays)
    found = [kernel.interpret(**arrays, sizes=exact.shape)]
    kernels, plan = emit_kernels(kernel.module, find_target(target))
    for flags in (True, False):
        run = simulate(kernels, plan, arrays, exact.shape, flags=flags)
        assert run.faults == ()
        found += run.outputs.values()
    found.append(check(kernel, **arrays, sizes=exact.shape))
    for result in found:
        assert error(result, exact) < BESIDE


def error(result: Any, exact: Array) -> float:
    return float(np.linalg.norm(np.asarray(result) - exact) / np.linalg.norm(exact))


BEHIND, BETWEEN = "bhsd", "bshd"
ORDERS = {
    "heads behind": Pipeline(),
    "heads between": Pipeline(given=BETWEEN, inner=BETWEEN, stored=BETWEEN),
    "scores as torch has them": Pipeline(given=BETWEEN, stored=BETWEEN),
    "batch between": Pipeline(given="hbsd", inner="hbsd", stored="hbsd"),
    "another order of the result": Pipeline(given=BETWEEN, stored="sbhd"),
    "batch and heads between": Pipeline(given="sbhd", inner="sbhd", stored="sbhd"),
    "no batch": Pipeline(given="shd", inner="shd", stored="shd"),
    "40 channels": Pipeline(40),
    "72 channels, heads between": Pipeline(72, BETWEEN, BETWEEN, BETWEEN),
    "rows of no whole 16 bytes": Pipeline(20, BETWEEN, BETWEEN, BETWEEN),
    "channels that nobody bounds": Pipeline(40, bounded=False),
    "fewer channels of values": Pipeline(72, BETWEEN, BETWEEN, BETWEEN, channels=24, bounded=False),
    "more channels of values": Pipeline(48, channels=100, bounded=False),
    "masked exponents": Pipeline(masks=("peak", "exponent")),
    "masked scores": Pipeline(masks=("score",), low=-math.inf),
    "masked weights": Pipeline(40, BETWEEN, BETWEEN, BETWEEN, masks=("peak", "weight")),
    "shared keys": Pipeline(given=BETWEEN, inner=BETWEEN, stored=BETWEEN, sharing=2),
    "shared keys of many channels": Pipeline(128, sharing=4),
    "powers of e": Pipeline(natural=True),
    "scores of nothing, as torch masks them": Pipeline(
        masks=("score",), low=-math.inf, natural=True
    ),
    "what does not count is said": Pipeline(masks=("score",), low=-math.inf, negated=True),
    "a window": Pipeline(masks=("score",), low=-math.inf, natural=True, window=50),
    "a window, from the lowest number on": Pipeline(
        masks=("score",), low=-math.inf, natural=True, window=50, start=-3.4e38
    ),
    "a soft cap": Pipeline(48, natural=True, cap=3),
    "a bias": Pipeline(natural=True, bias=True),
    "a bias, behind a mask": Pipeline(masks=("score",), low=-math.inf, bias=True),
    "lengths": Pipeline(natural=True, lengths=True, low=-math.inf),
}
RAGGED = ((1, 4, 1, 1), (2, 4, 70, 83), (1, 4, 130, 65))
OTHERS = {
    "masked scores, which a row of none would show": Pipeline(masks=("score",)),
    "more channels than registers": Pipeline(512),
    "a sum that starts with one": Pipeline(total=1),
    "a mean that starts with one": Pipeline(mixed=1),
    "values of the next keys": Pipeline(turned=1),
}


@pytest.mark.parametrize("name", ORDERS)
def test_it_is_one_loop_over_keys_and_right(name: str) -> None:
    case = ORDERS[name]
    output, schedule = case.scheduled()
    assert schedule.report.count(ONE_LOOP) == 3, schedule.report
    kernel = hb.compile(output, target="sm_90a")
    for batch, heads, queries, keys in RAGGED:
        seen = max(keys, queries) if case.window else keys  # each query has a key
        assert_right(case, kernel, (batch, heads, queries, seen))


@pytest.mark.parametrize("name", ["heads behind", "heads between"])
def test_what_is_written_down_gives_the_same_program(name: str) -> None:
    (one, schedule), other = ORDERS[name].scheduled(), ORDERS[name].build()
    exec(schedule.source, {"hb": hb, "hl": hl, "output": other})
    assert hb.compile(one, target="sm_90a").source == hb.compile(other, target="sm_90a").source


@pytest.mark.parametrize(
    "name",
    ["40 channels", "heads between", "masked weights", "a window", "a soft cap", "a bias"],
)
def test_warps_have_it_where_there_are_no_warpgroups(name: str) -> None:
    case = ORDERS[name]
    output, schedule = case.scheduled("sm_80")
    assert schedule.report.count(ONE_LOOP) == 3, schedule.report
    assert "by mma, 64 queries a block, 64 keys at a time" in schedule.report
    kernel = hb.compile(output, target="sm_80")
    for batch, heads, queries, keys in RAGGED:
        seen = max(keys, queries) if case.window else keys
        assert_right(case, kernel, (batch, heads, queries, seen), "sm_80")


@pytest.mark.parametrize("name", OTHERS)
def test_another_algorithm_is_not_and_right(name: str) -> None:
    case = OTHERS[name]
    output, schedule = case.scheduled()
    assert ONE_LOOP not in schedule.report
    assert_right(case, hb.compile(output, target="sm_90a"), (1, 2, 33, 70))


def test_shared_keys_of_too_many_channels_for_one_loop_are_products_on_tensor_units() -> None:
    case = Pipeline(512, sharing=2)
    output, schedule = case.scheduled()
    assert ONE_LOOP not in schedule.report
    assert schedule.report.count("on tensor units by wgmma") == 2, schedule.report
    assert_right(case, hb.compile(output, target="sm_90a"), (1, 2, 33, 70))


@pytest.mark.parametrize("depth", [20, 40])
def test_what_lies_behind_the_channels_is_not_read(depth: int) -> None:
    """Neither what is beside an array that is a part of another, nor channels that a sum leaves."""
    case = Pipeline(depth, "shd", "shd", "shd")
    kernel = hb.compile(case.scheduled()[0], target="sm_90a")
    arrays = case.drawn(1, 2, 33, 70)
    exact = case.exact(arrays)
    held = {n: np.full((*a.shape[:2], 64), np.nan, np.float16) for n, a in arrays.items()}
    for name, array in arrays.items():
        held[name][..., :depth] = array
    for given in (held, {n: a[..., :depth] for n, a in held.items()}):
        for run in (kernel.interpret, lambda **options: check(kernel, **options)):
            assert error(run(**given, sizes=exact.shape), exact) < BESIDE


@pytest.mark.parametrize(
    "name",
    [
        "masked weights", "masked scores", "scores of nothing, as torch masks them",
        "what does not count is said", "a window", "a bias, behind a mask",
    ],
)  # fmt: skip
def test_a_loop_over_keys_ends_where_a_mask_does(name: str) -> None:
    """And the longest tiles go first. The mask is applied to the tile, where it does not hold
    everywhere, and all that read the tile are the same for both.
    """
    kernel = hb.compile(ORDERS[name].scheduled()[0], target="sm_90a")
    (loop,) = [
        s for s in walk_stmt(kernel.module.body) if isinstance(s, For) and s.kind is ForKind.SERIAL
    ]
    assert any("block_id" in n for n in free_vars(loop.extent))
    assert ("max(" in print_expr(loop.min)) == (name == "a window")
    assert_masked_in_place(kernel)


def assert_masked_in_place(kernel: Any) -> None:
    body = split_masks(normalize(kernel.module.body))
    (branch,) = (s for s in walk_stmt(body) if isinstance(s, IfThenElse))
    assert branch.otherwise is None


@pytest.mark.parametrize("types", ["f16-f16", "bf16-bf16"])
@pytest.mark.parametrize("causal", [False, True])
def test_weights_of_any_type_leave_their_masks_to_the_tile(types: str, causal: bool) -> None:
    """Those of bf16 kept theirs: the loop was there twice, and took half as long again."""
    problem = Problem(heads=8, length=512, depth=64, types=types, causal=causal)
    sizes = {spec.name: spec.shape for spec in (*problem.inputs, problem.output)}
    kernel = hb.compile(attention(problem), target="sm_90a", schedule="auto", sizes=sizes)
    assert_masked_in_place(kernel)


@pytest.mark.parametrize(
    ("case", "causal", "window"),
    [
        (Pipeline(), False, 0),
        (Pipeline(masks=("score",)), True, 0),
        (Pipeline(masks=("score",), window=512), True, 512),
        (Pipeline(masks=("score",), negated=True), True, 0),
    ],
)
def test_the_model_knows_how_many_keys_a_query_has(
    case: Pipeline, causal: bool, window: int
) -> None:
    program = read_program([case.build()])
    (found,) = [f for f in (online_of(m, program) for m in program) if f is not None]
    assert (found.causal, found.window) == (causal, window)


@pytest.mark.parametrize("name", [name for name in ORDERS if "window" in name])
def test_rows_that_see_nothing_of_the_first_keys_of_their_tile_are_right(name: str) -> None:
    case = ORDERS[name]
    kernel = hb.compile(case.scheduled()[0], target="sm_90a")
    assert_right(case, kernel, (1, 2, 300, 300))


def test_blocks_that_stay_do_not_divide_for_each_run_of_keys() -> None:
    """Heads and batches were fused, as a grid has three dimensions."""
    case = Pipeline(64, BETWEEN, BETWEEN, BETWEEN, bounded=False)
    output = case.build()
    sizes = {"Q": (4, 2048, 16, 64), "K": (4, 2048, 16, 64), "output": (4, 2048, 16, 64)}
    hb.autoschedule(output, target="sm_90a", sizes=sizes)
    kernel = hb.compile(output, target="sm_90a")
    (launch,) = kernel.plan.launches
    assert launch.persistent
    assert "floor_div" not in kernel.source
    assert_right(case, kernel, (2, 4, 70, 83))


@pytest.mark.parametrize(
    ("name", "own"), [("a soft cap", "tanhf("), ("a bias, behind a mask", "B_im_in_")]
)
def test_what_becomes_of_a_score_is_computed_once(name: str, own: str) -> None:
    """In the tile, before the maximum, the sum and the weights read it."""
    source = hb.compile(ORDERS[name].scheduled()[0], target="sm_90a").source
    elements = [line.strip() for line in source.splitlines() if own in line and "scores" in line]
    scores = [line for line in elements if line.startswith("scores")]
    assert scores
    assert not any("total" in line or "rounded[" in line for line in elements)


def test_an_array_that_scores_have_added_comes_with_the_keys() -> None:
    """By the copy engine, as many runs ahead."""
    source = hb.compile(ORDERS["a bias"].scheduled()[0], target="sm_90a").source
    assert "&map_B" in source
