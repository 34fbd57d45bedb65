"""Sums along with their maximum: one loop, the same numbers; and what stands in the way."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb
from casestudies.attention.algorithm import Variant, attend
from halide_bridge.schedules import attention as schedules
from halide_bridge.schedules import schedule_attention
from selector.diagnostics import ScheduleError
from selector.families.attention import Tiling
from selector.ir.module import Module
from selector.ir.nodes import Allocate, For, ForKind, Memory, Store
from selector.ir.printer import print_stmt
from selector.ir.traverse import walk_stmt

pytestmark = pytest.mark.verified

GROUPS = Tiling(2, 64, 64, 2, 64, groups=True)
WARPS = Tiling(2, 16, 32)


def attention(tiles: Tiling, *, causal: bool = False, depth: int = 64) -> hl.Func:
    return schedule_attention(attend(depth, causal=causal, run=tiles.keys), tiles)


def loops(module: Module) -> list[For]:
    return [s for s in walk_stmt(module.body) if isinstance(s, For) and s.kind is ForKind.SERIAL]


def accumulators(module: Module) -> list[str]:
    kinds = (Memory.WMMA_ACCUMULATOR, Memory.WGMMA_ACCUMULATOR)
    found = [s for s in walk_stmt(module.body) if isinstance(s, Allocate) and s.memory in kinds]
    return sorted(s.name for s in found)


def truth(q: np.ndarray, k: np.ndarray, v: np.ndarray, *, causal: bool = False) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[1:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def operands(heads: int, queries: int, keys: int, depth: int = 64) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    rows = {"Q": queries, "K": keys, "V": keys}
    return {
        name: random.standard_normal((heads, n, depth)).astype(np.float16)
        for name, n in rows.items()
    }


def error(result: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(result - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("tiles", [WARPS, GROUPS], ids=["warps", "groups"])
def test_three_loops_become_one_and_scores_are_taken_once(
    tiles: Tiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = hb.lower(attention(tiles))
    monkeypatch.setattr(schedules, "online", lambda *_: None)
    apart = hb.lower(attention(tiles))
    assert (len(loops(fused)), len(loops(apart))) == (1, 3)
    assert len(accumulators(fused)) == 2
    assert len(accumulators(apart)) == 4
    staged = [s for s in walk_stmt(fused.body) if isinstance(s, Allocate) and s.stages > 1]
    assert len(staged) == 2, "keys and values, each once"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tiles", [WARPS, GROUPS], ids=["warps", "groups"])
def test_one_loop_gives_what_three_give(
    tiles: Tiling, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ragged and tiny sizes, from one compiled kernel; fewer queries than keys and more."""
    kernel = hb.compile(attention(tiles, causal=causal), target="sm_90a")
    monkeypatch.setattr(schedules, "online", lambda *_: None)
    apart = hb.compile(attention(tiles, causal=causal), target="sm_90a")
    sizes = [(1, 1, 1), (2, 70, 70), (1, 130, 130)] + ([] if causal else [(1, 3, 129), (1, 65, 2)])
    for heads, queries, keys in sizes:
        arrays = operands(heads, queries, keys)
        shape = (heads, queries, 64)
        expected = truth(**{n.lower(): a for n, a in arrays.items()}, causal=causal)
        result = kernel.interpret(**arrays, sizes=shape)
        assert error(result, expected) < 5e-4
        assert error(result, apart.interpret(**arrays, sizes=shape)) < 5e-4


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_of_any_size(sign: int) -> None:
    """Scores that grow from key to key by more than any exponential holds, or fall."""
    arrays = operands(1, 20, 150)
    ramp = np.linspace(0, 40, 150)[None, :, None] * sign
    arrays["Q"] = np.full_like(arrays["Q"], 4.0)
    arrays["K"] = (np.full_like(arrays["K"], 1.0) * ramp + arrays["K"] / 16).astype(np.float16)
    kernel = hb.compile(attention(WARPS), target="sm_90a")
    expected = truth(**{n.lower(): a for n, a in arrays.items()})
    assert error(kernel.interpret(**arrays, sizes=(1, 20, 64)), expected) < 1e-3


VARIANTS: dict[str, tuple[Callable[..., hl.Expr], Callable[..., np.ndarray]]] = {
    "bias": (
        lambda s, n, m, h: s + hl.f32(n - m) * hl.f32(0.125),
        lambda s, n, m: s + (n - m) * 0.125,
    ),
    "soft cap": (
        lambda s, n, m, h: hl.tanh(s * hl.f32(0.5)) * hl.f32(2.0),
        lambda s, n, m: np.tanh(s / 2) * 2,
    ),
    "scale": (lambda s, n, m, h: s * hl.f32(-3.0), lambda s, n, m: s * -3),
    "window": (
        lambda s, n, m, h: hl.select(hl.abs(n - m) < 40, s, hl.f32(-1e30)),
        lambda s, n, m: np.where(np.abs(n - m) < 40, s, -np.inf),
    ),
}


@pytest.mark.parametrize("tiles", [WARPS, GROUPS], ids=["warps", "groups"])
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_are_other_algorithms_under_the_same_schedule(name: str, tiles: Tiling) -> None:
    score, meaning = VARIANTS[name]
    pipeline = schedule_attention(attend(64, run=tiles.keys, variant=Variant(score)), tiles)
    kernel = hb.compile(pipeline, target="sm_90a")
    arrays = operands(1, 77, 77)
    q, k, v = (arrays[x].astype(np.float64) for x in "QKV")
    scores = meaning(q @ k.transpose(0, 2, 1) / 8, np.arange(77)[None], np.arange(77)[:, None])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights @ v / weights.sum(-1, keepdims=True)
    assert error(kernel.interpret(**arrays, sizes=(1, 77, 64)), expected) < 1e-3


def test_causal_blocks_end_at_their_last_key() -> None:
    (loop,) = loops(hb.lower(attention(GROUPS, causal=True)))
    assert "block_id" in print_stmt(replace(loop, body=Store("x", loop.min, loop.min)))
    (loop,) = loops(hb.lower(attention(GROUPS)))
    assert "block_id" not in print_stmt(replace(loop, body=Store("x", loop.min, loop.min)))


@dataclass(frozen=True)
class Small:
    """A maximum of rows, and a sum with it: nothing of tensors."""

    term: Callable[[hl.Expr, hl.Expr], hl.Expr] = lambda x, m: hl.exp(x - m)
    start: float = -1e30
    first: float = 0.0
    splits: tuple[int, int] = (8, 8)
    rows: tuple[int, int] = (16, 16)
    foreign: bool = False  # the sum is none of this pipeline
    unrolled: bool = True
    times: bool = False  # terms are powers of 2, times x

    def build(self) -> hl.Func:
        x, y, yo, yi = (hl.Var(name) for name in ("x", "y", "yo", "yi"))
        image = hl.ImageParam(hl.Float(32), 2, "I")
        r = hl.RDom([(0, (image.dim(0).extent() + 7) // 8 * 8)], "r")
        seen = hl.Func("seen")
        inside = image[hl.min(x, image.dim(0).extent() - 1), y]
        seen[x, y] = hl.select(x < image.dim(0).extent(), inside, hl.f32(-1e30))
        peak, total, out = hl.Func("peak"), hl.Func("total"), hl.Func("out")
        peak[y] = hl.f32(self.start)
        peak[y] = hl.max(peak[y], seen[r.x, y])
        total[y] = hl.f32(self.first)
        total[y] += self.term(seen[r.x, y], peak[y])
        out[y] = peak[y] + hl.log(total[y])
        out.split(y, yo, yi, 16).vectorize(yi).gpu_blocks(yo)
        for f, split, rows in zip((peak, total), self.splits, self.rows, strict=True):
            f.compute_at(out, yo).bound_extent(y, 16).vectorize(y)
            ro, ri = hl.RVar("ro"), hl.RVar("ri")
            update = f.update().split(r.x, ro, ri, split).split(y, yo, yi, rows)
            update.reorder(ri, yi, yo, ro).atomic().vectorize(ri).vectorize(yi)
            if self.unrolled:
                update.unroll(yo)
        hb.online(peak, hl.Func("foreign") if self.foreign else total)
        return out


@pytest.mark.parametrize(
    "small",
    [
        Small(),
        Small(rows=(8, 8)),
        Small(term=lambda x, m: hl.pow(hl.f32(2), x - m) * x, times=True),
        Small(start=-np.inf),
        Small(term=lambda x, m: hl.exp((x - m) * hl.f32(1.0))),
        Small(term=lambda x, m: hl.exp(0 - (m - x))),
    ],
    ids=["plain", "rows", "power", "from -inf on", "one time", "turned"],
)
def test_any_sum_of_such_terms(small: Small) -> None:
    """Without tensor units: the logarithm of a sum of exponentials, row by row."""
    module = hb.lower(small.build())
    assert len(loops(module)) == 1
    kernel = hb.compile(small.build(), target="sm_90a")
    random = np.random.default_rng(3)
    for columns, rows in ((1, 1), (13, 5), (40, 33)):
        values = random.uniform(1, 30, (rows, columns)).astype(np.float32)
        wide = values.astype(np.float64)
        peak = wide.max(-1, keepdims=True)
        powers = np.exp(wide - peak)
        if small.times:
            powers = np.exp2(wide - peak) * wide
        expected = peak[:, 0] + np.log(powers.sum(-1))
        assert error(kernel.interpret(I=values, sizes=(rows,)), expected) < 1e-6


@pytest.mark.parametrize(
    ("small", "why"),
    [
        (Small(term=lambda x, m: hl.exp(x - m) + m), r"it is not exp\(x - maximum\)"),
        (Small(term=lambda x, m: hl.exp(x - m) * m), r"it is not exp\(x - maximum\)"),
        (Small(term=lambda x, m: hl.exp(x + m)), r"it is not exp\(x - maximum\)"),
        (Small(term=lambda x, m: hl.exp(m - x)), r"it is not exp\(x - maximum\)"),
        (Small(term=lambda x, m: x * x), "does not depend on `peak`"),
        (Small(term=lambda x, m: hl.pow(hl.f32(0.5), x - m)), r"it is not exp\(x - maximum\)"),
        (Small(start=np.inf), "does not start at a finite number"),
        (Small(term=lambda x, m: hl.exp((m - x) * 2)), r"it is not exp\(x - maximum\)"),
        (Small(term=lambda x, m: hl.exp(x - m * x)), r"it is not exp\(x - maximum\)"),
        (Small(term=lambda x, m: hl.exp(x * 2 - m) * hl.exp(x - m)), r"it is not exp\(x - max"),
        (Small(first=1.0), "`total` does not start at 0"),
        (Small(splits=(8, 4)), "do not have the same bounds"),
        (Small(foreign=True), "0 serial loops where `peak` is computed"),
        (Small(rows=(8, 8), unrolled=False), "by whole vectors"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_cannot_go_along_says_why(small: Small, why: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        hb.lower(small.build())
    text = str(caught.value)
    assert "cannot be taken along with the maximum `peak`" in text
    assert re.search(why, text), text
    assert "test_online.py" in text


def test_online_takes_a_maximum_and_other_funcs() -> None:
    x = hl.Var("x")
    f = hl.Func("f")
    f[x] = hl.f32(0)
    for sums in ((), (f,), (hl.ImageParam(hl.Float(32), 1, "I"),)):
        with pytest.raises(ScheduleError):
            hb.online(f, *sums)
