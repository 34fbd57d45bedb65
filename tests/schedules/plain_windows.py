"""Filters of an image, as users write them, in the forms that are known to be windows."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import halide as hl
import numpy as np
from plain_pipelines import F16, F32, I32, U8, Plain, bytes_, floats

from selector.diagnostics import PerformanceWarning

x, y, c, n = (hl.Var(name) for name in "xycn")
BOUNDARY = hl.BoundaryConditions


def summed(term: Any, *args: hl.Var, kind: Any = F32, name: str = "total") -> hl.Func:
    total = hl.Func(name)
    total[args or (x, y)] = hl.cast(kind, 0)
    total[args or (x, y)] += term
    return total


def stored(total: hl.Func, *args: hl.Var) -> hl.Func:
    out = hl.Func("out")
    out[args or (x, y)] = total[args or (x, y)]
    return out


def noise(*shape: int, seed: int = 0) -> Any:
    return (floats(*shape, seed=seed) - np.float32(0.5)).astype(np.float16)


def square(
    taps: int,
    edge: str = "",
    *,
    step: int = 1,
    dilation: int = 1,
    first: int = 0,
    centred: bool = False,
    itself: bool = False,
    bfloat: bool = False,
) -> Plain:
    """``taps`` x ``taps``, in an image with an edge or without one."""
    kind = hl.BFloat(16) if bfloat else F16
    image, weights = hl.ImageParam(kind, 2, "image"), hl.ImageParam(kind, 2, "weights")
    source = getattr(BOUNDARY, edge)(image) if edge else image
    low = -(taps // 2) if centred else 0
    t = hl.RDom([(low, taps), (low, taps)], "t")
    window = source[step * x + dilation * t.x + first, step * y + dilation * t.y + first]
    total = summed(hl.f32(window) * hl.f32(weights[t.x - low, t.y - low]))
    data = noise(37 * step + taps * dilation + 5, 300 * step + taps * dilation + 5)
    return Plain(
        total if itself else stored(total),
        [(image, data), (weights, noise(taps, taps, seed=1))],
        (35, 289),
    )


def rows(taps: int, edge: str = "") -> Plain:
    image, weights = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 1, "weights")
    source = getattr(BOUNDARY, edge)(image) if edge else image
    t = hl.RDom([(0, taps)])
    out = hl.Func("out")
    out[x, y] = hl.sum(hl.f32(source[x + t, y]) * hl.f32(weights[t]))
    return Plain(out, [(image, noise(9, 520)), (weights, noise(taps, seed=1))], (7, 520 - taps))


def gaussian_with_epilogue() -> Plain:
    image, weights = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 2, "weights")
    source, r, out = BOUNDARY.repeat_edge(image), hl.RDom([(-2, 5), (-2, 5)]), hl.Func("out")
    total = hl.sum(hl.f32(weights[r.x + 2, r.y + 2]) * hl.f32(source[x + r.x, y + r.y]))
    out[x, y] = hl.cast(F16, hl.max(total * 2 + 1, hl.f32(image[x, y])))
    return Plain(out, [(image, noise(37, 129)), (weights, noise(5, 5, seed=1))], (37, 129), 1e-3)


def bytes_saturated() -> Plain:
    image, weights = hl.ImageParam(U8, 2, "image"), hl.ImageParam(U8, 2, "weights")
    source, t = BOUNDARY.repeat_edge(image), hl.RDom([(0, 5), (0, 5)])
    term = hl.i32(source[x + t.x - 2, y + t.y - 2]) * hl.i32(weights[t.x, t.y])
    total, out = summed(term, kind=I32), hl.Func("out")
    out[x, y] = hl.u8_sat((total[x, y] + 512) >> 10)
    return Plain(out, [(image, bytes_(37, 129)), (weights, bytes_(5, 5, seed=1))], (37, 129))


def planes(batch: bool) -> Plain:
    """A filter for each channel."""
    image = hl.ImageParam(F16, 4 if batch else 3, "image")
    weights = hl.ImageParam(F16, 3, "weights")
    more = (c, n) if batch else (c,)
    source, t = BOUNDARY.repeat_edge(image), hl.RDom([(0, 3), (0, 3)])
    window = source[(x + t.x - 1, y + t.y - 1, *more)]
    total = summed(hl.f32(window) * hl.f32(weights[t.x, t.y, c]), x, y, *more)
    shape = (2, 3, 21, 131) if batch else (3, 21, 131)
    out = stored(total, x, y, *more)
    return Plain(out, [(image, noise(*shape)), (weights, noise(3, 3, 3, seed=1))], shape)


def pixels(channels: int, edge: str = "", step: int = 1, bytes_out: bool = False) -> Plain:
    """A filter for each channel of pixels whose channels lie next to each other."""
    kind = U8 if bytes_out else F16
    image, weights = hl.ImageParam(kind, 3, "image"), hl.ImageParam(kind, 2, "weights")
    image.dim(0).set_bounds(0, channels)
    source = getattr(BOUNDARY, edge)(image) if edge else image
    t, wide, out = hl.RDom([(0, 5), (0, 3)]), I32 if bytes_out else F32, hl.Func("out")
    term = hl.cast(wide, source[c, step * x + t.x, step * y + t.y])
    total = summed(term * hl.cast(wide, weights[t.x, t.y]), c, x, y, kind=wide)
    value = total[c, x, y]
    out[c, x, y] = hl.u8_sat(value >> 8) if bytes_out else hl.cast(F16, value)
    out.bound(c, 0, channels)
    make = bytes_ if bytes_out else noise
    data = make(19 * step + 3, 139 * step + 5, channels)
    return Plain(out, [(image, data), (weights, make(3, 5, seed=1))], (19, 139, channels), 1e-3)


def columns(taps: int, edge: str = "", step: int = 1) -> Plain:
    image, weights = hl.ImageParam(F16, 3, "image"), hl.ImageParam(F16, 1, "weights")
    source = getattr(BOUNDARY, edge)(image) if edge else image
    t, out = hl.RDom([(0, taps)]), hl.Func("out")
    out[x, y, c] = hl.sum(hl.f32(source[x, step * y + t, c]) * hl.f32(weights[t]))
    data = noise(2, 51 * step + taps, 141)
    return Plain(out, [(image, data), (weights, noise(taps, seed=1))], (2, 51, 141))


def phases_of_columns(phases: int, step: int, taps: int, edge: str = "") -> Plain:
    """So many rows of results from the same rows of an image: one axis of a transform of blocks."""
    image, weights = hl.ImageParam(F16, 3, "image"), hl.ImageParam(F16, 2, "weights")
    source = getattr(BOUNDARY, edge)(image) if edge else image
    t, out = hl.RDom([(0, taps)]), hl.Func("out")
    window = source[x, step * (y // phases) + t, c]
    total = summed(hl.f32(window) * hl.f32(weights[t, y % phases]), x, y, c)
    out[x, y, c] = hl.cast(F16, total[x, y, c])
    rows = 3 * phases + 5
    data = noise(2, step * (rows // phases) + taps, 141)
    return Plain(out, [(image, data), (weights, noise(phases, taps, seed=1))], (2, rows, 141), 1e-3)


def planes_to_pixels(columns: bool) -> Plain:
    """Planes are filtered, and stored as pixels of neighbouring channels."""
    image, weights = hl.ImageParam(F16, 3, "image"), hl.ImageParam(F16, 1, "weights")
    t, out = hl.RDom([(0, 9)]), hl.Func("out")
    window = image[x, y + t, c] if columns else image[x + t, y, c]
    total = summed(hl.f32(window) * hl.f32(weights[t]), x, y, c)
    out[c, x, y] = hl.cast(F16, total[x, y, c])
    return Plain(out, [(image, noise(3, 49, 149)), (weights, noise(9, seed=1))], (41, 141, 3), 1e-3)


def pixels_to_planes() -> Plain:
    """Pixels of neighbouring channels are filtered, and stored, as planes."""
    image, weights = hl.ImageParam(F16, 3, "image"), hl.ImageParam(F16, 1, "weights")
    t, plane = hl.RDom([(0, 9)]), hl.Func("plane")
    plane[x, y, c] = image[c, x, y]
    total = summed(hl.f32(plane[x + t, y, c]) * hl.f32(weights[t]), x, y, c)
    out = stored(total, x, y, c)
    out.bound(c, 0, 3)
    return Plain(out, [(image, noise(41, 149, 3)), (weights, noise(9, seed=1))], (3, 41, 141))


def signal(taps: int, step: int = 1, edge: str = "") -> Plain:
    samples, weights = hl.ImageParam(F16, 1, "samples"), hl.ImageParam(F16, 1, "weights")
    source = getattr(BOUNDARY, edge)(samples) if edge else samples
    t = hl.RDom([(0, taps)])
    total = summed(hl.f32(source[step * x + t]) * hl.f32(weights[t]), x)
    data = noise(5003 * step + taps)
    return Plain(stored(total, x), [(samples, data), (weights, noise(taps, seed=1))], (5003,))


def upsampled() -> Plain:
    image, weights = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 2, "weights")
    source, t = BOUNDARY.repeat_edge(image), hl.RDom([(0, 4), (0, 4)])
    window = source[x // 2 + t.x - 1, y // 2 + t.y - 1]
    total = summed(hl.f32(window) * hl.f32(weights[2 * t.x + x % 2, 2 * t.y + y % 2]))
    return Plain(stored(total), [(image, noise(20, 70)), (weights, noise(8, 8, seed=1))], (39, 139))


def of_computed_pixels() -> Plain:
    """The image is a Func that is more than its boundary."""
    image, weights = hl.ImageParam(U8, 2, "image"), hl.ImageParam(F16, 2, "weights")
    source, light = BOUNDARY.repeat_edge(image), hl.Func("light")
    light[x, y] = hl.cast(F16, source[x, y]) / hl.cast(F16, 256)
    t = hl.RDom([(0, 5), (0, 5)])
    total = summed(hl.f32(light[x + t.x - 2, y + t.y - 2]) * hl.f32(weights[t.x, t.y]))
    return Plain(
        stored(total), [(image, bytes_(37, 129)), (weights, noise(5, 5, seed=1))], (37, 129)
    )


def of_computed_taps() -> Plain:
    image, taps = hl.ImageParam(F16, 2, "image"), hl.Func("taps")
    source, r, out = BOUNDARY.repeat_edge(image), hl.RDom([(-3, 7), (-3, 7)]), hl.Func("out")
    taps[x, y] = hl.cast(F16, hl.exp(-hl.f32(x * x + y * y) / 8))
    out[x, y] = hl.sum(hl.f32(source[x + r.x, y + r.y]) * hl.f32(taps[r.x, r.y]))
    return Plain(out, [(image, noise(37, 129))], (37, 129), 1e-3)


def separable() -> Plain:
    """Rows and then columns, of 16-bit floats."""
    image, weights = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 1, "weights")
    source, t, out = BOUNDARY.repeat_edge(image), hl.RDom([(0, 9)]), hl.Func("out")
    across = hl.Func("across")
    across[x, y] = hl.cast(
        F16, hl.sum(hl.f32(source[x + t - 4, y]) * hl.f32(weights[t]), name="along")
    )
    out[x, y] = hl.sum(hl.f32(across[x, y + t - 4]) * hl.f32(weights[t]), name="down")
    return Plain(out, [(image, noise(37, 129)), (weights, noise(9, seed=1))], (37, 129), 1e-3)


@contextmanager
def gathering(name: str) -> Generator[None]:
    """Pixels are taken apart element by element, which is said, and no schedule would mend."""
    with warnings.catch_warnings():
        if "pixels" in name:
            warnings.simplefilter("ignore", PerformanceWarning)
        yield


BFLOAT = partial(square, 7, bfloat=True)
WINDOWS = {
    "window_3x3_itself": partial(square, 3, itself=True),
    "window_5x5": partial(square, 5),
    "window_9x9_centred_edge": partial(square, 9, "repeat_edge", centred=True),
    "window_21x21_mirror": partial(square, 21, "mirror_interior"),
    "window_dilated": partial(square, 5, dilation=2),
    "window_beside": partial(square, 5, first=3),
    "window_strided": partial(square, 4, step=2),
    "window_strided_edge": partial(square, 7, "repeat_edge", step=2, first=-3),
    "window_rows_16": partial(rows, 16),
    "window_rows_63_edge": partial(rows, 63, "repeat_edge"),
    "window_columns_9": partial(columns, 9),
    "window_columns_31_edge": partial(columns, 31, "repeat_edge"),
    "window_columns_strided": partial(columns, 6, step=2),
    "window_columns_8_phases": partial(phases_of_columns, 8, 16, 32),
    "window_columns_16_phases": partial(phases_of_columns, 16, 8, 16, "repeat_edge"),
    "window_planes_to_pixels": partial(planes_to_pixels, columns=False),
    "window_columns_to_pixels": partial(planes_to_pixels, columns=True),
    "window_pixels_to_planes": pixels_to_planes,
    "window_signal": partial(signal, 48),
    "window_signal_edge": partial(signal, 301, edge="mirror_image"),
    "window_signal_strided": partial(signal, 10, 2),
    "window_epilogue": gaussian_with_epilogue,
    "window_bytes": bytes_saturated,
    "window_planes": partial(planes, batch=False),
    "window_planes_batch": partial(planes, batch=True),
    "window_pixels": partial(pixels, 3),
    "window_pixels_edge": partial(pixels, 3, "repeat_edge"),
    "window_pixels_bytes": partial(pixels, 4, "mirror_interior", bytes_out=True),
    "window_pixels_strided": partial(pixels, 3, "repeat_edge", step=2),
    "window_upsampled": upsampled,
    "window_of_computed_pixels": of_computed_pixels,
    "window_of_computed_taps": of_computed_taps,
    "window_separable": separable,
}
