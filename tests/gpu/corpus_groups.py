"""Corpus: matrix products on warpgroups (wgmma), whose operands lie in swizzled shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl
from corpus_case import Case, Shape, variables

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared
F16, F32, BF16 = hl.Float(16), hl.Float(32), hl.BFloat(16)
S8, U8, S32 = hl.Int(8), hl.UInt(8), hl.Int(32)


@dataclass(frozen=True)
class Groups:
    """``C[n, m] = f(sum A[k, m] * B[n, k])``; ``layout``: "nn", with "t" for an operand that is
    stored transposed. ``wide``: operands are f32 and narrowed on the way into shared memory.
    ``rows``: block rows that a block computes one after the other. ``batch``: a third dimension.
    ``lasting``: blocks a multiprocessor that do everything, by ``teams`` in turn. ``cluster``:
    neighbours along n, which share A. ``self_fed``: no group of its own brings operands.
    ``ahead``: operands that a kernel of their own copies before.
    """

    types: tuple[hl.Type, hl.Type] = (F16, F32)
    layout: str = "nn"
    block: tuple[int, int] = (64, 64)  # n, m
    groups: tuple[int, int] = (1, 1)
    vector: tuple[int, int] = (32, 16)  # n, k
    step: int = 64
    stages: int = 3
    epilogue: str = ""
    result: tuple[hl.Type, ...] = (F32,)
    wide: bool = False
    rows: int = 1
    batch: bool = False
    lasting: int = 0
    teams: int = 1
    cluster: int = 1
    self_fed: bool = False
    ahead: str = ""


def product(p: Groups) -> hl.Func:
    n, m, z, no, mo, ni, mi, ms = variables("n m z no mo ni mi ms")
    zs = [z] if p.batch else []
    operand, accumulator = p.types
    stored = F32 if p.wide else operand
    a, b = (hl.ImageParam(stored, 2 + p.batch, name) for name in "AB")
    k = hl.RDom([(0, a.dim(1 if p.layout[0] == "t" else 0).extent())], "k")
    left = a[(m, k.x, *zs)] if p.layout[0] == "t" else a[(k.x, m, *zs)]
    right = b[(k.x, n, *zs)] if p.layout[1] == "t" else b[(n, k.x, *zs)]
    mm, out = hl.Func("mm"), hl.Func("C")
    narrow = [hl.Func("left"), hl.Func("right")]
    if p.wide:
        x, y = hl.Var("x"), hl.Var("y")
        for func, source in zip(narrow, (a, b), strict=True):
            func[x, y] = hl.cast(operand, source[x, y])
        left, right = narrow[0][k.x, m], narrow[1][n, k.x]
    where = (n, m, *zs)
    mm[where] = hl.cast(accumulator, 0)
    mm[where] += hl.cast(accumulator, left) * hl.cast(accumulator, right)
    value = mm[where]
    if p.epilogue == "bias-relu":
        bias = hl.ImageParam(F32, 1, "bias")
        value = hl.max(value + bias[n], 0.0)
    out[where] = hl.cast(p.result[0], value)

    out.tile(n, m, no, mo, ni, mi, *p.block)
    if p.rows > 1:
        out.split(mo, mo, ms, p.rows)
        out.reorder(ni, mi, ms, no, mo, *zs)
    out.gpu_blocks(no, mo, *zs)
    if p.lasting:
        hb.persistent(out, p.lasting)
    hb.teams(out, p.teams)
    hb.cluster(out, p.cluster)
    vectors, parts = _tiled(out, ni, mi, p)
    ko, ki, ku, kv = (hl.RVar(name) for name in ("ko", "ki", "ku", "kv"))
    mm.bound_extent(n, p.block[0]).bound_extent(m, p.block[1])
    mm.compute_at(out, ms if p.rows > 1 else no)
    hb.store_in(mm, hb.MemoryType.WGMMAAccumulator)
    _tiled(mm, n, m, p)
    update = mm.update().split(k.x, ko, ki, p.step).split(ki, ku, kv, p.vector[1])
    vectors, parts = _tiled(update.atomic(), n, m, p)
    update.reorder(kv, *vectors, ku, *parts, ko).vectorize(kv).unroll(ku)
    staged = narrow if p.wide else [_source(x, mm, p).in_(mm) for x in (a, b)]
    if p.self_fed:
        hb.self_fed(out)
    extents = [(p.step, p.block[1]), (p.block[0], p.step)]
    for number, copy in enumerate(staged):
        inner, outer = copy.args()[:2]
        sizes = extents[number][::-1] if p.layout[number] == "t" else extents[number]
        copy.compute_at(mm, ko).store_in(SHARED).vectorize(inner).vectorize(outer)
        copy.bound_extent(inner, sizes[0]).bound_extent(outer, sizes[1])
        if p.stages > 1:
            hb.pipeline_stages(copy, p.stages)
    return out


def _source(operand: hl.ImageParam, mm: hl.Func, p: Groups) -> hl.ImageParam | hl.Func:
    """What is staged: an operand, or a copy of it in rows of whole 16 bytes."""
    if operand.name() not in p.ahead:
        return operand
    copy, run = operand.in_(mm), 16 // operand.type().bytes()
    x, y, *_ = copy.args()
    xo, yo, xi, yi, xv = variables("xo yo xi yi xv")
    copy.compute_root().align_storage(x, run)
    copy.tile(x, y, xo, yo, xi, yi, 8 * run, 16).split(xi, xi, xv, run)
    copy.vectorize(xv).gpu_threads(xi, yi).gpu_blocks(xo, yo)
    return copy


def _tiled(
    stage: hl.Func | hl.Stage, n: hl.Var, m: hl.Var, p: Groups
) -> tuple[tuple[hl.Var, ...], tuple[hl.Var, ...]]:
    ng, nu, nv, mg, mu, mv = variables("ng nu nv mg mu mv")
    stage.split(n, ng, nv, p.block[0] // p.groups[0]).split(nv, nu, nv, p.vector[0])
    stage.split(m, mg, mv, p.block[1] // p.groups[1]).split(mv, mu, mv, 64)
    stage.reorder(nv, mv, nu, mu, ng, mg)
    stage.vectorize(nv).vectorize(mv).unroll(nu).unroll(mu).gpu_threads(ng, mg)
    return (nv, mv, nu, mu), (ng, mg)


def _shapes(p: Groups, depth: int, size: Shape) -> dict[str, Shape]:
    n, m, *z = size
    a, b = (depth, m), (n, depth)
    left = a[::-1] if p.layout[0] == "t" else a
    right = b[::-1] if p.layout[1] == "t" else b
    return {"A": (*left, *z), "B": (*right, *z), **({"bias": (n,)} if p.epilogue else {})}


VARIANTS: dict[str, Groups] = {
    **{f"layout_{layout}": Groups(layout=layout) for layout in ("nn", "nt", "tn", "tt")},
    "bf16": Groups((BF16, F32)),
    **{
        f"bytes_{name}": Groups(
            (operand, S32), "nt", block=block, vector=(vector, 32), step=128, result=(S32,)
        )
        for name, operand, block, vector in (
            ("signed", S8, (64, 64), 16),
            ("unsigned", U8, (128, 64), 16),
            ("narrow", S8, (40, 64), 8),
        )
    },
    "f16_sums": Groups((F16, F16), result=(F16,)),
    "narrow_result": Groups(result=(F16,), block=(128, 128), groups=(1, 2)),
    "bias_relu": Groups(epilogue="bias-relu", block=(128, 64), stages=2),
    "two_wide": Groups(block=(256, 64), groups=(2, 1), layout="nt"),
    "two_tiles": Groups(block=(32, 128), step=32),
    "ragged_width": Groups(block=(96, 64), step=32, stages=4),
    "unstaged": Groups(stages=1, block=(128, 64)),
    "narrowed": Groups(wide=True),
    "narrowed_now": Groups(wide=True, stages=1),
    "in_turn": Groups(rows=2),
    "batched": Groups(batch=True),
    "self_fed": Groups(self_fed=True),
    "self_fed_two": Groups(self_fed=True, block=(128, 128), groups=(1, 2), layout="tt", stages=2),
    "self_fed_f16_sums": Groups((F16, F16), result=(F16,), self_fed=True),
    "self_fed_narrowed": Groups(wide=True, self_fed=True),
    "self_fed_in_turn": Groups(rows=2, self_fed=True, result=(F16,), epilogue="bias-relu"),
    "ahead": Groups(ahead="AB"),
    "ahead_tn": Groups(ahead="A", layout="tn", types=(BF16, F32), result=(F16,)),
    "ahead_bytes": Groups(
        (S8, S32), "nt", vector=(16, 32), step=128, result=(S32,), ahead="AB", lasting=1
    ),
    "lasting": Groups(lasting=1),
    "lasting_two_tt": Groups(lasting=1, layout="tt", block=(128, 128), groups=(1, 2), stages=2),
    "lasting_twice": Groups(lasting=2, result=(F16,), epilogue="bias-relu"),
    "lasting_f16_sums": Groups((F16, F16), result=(F16,), lasting=1),
    "lasting_narrowed": Groups(wide=True, lasting=1),
    "lasting_batched": Groups(batch=True, lasting=1),
    "teams": Groups(lasting=1, teams=2),
    "teams_three": Groups(lasting=1, teams=3, stages=4, result=(F16,), epilogue="bias-relu"),
    "teams_pairs": Groups(lasting=1, teams=2, block=(64, 128), groups=(1, 2), layout="tt"),
    "teams_cluster": Groups(lasting=1, teams=2, cluster=2, stages=2),
    "teams_f16_sums": Groups((F16, F16), result=(F16,), lasting=1, teams=2),
    "cluster": Groups(cluster=2),  # parts of 32 rows of A
    "cluster_tn": Groups(cluster=2, layout="tn", block=(64, 128), groups=(1, 2)),  # panels of A
    "cluster_lasting": Groups(cluster=2, lasting=1, stages=2),
    "cluster_lasting_batched": Groups(cluster=4, lasting=1, batch=True, result=(F16,)),
    "cluster_four": Groups(cluster=4, block=(64, 128), groups=(1, 2)),
    "cluster_four_lasting": Groups(cluster=4, lasting=1, stages=2),
    "teams_three_cluster": Groups(lasting=1, teams=3, cluster=2, stages=4),
    "cluster_f16_sums": Groups((F16, F16), result=(F16,), cluster=2, lasting=1),
}
# Rows that tensor maps can describe (multiples of 16 bytes), and rows that they cannot.
SIZES: tuple[tuple[Shape, int], ...] = (((200, 136), 208), ((67, 131), 75))


def _tolerance(p: Groups) -> float:
    if p.types[1] == S32:
        return 0.0
    return 5e-3 if p.types[1] == F16 else 1e-3 if p.result == (F16,) else 3e-6


def _sizes(p: Groups, size: Shape) -> tuple[Shape, ...]:
    """Blocks that last do more than one block's work if there are more than multiprocessors."""
    sizes = (size, (size[0] * 5, size[1] * 5)) if p.lasting else (size,)
    return tuple((*s, 3) for s in sizes) if p.batch else sizes


def _cases() -> list[Case]:
    found: list[Case] = []
    for name, p in VARIANTS.items():
        for (size, depth), kind in zip(SIZES, ("mapped", "unmapped"), strict=True):
            found.append(
                Case(
                    f"groups_{name}_{kind}",
                    lambda p=p: product(p),
                    _sizes(p, size),
                    tensor=True,
                    shapes=lambda s, p=p, depth=depth: _shapes(p, depth, s),
                    tolerance=_tolerance(p),
                    target="sm_90a",
                )
            )
    return found


GROUPS = _cases()
