"""Programs that nobody schedules: those whose schedules by hand would be long, and use what the
compiler's own do (``hb.phased``, ``hb.operand``, ``hb.clone``, ``hb.from_zero``, tiles of threads).
"""

from __future__ import annotations

import random
from dataclasses import replace

from fuzzing.choices import TYPES, around, index
from fuzzing.program import Axis, Index, Operand, Program, Sum, Term

Random = random.Random


def unscheduled(
    r: Random, types: tuple[str, str], sizes: tuple[int, ...], sums: tuple[int, ...],
    a: Operand, b: Operand,
) -> Program:  # fmt: skip
    operand, accumulator = types
    a, b = (replace(o, type=operand) for o in (a, b))
    p = Program(
        "", r.choice(("sm_80", "sm_90a")), "", tuple(Axis(n) for n in sizes),
        tuple(Sum(n, n) for n in sums), a, b, accumulator, result=accumulator,
        swapped=r.random() < 0.5, values="real" if r.random() < 0.2 else "small",
        schedule=r.choice(("auto", "sized")),
    )  # fmt: skip
    p = replace(around(r, p), from_zero=False)
    return replace(p, factor=r.choice(("product", "place", "negative"))) if r.random() < 0.2 else p


def some_types(r: Random) -> tuple[str, str]:
    return r.choice((*TYPES[:-1], ("f32", "f32")))


def layer(r: Random) -> Program:
    """Filters x pixels of images with channels: strides, dilations, phases with taps of their own
    (transposed), pixels repeated before."""
    kind = r.choice(("plain", "plain", "transposed", "transposed", "larger"))
    taps, step = r.choice((1, 2, 3, 3)), r.choice((2, 2, 3))
    sizes = (r.choice((8, 16, 24, 40)), r.randint(3, 20), r.randint(1, 12), r.choice((1, 2)))
    pixels: list[Index] = []
    weights: list[Index] = []
    back = r.choice((0, taps // 2))
    for var, tap in (("y", "r.y"), ("z", "r.z")):
        if kind == "plain":
            stride, dilation = r.choice((1, 1, 2)), r.choice((1, 1, 1, 2))
            pixels.append(index((stride, var), (dilation, tap), offset=-back))
            weights.append(index((1, tap)))
        elif kind == "larger":
            pixels.append(Index((Term(1, var, step), Term(1, tap)), -back))
            weights.append(index((1, tap)))
        else:
            pixels.append(Index((Term(1, var, step), Term(1, tap)), 1 - taps))
            phase = Term(1, var, 1, step)
            weights.append(Index((phase, Term(-step, tap)), step * (taps - 1)))
    outside = any(i.offset < 0 for i in pixels)
    a = Operand("A", "f16", (index((1, "r.x")), *pixels, index((1, "w"))),
                edges="zero" if outside or r.random() < 0.5 else "")  # fmt: skip
    b = Operand("B", "f16", (index((1, "r.x")), *weights, index((1, "x"))))
    channels = r.choice((3, 8, 16, 20, 24, 32))
    return unscheduled(r, some_types(r), sizes, (channels, taps, taps), a, b)


def depthwise(r: Random) -> Program:
    """Each channel by itself, or groups of them."""
    taps, stride, dilation = r.choice((1, 2, 3, 3, 5)), r.choice((1, 1, 2)), r.choice((1, 1, 1, 2))
    sizes = (r.choice((3, 8, 16, 33, 40, 64)), r.randint(1, 20), r.randint(1, 12), r.choice((1, 2)))
    pixels = [
        index((stride, var), (dilation, tap), offset=-(taps // 2) * dilation)
        for var, tap in (("y", "r.x"), ("z", "r.y"))
    ]
    sums: tuple[int, ...] = (taps, taps)
    channel, weight = index((1, "x")), [index((1, "r.x")), index((1, "r.y"))]
    if r.random() < 0.4:
        group, filters = r.choice((2, 4, 8)), r.choice((1, 2, 4, 8))
        sums = (taps, taps, group)
        channel = Index((Term(group, "x", filters), Term(1, "r.z")))
        weight.append(index((1, "r.z")))
    a = Operand("A", "f16", (channel, *pixels, index((1, "w"))), edges="zero")
    b = Operand("B", "f16", (*weight, index((1, "x"))))
    return unscheduled(r, some_types(r), sizes, sums, a, b)


def factors(r: Random) -> Program:
    """Products whose factors are computed in the sum, or elements of one array."""
    sizes = (r.randint(1, 140), r.randint(1, 140))
    depth = r.choice((16, 32, 40, 64, 75, 96, 130))
    left, right = (index((1, "r.x")), index((1, "y"))), (index((1, "x")), index((1, "r.x")))
    types = r.choice(TYPES)
    a = Operand("A", "f16", left[::-1] if r.random() < 0.3 else left)
    b = Operand("B", "f16", right[::-1] if r.random() < 0.5 else right)
    if r.random() < 0.3:
        b = Operand("A", "f16", tuple(index((1, {"r.x": "r.x", "y": "x"}[i.terms[0].var]))
                                      for i in a.index))  # fmt: skip
    elif types[0] not in ("s8", "u8"):
        made = [r.choice(("cast", "scale", "relu", "pair")), r.choice(("", "", "scale", "pair"))]
        r.shuffle(made)
        a, b = (replace(o, produce=m, inline=bool(m)) for o, m in zip((a, b), made, strict=True))
    p = unscheduled(r, types, sizes, (depth,), a, b)
    return replace(p, start=r.choice(("zero", "zero", "one", "bias")))
