"""Drawing programs: a family's usual form, with usual numbers, and odd ones now and then.

``draw(seed, number)`` is always the same program. A family gives a schedule that ought to compile;
``_vary`` puts features around it, most of which ought to compile as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from fuzzing.program import (
    NAMES,
    Axis,
    Index,
    Mask,
    Operand,
    Program,
    Staging,
    Sum,
    Term,
)

Random = random.Random
TYPES = (("f16", "f32"), ("f16", "f32"), ("f16", "f32"), ("bf16", "f32"), ("s8", "s32"),
         ("u8", "s32"), ("f16", "f16"))  # fmt: skip
EDGES = ("zero", "repeat", "mirror", "clamp", "wrap")


def draw(seed: int, number: int) -> Program:
    """Program ``number`` of the sequence of a seed."""
    r = Random(f"{seed}/{number}")
    families = tuple(FAMILIES)
    family = r.choices(families, [FAMILIES[f][1] for f in families])[0]
    p = FAMILIES[family][0](r)
    return replace(p, family=family, inputs=r.randrange(1 << 30))


def index(*terms: tuple[int, str], offset: int = 0) -> Index:
    """An index of factors and variables; factors of 0 are none."""
    return Index(tuple(Term(f, v) for f, v in terms if f), offset)


def _size(r: Random, block: int) -> int:
    """An extent: whole blocks, ragged ones, primes, less than a block, one."""
    kind = r.random()
    if kind < 0.3:
        return block * r.randint(1, 2)
    if kind < 0.4:
        return r.choice((1, 2, 3, 5, 7))
    if kind < 0.6:
        return block + r.choice((-1, 1, 3)) if block > 3 else r.randint(1, 5)
    return max(1, r.randint(block // 2, 2 * block + 5))


def _axis(r: Random, vector: int, unroll: int = 1, warps: int = 1, segments: int = 1) -> Axis:
    return Axis(_size(r, vector * unroll * warps * segments), vector, unroll, warps, segments)


def _staging(r: Random, at: str, stages: bool = False) -> Staging:
    """A copy in shared memory, mostly by the usual idiom."""
    idioms = ("vectors", "inner", "split", "threads", "lanes", "fused", "plain", "unrolled")
    idiom = r.choices(idioms, (10, 6, 3, 2, 2, 2, 2, 1))[0]
    return Staging(
        at,
        idiom,
        run=r.choice((2, 4, 8, 8, 16)),
        rounding=r.choices((0, 1, 8, 16, -1), (16, 8, 20, 12, 1))[0],
        stages=r.choice((1, 2, 3)) if stages else 1,
        shared=r.random() < 0.93,
        align=r.choice((8, 16, 24)) if r.random() < 0.06 else 0,
    )


def _types(r: Random) -> tuple[str, str]:
    return r.choice(TYPES)


def _taps(r: Random) -> int:
    return r.choice((2, 3, 4, 5, 5, 7, 8, 9, 11, 12, 13, 16, 16, 17, 21, 24, 25, 31, 32, 33, 48))


def _base(
    types: tuple[str, str], axes: tuple[Axis, ...], sums: tuple[Sum, ...], a: tuple[Index, ...],
    b: tuple[Index, ...], r: Random, memory: str = "wmma",
) -> Program:  # fmt: skip
    target = {"wmma": r.choice(("sm_80", "sm_86", "sm_90a", "sm_90a")), "wgmma": "sm_90a",
              "amx": "amx"}[memory]  # fmt: skip
    operand, accumulator = types
    return Program(
        "", target, memory, axes, sums, Operand("A", operand, a), Operand("B", operand, b),
        accumulator, result=accumulator, swapped=r.random() < 0.5,
        values="real" if r.random() < 0.2 else "small",
    )  # fmt: skip


# ------------------------------------------------------------------- families


def rows(r: Random) -> Program:
    """Windows along the rows of an image."""
    vector = r.choice((128, 128, 128, 256, 256, 256, 512, 64, 96))
    axes = (_axis(r, vector, r.choice((1, 1, 1, 2, 3))), _axis(r, 1, 1, r.choice((1, 2, 4, 3))))
    if r.random() < 0.2:
        axes = (axes[0], replace(axes[1], segments=r.choice((2, 3))))
    taps = _taps(r)
    stride, dilation = r.choice((1, 1, 1, 1, 2, 3, 4)), r.choice((1, 1, 1, 1, 2, 3, 4))
    chunk = taps if r.random() < 0.8 else r.choice((2, 4, 8, 16))
    sums = (Sum(taps, min(chunk, taps), 0, r.choice(("serial", "unrolled"))),)
    tap = index((1, "r.x"))
    first = index((stride, "x"), (dilation, "r.x"))
    if r.random() < 0.12:
        first = index((stride, "x"), (-dilation, "r.x"), offset=dilation * (taps - 1))
    if r.random() < 0.1:
        tap = index((-1, "r.x"), offset=taps - 1)
    p = _base(_types(r), axes, sums, (first, index((1, "y"))), (tap,), r)
    return _vary(r, _staged(r, p, "A", 0.7))


def runs(r: Random) -> Program:
    """Windows of several runs of taps, whose distance is what it is."""
    p = rows(r)
    taps, count = p.sums[0].extent, r.choice((2, 3, 4, 5))
    apart = r.choice((taps, taps, taps + 1, 2 * taps, 7, 16))
    first = Index((*p.a.index[0].terms, Term(apart, "r.y")), p.a.index[0].offset)
    tap = Index((*p.b.index[0].terms, Term(taps, "r.y")), p.b.index[0].offset)
    if r.random() < 0.3:
        tap = p.b.index[0]
        return replace(p, a=replace(p.a, index=(first, *p.a.index[1:])),
                       b=replace(p.b, index=(tap, index((1, "r.y")))),
                       sums=(*p.sums, Sum(count, 1, 0, r.choice(("serial", "unrolled")))))  # fmt: skip
    sums = (*p.sums, Sum(count, 1, 0, r.choice(("serial", "serial", "unrolled"))))
    return replace(p, a=replace(p.a, index=(first, *p.a.index[1:])),
                   b=replace(p.b, index=(tap,)), sums=sums)  # fmt: skip


def columns(r: Random) -> Program:
    """Windows down the columns of an image: tiles of both axes, or vectors along y."""
    taps, stride, dilation = _taps(r), r.choice((1, 1, 1, 2)), r.choice((1, 1, 1, 2, 3))
    down = index((stride, "y"), (dilation, "r.x"))
    if r.random() < 0.6:
        wide = r.choice((8, 16, 16, 16, 32))
        tall = 256 // wide if r.random() < 0.7 else r.choice((8, 16, 32))
        axes = (_axis(r, wide, 1, r.choice((1, 2, 4))), _axis(r, tall, r.choice((1, 1, 2))))
    else:
        axes = (_axis(r, 1, 1, r.choice((1, 2))), _axis(r, r.choice((128, 256)), 1, 1))
    sums = (Sum(taps, taps),)
    p = _base(_types(r), axes, sums, (index((1, "x")), down), (index((1, "r.x")),), r)
    return _vary(r, _staged(r, p, "A", 0.75))


def plane(r: Random) -> Program:
    """Windows of an image along both axes."""
    vector = r.choice((128, 128, 128, 256, 256, 512, 64))
    axes = (_axis(r, vector), _axis(r, 1, r.choice((1, 2, 4)), r.choice((1, 2, 4))))
    tx, ty = r.choice((3, 4, 5, 7, 8, 9)), r.choice((2, 3, 4, 5))
    stride, dilation = r.choice((1, 1, 1, 2, 3)), r.choice((1, 1, 1, 2))
    sums = (Sum(tx, tx), Sum(ty, ty if r.random() < 0.1 else 1, 0,
                             r.choice(("serial", "serial", "unrolled"))))  # fmt: skip
    first = index((stride, "x"), (dilation, "r.x"))
    second = index((stride, "y"), (dilation, "r.y"))
    p = _base(_types(r), axes, sums, (first, second), (index((1, "r.x")), index((1, "r.y"))), r)
    return _vary(r, _staged(r, p, "A", 0.75))


def bank(r: Random) -> Program:
    """A bank of filters: outputs are filters x windows of a signal, or of its channels."""
    filters, pixels = r.choice(((16, 16), (8, 32), (32, 8), (16, 32), (32, 16)))
    channels = r.random() < 0.5
    axes = (_axis(r, filters, r.choice((1, 1, 2))), _axis(r, pixels, 1, r.choice((1, 2, 4))))
    stride, dilation = r.choice((1, 1, 2)), r.choice((1, 1, 1, 2))
    if channels:
        depth = r.choice((3, 4, 8, 16, 16, 24, 32))
        sums = (Sum(depth, depth if r.random() < 0.9 else 8), Sum(r.choice((1, 2, 3, 5)), 1, 0,
                                                r.choice(("serial", "unrolled"))))  # fmt: skip
        a = (index((1, "r.x")), index((stride, "y"), (dilation, "r.y")))
        b = (index((1, "x")), index((1, "r.x")), index((1, "r.y")))
    else:
        taps = _taps(r)
        sums = (Sum(taps, taps if r.random() < 0.8 else 8),)
        a = (index((stride, "y"), (dilation, "r.x")),)
        b = (index((1, "x")), index((1, "r.x")))
        if r.random() < 0.4:
            b = b[::-1]
    p = _base(_types(r), axes, sums, a, b, r)
    return _vary(r, _staged(r, _staged(r, p, "A", 0.5), "B", 0.5))


def phases(r: Random) -> Program:
    """Upsampling: phases of an output with taps of their own."""
    count, taps = r.choice((2, 2, 3, 4)), r.choice((2, 3, 4, 5, 6, 8))
    vector = r.choice((128, 256)) if count != 3 else r.choice((192, 384))
    axes = (_axis(r, vector), _axis(r, 1, 1, r.choice((1, 2, 4))))
    first = Index((Term(1, "x", count), Term(1, "r.x")))
    tap = Index((Term(count, "r.x"), Term(1, "x", 1, count)))
    if r.random() < 0.2:
        tap = Index((Term(taps, "x", 1, count), Term(1, "r.x")))
    p = _base(_types(r), axes, (Sum(taps, taps),), (first, index((1, "y"))), (tap,), r)
    return _vary(r, _staged(r, p, "A", 0.6))


def product(r: Random) -> Program:
    """A matrix product, operands stored either way, staged along its depth."""
    types = _types(r)
    vector = r.choice(((16, 16), (16, 16), (32, 8), (8, 32), (32, 16), (8, 16)))
    axes = (
        _axis(r, vector[0], r.choice((1, 2)), r.choice((1, 2))),
        _axis(r, vector[1], r.choice((1, 2)), r.choice((1, 2, 4))),
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
    p = _base(types, axes, sums, a, b, r)
    p = replace(p, at="block" if steps or r.random() < 0.5 else "unit")
    if r.random() < 0.7:
        at = "loop" if steps else "block"
        stages = r.choice((1, 1, 2, 3)) if steps else 1
        a_staging = replace(_staging(r, at), stages=stages)
        b_staging = replace(a_staging) if r.random() < 0.8 else replace(_staging(r, at))
        p = replace(p, a=replace(p.a, staging=a_staging), b=replace(p.b, staging=b_staging))
    else:
        p = _staged(r, _staged(r, p, "A", 0.3), "B", 0.3)
    return _vary(r, p)


def warpgroup_product(r: Random) -> Program:
    """A matrix product on warpgroups."""
    types = r.choice(TYPES)
    byte = types[0] in ("s8", "u8")
    vector, depth = (16, 32) if byte else (32, 16)
    step = r.choice((128, 64)) if byte else r.choice((64, 64, 32))
    groups = r.choice(((1, 1), (1, 1), (1, 2), (2, 1)))
    axes = (_axis(r, vector, r.choice((1, 2, 4)), groups[0]), _axis(r, 64, 1, groups[1]))
    total = r.choice((step, 2 * step, 3 * step, 75, 208, 40))
    sums = (Sum(total, depth, step, "serial", r.random() < 0.7),)
    left, right = (index((1, "r.x")), index((1, "y"))), (index((1, "x")), index((1, "r.x")))
    a = left[::-1] if r.random() < 0.25 and not byte and not sums[0].dynamic else left
    b = right[::-1] if byte or r.random() < 0.4 else right
    p = replace(_base(types, axes, sums, a, b, r, "wgmma"), at="block")
    staging = Staging("loop", "vectors", rounding=1, stages=r.choice((1, 2, 3, 4)))
    p = replace(p, a=replace(p.a, staging=staging), b=replace(p.b, staging=staging))
    directives: list[tuple[str, int]] = []
    if r.random() < 0.3:
        directives.append(("persistent", r.choice((1, 1, 2))))
        if r.random() < 0.4:
            directives.append(("teams", 2))
    if r.random() < 0.2:
        directives.append(("cluster", 2))
    if r.random() < 0.2:
        directives.append(("self_fed", 0))
    return _around(r, replace(p, directives=tuple(directives)))


def warpgroup_windows(r: Random) -> Program:
    """Windows of the rows of an image on warpgroups."""
    types = r.choice((("f16", "f32"), ("f16", "f32"), ("bf16", "f32"), ("f16", "f16")))
    stride, taps, tap_rows = r.choice((1, 1, 1, 2, 4)), r.choice((5, 7, 8, 9, 16, 17, 32)), \
        r.choice((1, 2, 3, 5))  # fmt: skip
    vector = 512 if stride == 1 or r.random() < 0.5 else 512 // stride
    step = r.choice((1, stride))
    axes = (_axis(r, vector), _axis(r, 1, r.choice((2, 3, 4)), r.choice((1, 2)),
                                    r.choice((1, 1, 2, 3))))  # fmt: skip
    sums = (Sum(taps, taps), Sum(tap_rows, 1, 0, r.choice(("serial", "serial", "unrolled"))))
    a = (index((stride, "x"), (1, "r.x")), index((step, "y"), (1, "r.y")))
    p = _base(types, axes, sums, a, (index((1, "r.x")), index((1, "r.y"))), r, "wgmma")
    stages = r.choice((1, 2)) if axes[1].segments > 1 else 1
    reach = 16 * -(-(taps + 7 * stride) // 16) - 7 * stride - taps
    p = replace(p, a=replace(p.a, staging=Staging("part", "inner", rounding=r.choice((8, 8, 16)),
                                                  stages=stages)), margin=max(0, reach))  # fmt: skip
    if r.random() < 0.2:
        p = _with_edges(r, p)
    return _around(r, p)


def amx_product(r: Random) -> Program:
    """A matrix product on AMX tiles."""
    types = r.choice((("bf16", "bf16", "f32"), ("s8", "s8", "s32"), ("u8", "s8", "s32"),
                      ("s8", "u8", "s32"), ("u8", "u8", "s32")))  # fmt: skip
    deep = 32 if types[0] == "bf16" else 64
    axes = (_axis(r, 16, r.choice((1, 2))), _axis(r, 16, r.choice((1, 2))))
    total = r.choice((deep, 2 * deep, 3 * deep, 75, 33))
    sums = (Sum(total, deep, 0, "serial", r.random() < 0.5),)
    left, right = (index((1, "r.x")), index((1, "y"))), (index((1, "x")), index((1, "r.x")))
    p = _base(("bf16", types[2]), axes, sums, left, right, r, "amx")
    p = replace(p, a=replace(p.a, type=types[0]), b=replace(p.b, type=types[1]))
    for name in "AB":
        if r.random() < 0.2:
            staging = Staging("block", r.choice(("split", "plain")), 16, rounding=0)
            p = _replace_operand(p, name, staging=staging)
    return _around(r, p)


def amx_rows(r: Random) -> Program:
    """Windows along rows on AMX tiles."""
    types = r.choice((("bf16", "f32"), ("bf16", "f32"), ("s8", "s32"), ("u8", "s32")))
    taps, stride = _taps(r), r.choice((1, 1, 2, 3))
    axes = (_axis(r, 256, r.choice((1, 2))), _axis(r, 1))
    sums = (Sum(taps, taps),)
    a = (index((stride, "x"), (r.choice((1, 1, 2)), "r.x")), index((1, "y")))
    p = _base(types, axes, sums, a, (index((1, "r.x")),), r, "amx")
    if r.random() < 0.3:
        p = replace(p, a=replace(p.a, staging=Staging("block", "plain", rounding=0)))
    if r.random() < 0.2:
        p = _with_edges(r, p)
        p = replace(p, a=replace(p.a, staging=Staging("block", "plain", rounding=32)))
    return _around(r, _masked(r, p, 0.12))


# ------------------------------------------------------------ around a family


def _replace_operand(p: Program, name: str, **changes: object) -> Program:
    field = name.lower()
    return replace(p, **{field: replace(getattr(p, field), **changes)})  # type: ignore[arg-type]


def _staged(r: Random, p: Program, name: str, chance: float) -> Program:
    if r.random() >= chance:
        return p
    segments = any(a.segments > 1 for a in p.axes)
    at = r.choices(("block", "part", "unit", "root"), (6, 3, 2, 1))[0]
    if segments and r.random() < 0.7:
        at = "part"
    staging = _staging(r, at, stages=segments and at == "part")
    return _replace_operand(p, name, staging=staging)


def _vary(r: Random, p: Program) -> Program:
    """Features around a schedule for warps."""
    p = _masked(r, p, 0.2)
    if r.random() < 0.15:
        p = _with_edges(r, p)
    if r.random() < 0.12:
        p = _produced(r, p)
    if r.random() < 0.05 and all(o.staging is None or o.staging.at != "loop" for o in p.operands):
        p = replace(p, second=True)  # a copy in the loop of one sum is not there for the other
    if r.random() < 0.08 and not any(a.segments > 1 for a in p.axes) and p.axes[0].block > 32:
        p = replace(p, after=r.choice(("shared", "shared", "root")))
    if r.random() < 0.04:
        p = replace(p, tail=r.choice(("GuardWithIf", "ShiftInwards", "RoundUp", "Predicate")))
        if p.tail == "RoundUp":
            axes = tuple(replace(a, size=-(-a.size // a.block) * a.block) for a in p.axes)
            p = replace(p, axes=axes)
    if r.random() < 0.06:
        p = replace(p, instructions=(r.choice(("wmma", "mma")),))
    if r.random() < 0.06:
        p = replace(p, directives=(("resident_blocks", r.choice((1, 2, 3))),))
    if r.random() < 0.08:
        i = r.randrange(len(p.axes))
        axes = tuple(replace(a, bounded=a.bounded or j == i) for j, a in enumerate(p.axes))
        p = replace(p, axes=axes)
    return _around(r, p)


def _around(r: Random, p: Program) -> Program:
    """Starts, factors, epilogues, types of results, the pitch of rows."""
    if r.random() < 0.1:
        p = replace(p, start=r.choice(("one", "bias")))
    if r.random() < 0.06:
        p = replace(p, factor=r.choice(("left", "product", "param")))
    if r.random() < 0.45:
        names = ("relu", "relu", "bias", "bias of rows", "scale", "rest", "parity", "clamp")
        p = replace(p, epilogue=tuple(dict.fromkeys(r.choices(names, k=r.choice((1, 1, 2))))))
    if p.accumulator == "f32" and r.random() < 0.35:
        p = replace(p, result=r.choice(("f16", "f16", "bf16")))
    elif p.accumulator != "f32" and r.random() < 0.1:
        p = replace(p, result="f32")
    if r.random() < 0.3:
        p = replace(p, margin=p.margin + r.choice((1, 3, 5, 8, 16)))
    return p


def _with_edges(r: Random, p: Program) -> Program:
    """Windows are centred, the image goes on beyond its edges."""
    first = []
    for i in p.a.index:
        taps = next((p.sums[NAMES.index(t.var[2])].extent for t in i.terms
                     if t.var.startswith("r.") and len(i.terms) > 1), 0)  # fmt: skip
        first.append(replace(i, offset=i.offset - taps // 2))
    if p.a.staging is None and r.random() < 0.8:
        p = _staged(r, p, "A", 1.0)
    if any(s.dynamic for s in p.sums):
        return p
    return _replace_operand(p, "A", index=tuple(first), edges=r.choice(EDGES))


def _produced(r: Random, p: Program) -> Program:
    """A is computed, not copied, where it is staged."""
    if p.a.staging is None:
        p = _staged(r, p, "A", 0.9)
    if p.a.type in ("s8", "u8"):
        return p
    return _replace_operand(p, "A", produce=r.choice(("cast", "scale", "relu")))


def _masked(r: Random, p: Program, chance: float) -> Program:
    """Products that do not count: taps, windows, triangles, by several ways of saying so."""
    if r.random() >= chance:
        return p
    extent = p.sums[0].extent
    limit = r.randint(1, extent)
    kinds = ["taps", "taps", "from", "position", "block"]
    if len(p.sums) > 1:
        kinds += ["corner", "corner"]
    if p.sums[0].dynamic:
        kinds = ["triangle"]
    axis = NAMES[len(p.axes) - 1]
    condition = {
        "taps": index((-1, "r.x"), offset=limit - 1),
        "from": index((1, "r.x"), offset=-limit // 2),
        "position": index((1, "x"), (-1, "r.x"), offset=r.randint(0, 5)),
        "block": index((-1, axis), offset=max(1, p.axes[-1].size // 2)),
        "triangle": index((1, axis), (-1, "r.x")),
        "corner": index((-1, "r.x"), (-1, "r.y"), offset=limit),
    }[r.choice(kinds)]
    rectangular = not any(t.var in NAMES for t in condition.terms)
    kind = r.choice(("where", "where", "select", "left", "right") if rectangular else
                    ("select", "select", "left", "right", "where"))  # fmt: skip
    mask = Mask(kind, condition, r.random() < 0.1)
    return replace(p, masks=(mask,))


FAMILIES: dict[str, tuple[Callable[[Random], Program], float]] = {
    "rows": (rows, 5),
    "runs": (runs, 2),
    "columns": (columns, 4),
    "plane": (plane, 4),
    "bank": (bank, 4),
    "phases": (phases, 2),
    "product": (product, 4),
    "warpgroup product": (warpgroup_product, 2),
    "warpgroup windows": (warpgroup_windows, 2),
    "amx product": (amx_product, 1.5),
    "amx rows": (amx_rows, 1.5),
}
