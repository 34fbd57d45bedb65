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
from selector.emit.cuda import emit_kernels
from selector.ir.nodes import For, ForKind
from selector.ir.traverse import free_vars, walk_stmt
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
    ``masks``: what has nothing of the keys behind a query, scores ``low`` instead.
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

    def build(self) -> Any:
        """The output Func."""
        v = {name: hl.Var(name) for name in "bhmnd"}
        q, k, w = (hl.ImageParam(F16, len(self.given), name) for name in "QKV")
        n, m, d = v["n"], v["m"], v["d"]
        channel = hl.RDom([(0, self.depth)], "c")
        keys = hl.RDom([(0, k.dim(self.given[::-1].index("s")).extent())], "r")

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
        score = scores[n, *own] * hl.f32(math.log2(math.e) / math.sqrt(self.depth))

        def seen(n: Any, value: Any, where: str, other: Any = LOWEST) -> Any:
            return hl.select(n <= m, value, other) if where in self.masks else value

        scaled[n, *own] = seen(n, score, "score", hl.f32(self.low))
        peak[tuple(own)] = LOWEST
        greater = seen(keys.x, scaled[keys.x, *own], "peak")
        peak[tuple(own)] = hl.max(peak[tuple(own)], greater)
        exponent = seen(n, scaled[n, *own] - peak[tuple(own)], "exponent")
        weight[n, *own] = seen(n, hl.pow(hl.f32(2), exponent), "weight", hl.f32(0))
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
        return {n: random.standard_normal(s).astype(np.float16) for n, s in shapes.items()}

    def exact(self, arrays: dict[str, Array]) -> Array:
        """In float64, in the order of the result."""
        batch = "b" if "b" in self.given else ""
        q, k, w = (np.einsum(f"{self.given}->{batch}hsd", arrays[n].astype(float)) for n in "QKV")
        k, w = (np.repeat(a, self.sharing, axis=-3) for a in (k, w[..., self.turned :, :]))
        scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(self.depth)
        if self.masks:
            scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
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
}
RAGGED = ((1, 2, 1, 1), (2, 4, 70, 83), (1, 2, 130, 65))
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
    for sizes in RAGGED:
        assert_right(case, kernel, sizes)


@pytest.mark.parametrize("name", ["heads behind", "heads between"])
def test_what_is_written_down_gives_the_same_program(name: str) -> None:
    (one, schedule), other = ORDERS[name].scheduled(), ORDERS[name].build()
    exec(schedule.source, {"hb": hb, "hl": hl, "output": other})
    assert hb.compile(one, target="sm_90a").source == hb.compile(other, target="sm_90a").source


@pytest.mark.parametrize("name", ["40 channels", "heads between", "masked weights"])
def test_warps_have_it_where_there_are_no_warpgroups(name: str) -> None:
    case = ORDERS[name]
    output, schedule = case.scheduled("sm_80")
    assert schedule.report.count(ONE_LOOP) == 3, schedule.report
    assert "by mma, 64 queries a block, 64 keys at a time" in schedule.report
    kernel = hb.compile(output, target="sm_80")
    for sizes in RAGGED:
        assert_right(case, kernel, sizes, "sm_80")


@pytest.mark.parametrize("name", OTHERS)
def test_another_algorithm_is_not_and_right(name: str) -> None:
    case = OTHERS[name]
    output, schedule = case.scheduled()
    assert ONE_LOOP not in schedule.report
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


def test_a_loop_over_keys_ends_where_a_mask_does() -> None:
    """And the longest tiles go first."""
    kernel = hb.compile(ORDERS["masked weights"].scheduled()[0], target="sm_90a")
    (loop,) = [
        s for s in walk_stmt(kernel.module.body) if isinstance(s, For) and s.kind is ForKind.SERIAL
    ]
    assert any("block_id" in name for name in free_vars(loop.extent))
