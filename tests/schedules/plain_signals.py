"""Plain pipelines of people who work with cameras, films and sound. No schedule was looked at while
they were written.
"""

from __future__ import annotations

import halide as hl
import numpy as np
from plain_pipelines import F32, U8, Plain, bytes_, floats

U16 = hl.UInt(16)
u, v, w, t, k, bx, by = (hl.Var(name) for name in ("u", "v", "w", "t", "k", "bx", "by"))


def spectrogram() -> Plain:
    """Frames of 128 samples, each 32 after the last one, by Hann's window; decibels of 65 bins."""
    sound, tables, hann = (
        hl.ImageParam(F32, 1, "sound"),
        hl.ImageParam(F32, 3, "tables"),
        hl.ImageParam(F32, 1, "hann"),
    )
    frame, part, level = hl.Func("frame"), hl.Func("part"), hl.Func("level")
    s = hl.RDom([(0, 128)], "s")
    frame[u, t] = sound[32 * t + u] * hann[u]
    part[k, t, w] = hl.f32(0)
    part[k, t, w] += frame[s, t] * tables[s, k, w]
    power = hl.f32(1e-6)
    for half in range(2):
        power += part[k, t, half] * part[k, t, half]
    level[k, t] = 10 * hl.log(power) / hl.f32(np.log(10))
    turn = 2 * np.pi * np.outer(np.arange(65), np.arange(128)) / 128
    both = np.stack([np.cos(turn), np.sin(turn)]).astype(np.float32)
    bell = np.hanning(128).astype(np.float32)
    return Plain(level, [(sound, floats(128 + 32 * 20)), (tables, both), (hann, bell)],
                 (21, 65), 1e-4)  # fmt: skip


def tile_sharpness() -> Plain:
    """Where the picture is in focus: the variance of its Laplacian in tiles of 32 x 32."""
    gray, lap = hl.ImageParam(U8, 2, "gray"), hl.Func("lap")
    clamped = hl.BoundaryConditions.repeat_edge(gray)
    px = hl.Func("px")
    px[u, v] = hl.i32(clamped[u, v])
    lap[u, v] = px[u - 1, v] + px[u + 1, v] + px[u, v - 1] + px[u, v + 1] - 4 * px[u, v]
    r = hl.RDom([(0, 32), (0, 32)], "r")
    moments, sharp = hl.Func("moments"), hl.Func("sharp")
    value = hl.f32(lap[32 * bx + r.x, 32 * by + r.y])
    moments[bx, by] = (hl.f32(0), hl.f32(0))
    moments[bx, by] = (moments[bx, by][0] + value, moments[bx, by][1] + value * value)
    mean = moments[bx, by][0] / 1024
    sharp[bx, by] = moments[bx, by][1] / 1024 - mean * mean
    return Plain(sharp, [(gray, bytes_(96, 160))], (3, 5), 1e-4)


def undistorted() -> Plain:
    """A lens' barrel taken out, each plane between four pixels."""
    film, bend, out = hl.ImageParam(U8, 3, "film"), hl.Param(F32, "bend"), hl.Func("straight")
    wide, high = film.width(), film.height()
    dx = (hl.f32(u) - hl.f32(wide) * 0.5) / hl.f32(wide)
    dy = (hl.f32(v) - hl.f32(high) * 0.5) / hl.f32(wide)
    far = 1 + bend * (dx * dx + dy * dy)
    sx = dx * far * hl.f32(wide) + hl.f32(wide) * 0.5
    sy = dy * far * hl.f32(wide) + hl.f32(high) * 0.5
    ix, iy = hl.i32(hl.floor(sx)), hl.i32(hl.floor(sy))
    fx, fy = sx - hl.floor(sx), sy - hl.floor(sy)

    def at(ox: int, oy: int) -> hl.Expr:
        return hl.f32(film[hl.clamp(ix + ox, 0, wide - 1), hl.clamp(iy + oy, 0, high - 1), w])

    above, below = hl.lerp(at(0, 0), at(1, 0), fx), hl.lerp(at(0, 1), at(1, 1), fx)
    out[u, v, w] = hl.u8(hl.clamp(hl.lerp(above, below, fy) + 0.5, 0, 255))
    return Plain(out, [(film, bytes_(3, 35, 61)), (bend, -0.15)], (3, 35, 61), 2)


def developed() -> Plain:
    """Of a linear picture of 12 bits: grey on the whole, colours by a matrix, gamma."""
    raw, matrix = hl.ImageParam(U16, 3, "raw"), hl.ImageParam(F32, 2, "matrix")
    whole = hl.RDom([(0, raw.width()), (0, raw.height())], "whole")
    mean, gain, even, out = (hl.Func(n) for n in ("mean", "gain", "even", "developed"))
    mean[w] += hl.f32(raw[whole.x, whole.y, w])
    gain[w] = mean[1] / hl.max(mean[w], 1)
    even[u, v, w] = hl.f32(raw[u, v, w]) * gain[w] / 4095
    line = hl.RDom([(0, 3)], "line")
    mixed = hl.sum(even[u, v, line] * matrix[line, w])
    out[u, v, w] = hl.u8(255 * hl.pow(hl.clamp(mixed, 0, 1), hl.f32(1 / 2.2)) + 0.5)
    light = (bytes_(3, 29, 54).astype(np.uint16) * 16).astype(np.uint16)
    mix = np.array([[1.6, -0.4, -0.2], [-0.3, 1.5, -0.2], [0, -0.5, 1.5]], np.float32)
    return Plain(out, [(raw, light), (matrix, mix)], (3, 29, 54), 2)


def motion_vectors() -> Plain:
    """Of blocks of 16 x 16: the shift of at most 4 with the least sum of differences."""
    now, before = hl.ImageParam(U8, 2, "now"), hl.ImageParam(U8, 2, "before")
    old, cost, best = hl.BoundaryConditions.repeat_edge(before), hl.Func("cost"), hl.Func("moved")
    p = hl.RDom([(0, 16), (0, 16)], "p")
    sx, sy = hl.Var("sx"), hl.Var("sy")
    px, py = 16 * bx + p.x, 16 * by + p.y
    cost[sx, sy, bx, by] += hl.i32(hl.absd(now[px, py], old[px + sx, py + sy]))
    shift = hl.RDom([(-4, 9), (-4, 9)], "shift")
    found = hl.argmin(cost[shift.x, shift.y, bx, by])
    best[bx, by, k] = hl.select(k == 0, found[0], k == 1, found[1], found[2])
    best.bound(k, 0, 3)
    return Plain(best, [(now, bytes_(48, 80)), (before, bytes_(48, 80, seed=1))], (3, 3, 5))


def autocorrelation() -> Plain:
    """Of each channel, 64 lags."""
    signal, out = hl.ImageParam(F32, 2, "signal"), hl.Func("alike")
    s = hl.RDom([(0, signal.width() - 64)], "s")
    out[k, t] += signal[s, t] * signal[s + k, t]
    return Plain(out, [(signal, floats(5, 64 + 333))], (5, 64), 1e-4)


def blended() -> Plain:
    """RGBA over RGBA, bytes of a pixel side by side, in integers."""
    top, ground, out = hl.ImageParam(U8, 3, "top"), hl.ImageParam(U8, 3, "ground"), hl.Func("over")
    alpha = hl.u16(top[3, u, v])

    def part(a: hl.Expr, b: hl.Expr) -> hl.Expr:
        scaled = hl.u16(a) * alpha + hl.u16(b) * (255 - alpha) + 128
        return hl.u8((scaled + (scaled >> 8)) >> 8)

    cover = part(hl.u8(255), ground[3, u, v])
    out[w, u, v] = hl.select(w == 3, cover, part(top[w, u, v], ground[w, u, v]))
    out.bound(w, 0, 4)
    return Plain(out, [(top, bytes_(23, 38, 4)), (ground, bytes_(23, 38, 4, seed=1))], (23, 38, 4))


def dithered() -> Plain:
    """To one bit by Bayer's matrix, eight pixels a byte, for a printer."""
    gray, bayer, out = hl.ImageParam(U8, 2, "gray"), hl.ImageParam(U8, 2, "bayer"), hl.Func("bits")
    bit = hl.RDom([(0, 8)], "bit")
    ink = hl.select(gray[8 * u + bit, v] < bayer[bit, v % 8], hl.u8(1), hl.u8(0))
    out[u, v] = hl.u8(0)
    out[u, v] = out[u, v] | (ink << hl.u8(7 - bit))
    return Plain(out, [(gray, bytes_(27, 136)), (bayer, bytes_(8, 8, seed=1))], (27, 17))


def film_denoised() -> Plain:
    """Five frames, each by how near it is to the middle one in 3 x 3 pixels."""
    film, out = hl.ImageParam(F32, 3, "film"), hl.Func("calm")
    at = hl.BoundaryConditions.repeat_edge(film, [(0, film.width()), (0, film.height())])
    off, near, r = hl.Func("off"), hl.Func("near"), hl.RDom([(-1, 3), (-1, 3)], "r")
    step = at[u, v, w] - at[u, v, 2]
    off[u, v, w] = step * step
    near[u, v, w] = hl.exp(-8 * hl.sum(off[u + r.x, v + r.y, w]))
    frame = hl.RDom([(0, 5)], "frame")
    out[u, v] = hl.sum(near[u, v, frame] * film[u, v, frame]) / hl.sum(near[u, v, frame])
    return Plain(out, [(film, floats(5, 33, 58))], (33, 58), 1e-4)


def census() -> Plain:
    """Bits of 5 x 5: which neighbours are darker. Stereo compares these."""
    eye, out = hl.ImageParam(U8, 2, "eye"), hl.Func("census")
    at, word, place = hl.BoundaryConditions.mirror_interior(eye), hl.i32(0), 0
    for oy in range(-2, 3):
        for ox in range(-2, 3):
            if (ox, oy) != (0, 0):
                word = word | hl.select(at[u + ox, v + oy] < at[u, v], 1 << place, 0)
                place += 1
    out[u, v] = word
    return Plain(out, [(eye, bytes_(31, 67))], (31, 67))


def levels() -> Plain:
    """A meter: of each channel's blocks of 480 samples the peak and the mean power."""
    sound = hl.ImageParam(F32, 2, "sound")
    peak, power, s = hl.Func("peak"), hl.Func("power"), hl.RDom([(0, 480)], "s")
    peak[t, k] = hl.maximum(hl.abs(sound[480 * t + s, k]))
    power[t, k] = hl.sum(hl.pow(sound[480 * t + s, k], 2)) / 480
    return Plain([peak, power], [(sound, floats(3, 480 * 7) - 0.5)],
                 {"peak": (3, 7), "power": (3, 7)}, 1e-4)  # fmt: skip


def fields_woven() -> Plain:
    """Interlaced film: missing rows are the median of above, below and the frame before."""
    now, before, out = hl.ImageParam(U8, 2, "now"), hl.ImageParam(U8, 2, "before"), hl.Func("whole")
    at = hl.BoundaryConditions.repeat_edge(now)
    a, b, c = at[u, v - 1], at[u, v + 1], before[u, v]
    middle = hl.max(hl.min(a, b), hl.min(hl.max(a, b), c))
    out[u, v] = hl.select(v % 2 == 0, now[u, v], middle)
    return Plain(out, [(now, bytes_(26, 71)), (before, bytes_(26, 71, seed=1))], (26, 71))


SIGNALS = {
    make.__name__: make
    for make in (
        spectrogram, tile_sharpness, undistorted, developed, motion_vectors, autocorrelation,
        blended, dithered, film_denoised, census, levels, fields_woven,
    )
}  # fmt: skip
