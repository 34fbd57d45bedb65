"""The schedule of sums over windows in which channels have filters of their own
(``recognise.channels``): threads with a tile of results, and what that reads, in their registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import mul
from typing import Any

from halide_bridge.schedules.asked import resident_blocks
from halide_bridge.schedules.kernels import Grid, fused
from halide_bridge.schedules.recognise.channels import Channels
from halide_bridge.schedules.recognise.facts import Placement
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.stock import GPU_SHARED, REGISTER
from selector.families.channels import Tile


def by_threads(
    script: Script,
    found: Channels,
    tile: Tile,
    stored: Recorded,
    order: Sequence[int],
    placement: Placement,
) -> Grid:
    """The directives; ``stored`` reads the sums where it is computed itself, its dimensions in
    that ``order``.
    """
    members = placement.program.members
    member = members[found.func]
    total = script.func(member.label, member.handle)
    own = stored.args()
    innermost, block = _spread(script, stored, tile, [own[d] for d in order])
    args = total.args()
    total.compute_at(stored, innermost).store_in(REGISTER)
    for arg, n in zip(args, tile.each, strict=True):
        total.bound_extent(arg, n)
    _written_out(total, args, tile)
    update, domain = total.update(0), total.rvars(0)
    rolled = None if tile.rolled is None else domain[found.taps[tile.rolled]]
    inner = [r for r in domain if r is not rolled]
    update.reorder(*args, *inner, *([] if rolled is None else [rolled]))
    _written_out(update, args, tile)
    for r in inner:
        update.unroll(r)
    at = (stored, innermost) if rolled is None else (total, rolled)
    for name, along in ((found.weights, found.along), (found.image, 0)):
        source = script.func(members[name].label, members[name].handle).stored()
        kept = source.in_(total)
        _keep(kept, at, tile, along, row=name == found.image and tile.row)
        if tile.staged:
            staged = source.in_(kept)
            staged.compute_at(stored, block).store_in(GPU_SHARED)
            if name == found.image:
                spans = map(mul, tile.threads, tile.each)
                for arg, n, w in zip(staged.args(), spans, found.windows, strict=True):
                    staged.bound_extent(arg, w.reach(n))
    if tile.resident > 1:
        resident_blocks(stored, tile.resident)
    each = " x ".join(map(str, tile.each))
    text = f"{prod(tile.threads)} threads, {each} of pixels, and what they read, in registers"
    text += ", by way of shared memory" if tile.staged else ""
    return Grid(text=text)


def _spread(script: Script, stored: Recorded, tile: Tile, args: Sequence[Any]) -> tuple[Any, Any]:
    """Give each thread its tile; the innermost loops over threads and blocks. Of
    dimensions that are fused all but the last two are split, by 1 if need be: of a remainder's
    remainder Halide knows no more than that it is within the dimension, and refuses calls of more
    than one element.
    """
    stored.compute_root()
    parts, threads, blocks = list[Any](), list[Any](), list[Any]()
    for d, arg in enumerate(args):
        o, t, u = script.variables(f"d{d}o", f"d{d}t", f"d{d}u")
        n, each = tile.threads[d], tile.each[d]
        if n == each == 1 and d not in range(2, len(args) - 2):
            blocks.append(arg)
            continue
        stored.split(arg, o, t, n * each)
        blocks.append(o)
        if each > 1 and n > 1:
            stored.split(t, t, u, each)
        if n > 1:
            threads.append(t)
        if each > 1 or n == 1:
            parts.append((u if n > 1 else t, d))
    if not threads:
        o, t = script.variables("d0o", "d0t")
        stored.split(blocks[0], o, t, 1)
        blocks[0], threads = o, [t]
    grid = (*blocks[:2], *fused(script, stored, blocks[2:]))
    stored.reorder(*(part for part, _ in parts), *threads, *grid)
    for part, d in parts:
        stored.vectorize(part) if d == 0 and tile.vectors else stored.unroll(part)
    stored.gpu_blocks(*grid).gpu_threads(*threads)
    return threads[0], grid[0]


def _written_out(stage: Recorded, args: Sequence[Any], tile: Tile) -> None:
    for d, (arg, n) in enumerate(zip(args, tile.each, strict=True)):
        if d == 0 and tile.vectors:
            stage.vectorize(arg)
        elif n > 1:
            stage.unroll(arg)


def _keep(kept: Recorded, at: tuple[Recorded, Any], tile: Tile, along: int, *, row: bool) -> None:
    """Have a thread load what its tile reads of a Func once, whose channels are ``along`` one of
    its dimensions: what lies inside of these is of the same vectors; of planes, whose ``row`` it
    has some neighbours of, what these read there.
    """
    kept.compute_at(*at).store_in(REGISTER)
    for d, arg in enumerate(kept.args()):
        if d == along and tile.lanes > 1:
            kept.bound_extent(arg, tile.lanes)
        if (d <= along and tile.lanes > 1) or (d == 0 and row):
            kept.vectorize(arg)
        else:
            kept.unroll(arg)
