"""Drawing programs: a family's usual form, with usual numbers, and odd ones now and then.

``draw(seed, number)`` is always the same program. A family gives a schedule that ought to compile;
``choices.vary`` puts features around it, most of which ought to compile as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from fuzzing import chains, plain, resampled, stages, updates
from fuzzing.choices import (
    SINGLE,
    TYPES,
    around,
    base,
    index,
    masked,
    replace_operand,
    some_axis,
    some_staging,
    some_taps,
    some_types,
    staged,
    staged_twice,
    vary,
    with_edges,
)
from fuzzing.program import FLOAT8, Index, Program, Staging, Sum, Term

Random = random.Random
STAGES = 0.12  # of all programs are those of ``stages``


def draw(seed: int, number: int) -> Program:
    """Program ``number`` of the sequence of a seed."""
    r = Random(f"{seed}/{number}")
    families = tuple(FAMILIES)
    family = r.choices(families, [FAMILIES[f][1] for f in families])[0]
    p = FAMILIES[family][0](r)
    other = Random(f"{seed}/{number}/stages")
    if other.random() < STAGES:
        family, p = "stages", stages.stages(other)
    if r.random() < 0.1:
        p = replace(p, pitch=(r.choice((0, 0, 1, 3, 8)), r.choice((0, 1, 2, 4, 8, 24))))
    p = replace(p, family=family, inputs=r.randrange(1 << 30))
    p = of_bytes(Random(f"{seed}/{number}/bytes"), p)
    p = narrowed(Random(f"{seed}/{number}/narrow"), p)
    return updates.around_sums(Random(f"{seed}/{number}/updates"), p)


def narrowed(r: Random, p: Program) -> Program:
    """Now and then sums that are stored as integers of 8 or 16 bits: those next to them, or what is
    left of them."""
    exact = p.accumulator == "s32" or (p.accumulator == "f32" and p.values == "small")
    if p.form or not exact or p.result != p.accumulator or p.instructions or r.random() > 0.2:
        return p
    near = p.accumulator == "f32" or r.random() < 0.6
    return replace(p, result=r.choice(("s16", "s16", "u16", "u8", "s8")), saturated=near)


def of_bytes(r: Random, p: Program) -> Program:
    """Now and then halves that are bytes, decoded in the sum: for instructions of such bytes, or
    for those of halves."""
    fits = all(o.type == "f16" and not o.produce for o in p.operands)
    if p.form or not fits or p.memory != "wmma" or p.accumulator != "f32" or p.second or p.factor:
        return p
    if r.random() > 0.15:
        return p
    names = {o.name: o for o in p.operands}
    for name, o in names.items():
        made = replace(o, produce=r.choice(FLOAT8), inline=True, staging=None, before=None)
        p = replace(p, **{"ab"[k]: made for k, x in enumerate(p.operands) if x.name == name})
    if r.random() < 0.25:
        return p
    return replace(p, instructions=("fp8",), target=r.choice(("sm_89", "sm_90a")))


def unscheduled(p: Program, seed: int, number: int) -> Program:
    """The algorithm of a drawn program, which the compiler is to schedule."""
    if p.schedule != "drawn":
        return p
    if p.form == "stages":
        return replace(p, schedule=("auto", "sized")[number % 2])
    r = Random(f"{seed}/{number}/schedule")
    if p.form:
        return chains.unscheduled(r, p)
    p = replace(p, a=replace(p.a, staging=None), b=replace(p.b, staging=None))
    bytes_ = "fp8" in p.instructions
    if p.accumulator == "f32" and not bytes_ and r.random() < 0.25:  # these are for CUDA cores
        a, b = (replace(o, type="f32", produce="", before=None, inline=False) for o in (p.a, p.b))
        p = replace(p, a=a, b=b)
    p = replace(
        p, schedule=r.choice(("auto", "sized")),
        target=r.choice(("sm_89" if bytes_ else "sm_80", "sm_90a")),
        memory="", at="unit", tail="", directives=(), instructions=("fp8",) if bytes_ else (),
    )  # fmt: skip
    return updates.unscheduled(Random(f"{seed}/{number}/updates unscheduled"), p)


# ------------------------------------------------------------------- families


def rows(r: Random) -> Program:
    """Windows along the rows of an image."""
    vector = r.choice((128, 128, 128, 256, 256, 256, 512, 64, 96))
    axes = (
        some_axis(r, vector, r.choice((1, 1, 1, 2, 3))),
        some_axis(r, 1, 1, r.choice((1, 2, 4, 3))),
    )
    if r.random() < 0.2:
        axes = (axes[0], replace(axes[1], segments=r.choice((2, 3))))
    taps = some_taps(r)
    stride, dilation = r.choice((1, 1, 1, 1, 2, 3, 4)), r.choice((1, 1, 1, 1, 2, 3, 4))
    chunk = taps if r.random() < 0.8 else r.choice((2, 4, 8, 16))
    sums = (Sum(taps, min(chunk, taps), 0, r.choice(("serial", "unrolled"))),)
    tap = index((1, "r.x"))
    first = index((stride, "x"), (dilation, "r.x"))
    if r.random() < 0.12:
        first = index((stride, "x"), (-dilation, "r.x"), offset=dilation * (taps - 1))
    if r.random() < 0.1:
        tap = index((-1, "r.x"), offset=taps - 1)
    p = base(some_types(r), axes, sums, (first, index((1, "y"))), (tap,), r)
    return vary(r, staged(r, p, "A", 0.7))


def runs(r: Random) -> Program:
    """Windows of several runs of taps, whose distance is what it is."""
    p = rows(r)
    taps, count = p.sums[0].extent, r.choice((2, 3, 4, 5))
    apart = r.choice((taps, taps, taps + 1, 2 * taps, 7, 16))
    first = Index((*p.a.index[0].terms, Term(apart, "r.y")), p.a.index[0].offset)
    tap = Index((*p.b.index[0].terms, Term(taps, "r.y")), p.b.index[0].offset)
    if r.random() < 0.3:
        tap = p.b.index[0]
        taps_index = (tap, index((1, "r.y")))
    else:
        taps_index = (tap,)
    sums = (*p.sums, Sum(count, 1, 0, r.choice(("serial", "serial", "unrolled"))))
    p = replace_operand(p, "A", index=(first, *p.a.index[1:]))
    return replace(replace_operand(p, "B", index=taps_index), sums=sums)


def columns(r: Random) -> Program:
    """Windows down the columns of an image: tiles of both axes, or vectors along y."""
    taps, stride, dilation = some_taps(r), r.choice((1, 1, 1, 2)), r.choice((1, 1, 1, 2, 3))
    down = index((stride, "y"), (dilation, "r.x"))
    if r.random() < 0.6:
        wide = r.choice((8, 16, 16, 16, 32))
        tall = 256 // wide if r.random() < 0.7 else r.choice((8, 16, 32))
        axes = (some_axis(r, wide, 1, r.choice((1, 2, 4))), some_axis(r, tall, r.choice((1, 1, 2))))
    else:
        axes = (some_axis(r, 1, 1, r.choice((1, 2))), some_axis(r, r.choice((128, 256)), 1, 1))
    sums = (Sum(taps, taps),)
    p = base(some_types(r), axes, sums, (index((1, "x")), down), (index((1, "r.x")),), r)
    return vary(r, staged(r, p, "A", 0.75))


def plane(r: Random) -> Program:
    """Windows of an image along both axes."""
    vector = r.choice((128, 128, 128, 256, 256, 512, 64))
    axes = (some_axis(r, vector), some_axis(r, 1, r.choice((1, 2, 4)), r.choice((1, 2, 4))))
    tx, ty = r.choice((3, 4, 5, 7, 8, 9)), r.choice((2, 3, 4, 5))
    stride, dilation = r.choice((1, 1, 1, 2, 3)), r.choice((1, 1, 1, 2))
    sums = (Sum(tx, tx), Sum(ty, ty if r.random() < 0.1 else 1, 0,
                             r.choice(("serial", "serial", "unrolled"))))  # fmt: skip
    first = index((stride, "x"), (dilation, "r.x"))
    second = index((stride, "y"), (dilation, "r.y"))
    p = base(some_types(r), axes, sums, (first, second), (index((1, "r.x")), index((1, "r.y"))), r)
    return vary(r, staged(r, p, "A", 0.75))


def bank(r: Random) -> Program:
    """A bank of filters: outputs are filters x windows of a signal, or of its channels."""
    filters, pixels = r.choice(((16, 16), (8, 32), (32, 8), (16, 32), (32, 16)))
    channels = r.random() < 0.5
    axes = (
        some_axis(r, filters, r.choice((1, 1, 2))),
        some_axis(r, pixels, 1, r.choice((1, 2, 4))),
    )
    stride, dilation = r.choice((1, 1, 2)), r.choice((1, 1, 1, 2))
    if channels:
        depth = r.choice((3, 4, 8, 16, 16, 24, 32))
        sums = (Sum(depth, depth if r.random() < 0.9 else 8), Sum(r.choice((1, 2, 3, 5)), 1, 0,
                                                r.choice(("serial", "unrolled"))))  # fmt: skip
        a = (index((1, "r.x")), index((stride, "y"), (dilation, "r.y")))
        b = (index((1, "x")), index((1, "r.x")), index((1, "r.y")))
    else:
        taps = some_taps(r)
        sums = (Sum(taps, taps if r.random() < 0.8 else 8),)
        a = (index((stride, "y"), (dilation, "r.x")),)
        b = (index((1, "x")), index((1, "r.x")))
        if r.random() < 0.4:
            b = b[::-1]
    p = base(some_types(r), axes, sums, a, b, r)
    return vary(r, staged(r, staged(r, p, "A", 0.5), "B", 0.5))


def phases(r: Random) -> Program:
    """Upsampling: phases of an output with taps of their own."""
    count, taps = r.choice((2, 2, 3, 4)), r.choice((2, 3, 4, 5, 6, 8))
    vector = r.choice((128, 256)) if count != 3 else r.choice((192, 384))
    axes = (some_axis(r, vector), some_axis(r, 1, 1, r.choice((1, 2, 4))))
    first = Index((Term(1, "x", count), Term(1, "r.x")))
    tap = Index((Term(count, "r.x"), Term(1, "x", 1, count)))
    if r.random() < 0.2:
        tap = Index((Term(taps, "x", 1, count), Term(1, "r.x")))
    p = base(some_types(r), axes, (Sum(taps, taps),), (first, index((1, "y"))), (tap,), r)
    return vary(r, staged(r, p, "A", 0.6))


def product(r: Random) -> Program:
    """A matrix product, operands stored either way, staged along its depth."""
    types = some_types(r)
    vector = r.choice(((16, 16), (16, 16), (32, 8), (8, 32), (32, 16), (8, 16)))
    axes = (
        some_axis(r, vector[0], r.choice((1, 2)), r.choice((1, 2))),
        some_axis(r, vector[1], r.choice((1, 2)), r.choice((1, 2, 4))),
    )
    depth = r.choice((7, 16, 24, 32, 33, 40, 64, 64, 75, 96, 128))
    unit = r.choice((16, 32, 32, 64))
    steps = r.random() < 0.7
    sums = (Sum(depth, unit if steps else depth, 0, "serial", steps and r.random() < 0.4),)
    if steps and r.random() < 0.3:
        sums = (replace(sums[0], step=2 * unit),)
    left, right = (index((1, "r.x")), index((1, "y"))), (index((1, "x")), index((1, "r.x")))
    a = left[::-1] if r.random() < 0.3 and not sums[0].dynamic else left
    b = right[::-1] if r.random() < 0.3 else right
    p = base(types, axes, sums, a, b, r)
    p = replace(p, at="block" if steps or r.random() < 0.5 else "unit")
    if r.random() < 0.7:
        at = "loop" if steps else "block"
        stages = r.choice((1, 1, 2, 3)) if steps else 1
        a_staging = replace(some_staging(r, at), stages=stages)
        b_staging = replace(a_staging) if r.random() < 0.8 else replace(some_staging(r, at))
        p = replace(p, a=replace(p.a, staging=a_staging), b=replace(p.b, staging=b_staging))
    else:
        p = staged(r, staged(r, p, "A", 0.3), "B", 0.3)
    return vary(r, p)


def twice(r: Random) -> Program:
    """Operands whose staged elements are computed from others that are staged beside them."""
    p = r.choices((product, rows, plane, warpgroup_product), (5, 1, 1, 1))[0](r)
    if all(o.staging is None for o in p.operands):
        p = staged(r, p, "A", 1.0)
    names = r.choice(("A", "B", "AB")) if p.b.staging and not p.second else "A"
    for name in names:
        p = staged_twice(r, p, name)
    return p


def warpgroup_product(r: Random) -> Program:
    """A matrix product on warpgroups."""
    types = r.choice((*TYPES, SINGLE))
    byte, single = types[0] in ("s8", "u8"), types == SINGLE
    vector, depth = (16, 32) if byte else (32, 8) if single else (32, 16)
    step = r.choice((128, 64) if byte else (32, 32, 16) if single else (64, 64, 32))
    groups = r.choice(((1, 1), (1, 2), (1, 2), (2, 1)))
    axes = (some_axis(r, vector, r.choice((1, 2, 4)), groups[0]), some_axis(r, 64, 1, groups[1]))
    total = r.choice((step, 2 * step, 3 * step, 75, 208, 40))
    sums = (Sum(total, depth, step, "serial", r.random() < 0.7),)
    left, right = (index((1, "r.x")), index((1, "y"))), (index((1, "x")), index((1, "r.x")))
    across = not byte and (not single or r.random() < 0.3)  # of these nothing is turned
    a = left[::-1] if r.random() < 0.25 and across and not sums[0].dynamic else left
    b = right[::-1] if not across or r.random() < 0.4 else right
    p = replace(base(types, axes, sums, a, b, r, "wgmma"), at="block")
    staging = Staging(
        "loop", r.choice(("vectors", "vectors", "inner", "unrolled", "split")),
        rounding=r.choice((1, 1, 8, 0)), stages=r.choice((1, 2, 3, 4)),
        align=r.choice((0, 0, 0, 8, 24, 40)),
    )  # fmt: skip
    turned = replace(staging, turned=single)
    p = replace(p, a=replace(p.a, staging=turned if a != left else staging),
                b=replace(p.b, staging=turned if b == right else staging))  # fmt: skip
    directives: list[tuple[str, int]] = []
    if r.random() < 0.3:
        directives.append(("persistent", r.choice((1, 1, 2))))
        if r.random() < 0.4:
            directives.append(("teams", 2))
    if r.random() < 0.2:
        directives.append(("cluster", 2))
    if r.random() < 0.2:
        directives.append(("self_fed", 0))
    p = replace(p, directives=tuple(directives))
    if r.random() < 0.1 and not sums[0].dynamic and not byte:
        p = replace_operand(p, "A", produce=r.choice(("cast", "scale", "relu")))
    return around(r, masked(r, p, 0.12))


def warpgroup_windows(r: Random) -> Program:
    """Windows of the rows of an image on warpgroups."""
    types = r.choice((("f16", "f32"), ("f16", "f32"), ("bf16", "f32"), ("f16", "f16")))
    stride, tap_rows = r.choice((1, 1, 1, 2, 4)), r.choice((1, 2, 3, 5))
    taps = r.choice((5, 7, 8, 9, 16, 17, 32))
    vector = 512 if stride == 1 or r.random() < 0.5 else 512 // stride
    step = r.choice((1, stride))
    axes = (some_axis(r, vector), some_axis(r, 1, r.choice((2, 3, 4)), r.choice((1, 2, 2, 3)),
                                    r.choice((1, 1, 2, 3))))  # fmt: skip
    sums = (Sum(taps, taps), Sum(tap_rows, 1, 0, r.choice(("serial", "serial", "unrolled"))))
    a = (index((stride, "x"), (1, "r.x")), index((step, "y"), (1, "r.y")))
    p = base(types, axes, sums, a, (index((1, "r.x")), index((1, "r.y"))), r, "wgmma")
    stages = r.choice((1, 2)) if axes[1].segments > 1 else 1
    reach = 16 * -(-(taps + 7 * stride) // 16) - 7 * stride - taps
    staging = Staging(
        "part", r.choice(("inner", "inner", "inner", "vectors", "split", "plain")),
        rounding=r.choice((8, 8, 16, 1, 0)), stages=stages,
        align=r.choice((0, 0, 0, 8, 16, 40, 12)),
    )  # fmt: skip
    p = replace(replace_operand(p, "A", staging=staging), margin=max(0, reach))
    if r.random() < 0.2:
        p = with_edges(r, p)
    return around(r, p)


def amx_product(r: Random) -> Program:
    """A matrix product on AMX tiles."""
    types = r.choice((("bf16", "bf16", "f32"), ("s8", "s8", "s32"), ("u8", "s8", "s32"),
                      ("s8", "u8", "s32"), ("u8", "u8", "s32")))  # fmt: skip
    deep = 32 if types[0] == "bf16" else 64
    axes = (some_axis(r, 16, r.choice((1, 2))), some_axis(r, 16, r.choice((1, 2))))
    total = r.choice((deep, 2 * deep, 3 * deep, 75, 33))
    sums = (Sum(total, deep, 0, "serial", r.random() < 0.5),)
    left, right = (index((1, "r.x")), index((1, "y"))), (index((1, "x")), index((1, "r.x")))
    p = base(("bf16", types[2]), axes, sums, left, right, r, "amx")
    p = replace(p, a=replace(p.a, type=types[0]), b=replace(p.b, type=types[1]))
    for name in "AB":
        if r.random() < 0.2:
            staging = Staging("block", r.choice(("split", "plain")), 16, rounding=0)
            p = replace_operand(p, name, staging=staging)
    return around(r, p)


def amx_rows(r: Random) -> Program:
    """Windows along rows on AMX tiles."""
    types = r.choice((("bf16", "f32"), ("bf16", "f32"), ("s8", "s32"), ("u8", "s32")))
    taps, stride = some_taps(r), r.choice((1, 1, 2, 3))
    axes = (some_axis(r, 256, r.choice((1, 2))), some_axis(r, 1))
    sums = (Sum(taps, taps),)
    a = (index((stride, "x"), (r.choice((1, 1, 2)), "r.x")), index((1, "y")))
    p = base(types, axes, sums, a, (index((1, "r.x")),), r, "amx")
    if r.random() < 0.3:
        p = replace(p, a=replace(p.a, staging=Staging("block", "plain", rounding=0)))
    if r.random() < 0.2:
        p = with_edges(r, p)
        p = replace(p, a=replace(p.a, staging=Staging("block", "plain", rounding=32)))
    return around(r, masked(r, p, 0.12))


FAMILIES: dict[str, tuple[Callable[[Random], Program], float]] = {
    "rows": (rows, 5),
    "runs": (runs, 2),
    "columns": (columns, 4),
    "plane": (plane, 4),
    "bank": (bank, 4),
    "phases": (phases, 2),
    "product": (product, 4),
    "twice": (twice, 2),
    "warpgroup product": (warpgroup_product, 2),
    "warpgroup windows": (warpgroup_windows, 2),
    "amx product": (amx_product, 1.5),
    "amx rows": (amx_rows, 1.5),
    "layer": (plain.layer, 1),
    "depthwise": (plain.depthwise, 1),
    "factors": (plain.factors, 1),
    "taps": (resampled.taps, 0.5),
    "chain": (chains.chain, 2),
    "online": (chains.online, 1.5),
}
