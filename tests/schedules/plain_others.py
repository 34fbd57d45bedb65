"""Plain pipelines that no schedule was ever looked at for while it was written: other users, other
habits.
"""

from __future__ import annotations

from collections.abc import Callable

import halide as hl
import numpy as np
from plain_chains import halves
from plain_pipelines import F16, F32, I32, U8, Plain, bytes_, floats

x, y, z, c, n, m, d, i, j = (hl.Var(name) for name in "xyzcnmdij")
BOUNDARY = hl.BoundaryConditions


def closing_less_image() -> Plain:
    """Morphology by rows and columns: dark spots of fewer than seven pixels."""
    photo, out = hl.ImageParam(U8, 2, "photo"), hl.Func("spots")
    at = BOUNDARY.repeat_edge(photo)

    def along(
        source: hl.Func, name: str, dx: int, dy: int, best: Callable[..., hl.Expr]
    ) -> hl.Func:
        found = hl.Func(name)
        value = source[x - 3 * dx, y - 3 * dy]
        for k in range(-2, 4):
            value = best(value, source[x + k * dx, y + k * dy])
        found[x, y] = value
        return found

    large = along(along(at, "wide", 1, 0, hl.max), "large", 0, 1, hl.max)
    closed = along(along(large, "narrow", 1, 0, hl.min), "closed", 0, 1, hl.min)
    out[x, y] = closed[x, y] - at[x, y]
    return Plain(out, [(photo, bytes_(37, 70))], (37, 70))


def block_differences() -> Plain:
    """How much each block of 8 x 8 pixels has moved between two frames."""
    now, before = hl.ImageParam(U8, 2, "now"), hl.ImageParam(U8, 2, "before")
    moved, r = hl.Func("moved"), hl.RDom([(0, 8), (0, 8)], "r")
    px, py = 8 * x + r.x, 8 * y + r.y
    moved[x, y] = hl.u16(0)
    moved[x, y] += hl.u16(hl.absd(now[px, py], before[px, py]))
    return Plain(moved, [(now, bytes_(40, 88)), (before, bytes_(40, 88, seed=1))], (5, 11))


def wave_step() -> Plain:
    """Fourth order in space, nothing beyond the box."""
    now, before, speed = (
        hl.ImageParam(F32, 3, "now"),
        hl.ImageParam(F32, 3, "before"),
        hl.Param(F32, "speed"),
    )
    u, after = BOUNDARY.constant_exterior(now, 0.0), hl.Func("after")
    near = u[x - 1, y, z] + u[x + 1, y, z] + u[x, y - 1, z] + u[x, y + 1, z]
    near += u[x, y, z - 1] + u[x, y, z + 1]
    far = u[x - 2, y, z] + u[x + 2, y, z] + u[x, y - 2, z] + u[x, y + 2, z]
    far += u[x, y, z - 2] + u[x, y, z + 2]
    bent = near * hl.f32(4 / 3) - far * hl.f32(1 / 12) - u[x, y, z] * hl.f32(7.5)
    after[x, y, z] = 2 * u[x, y, z] - before[x, y, z] + speed * bent
    data = [(now, floats(9, 14, 37)), (before, floats(9, 14, 37, seed=1)), (speed, 0.1)]
    return Plain(after, data, (9, 14, 37), 1e-4)


def local_contrast() -> Plain:
    """Less the mean of 7 x 7, over the deviation there."""
    photo, out = hl.ImageParam(F32, 2, "photo"), hl.Func("even")
    at, r = BOUNDARY.mirror_image(photo), hl.RDom([(-3, 7), (-3, 7)], "r")
    first, second = hl.Func("first"), hl.Func("second")
    first[x, y] = hl.sum(at[x + r.x, y + r.y]) / 49
    second[x, y] = hl.sum(at[x + r.x, y + r.y] * at[x + r.x, y + r.y]) / 49
    spread = hl.sqrt(hl.max(second[x, y] - first[x, y] * first[x, y], 0) + hl.f32(1e-2))
    out[x, y] = (photo[x, y] - first[x, y]) / spread
    return Plain(out, [(photo, floats(31, 50))], (31, 50), 1e-4)


def peaks() -> Plain:
    """Of a map of scores: those that no neighbour beats."""
    score, least, out = hl.ImageParam(F32, 2, "score"), hl.Param(F32, "least"), hl.Func("peaks")
    at, r = BOUNDARY.constant_exterior(score, -1e9), hl.RDom([(-1, 3), (-1, 3)], "r")
    best = hl.maximum(at[x + r.x, y + r.y])
    out[x, y] = hl.select((score[x, y] == best) & (score[x, y] > least), score[x, y], hl.f32(0))
    return Plain(out, [(score, floats(29, 66)), (least, 0.6)], (29, 66))


def space_to_depth() -> Plain:
    image, out = hl.ImageParam(F16, 3, "image"), hl.Func("packed")
    out[x, y, c] = image[2 * x + c % 2, 2 * y + c // 2 % 2, c // 4]
    out.bound(c, 0, 12)
    return Plain(out, [(image, halves(3, 18, 46))], (12, 9, 23))


def sums_from_the_end() -> Plain:
    """Discounted returns: what comes later counts less."""
    reward, decay, out = hl.ImageParam(F32, 2, "reward"), hl.Param(F32, "decay"), hl.Func("back")
    last = reward.width() - 1
    r = hl.RDom([(1, reward.width() - 1)], "r")
    out[x, n] = reward[x, n]
    out[last - r, n] += decay * out[last - r + 1, n]
    return Plain(out, [(reward, floats(7, 203)), (decay, 0.97)], (7, 203), 1e-4)


def masked_means() -> Plain:
    """Of the tokens that are there, by sentence."""
    tokens, there = hl.ImageParam(F16, 3, "tokens"), hl.ImageParam(U8, 2, "there")
    r, out = hl.RDom([(0, tokens.dim(1).extent())], "r"), hl.Func("means")
    total, count = hl.Func("total"), hl.Func("count")
    total[d, n] += hl.select(there[r, n] > 127, hl.f32(tokens[d, r, n]), hl.f32(0))
    count[n] += hl.select(there[r, n] > 127, 1, 0)
    out[d, n] = total[d, n] / hl.f32(hl.max(count[n], 1))
    return Plain(out, [(tokens, halves(5, 19, 72)), (there, bytes_(5, 19))], (5, 72), 1e-4)


def pairwise_l1() -> Plain:
    a, b, out = hl.ImageParam(F32, 2, "a"), hl.ImageParam(F32, 2, "b"), hl.Func("apart")
    k = hl.RDom([(0, a.width())], "k")
    out[j, i] += hl.abs(a[k, i] - b[k, j])
    return Plain(out, [(a, floats(45, 64)), (b, floats(37, 64, seed=1))], (45, 37), 1e-4)


def bags_of_words() -> Plain:
    """Sums of 16 rows of a table each."""
    table, words, out = (
        hl.ImageParam(F16, 2, "table"),
        hl.ImageParam(I32, 2, "words"),
        hl.Func("bag"),
    )
    k, total = hl.RDom([(0, 16)], "k"), hl.Func("total")
    row = hl.clamp(words[k, n], 0, table.height() - 1)
    total[d, n] += hl.f32(table[d, row])
    out[d, n] = hl.cast(F16, total[d, n])
    which = bytes_(21, 16).astype(np.int32) % 90
    return Plain(out, [(table, halves(90, 72)), (words, which)], (21, 72), 1e-3)


def rgb_to_yuv420() -> Plain:
    """Brightness, and colours of half the size, each a plane."""
    rgb = hl.ImageParam(U8, 3, "rgb")
    luma, blue, red = hl.Func("luma"), hl.Func("blue"), hl.Func("red")

    def weighed(px: hl.Expr, py: hl.Expr, weights: tuple[int, ...]) -> hl.Expr:
        return sum((w * hl.i32(rgb[px, py, k]) for k, w in enumerate(weights)), hl.i32(0))

    def half(weights: tuple[int, ...]) -> hl.Expr:
        four = sum((weighed(2 * x + k % 2, 2 * y + k // 2, weights) for k in range(4)), hl.i32(0))
        return hl.u8(hl.clamp(((four + 512) >> 10) + 128, 0, 255))

    luma[x, y] = hl.u8(hl.clamp(((weighed(x, y, (66, 129, 25)) + 128) >> 8) + 16, 0, 255))
    blue[x, y], red[x, y] = half((-38, -74, 112)), half((112, -94, -18))
    sizes = {"luma": (22, 70), "blue": (11, 35), "red": (11, 35)}
    return Plain([luma, blue, red], [(rgb, bytes_(3, 22, 70))], sizes)


OTHER_USERS = {
    make.__name__: make
    for make in (
        closing_less_image, block_differences, wave_step, local_contrast, peaks, space_to_depth,
        sums_from_the_end, masked_means, pairwise_l1, bags_of_words, rgb_to_yuv420,
    )
}  # fmt: skip
