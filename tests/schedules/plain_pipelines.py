"""Plain pipelines, as users write them: algorithms without any schedule, in no common style.

Each function gives fresh Funcs, the arguments by parameter, and the extents of the outputs in
NumPy's order: ragged, and smaller than a block where that may matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import halide as hl
import numpy as np

F16, F32, U8, I32 = hl.Float(16), hl.Float(32), hl.UInt(8), hl.Int(32)


@dataclass(frozen=True)
class Plain:
    """``outputs``: a Func or several. ``arguments``: arrays and numbers by parameter."""

    outputs: Any
    arguments: list[tuple[Any, Any]]
    sizes: Any
    tolerance: float = 1e-5


PIPELINES: dict[str, Callable[[], Plain]] = {}


def plain(make: Callable[[], Plain]) -> Callable[[], Plain]:
    PIPELINES[make.__name__] = make
    return make


def floats(*shape: int, seed: int = 0, type_: Any = np.float32) -> Any:
    return np.random.default_rng(seed).random(shape).astype(type_)


def bytes_(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


x, y, c, z, n, i, j = (hl.Var(name) for name in ["x", "y", "c", "z", "n", "i", "j"])


@plain
def brighten() -> Plain:
    picture, gain = hl.ImageParam(U8, 3, "picture"), hl.Param(F32, "gain")
    out = hl.Func("out")
    out[x, y, c] = hl.u8(hl.clamp(hl.f32(picture[x, y, c]) * gain + 0.5, 0, 255))
    return Plain(out, [(picture, bytes_(3, 21, 67)), (gain, 1.4)], (3, 21, 67))


@plain
def interleaved_to_gray() -> Plain:
    rgb = hl.ImageParam(U8, 3, "rgb")
    gray = hl.Func("gray")
    r, g, b = (hl.i32(rgb[channel, x, y]) for channel in range(3))
    gray[x, y] = hl.u8((77 * r + 150 * g + 29 * b) >> 8)
    return Plain(gray, [(rgb, bytes_(19, 70, 3))], (19, 70))


@plain
def swap_channels_interleaved() -> Plain:
    rgb = hl.ImageParam(U8, 3, "rgb")
    bgr = hl.Func("bgr")
    bgr[c, x, y] = rgb[2 - c, x, y]
    bgr.bound(c, 0, 3)
    return Plain(bgr, [(rgb, bytes_(9, 41, 3))], (9, 41, 3))


@plain
def blur_3x3() -> Plain:
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    across, blur = hl.Func("across"), hl.Func("blur")
    across[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) / 3
    blur[x, y] = (across[x, y] + across[x, y + 1] + across[x, y + 2]) / 3
    data = np.random.default_rng(1).integers(0, 9999, (35, 72)).astype(np.uint16)
    return Plain(blur, [(image, data)], (33, 70))


@plain
def unsharp_mask() -> Plain:
    photo = hl.ImageParam(F32, 3, "photo")
    amount = hl.Param(F32, "amount")
    edge = hl.BoundaryConditions.mirror_interior(photo)
    taps = [hl.f32(t) for t in (0.06, 0.24, 0.4, 0.24, 0.06)]
    gray, rows, columns, sharp, out = (
        hl.Func(s) for s in ["gray", "rows", "columns", "sharp", "out"]
    )
    red, green, blue = (edge[x, y, channel] for channel in range(3))
    gray[x, y] = hl.f32(0.3) * red + hl.f32(0.59) * green + hl.f32(0.11) * blue
    rows[x, y] = sum((t * gray[x + k - 2, y] for k, t in enumerate(taps)), hl.f32(0))
    columns[x, y] = sum((t * rows[x, y + k - 2] for k, t in enumerate(taps)), hl.f32(0))
    sharp[x, y] = gray[x, y] + amount * (gray[x, y] - columns[x, y])
    out[x, y, c] = edge[x, y, c] * sharp[x, y] / (gray[x, y] + hl.f32(0.01))
    return Plain(out, [(photo, floats(3, 30, 45)), (amount, 0.7)], (3, 30, 45), 1e-4)


@plain
def harris() -> Plain:
    image = hl.ImageParam(F32, 2, "input")
    at = hl.BoundaryConditions.constant_exterior(image, 0.0)
    ix, iy, out = hl.Func("Ix"), hl.Func("Iy"), hl.Func("harris")
    ix[x, y] = (
        at[x + 1, y - 1] - at[x - 1, y - 1] + 2 * (at[x + 1, y] - at[x - 1, y])
        + at[x + 1, y + 1] - at[x - 1, y + 1]
    ) / 12  # fmt: skip
    iy[x, y] = (
        at[x - 1, y + 1] - at[x - 1, y - 1] + 2 * (at[x, y + 1] - at[x, y - 1])
        + at[x + 1, y + 1] - at[x + 1, y - 1]
    ) / 12  # fmt: skip
    window = hl.RDom([(-1, 3), (-1, 3)], "window")
    sums = []
    for name, (a, b) in {"Sxx": (ix, ix), "Syy": (iy, iy), "Sxy": (ix, iy)}.items():
        total = hl.Func(name)
        here = (x + window.x, y + window.y)
        total[x, y] = hl.sum(a[here[0], here[1]] * b[here[0], here[1]])
        sums.append(total)
    sxx, syy, sxy = sums
    trace = sxx[x, y] + syy[x, y]
    out[x, y] = sxx[x, y] * syy[x, y] - sxy[x, y] * sxy[x, y] - hl.f32(0.04) * trace * trace
    return Plain(out, [(image, floats(38, 50))], (38, 50), 1e-4)


@plain
def pyramid() -> Plain:
    base = hl.ImageParam(F32, 2, "base")
    levels = [hl.BoundaryConditions.repeat_edge(base)]
    for level in range(3):
        half, down = hl.Func(f"half{level}"), hl.Func(f"down{level}")
        above = levels[-1]
        half[x, y] = (above[2 * x - 1, y] + 3 * (above[2 * x, y] + above[2 * x + 1, y])
                      + above[2 * x + 2, y]) / 8  # fmt: skip
        down[x, y] = (half[x, 2 * y - 1] + 3 * (half[x, 2 * y] + half[x, 2 * y + 1])
                      + half[x, 2 * y + 2]) / 8  # fmt: skip
        levels.append(down)
    up = levels[-1]
    for level in (2, 1, 0):
        grown, mixed = hl.Func(f"grown{level}"), hl.Func(f"mixed{level}")
        grown[x, y] = (3 * up[x / 2, y / 2] + up[(x + 1) / 2, (y + 1) / 2]) / 4
        mixed[x, y] = levels[level][x, y] - 0.5 * grown[x, y]
        up = mixed
    return Plain(up, [(base, floats(44, 61))], (44, 61))


@plain
def box_filter_by_prefix_sums() -> Plain:
    image = hl.ImageParam(I32, 2, "image")
    padded = hl.BoundaryConditions.constant_exterior(image, 0)
    run, table, box = hl.Func("run"), hl.Func("table"), hl.Func("box")
    r = hl.RDom([(1, 60)], "r")
    run[x, y] = padded[x, y]
    run[r, y] += run[r - 1, y]
    table[x, y] = run[x, y]
    s = hl.RDom([(1, 40)], "s")
    table[x, s] += table[x, s - 1]
    box[x, y] = table[x + 4, y + 4] - table[x, y + 4] - table[x + 4, y] + table[x, y]
    data = np.random.default_rng(3).integers(-50, 50, (40, 60)).astype(np.int32)
    return Plain(box, [(image, data)], (36, 56))


@plain
def exponential_smoothing() -> Plain:
    signal, a = hl.ImageParam(F32, 2, "signal"), hl.Param(F32, "a")
    smooth = hl.Func("smooth")
    r = hl.RDom([(1, signal.dim(0).extent() - 1)])
    smooth[x, c] = signal[x, c]
    smooth[r, c] = (1 - a) * smooth[r - 1, c] + a * smooth[r, c]
    return Plain(smooth, [(signal, floats(5, 301)), (a, 0.2)], (5, 301))


@plain
def histogram() -> Plain:
    image = hl.ImageParam(U8, 2, "image")
    counts, r = hl.Func("counts"), hl.RDom(image)
    counts[i] = 0
    counts[hl.clamp(hl.i32(image[r.x, r.y]), 0, 255)] += 1
    return Plain(counts, [(image, bytes_(23, 61))], (256,))


@plain
def brightest_pixel() -> Plain:
    image = hl.ImageParam(U8, 2, "image")
    best, out = hl.argmax(image[(r := hl.RDom(image)).x, r.y]), hl.Func("out")
    out[i] = hl.select(i == 0, best[0], i == 1, best[1], hl.i32(best[2]))
    return Plain(out, [(image, bytes_(23, 61) // 40)], (3,))


@plain
def equalize() -> Plain:
    image = hl.ImageParam(U8, 2, "image")
    counts, cdf, out, r = hl.Func("counts"), hl.Func("cdf"), hl.Func("out"), hl.RDom(image)
    counts[i] = 0
    counts[hl.i32(image[r.x, r.y])] += 1
    b = hl.RDom([(1, 255)], "b")
    cdf[i] = counts[i]
    cdf[b.x] += cdf[b.x - 1]
    out[x, y] = hl.u8(cdf[hl.i32(image[x, y])] * 255 / (image.width() * image.height()))
    return Plain(out, [(image, bytes_(23, 61))], (23, 61))


@plain
def softmax() -> Plain:
    scores = hl.ImageParam(F32, 2, "scores")
    r = hl.RDom([(0, scores.dim(0).extent())], "r")
    top, e, total, out = (hl.Func(s) for s in ("top", "e", "total", "out"))
    top[y] = hl.maximum(scores[r, y])
    e[x, y] = hl.exp(scores[x, y] - top[y])
    total[y] = hl.sum(e[r, y])
    out[x, y] = e[x, y] / total[y]
    return Plain(out, [(scores, floats(13, 333) * 9)], (13, 333))


@plain
def layer_norm() -> Plain:
    tokens = hl.ImageParam(F16, 2, "tokens")
    gamma, beta = hl.ImageParam(F32, 1, "gamma"), hl.ImageParam(F32, 1, "beta")
    width = 200
    k = hl.RDom([(0, width)], "k")
    mean, variance, out = hl.Func("mean"), hl.Func("variance"), hl.Func("out")
    mean[n] += hl.f32(tokens[k, n]) / width
    variance[n] += (hl.f32(tokens[k, n]) - mean[n]) * (hl.f32(tokens[k, n]) - mean[n]) / width
    normal = (hl.f32(tokens[i, n]) - mean[n]) * hl.fast_inverse_sqrt(variance[n] + 1e-5)
    out[i, n] = hl.cast(F16, normal * gamma[i] + beta[i])
    data = [
        (tokens, floats(11, width, type_=np.float16)),
        (gamma, floats(width)),
        (beta, floats(width)),
    ]
    return Plain(out, data, (11, width), 5e-3)


@plain
def rms_norm() -> Plain:
    tokens, scale = hl.ImageParam(F16, 2, "tokens"), hl.ImageParam(F32, 1, "scale")
    width = tokens.dim(0).extent()
    k = hl.RDom([(0, width)], "k")
    square, out = hl.Func("square"), hl.Func("out")
    square[n] = hl.sum(hl.f32(tokens[k, n]) * hl.f32(tokens[k, n])) / hl.f32(width)
    normal = hl.f32(tokens[i, n]) / hl.sqrt(square[n] + hl.f32(1e-5))
    out[i, n] = hl.cast(F16, normal * scale[i])
    data = [(tokens, floats(11, 203, type_=np.float16)), (scale, floats(203))]
    return Plain(out, data, (11, 203), 5e-3)


@plain
def rms_of_everything() -> Plain:
    a = hl.ImageParam(F32, 1, "a")
    total, out, r = hl.Func("total"), hl.Func("out"), hl.RDom(a)
    total[()] = hl.f32(0)
    total[()] += a[r] * a[r]
    out[i] = a[i] / hl.sqrt(total[()] / a.dim(0).extent() + 1e-6)
    return Plain(out, [(a, floats(9001))], (9001,), 1e-4)


@plain
def mean_colour() -> Plain:
    photo = hl.ImageParam(F32, 3, "photo")
    r = hl.RDom([(0, photo.width()), (0, photo.height())], "r")
    mean, out = hl.Func("mean"), hl.Func("out")
    mean[c] += photo[r.x, r.y, c]
    out[x, y, c] = photo[x, y, c] - mean[c] / hl.f32(photo.width() * photo.height())
    return Plain(out, [(photo, floats(3, 37, 52))], (3, 37, 52))


@plain
def column_means() -> Plain:
    table = hl.ImageParam(F32, 2, "table")
    means, r = hl.Func("means"), hl.RDom([(0, table.height())])
    means[x] = hl.sum(table[x, r]) / hl.f32(table.height())
    return Plain(means, [(table, floats(90, 77))], (77,))


@plain
def gaussian_window() -> Plain:
    image, taps = hl.ImageParam(F32, 2, "image"), hl.ImageParam(F32, 2, "taps")
    edge = hl.BoundaryConditions.repeat_edge(image)
    out, r = hl.Func("out"), hl.RDom(taps)
    out[x, y] = hl.f32(0)
    out[x, y] += edge[x + r.x - 2, y + r.y - 3] * taps[r.x, r.y]
    return Plain(out, [(image, floats(33, 47)), (taps, floats(7, 5))], (33, 47), 1e-4)


@plain
def product_f32() -> Plain:
    a, b = hl.ImageParam(F32, 2, "a"), hl.ImageParam(F32, 2, "b")
    product, k = hl.Func("product"), hl.RDom([(0, a.dim(0).extent())], "k")
    product[j, i] = hl.f32(0)
    product[j, i] += a[k, i] * b[j, k]
    return Plain(product, [(a, floats(35, 50)), (b, floats(50, 41))], (35, 41), 1e-4)


@plain
def nearest_centroid() -> Plain:
    points, centres = hl.ImageParam(F32, 2, "points"), hl.ImageParam(F32, 2, "centres")
    d, k = hl.RDom([(0, 7)], "d"), hl.RDom([(0, centres.dim(1).extent())], "k")
    distance, best, label = hl.Func("distance"), hl.Func("best"), hl.Func("label")
    step = points[d, n] - centres[d, j]
    distance[j, n] = hl.sum(step * step)
    best[n] = hl.argmin(distance[k, n])
    label[n] = best[n][0]
    return Plain(label, [(points, floats(203, 7)), (centres, floats(12, 7, seed=5))], (203,))


@plain
def median_of_five() -> Plain:
    image = hl.ImageParam(U8, 2, "image")
    at = hl.BoundaryConditions.repeat_edge(image)
    out = hl.Func("median")
    v = [at[x, y], at[x - 1, y], at[x + 1, y], at[x, y - 1], at[x, y + 1]]
    for a, b in ((0, 1), (3, 4), (2, 4), (2, 3), (1, 4), (0, 3), (0, 2), (1, 3), (1, 2)):
        v[a], v[b] = hl.min(v[a], v[b]), hl.max(v[a], v[b])
    out[x, y] = v[2]
    return Plain(out, [(image, bytes_(29, 63))], (29, 63))


@plain
def demosaic() -> Plain:
    raw = hl.ImageParam(hl.UInt(16), 2, "raw")
    at = hl.BoundaryConditions.mirror_interior(raw)
    f = hl.Func("f")
    f[x, y] = hl.i32(at[x, y])
    cross = (f[x - 1, y] + f[x + 1, y] + f[x, y - 1] + f[x, y + 1]) / 4
    corners = (f[x - 1, y - 1] + f[x + 1, y - 1] + f[x - 1, y + 1] + f[x + 1, y + 1]) / 4
    sides, ends = (f[x - 1, y] + f[x + 1, y]) / 2, (f[x, y - 1] + f[x, y + 1]) / 2
    even_x, even_y = x % 2 == 0, y % 2 == 0
    red, green, blue, out = (hl.Func(s) for s in ("red", "green", "blue", "rgb"))
    red[x, y] = hl.select(even_y, hl.select(even_x, f[x, y], sides),
                          hl.select(even_x, ends, corners))  # fmt: skip
    green[x, y] = hl.select(even_x == even_y, cross, f[x, y])
    blue[x, y] = hl.select(even_y, hl.select(even_x, corners, ends),
                           hl.select(even_x, sides, f[x, y]))  # fmt: skip
    out[x, y, c] = hl.u16(hl.mux(c, [red[x, y], green[x, y], blue[x, y]]))
    out.bound(c, 0, 3)
    data = np.random.default_rng(7).integers(0, 1024, (26, 44)).astype(np.uint16)
    return Plain(out, [(raw, data)], (3, 26, 44))


@plain
def bilateral() -> Plain:
    image = hl.ImageParam(F32, 2, "image")
    at = hl.BoundaryConditions.repeat_edge(image)
    r = hl.RDom([(-2, 5), (-2, 5)], "r")
    weight, out = hl.Func("weight"), hl.Func("out")
    near = at[x + r.x, y + r.y]
    away = hl.f32(r.x * r.x + r.y * r.y) / 8 + (near - at[x, y]) * (near - at[x, y]) * 20
    weight[x, y] = (hl.f32(0), hl.f32(0))
    w = hl.exp(-away)
    weight[x, y] = (weight[x, y][0] + w, weight[x, y][1] + w * near)
    out[x, y] = weight[x, y][1] / weight[x, y][0]
    return Plain(out, [(image, floats(31, 42))], (31, 42), 1e-4)


@plain
def upsample_by_lookup() -> Plain:
    image, shift = hl.ImageParam(F32, 2, "image"), hl.ImageParam(F32, 1, "shift")
    out = hl.Func("out")
    sx = hl.f32(x) * 0.7 + shift[y]
    low = hl.i32(hl.floor(sx))
    a, b = (hl.clamp(low + k, 0, image.width() - 1) for k in (0, 1))
    out[x, y] = hl.lerp(image[a, y], image[b, y], sx - hl.floor(sx))
    return Plain(out, [(image, floats(20, 50)), (shift, floats(20) * 5)], (20, 66))


@plain
def transpose_and_flip() -> Plain:
    a = hl.ImageParam(F16, 2, "a")
    out = hl.Func("out")
    out[x, y] = a[y, a.height() - 1 - x]
    return Plain(out, [(a, floats(37, 65, type_=np.float16))], (65, 37))


@plain
def gradient_and_magnitude() -> Plain:
    image = hl.ImageParam(F32, 2, "image")
    dx, dy, size = hl.Func("dx"), hl.Func("dy"), hl.Func("size")
    dx[x, y] = image[x + 1, y] - image[x, y]
    dy[x, y] = image[x, y + 1] - image[x, y]
    size[x, y] = hl.sqrt(dx[x, y] * dx[x, y] + dy[x, y] * dy[x, y])
    sizes = {"dx": (23, 40), "dy": (23, 40), "size": (23, 40)}
    return Plain([dx, dy, size], [(image, floats(24, 41))], sizes)


@plain
def bilateral_grid() -> Plain:
    image = hl.ImageParam(F32, 2, "image")
    at = hl.BoundaryConditions.repeat_edge(image)
    r = hl.RDom([(0, 8), (0, 8)], "r")
    grid, bz, bx, by, out = (hl.Func(s) for s in ("grid", "bz", "bx", "by", "out"))
    value = hl.clamp(at[x * 8 + r.x - 4, y * 8 + r.y - 4], 0.0, 1.0)
    bin_ = hl.i32(value * 10 + 0.5)
    grid[x, y, z, c] = hl.f32(0)
    grid[x, y, bin_, c] += hl.mux(c, [value, hl.f32(1)])
    bz[x, y, z, c] = grid[x, y, z - 1, c] + grid[x, y, z, c] * 2 + grid[x, y, z + 1, c]
    bx[x, y, z, c] = bz[x - 1, y, z, c] + bz[x, y, z, c] * 2 + bz[x + 1, y, z, c]
    by[x, y, z, c] = bx[x, y - 1, z, c] + bx[x, y, z, c] * 2 + bx[x, y + 1, z, c]
    here = hl.clamp(image[x, y], 0.0, 1.0) * 10
    zi = hl.i32(here)
    low, high = by[x / 8, y / 8, zi, 0], by[x / 8, y / 8, zi + 1, 0]
    weights = by[x / 8, y / 8, zi, 1], by[x / 8, y / 8, zi + 1, 1]
    zf = here - hl.f32(zi)
    out[x, y] = hl.lerp(low, high, zf) / (hl.lerp(weights[0], weights[1], zf) + 1e-4)
    return Plain(out, [(image, floats(27, 45))], (27, 45), 1e-4)


@plain
def wavelet_rows() -> Plain:
    signal = hl.ImageParam(F32, 2, "signal")
    out = hl.Func("wavelet")
    low = (signal[2 * x, y] + signal[2 * x + 1, y]) / 2
    high = (signal[2 * x, y] - signal[2 * x + 1, y]) / 2
    out[x, y, c] = hl.select(c == 0, low, high)
    return Plain(out, [(signal, floats(18, 94))], (2, 18, 47))


@plain
def fir_bank() -> Plain:
    sound, bank = hl.ImageParam(F32, 2, "sound"), hl.ImageParam(F32, 2, "bank")
    k = hl.RDom([(0, bank.dim(0).extent())], "k")
    out = hl.Func("bands")
    out[x, z, c] = hl.sum(sound[x + k, c] * bank[k, z])
    data = [(sound, floats(2, 400)), (bank, floats(6, 31))]
    return Plain(out, data, (2, 6, 370), 1e-4)


@plain
def filter_in_five_dimensions() -> Plain:
    stack, taps = hl.ImageParam(F32, 5, "stack"), hl.ImageParam(F32, 2, "taps")
    r, out, args = hl.RDom([(0, 7)]), hl.Func("out"), (x, y, c, n, z)
    out[args] = hl.f32(0)
    out[args] += stack[x + r, y, c, n, z] * taps[r, y]
    data = [(stack, floats(2, 3, 4, 5, 40)), (taps, floats(5, 7))]
    return Plain(out, data, (2, 3, 4, 5, 33))


@plain
def dense_relu() -> Plain:
    a, w, bias = hl.ImageParam(F16, 2, "a"), hl.ImageParam(F16, 2, "w"), hl.ImageParam(F32, 1, "b")
    k = hl.RDom([(0, a.dim(0).extent())], "k")
    acc, out = hl.Func("acc"), hl.Func("out")
    acc[j, i] = bias[j]
    acc[j, i] += hl.f32(a[k, i]) * hl.f32(w[j, k])
    out[j, i] = hl.cast(F16, hl.max(acc[j, i], 0))
    arguments = [
        (a, floats(37, 96, type_=np.float16)),
        (w, floats(96, 72, seed=2, type_=np.float16) - np.float16(0.5)),
        (bias, floats(72)),
    ]
    return Plain(out, arguments, (37, 72), 5e-3)


@plain
def product_f16() -> Plain:
    a, b = hl.ImageParam(F16, 2, "a"), hl.ImageParam(F16, 2, "b")
    product, k = hl.Func("product"), hl.RDom([(0, a.dim(0).extent())], "k")
    product[j, i] = hl.f32(0)
    product[j, i] += hl.f32(a[k, i]) * hl.f32(b[j, k])
    data = [
        (a, floats(70, 88, type_=np.float16)),
        (b, floats(88, 136, seed=1, type_=np.float16)),
    ]
    return Plain(product, data, (70, 136), 1e-4)


@plain
def linear_layer_of_torch() -> Plain:
    inputs, weight = hl.ImageParam(F16, 2, "inputs"), hl.ImageParam(F16, 2, "weight")
    bias = hl.ImageParam(F32, 1, "bias")
    acc, out = hl.Func("acc"), hl.Func("out")
    r = hl.RDom([(0, 96)], "r")
    acc[x, y] += hl.f32(weight[r, x]) * hl.f32(inputs[r, y])
    out[x, y] = hl.cast(F16, hl.max(acc[x, y] + bias[x], 0) * hl.f32(0.5))
    data = [
        (inputs, floats(45, 96, type_=np.float16)),
        (weight, floats(80, 96, seed=2, type_=np.float16) - np.float16(0.5)),
        (bias, floats(80)),
    ]
    return Plain(out, data, (45, 80), 5e-3)


@plain
def products_in_a_batch() -> Plain:
    a, b = hl.ImageParam(F16, 3, "a"), hl.ImageParam(F16, 3, "b")
    out, k = hl.Func("out"), hl.RDom([(0, 48)], "k")
    out[j, i, n] = hl.f32(0)
    out[j, i, n] += hl.f32(a[k, i, n]) * hl.f32(b[j, k, n])
    data = [
        (a, floats(3, 40, 48, type_=np.float16)),
        (b, floats(3, 48, 72, seed=1, type_=np.float16)),
    ]
    return Plain(out, data, (3, 40, 72), 1e-4)


@plain
def quantised_product() -> Plain:
    a, b = hl.ImageParam(U8, 2, "a"), hl.ImageParam(hl.Int(8), 2, "b")
    scale = hl.Param(F32, "scale")
    sums, out, k = hl.Func("sums"), hl.Func("out"), hl.RDom([(0, 128)], "k")
    sums[j, i] = hl.i32(0)
    sums[j, i] += hl.i32(a[k, i]) * hl.i32(b[k, j])
    out[j, i] = hl.f32(sums[j, i]) * scale
    signed = np.random.default_rng(6).integers(-128, 128, (64, 128)).astype(np.int8)
    return Plain(out, [(a, bytes_(50, 128)), (b, signed), (scale, 0.01)], (50, 64))


@plain
def two_layers() -> Plain:
    tokens, up, down = (hl.ImageParam(F16, 2, name) for name in ("tokens", "up", "down"))
    k, h = hl.RDom([(0, 64)], "k"), hl.RDom([(0, 96)], "h")
    first, hidden, out = hl.Func("first"), hl.Func("hidden"), hl.Func("out")
    first[x, y] += hl.f32(tokens[k, y]) * hl.f32(up[x, k])
    hidden[x, y] = hl.cast(F16, hl.max(first[x, y], 0) / 16)
    out[x, y] += hl.f32(hidden[h, y]) * hl.f32(down[x, h])
    data = [
        (tokens, floats(37, 64, type_=np.float16)),
        (up, floats(64, 96, seed=1, type_=np.float16) - np.float16(0.5)),
        (down, floats(96, 40, seed=2, type_=np.float16)),
    ]
    return Plain(out, data, (37, 40), 5e-3)


@plain
def everything_in_one_dimension() -> Plain:
    a, b = hl.ImageParam(F32, 1, "a"), hl.ImageParam(F32, 1, "b")
    out = hl.Func("out")
    out[i] = hl.select(a[i] > b[i], a[i] - b[i], hl.pow(hl.abs(a[i]), 1.5))
    return Plain(out, [(a, floats(777)), (b, floats(777, seed=4))], (777,))


@plain
def running_maximum_of_rows() -> Plain:
    table = hl.ImageParam(I32, 2, "table")
    best, r = hl.Func("best"), hl.RDom([(1, table.height() - 1)])
    best[x, y] = table[x, y]
    best[x, r] = hl.max(best[x, r - 1], best[x, r])
    data = np.random.default_rng(8).integers(-999, 999, (31, 45)).astype(np.int32)
    return Plain(best, [(table, data)], (31, 45))


@plain
def resonator() -> Plain:
    signal, a, b = hl.ImageParam(F32, 1, "signal"), hl.Param(F32, "a"), hl.Param(F32, "b")
    out, r = hl.Func("out"), hl.RDom([(2, signal.dim(0).extent() - 2)])
    out[x] = signal[x]
    out[r.x] += a * out[r.x - 1] + b * out[r.x - 2]
    return Plain(out, [(signal, floats(5003)), (a, 1.8), (b, -0.9)], (5003,), 1e-5)


@plain
def integral_image() -> Plain:
    image, table = hl.ImageParam(hl.UInt(8), 2, "image"), hl.Func("table")
    r = hl.RDom([(1, image.width() - 1)], "r")
    s = hl.RDom([(1, image.height() - 1)], "s")
    table[x, y] = hl.i32(image[x, y])
    table[r, y] += table[r - 1, y]
    table[x, s] += table[x, s - 1]
    return Plain(table, [(image, bytes_(307, 130))], (307, 130))


@plain
def red_black_relaxation() -> Plain:
    start = hl.ImageParam(F32, 2, "start")
    edge = hl.BoundaryConditions.repeat_edge(start)
    previous = edge
    for step in range(6):
        now = hl.Func(f"relaxed{step}")
        mean = (
            previous[x - 1, y] + previous[x + 1, y] + previous[x, y - 1] + previous[x, y + 1]
        ) / 4
        now[x, y] = hl.select((x + y + step) % 2 == 0, mean, previous[x, y])
        previous = now
    return Plain(previous, [(start, floats(25, 48))], (25, 48), 1e-4)
