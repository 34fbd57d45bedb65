"""Programs of several sums: what one product makes is an operand of the next.

``chain``: ``out = f16(A B) C``, or with A and B on the other side (``swapped``), as the stages of a
transform hand on to each other. ``online``: attention, whose maximum, sum of weights and weighted
sum are one loop (``hb.online``), by the algorithm and the schedule of the case study. A program of
such a ``form`` uses the fields of others as far as it has them: axes, sums, target, result.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fuzzing.choices import base, index, some_axis, some_size
from fuzzing.program import Axis, Program, Sum

Random = random.Random
Array = np.ndarray[Any, Any]
Kinds = dict[str, tuple[str, tuple[int, ...]]]
WIDEST = 32  # columns of a vector
NO_SUM = Sum(1)
WEIGHTS = 2e-3  # error that a sum of weights in f16 may have


def chain(r: Random) -> Program:
    """A product with a product, tiles of rows that warps or warpgroups share out."""
    groups = r.random() < 0.4
    rows, memory = (64, "wgmma") if groups else (16, "wmma")
    columns = r.choice((32, 64)) if groups else r.choice((16, 16, 32))
    axes = (some_axis(r, columns), some_axis(r, rows, 1, r.choice((1, 2) if groups else (1, 2, 4))))
    inner = r.choice((16, 32, 48, 64))
    depth = inner if r.random() < 0.7 else r.choice((7, 20, 33, 40))
    if groups:
        depth, inner = r.choice((16, 32, 64)), r.choice((32, 64))
    sums = (Sum(depth, 16 if depth % 16 == 0 else depth), Sum(inner, 16))
    p = base(("f16", "f32"), axes, sums, (index((1, "r.x")), index((1, "y"))),
             (index((1, "r.y")), index((1, "r.x"))), r, memory)  # fmt: skip
    swapped = p.swapped and not groups
    made = r.choice(("", "", "relu", "scale"))
    result = r.choice(("f32", "f32", "f16"))
    between = "register" if groups or r.random() < (0.1 if swapped else 0.7) else "shared"
    form = (("between", between), ("made", made), ("staged", r.choice(("", "A", "B", "C", "BC"))))
    if groups:
        form = (("between", between), ("made", made), ("staged", "ABC"))
    return replace(p, form="chain", swapped=swapped, parts=form, result=result, values="small")


def online(r: Random) -> Program:
    """Attention: channels, queries, heads; ragged numbers of queries and keys."""
    groups = r.random() < 0.4
    depth = r.choice((64, 64, 128)) if groups else r.choice((32, 64, 64, 96))
    rows, run = (64, r.choice((64, 128))) if groups else (r.choice((16, 32)), r.choice((32, 64)))
    units = r.choice((1, 2)) if groups else r.choice((1, 2, 3, 4))
    queries = some_size(r, rows * units)
    causal = r.random() < 0.35
    keys = queries if causal else some_size(r, run)
    axes = (Axis(depth, depth), Axis(queries, rows, 1, units), Axis(r.choice((1, 2))))
    p = base(("f16", "f32"), axes, (Sum(keys, run),), (index((1, "x")), index((1, "y"))),
             (index((1, "x")), index((1, "r.x"))), r, "wgmma" if groups else "wmma")  # fmt: skip
    score = r.choice(("plain", "plain", "soft_cap"))
    form = (("causal", causal), ("score", score), ("stages", r.choice((1, 2, 2, 3))))
    return replace(p, form="online", swapped=False, parts=form, values="real")


def unscheduled(r: Random, p: Program) -> Program:
    """The algorithm, which the compiler is to schedule; of attention the numbers of keys, of
    queries, or both may be constants."""
    parts = {n: v for n, v in p.parts if n in ("made", "causal", "score")}
    if p.form == "online":
        parts["constant"] = r.choice(("", "", "keys", "queries", "keys and queries"))
    return replace(
        p, schedule=r.choice(("auto", "sized")), parts=tuple(parts.items()), memory="",
        target=r.choice(("sm_80", "sm_90a")), result=r.choice(("f16", "f32")), instructions=(),
    )  # fmt: skip


# ----------------------------------------------------------------------- text


def pipeline(p: Program) -> Iterator[str]:
    """The lines of ``pipeline(scheduled)``."""
    if p.form == "chain":
        yield from _chain_lines(p)
    else:
        yield from _online_lines(p) if p.schedule == "drawn" else _plain_lines(p)


def _chain_lines(p: Program) -> Iterator[str]:
    parts = dict(p.parts)
    depth, inner = (s.extent for s in p.sums)
    yield 'x, y, m, xo, xi, yo, yi, yw, xu = map(hl.Var, "x y m xo xi yo yi yw xu".split())'
    yield 'A, B, C = (hl.ImageParam(hl.Float(16), 2, n) for n in "ABC")'
    yield f'r, s = hl.RDom([(0, {depth})], "r"), hl.RDom([(0, {inner})], "s")'
    yield 'first, kept, acc, out = (hl.Func(n) for n in ("first", "kept", "acc", "out"))'
    at, mine = ("x, m", "x, s.x") if p.swapped else ("m, y", "s.x, y")
    one, other = ("A[m, r.x]", "B[r.x, x]") if p.swapped else ("A[r.x, y]", "B[m, r.x]")
    third = "C[s.x, y]" if p.swapped else "C[x, s.x]"
    yield f"first[{at}] = hl.f32(0)"
    yield f"first[{at}] += hl.f32({one})*hl.f32({other})"
    made = {"": "first[{0}]", "relu": "hl.max(first[{0}], 0)", "scale": "first[{0}]*0.5"}
    yield f"kept[{at}] = hl.cast(hl.Float(16), {made[str(parts['made'])].format(at)})"
    yield "acc[x, y] = hl.f32(0)"
    yield f"acc[x, y] += hl.f32(kept[{mine}])*hl.f32({third})"
    yield f"out[x, y] = hl.cast(hl.Float({16 if p.result == 'f16' else 32}), acc[x, y])"
    yield "if not scheduled:"
    yield "    for f in (first, kept, acc):"
    yield "        f.compute_root()"
    yield "    return out, (A, B, C)"
    yield from _chain_schedule(p, at) if p.schedule == "drawn" else _own(p)


def _own(p: Program) -> Iterator[str]:
    """The compiler's own schedule."""
    shapes = {n: s[::-1] for n, (_, s) in kinds(p).items()} | {"out": p.sizes[::-1]}
    sizes = f", sizes={shapes}" if p.schedule == "sized" else ""
    yield f'pipeline.schedule = hb.autoschedule(out, target="{p.target}"{sizes})'
    yield "return out"


def _chain_schedule(p: Program, at: str) -> Iterator[str]:
    parts, (across, down) = dict(p.parts), p.axes
    memory = {"wmma": "WMMAAccumulator", "wgmma": "WGMMAAccumulator"}[p.memory]
    place = "Register" if parts["between"] == "register" else "GPUShared"
    yield f"out.split(x, xo, xi, {across.vector}).split(y, yo, yi, {down.part})"
    yield f"out.split(yi, yi, yw, {down.unit})"
    yield f"out.split(xi, xu, xi, {_widest(p, across.vector)})"
    yield "out.reorder(xi, yw, xu, yi, xo, yo).vectorize(xi).vectorize(yw).unroll(xu)"
    yield "out.gpu_blocks(xo, yo).gpu_threads(yi)"
    bounds = {"x": across.vector, "y": down.unit, "m": p.sums[1].extent}
    for f, names, number in (("acc", "x, y", 1), ("first", at, 0)):
        tile = _tile(p, bounds, names)
        yield f"{f}.compute_at(out, yi)"
        yield f"hb.store_in({f}, hb.MemoryType.{memory})"
        yield from (f"{f}.bound_extent({n}, {extent})" for n, extent, _ in tile)
        yield from _tiled(f, tile)
        yield f"update = {f}.update()"
        yield from _tiled("update", tile, "rs"[number], p.sums[number])
    tile = _tile(p, bounds, at)
    yield f"kept.compute_at(out, yi).store_in(hl.MemoryType.{place})"
    yield from (f"kept.bound_extent({n}, {extent})" for n, extent, _ in tile)
    yield from _tiled("kept", tile)
    yield from _chain_copies(p, bounds)
    yield "return out"


Tile = tuple[tuple[str, int, int], ...]  # loops, their extents, and those of vectors


def _tile(p: Program, bounds: Mapping[str, int], names: str) -> Tile:
    return tuple(
        (n, bounds[n], bounds[n] if n == "y" else _widest(p, bounds[n])) for n in names.split(", ")
    )


def _widest(p: Program, columns: int) -> int:
    """Columns of a vector: 64 rows of 64 with 16 terms each would be too many numbers."""
    return min(columns, WIDEST) if p.memory == "wgmma" else columns


def _tiled(stage: str, tile: Tile, name: str = "", s: Sum = NO_SUM) -> Iterator[str]:
    """A stage as vectors, also of the terms of a sum, the others unrolled."""
    vectors: list[str] = []
    unrolled: list[str] = []
    terms = ((f"{name}.x", s.extent, s.vector),) if name else ()
    for n, extent, vector in (*terms, *tile):
        vectors.append(n)
        if vector < extent:
            kind, u, v = "RVar" if "." in n else "Var", f"{n[0]}u", f"{n[0]}v"
            yield f'{u}, {v} = hl.{kind}("{u}"), hl.{kind}("{v}")'
            yield f"{stage}.split({n}, {u}, {v}, {vector})"
            vectors[-1] = v
            unrolled.append(u)
    yield f"{stage}.reorder({', '.join(vectors + unrolled)})"
    if name:
        yield f"{stage}.atomic()"
    yield from (f"{stage}.vectorize({n})" for n in vectors)
    yield from (f"{stage}.unroll({n})" for n in unrolled)


def _chain_copies(p: Program, bounds: Mapping[str, int]) -> Iterator[str]:
    """Operands in shared memory, for the block."""
    (depth, inner), rows = (s.extent for s in p.sums), p.axes[1].part
    extents = {"A": (depth, rows), "B": (inner, depth), "C": (bounds["x"], inner)}
    if p.swapped:
        extents = {"A": (inner, depth), "B": (depth, bounds["x"]), "C": (inner, rows)}
    for name in str(dict(p.parts)["staged"]):
        f, reader = f"staged_{name}", "acc" if name == "C" else "first"
        yield f"{f} = {name}.in_({reader})"
        yield f"{f}.compute_at(out, xo).store_in(hl.MemoryType.GPUShared)"
        for d, extent in enumerate(extents[name]):
            yield f"{f}.bound_extent({f}.args()[{d}], {extent}).vectorize({f}.args()[{d}])"


def _online_lines(p: Program) -> Iterator[str]:
    parts, rows, run = dict(p.parts), p.axes[1], p.sums[0].vector
    groups = p.memory == "wgmma"
    yield "from casestudies.attention.algorithm import attend, plain"
    yield "from casestudies.attention.scores import variant"
    yield "from halide_bridge.schedules import schedule_attention"
    yield "from selector.families.attention import Tiling"
    yield f"p = attend({p.axes[0].size}, causal={parts['causal']}, run={run},"
    yield f'           variant=variant("{parts["score"]}"))'
    yield "if not scheduled:"
    yield "    return plain(p), (p.query, p.key, p.value)"
    yield f"tiling = Tiling({rows.warps}, {rows.unit}, {run}, {parts['stages']},"
    yield f"                {64 if groups else 16}, groups={groups})"
    yield "return schedule_attention(p, tiling)"


def _plain_lines(p: Program) -> Iterator[str]:
    """Attention as one writes it down."""
    parts, (depth, queries, _) = dict(p.parts), p.sizes
    constant = str(parts["constant"])
    keys = p.sums[0].extent if "keys" in constant else "K.dim(1).extent()"
    yield 'd, m, n, h = map(hl.Var, "dmnh")'
    yield 'Q, K, V = (hl.ImageParam(hl.Float(16), 3, name) for name in "QKV")'
    yield f'c, k = hl.RDom([(0, {depth})], "c"), hl.RDom([(0, {keys})], "k")'
    yield 'names = "scores scaled peak weight total mixed out".split()'
    yield "scores, scaled, peak, weight, total, mixed, out = map(hl.Func, names)"
    yield "scores[n, m, h] += hl.f32(Q[c, m, h])*hl.f32(K[c, n, h])"
    yield f"score = scores[n, m, h]*hl.f32({1 / math.sqrt(depth)})"
    if parts["score"] == "soft_cap":
        yield "from casestudies.attention.problem import SOFT_CAP"
        yield "score = hl.tanh(score/SOFT_CAP)*SOFT_CAP"
    if parts["causal"]:
        yield "score = hl.select(n <= m, score, hl.f32(-1e30))"
    yield "scaled[n, m, h] = score"
    yield "peak[m, h] = hl.f32(-1e30)"
    yield "peak[m, h] = hl.max(peak[m, h], scaled[k, m, h])"
    yield "weight[n, m, h] = hl.exp(scaled[n, m, h] - peak[m, h])"
    yield "total[m, h] += weight[k, m, h]"
    yield "mixed[d, m, h] += hl.f32(hl.cast(hl.Float(16), weight[k, m, h]))*hl.f32(V[d, k, h])"
    value = "mixed[d, m, h]/total[m, h]"
    yield f"out[d, m, h] = {f'hl.cast(hl.Float(16), {value})' if p.result == 'f16' else value}"
    if "queries" in constant:
        yield f"out.bound(m, 0, {queries})"
    yield f"out.bound(d, 0, {depth})"
    yield "if not scheduled:"
    yield "    for f in (scores, scaled, peak, weight, total, mixed):"
    yield "        f.compute_root()"
    yield "    return out, (Q, K, V)"
    yield from _own(p)


# -------------------------------------------------------------------- numbers


def kinds(p: Program) -> Kinds:
    """Type and extents (dimension 0 first) of every array."""
    if p.form == "chain":
        (across, down), (depth, inner) = p.sizes, (s.extent for s in p.sums)
        shapes = {"A": (depth, down), "B": (inner, depth), "C": (across, inner)}
        if p.swapped:
            shapes = {"A": (inner, depth), "B": (depth, across), "C": (inner, down)}
    else:
        depth, queries, heads = p.sizes
        keys = (depth, p.sums[0].extent, heads)
        shapes = {"Q": (depth, queries, heads), "K": keys, "V": keys}
    return {name: ("f16", shape) for name, shape in shapes.items()}


def result(p: Program, arrays: Mapping[str, Array]) -> Array:
    """The output in float64; what is handed on is f16."""
    cut = {n: arrays[n][tuple(slice(e) for e in s[::-1])] for n, (_, s) in kinds(p).items()}
    return _chained(p, cut) if p.form == "chain" else _attended(p, cut)


def _chained(p: Program, wide: Mapping[str, Array]) -> Array:
    a, b, c = (wide[name] for name in "ABC")
    first = np.einsum("rm,xr->mx", a, b) if p.swapped else a @ b
    match dict(p.parts)["made"]:
        case "relu":
            first = np.maximum(first, 0)
        case "scale":
            first = first * 0.5
        case _:
            pass
    first = first.astype(np.float16).astype(np.float64)
    found = c @ first if p.swapped else first @ c
    with np.errstate(over="ignore"):
        return found.astype(np.float16).astype(np.float64) if p.result == "f16" else found


def _attended(p: Program, wide: Mapping[str, Array]) -> Array:
    q, k, v = (wide[name] for name in "QKV")
    scores = q @ k.swapaxes(1, 2) / math.sqrt(p.sizes[0])
    parts = dict(p.parts)
    if parts["score"] == "soft_cap":
        from casestudies.attention.problem import SOFT_CAP

        scores = np.tanh(scores / SOFT_CAP) * SOFT_CAP
    if parts["causal"]:
        scores = np.where(np.tri(*scores.shape[1:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return weights @ v / weights.sum(axis=2, keepdims=True)
