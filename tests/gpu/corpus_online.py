"""Corpus: sums along with their maximum (attention), on warps and on warpgroups."""

from __future__ import annotations

import halide as hl
from corpus_case import Case, Shape

from casestudies.attention.algorithm import attend
from casestudies.attention.schedule import Tiles, tensor

WARPS = Tiles(2, 32, 32, 3)
GROUPS = Tiles(2, 64, 64, 2, 64, groups=True)
MANY = Tiles(3, 64, 128, 2, 64, groups=True)  # too many numbers for equal shares of the registers


def _build(depth: int, tiles: Tiles, causal: bool) -> hl.Func:
    return tensor(attend(depth, causal=causal, run=tiles.keys), tiles)


def _shapes(size: Shape, keys: int | None) -> dict[str, Shape]:
    depth, queries, heads = size
    return dict.fromkeys("KV", (depth, keys or queries, heads))


def _case(name: str, depth: int, tiles: Tiles, keys: int | None, *, causal: bool = False) -> Case:
    return Case(
        f"online_{name}",
        lambda: _build(depth, tiles, causal),
        ((depth, 70, 2), (depth, 193, 1)),
        True,
        shapes=lambda size: _shapes(size, keys),
        tolerance=1e-3,
        target="sm_90a" if tiles.groups else None,
    )


ONLINE: list[Case] = [
    _case("warps", 64, WARPS, 131),
    _case("warps_causal", 32, WARPS, None, causal=True),
    _case("groups", 64, GROUPS, 131),
    _case("groups_causal", 64, GROUPS, None, causal=True),
    _case("groups_shares", 64, MANY, 257),
    _case("groups_wide", 128, Tiles(2, 64, 128, 2, 64, groups=True), 130),
]
