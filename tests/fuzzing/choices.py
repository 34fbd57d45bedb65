"""What families of drawn programs have in common: sizes, types, copies, features around them."""

from __future__ import annotations

import random
from dataclasses import replace

from fuzzing.program import NAMES, Axis, Index, Mask, Operand, Program, Staging, Sum, Term

Random = random.Random
TYPES = (("f16", "f32"), ("f16", "f32"), ("f16", "f32"), ("bf16", "f32"), ("s8", "s32"),
         ("u8", "s32"), ("f16", "f16"))  # fmt: skip
SINGLE = "f32", "f32"  # as tf32, by warps
EDGES = ("zero", "three", "repeat", "mirror", "reflect", "clamp", "wrap")


def index(*terms: tuple[int, str], offset: int = 0) -> Index:
    """An index of factors and variables; factors of 0 are none."""
    return Index(tuple(Term(f, v) for f, v in terms if f), offset)


def some_size(r: Random, block: int) -> int:
    """An extent: whole blocks, ragged ones, primes, less than a block, one."""
    kind = r.random()
    if kind < 0.3:
        return block * r.randint(1, 2)
    if kind < 0.4:
        return r.choice((1, 2, 3, 5, 7))
    if kind < 0.6:
        return block + r.choice((-1, 1, 3)) if block > 3 else r.randint(1, 5)
    return max(1, r.randint(block // 2, 2 * block + 5))


def some_axis(r: Random, vector: int, unroll: int = 1, warps: int = 1, segments: int = 1) -> Axis:
    return Axis(some_size(r, vector * unroll * warps * segments), vector, unroll, warps, segments)


def some_staging(r: Random, at: str, stages: bool = False) -> Staging:
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


def some_types(r: Random) -> tuple[str, str]:
    return r.choice((*TYPES, SINGLE))


def some_taps(r: Random) -> int:
    return r.choice((2, 3, 4, 5, 5, 7, 8, 9, 11, 12, 13, 16, 16, 17, 21, 24, 25, 31, 32, 33, 48))


def base(
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
        instructions=("tf32",) if types == SINGLE else (),
    )  # fmt: skip


def replace_operand(p: Program, name: str, **changes: object) -> Program:
    field = name.lower()
    return replace(p, **{field: replace(getattr(p, field), **changes)})  # type: ignore[arg-type]


def staged(r: Random, p: Program, name: str, chance: float) -> Program:
    if r.random() >= chance:
        return p
    segments = any(a.segments > 1 for a in p.axes)
    at = r.choices(("block", "part", "unit", "root"), (6, 3, 2, 1))[0]
    if segments and r.random() < 0.7:
        at = "part"
    staging = some_staging(r, at, stages=segments and at == "part")
    return replace_operand(p, name, staging=staging)


def vary(r: Random, p: Program) -> Program:
    """Features around a schedule for warps."""
    p = masked(r, p, 0.2)
    if r.random() < 0.15:
        p = with_edges(r, p)
    if r.random() < 0.12:
        p = produced(r, p)
    if r.random() < 0.05 and all(o.staging is None or o.staging.at != "loop" for o in p.operands):
        # A copy in the loop of one sum is not there for the other.
        p = replace(p, second=r.choice(("accumulator", "update")))
    if r.random() < 0.08 and not any(a.segments > 1 for a in p.axes) and p.axes[0].block > 32:
        p = replace(p, after=r.choice(("shared", "shared", "root")))
    if r.random() < 0.04:
        p = replace(p, tail=r.choice(("GuardWithIf", "ShiftInwards", "RoundUp", "Predicate")))
        if p.tail == "RoundUp":
            axes = tuple(replace(a, size=-(-a.size // a.block) * a.block) for a in p.axes)
            p = replace(p, axes=axes)
    if r.random() < 0.06 and not p.instructions:
        p = replace(p, instructions=(r.choice(("wmma", "mma")),))
    if r.random() < 0.06:
        p = replace(p, directives=(("resident_blocks", r.choice((1, 2, 3))),))
    if r.random() < 0.08:
        i = r.randrange(len(p.axes))
        axes = tuple(replace(a, bounded=a.bounded or j == i) for j, a in enumerate(p.axes))
        p = replace(p, axes=axes)
    return around(r, p)


def around(r: Random, p: Program) -> Program:
    """Bytes of two kinds, starts, factors, epilogues, types of results, the pitch of rows."""
    if p.a.type in ("s8", "u8") and p.memory != "amx" and r.random() < 0.3:
        p = replace_operand(p, "B", type="u8" if p.a.type == "s8" else "s8")
    if r.random() < 0.1:
        p = replace(p, start=r.choice(("one", "bias")), from_zero=r.random() < 0.4)
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


def with_edges(r: Random, p: Program) -> Program:
    """Windows are centred, the image goes on beyond its edges."""
    first = []
    for i in p.a.index:
        taps = next((p.sums[NAMES.index(t.var[2])].extent for t in i.terms
                     if t.var.startswith("r.") and len(i.terms) > 1), 0)  # fmt: skip
        first.append(replace(i, offset=i.offset - taps // 2))
    if p.a.staging is None and r.random() < 0.8:
        p = staged(r, p, "A", 1.0)
    if any(s.dynamic for s in p.sums):
        return p
    return replace_operand(p, "A", index=tuple(first), edges=r.choice(EDGES))


def produced(r: Random, p: Program) -> Program:
    """A is computed, not copied, where it is staged."""
    if p.a.staging is None:
        p = staged(r, p, "A", 0.9)
    if p.a.type in ("s8", "u8"):
        return p
    return replace_operand(p, "A", produce=r.choice(("cast", "scale", "relu")))


def staged_twice(r: Random, p: Program, name: str) -> Program:
    """What a staged operand is made of is staged as well, in the same place: mostly filled as far
    ahead, or when it is read."""
    o = p.a if name == "A" else p.b
    if o.staging is None or o.type in ("s8", "u8") or (name == "B" and p.second):
        return p
    kinds = ["pair", "pair", "cast", "scale", "relu"]
    if any(s.dynamic for s in p.sums):  # as deep as A is: what lies beyond is no neighbour
        kinds = kinds[2:]
    stages = r.choice((1, 1, o.staging.stages, r.choice((2, 3))))
    if r.random() < 0.3:
        p = computed(p, name)
    before = replace(some_staging(r, o.staging.at), stages=stages, shared=True)
    return replace_operand(p, name, produce=r.choice(kinds), before=before)


def computed(p: Program, name: str) -> Program:
    """A factor is computed in the sum, where ``hb.operand`` finds it: one of plain indices."""
    o = p.a if name == "A" else p.b
    plain = all(len(i.terms) == 1 and i.terms[0] == Term(1, i.terms[0].var) and not i.offset
                for i in o.index)  # fmt: skip
    if not plain or o.edges or p.second or p.factor or p.masks:
        return p
    return replace_operand(p, name, inline=True)


def masked(r: Random, p: Program, chance: float) -> Program:
    """Products that do not count: taps, windows, triangles, by several ways of saying so.

    A domain is mostly cut along loops: along a vector Halide makes scalar code of it.
    """
    if r.random() >= chance:
        return p
    limit = r.randint(1, p.sums[0].extent)
    axis = NAMES[len(p.axes) - 1]
    rows = index((-1, axis), offset=r.randint(0, max(1, p.axes[-1].size - 1)))
    conditions = {
        "taps": index((-1, "r.x"), offset=limit - 1),
        "from": index((1, "r.x"), offset=-limit // 2),
        "position": index((1, "x"), (-1, "r.x"), offset=r.randint(0, 5)),
        "triangle": index((1, axis), (-1, "r.x")),
    }
    loops = {"block": rows}
    if len(p.sums) > 1:
        extent = p.sums[1].extent
        conditions["corner"] = index((-1, "r.x"), (-1, "r.y"), offset=limit)
        loops["steps"] = index((-1, "r.y"), offset=r.randint(-1, extent - 1))
        loops["steps from"] = index((1, "r.y"), offset=-r.randint(0, extent))
        loops["steps by rows"] = index((1, axis), (-1, "r.y"), offset=r.randint(-2, 2))
    along_loops = r.random() < 0.4
    kind = r.choice(("where", "where", "select", "left", "right"))
    if kind == "where":
        along_loops = r.random() < 0.85
    elif r.random() < 0.5:
        along_loops = False
        conditions = {"taps": conditions["taps"]}
    found = loops if along_loops else conditions
    name = r.choice(list(found))
    types = ("s64", "u8") if name == "taps" else ("s64",)  # a limit of taps is no negative number
    kinds = "s32" if r.random() < 0.85 else r.choice(types)
    mask = Mask(kind, found[name], r.random() < 0.1, r.random() < 0.15, kinds)
    if kind not in ("left", "right") or r.random() < 0.7:
        return replace(p, masks=(mask,))
    other = Mask("right" if kind == "left" else "left", r.choice(list(found.values())))
    return replace(p, masks=(mask, other))
