"""Sums over taps that begin where data, or a ratio, say: a program of the ``form`` "taps".

``out[x, y] = sum over u of A[x, clamp(start(y) + u)]*B[u, y]``, or along x. The compiler's own
schedule takes groups of results together (``hb.grouped``) for images that are large, which it is
told, and runs on small ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fuzzing.choices import base, index, some_axis
from fuzzing.program import Axis, Program, Sum

Random = random.Random
Array = np.ndarray[Any, Any]
Kinds = dict[str, tuple[str, tuple[int, ...]]]


def taps(r: Random) -> Program:
    axes = (some_axis(r, 32), Axis(r.randint(1, 80)))
    if r.random() < 0.5:
        axes = axes[::-1]
    p = base(("f16", "f32"), axes, (Sum(r.choice((3, 4, 6, 8, 11)), 1),), (index((1, "x")),),
             (index((1, "r.x")),), r)  # fmt: skip
    form = (
        ("along", r.choice((0, 1, 1))),
        ("start", r.choice(("data", "ratio"))),
        ("ratio", (r.choice((1, 3, 4, 7, 9)), r.choice((1, 2, 4, 5)))),
        ("source", r.randint(1, 120)),
        ("about", r.choice(((4096, 2340), (4096, 9000), (2048, 143)))),
    )
    return replace(p, memory="", form="taps", parts=form, schedule="auto", swapped=False,
                   result=r.choice(("f16", "f32")), instructions=())  # fmt: skip


def pipeline(p: Program) -> Iterator[str]:
    """The lines of ``pipeline(scheduled)``."""
    parts, count = dict(p.parts), p.sums[0].extent
    along, (up, down) = int(parts["along"]), parts["ratio"]
    v = "xy"[along]
    yield 'x, y = hl.Var("x"), hl.Var("y")'
    yield 'A, B = hl.ImageParam(hl.Float(16), 2, "A"), hl.ImageParam(hl.Float(16), 2, "B")'
    begin, arrays = f"({up}*{v} + 1)/{down} - 2", "A, B"
    if parts["start"] == "data":
        yield 'start = hl.ImageParam(hl.Int(32), 1, "start")'
        begin, arrays = f"start[{v}]", "A, B, start"
    yield f'u = hl.RDom([(0, {count})], "u")'
    yield f"at = hl.clamp({begin} + u, 0, A.dim({along}).extent() - 1)"
    yield 'total, out = hl.Func("total"), hl.Func("out")'
    place = "at, y" if along == 0 else "x, at"
    yield f"total[x, y] += hl.f32(A[{place}])*hl.f32(B[u, {v}])"
    yield f"out[x, y] = hl.cast(hl.Float({16 if p.result == 'f16' else 32}), total[x, y])"
    yield "if not scheduled:"
    yield "    total.compute_root()"
    yield f"    return out, ({arrays})"
    wide, to = parts["about"]
    shapes = ((wide, wide), (wide, to) if along == 0 else (to, wide))
    yield f'sizes = {{"A": {shapes[0]}, "out": {shapes[1]}}}'
    yield f'pipeline.schedule = hb.autoschedule(out, target="{p.target}", sizes=sizes)'
    yield "return out"


def kinds(p: Program) -> Kinds:
    """Type and extents (dimension 0 first) of every array."""
    parts = dict(p.parts)
    along, source = int(parts["along"]), int(parts["source"])
    results, other = p.sizes[along], p.sizes[1 - along]
    image = (source, other) if along == 0 else (other, source)
    found: Kinds = {"A": ("f16", image), "B": ("f16", (p.sums[0].extent, results))}
    if parts["start"] == "data":
        found["start"] = ("s32", (results,))
    return found


def result(p: Program, wide: Mapping[str, Array]) -> Array:
    """The output in float64, of arrays in float64."""
    parts = dict(p.parts)
    along, (up, down) = int(parts["along"]), parts["ratio"]
    n = p.sizes[along]
    begin = (up * np.arange(n) + 1) // down - 2
    if parts["start"] == "data":
        begin = wide["start"][:n].astype(np.int64)
    image = wide["A"] if along == 1 else wide["A"].T  # (along, the other)
    image = image[:, : p.sizes[1 - along]]
    at = np.clip(begin[:, None] + np.arange(p.sums[0].extent), 0, image.shape[0] - 1)
    found = (image[at] * wide["B"][:n, : p.sums[0].extent, None]).sum(1)
    found = found if along == 1 else found.T
    return found.astype(np.float16).astype(np.float64) if p.result == "f16" else found
