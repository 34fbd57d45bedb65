"""What a schedule makes of a Func, in words."""

from __future__ import annotations

from collections.abc import Iterator

from halide_bridge.schedules.plan import Plan
from halide_bridge.schedules.recognise.facts import Place
from halide_bridge.schedules.recognise.program import Member
from selector.families import layers, transforms, windows


def where_to(member: Member, where: Place, plan: Plan) -> str:
    """Where a Func is computed, on tensor units if it is."""
    for found, tiled in plan.online.values():
        if member.name in (found.scores, found.mixed):
            unit = "wgmma" if tiled.groups else "mma"
            run = f"{tiled.block} queries a block, {tiled.keys} keys at a time"
            return f"on tensor units by {unit}, {run}"
        if member.name in (found.peak, found.total, found.weight):
            return "in the loop over keys that the product is in"
    if member.label in plan.banded:
        return "on tensor units by mma, the weights of a group of results as a band"
    if member.label not in plan.tensor:
        return where.value
    tiling = plan.tensor[member.label][1]
    if isinstance(tiling, transforms.Tiling):
        return f"transforms on tensor units by mma, tiles of {tiling.width} x {tiling.height}"
    unit = "wgmma" if tiling.unit == "group" else "mma"
    if isinstance(tiling, layers.Tiling):
        box = " x ".join(map(str, tiling.block))
        return f"a layer on tensor units by {unit}, tiles of {box} pixels x {tiling.n} filters"
    if isinstance(tiling, windows.Tiling):
        return f"windows on tensor units by {unit}, tiles of {tiling.width} x {tiling.height}"
    return f"on tensor units by {unit}, tiles of {tiling.m} x {tiling.n} x {tiling.k}"


def why_not(member: Member, plan: Plan) -> Iterator[str]:
    """What a Func was looked at for, and why it is not that."""
    if member.label in plan.misses:
        yield f"  not on a tensor unit: {plan.misses[member.label]}"
    if member.label in plan.loops:
        yield f"  not one loop over keys: {plan.loops[member.label]}"
