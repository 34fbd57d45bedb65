"""Corpus: sums along with their maximum (attention), on warps and on warpgroups."""

from __future__ import annotations

import halide as hl
from corpus_case import Case, Shape

from casestudies.attention.algorithm import attend
from casestudies.attention.scores import variant
from halide_bridge.schedules import schedule_attention
from selector.families.attention import Tiling

WARPS = Tiling(2, 32, 32, 3)
GROUPS = Tiling(2, 64, 64, 2, 64, groups=True)
MANY = Tiling(3, 64, 128, 2, 64, groups=True)  # too many numbers for equal shares of the registers


def _build(depth: int, tiles: Tiling, causal: bool, score: str) -> hl.Func:
    pipeline = attend(depth, causal=causal, run=tiles.keys, variant=variant(score))
    return schedule_attention(pipeline, tiles)


def _shapes(size: Shape, keys: int | None, score: str) -> dict[str, Shape]:
    depth, queries, heads = size
    found = dict.fromkeys("KV", (depth, keys or queries, heads))
    if score == "bias":
        found["bias"] = (keys or queries, queries, heads)
    return found


def _case(
    name: str,
    depth: int,
    tiles: Tiling,
    keys: int | None,
    *,
    causal: bool = False,
    score: str = "plain",
) -> Case:
    return Case(
        f"online_{name}",
        lambda: _build(depth, tiles, causal, score),
        ((depth, 70, 2), (depth, 193, 1)),
        True,
        shapes=lambda size: _shapes(size, keys, score),
        tolerance=1e-3,
        target="sm_90a" if tiles.groups else None,
    )


ONLINE: list[Case] = [
    _case("warps", 64, WARPS, 131),
    _case("warps_causal", 32, WARPS, None, causal=True),
    _case("warps_bias", 64, WARPS, 131, score="bias"),
    _case("groups", 64, GROUPS, 131),
    _case("groups_causal", 64, GROUPS, None, causal=True),
    _case("groups_shares", 64, MANY, 257),
    _case("groups_wide", 128, Tiling(2, 64, 128, 2, 64, groups=True), 130),
    _case("groups_bias", 64, GROUPS, 131, score="bias"),  # rows that no copy of 16 bytes fits
    _case("groups_bias_shares", 64, MANY, 264, score="bias"),
    _case("groups_slopes", 64, GROUPS, None, causal=True, score="slopes"),
    _case("groups_cap", 64, GROUPS, 131, score="soft_cap"),
]
