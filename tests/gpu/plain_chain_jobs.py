"""Jobs (``plain_jobs``) of pictures, videos, volumes and signals: chains of stencils, moved pixels,
searches, scans.
"""

from __future__ import annotations

from typing import Any

import torch
from plain_jobs import F16, F32, I32, U8, U16, H, Job, W, one
from torch.nn import functional


def wider(image: Any, around: int, mode: str = "replicate") -> Any:
    """With an edge, of floats as of whole numbers."""
    sides, own = (around,) * 4, image if image.is_floating_point() else image.float()
    return functional.pad(own[None, None], sides, mode=mode)[0, 0].to(image.dtype)


def moved(padded: Any, dx: int, dy: int, around: int) -> Any:
    """The middle of a picture with ``around`` pixels around it, so many pixels off."""
    high, wide = (s - 2 * around for s in padded.shape[-2:])
    return padded[..., around + dy : around + dy + high, around + dx : around + dx + wide]


def mirrored(image: Any, around: int) -> Any:
    """The outermost pixels are there twice."""
    v = torch.cat((image[:around].flip(0), image, image[-around:].flip(0)))
    return torch.cat((v[:, :around].flip(1), v, v[:, -around:].flip(1)), 1)


def sobel(photo: Any) -> Any:
    p = mirrored(photo, 1).short()
    right, left = p[:, 2:] - p[:, :-2], p[2:] - p[:-2]
    gx = right[:-2] + 2 * right[1:-1] + right[2:]
    gy = left[:, :-2] + 2 * left[:, 1:-1] + left[:, 2:]
    return (gx.abs() + gy.abs()).clamp(0, 255).to(U8)


def nv12(luma: Any, chroma: Any) -> Any:
    large = chroma.int().repeat_interleave(2, 0).repeat_interleave(2, 1) - 128
    bright, (u, v) = 298 * (luma.int() - 16), large.unbind(-1)
    red, blue = (bright + 409 * v + 128) >> 8, (bright + 516 * u + 128) >> 8
    green = (bright - 100 * u - 208 * v + 128) >> 8
    return torch.stack((red, green, blue), -1).clamp(0, 255).to(U8)


def tone_map(photo: Any) -> Any:
    bright = 0.2126 * photo[0] + 0.7152 * photo[1] + 0.0722 * photo[2]
    scaled = 0.18 * bright / (bright + 1e-4).log().mean().exp()
    mapped = scaled * (1 + scaled / 4) / (1 + scaled)
    return ((photo * (mapped / (bright + 1e-4))) ** (1 / 2.2) * 255 + 0.5).clamp(0, 255).to(U8)


def richardson_lucy(guess: Any, seen: Any, psf: Any) -> Any:
    blurred = functional.conv2d(wider(guess, 6)[None, None], psf[None, None])
    ratio = wider(seen, 3) / (blurred + 1e-3)
    return guess * functional.conv2d(ratio, psf.flip(0, 1)[None, None])[0, 0]


def match_template(scene: Any, part: Any) -> Any:
    v = scene[None, None]
    both = functional.conv2d(v, part[None, None])[0, 0]
    sums, squares = (81 * functional.avg_pool2d(p, 9, 1)[0, 0] for p in (v, v * v))
    own = (part * part).sum() - part.sum() ** 2 / 81
    return (both - sums * part.sum() / 81) / ((squares - sums * sums / 81) * own + 1e-6).sqrt()


def guided(photo: Any) -> Any:
    p = wider(photo, 8)[None, None]
    first, second = functional.avg_pool2d(p, 9, 1), functional.avg_pool2d(p * p, 9, 1)
    variance = second - first * first
    a = variance / (variance + 0.01)
    b = first * (1 - a)
    return (functional.avg_pool2d(a, 9, 1) * photo + functional.avg_pool2d(b, 9, 1))[0, 0]


def opened(mask: Any) -> Any:
    p = wider(mask, 4).half()[None, None]
    least = -functional.max_pool2d(-p, 5, 1)
    return functional.max_pool2d(least, 5, 1)[0, 0].to(U8)


def disparity(left: Any, right: Any) -> Any:
    a, b = wider(left, 2).short(), wider(right, 2 + 15).short()[15:-15]
    off = torch.stack([(a - b[:, 15 - s : 15 - s + a.shape[1]]).abs() for s in range(16)])
    cost = functional.avg_pool2d(off.float()[None], 5, 1, divisor_override=1)[0]
    return cost.argmin(0).to(U8)


def heat(u: Any, rate: float) -> Any:
    p = functional.pad(u[None, None], (1,) * 6, mode="replicate")[0, 0]
    inner = slice(1, -1)
    around = p[inner, inner, :-2] + p[inner, inner, 2:] + p[inner, :-2, inner] + p[inner, 2:, inner]
    around = around + p[:-2, inner, inner] + p[2:, inner, inner]
    return u + rate * (around - 6 * u)


def life(cells: Any) -> Any:
    rows = cells + cells.roll(1, 1) + cells.roll(-1, 1)
    near = rows + rows.roll(1, 0) + rows.roll(-1, 0) - cells
    return ((near == 3) | ((near == 2) & (cells == 1))).to(U8)


def thin(photo: Any) -> Any:
    p = wider(photo, 3)
    rows = p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:]
    soft = (rows[:-2] + 2 * rows[1:-1] + rows[2:]) / 16
    gx, gy = soft[1:-1, 2:] - soft[1:-1, :-2], soft[2:, 1:-1] - soft[:-2, 1:-1]
    size, level = gx * gx + gy * gy, moved(gx.abs() > gy.abs(), 0, 0, 1)
    own = moved(size, 0, 0, 1)
    one = torch.where(level, moved(size, -1, 0, 1), moved(size, 0, -1, 1))
    other = torch.where(level, moved(size, 1, 0, 1), moved(size, 0, 1, 1))
    return torch.where((own >= one) & (own >= other), own, 0.0)


def looked_up(photo: Any, table: Any) -> Any:
    return table[photo.int()]


def rotated(photo: Any, cos: float, sin: float) -> Any:
    high, wide = photo.shape
    y, x = (torch.arange(n, device=photo.device, dtype=photo.dtype) for n in (high, wide))
    u, v = cos * x[None] - sin * y[:, None] + 3, sin * x[None] + cos * y[:, None] - 2
    left, top = u.floor().int(), v.floor().int()

    def at(i: Any, j: Any) -> Any:
        return photo[j.clamp(0, high - 1), i.clamp(0, wide - 1)]

    a = torch.lerp(at(left, top), at(left + 1, top), u - left)
    b = torch.lerp(at(left, top + 1), at(left + 1, top + 1), u - left)
    return torch.lerp(a, b, v - top)


def haar(photo: Any) -> Any:
    a, b = photo[:, 0::2], photo[:, 1::2]
    rows = torch.stack((a + b, a - b))
    low, high = rows[:, 0::2] + rows[:, 1::2], rows[:, 0::2] - rows[:, 1::2]
    return torch.cat((low, high)) / 2


def half_size(photo: Any) -> Any:
    v = photo.short()
    rows = v[0::2] + v[1::2]
    return ((rows[:, 0::2] + rows[:, 1::2] + 2) >> 2).to(U8)


def blur_pixels(photo: Any) -> Any:
    p = functional.pad(photo.permute(2, 0, 1)[None].float(), (2,) * 4, mode="replicate")[0].int()
    wide, high, taps = photo.shape[1], photo.shape[0], (1, 4, 6, 4, 1)
    rows = sum(t * p[..., k : k + wide] for k, t in enumerate(taps))
    found = sum(t * rows[:, k : k + high] for k, t in enumerate(taps))
    return ((found + 128) >> 8).to(U8).permute(1, 2, 0).contiguous()


def pyramid(base: Any) -> Any:
    """Laplacian levels, mixed again; levels are kept larger than they are used."""
    around = 30  # halved three times with one less, each is even
    levels = [wider(base, around)]
    for _ in range(3):
        p = levels[-1]
        half = (p[:, 1:-3:2] + 3 * (p[:, 2:-2:2] + p[:, 3:-1:2]) + p[:, 4::2]) / 8
        levels.append((half[1:-3:2] + 3 * (half[2:-2:2] + half[3:-1:2]) + half[4::2]) / 8)
    origin = [around, 14, 6, 2]  # where pixel 0 of a level is
    high, wide = base.shape
    up = levels[3][origin[3] :, origin[3] :]
    for level in (2, 1, 0):
        own = levels[level][origin[level] :, origin[level] :]
        rows, columns = (high >> level) + 1 + (level > 0), (wide >> level) + 1 + (level > 0)
        rows, columns = (high, wide) if level == 0 else (rows, columns)
        y, x = (torch.arange(n, device=base.device) for n in (rows, columns))
        near, next_ = up[y // 2][:, x // 2], up[(y + 1) // 2][:, (x + 1) // 2]
        up = own[:rows, :columns] - 0.5 * ((3 * near + next_) / 4)
    return up


def demosaic(raw: Any) -> Any:
    p = wider(raw.float(), 1, "reflect").int()
    own = moved(p, 0, 0, 1)
    left, right, above, below = (moved(p, *d, 1) for d in ((-1, 0), (1, 0), (0, -1), (0, 1)))
    sides, ends = (left + right) // 2, (above + below) // 2
    cross = (left + right + above + below) // 4
    corners = sum(moved(p, a, b, 1) for a in (-1, 1) for b in (-1, 1)) // 4
    high, wide = raw.shape
    even_y = (torch.arange(high, device=raw.device) % 2 == 0)[:, None]
    even_x = (torch.arange(wide, device=raw.device) % 2 == 0)[None]
    pick = torch.where
    red = pick(even_y, pick(even_x, own, sides), pick(even_x, ends, corners))
    green = pick(even_x == even_y, cross, own)
    blue = pick(even_y, pick(even_x, corners, ends), pick(even_x, sides, own))
    return torch.stack((red, green, blue)).to(U16)


def bilateral(image: Any) -> Any:
    p, weights, total = wider(image, 2), 0.0, 0.0
    for dy in range(-2, 3):
        for dx in range(-2, 3):
            near = moved(p, dx, dy, 2)
            w = torch.exp(-((dx * dx + dy * dy) / 8 + (near - image) ** 2 * 20))
            weights, total = weights + w, total + w * near
    return total / weights


def shifted_rows(image: Any, shift: Any) -> Any:
    wide = image.shape[1]
    x = torch.arange(wide, device=image.device, dtype=image.dtype) * 0.7
    at = x[None] + shift[:, None]
    low = at.floor().long()
    a, b = (image.gather(1, (low + k).clamp(0, wide - 1)) for k in (0, 1))
    return torch.lerp(a, b, at - low)


def wavelet_rows(signal: Any) -> Any:
    a, b = signal[:, 0::2], signal[:, 1::2]
    return torch.stack(((a + b) / 2, (a - b) / 2))


def smoothing(signal: Any, a: float) -> Any:
    """By its impulse response: torch has no recursive filter."""
    taps = 256
    k = torch.arange(taps - 1, -1, -1, device=signal.device, dtype=signal.dtype)
    weights = a * (1 - a) ** k
    weights = torch.cat(((1 - a) ** k[:1] * (1 - a), weights))
    v = functional.pad(signal[:, None], (taps, 0), mode="replicate")
    return functional.conv1d(v, weights[None, None])[:, 0]


def equalize(image: Any) -> Any:
    counts = torch.bincount(image.flatten().int(), minlength=256)
    table = counts.cumsum(0) * 255 // image.numel()
    return table.to(U8)[image.int()]


def integral(image: Any) -> Any:
    return image.int().cumsum(1, dtype=I32).cumsum(0, dtype=I32)


def relaxed(start: Any) -> Any:
    """Six half steps; the edge is what was there at first, repeated."""
    around = 6
    v = wider(start, around)
    high, wide = v.shape
    y, x = (torch.arange(n, device=v.device) - around for n in (high, wide))
    colour = (x[None] + y[:, None]) % 2 == 0
    for step in range(6):
        mean = (v[1:-1, :-2] + v[1:-1, 2:] + v[:-2, 1:-1] + v[2:, 1:-1]) / 4
        colour = colour[1:-1, 1:-1]
        mine = colour if step % 2 == 0 else ~colour
        v = torch.where(mine, mean, v[1:-1, 1:-1])
    return v


SMALL = (1080, 1920)
PICTURE, GREY, PIXELS = ((H, W), F32), ((H, W), U8), ((H, W, 3), U8)
CHAINS = [
    Job("swapped channels", "swap_channels_interleaved", {"rgb": PIXELS}, one(*PIXELS),
        lambda rgb: rgb.flip(-1), 0),
    Job("Sobel edges", "sobel_edges", {"photo": GREY}, one(*GREY), sobel, 0),
    Job("NV12 to RGB", "decode_nv12", {"luma": GREY, "chroma": ((H // 2, W // 2, 2), U8)},
        one(*PIXELS), nv12, 0),
    Job("tone mapping", "tone_map", {"photo": ((3, H, W), F32)}, one((3, H, W), U8), tone_map, 1,
        largest=3.0),
    Job("Richardson-Lucy step", "richardson_lucy",
        {"guess": PICTURE, "seen": PICTURE, "psf": ((7, 7), F32)}, one(*PICTURE), richardson_lucy,
        1e-4),
    Job("matched template 9 x 9", "match_template", {"scene": PICTURE, "part": ((9, 9), F32)},
        one((H - 8, W - 8), F32), match_template, 1e-3),
    Job("guided filter", "guided_filter", {"photo": PICTURE}, one(*PICTURE), guided, 1e-4),
    Job("opening 5 x 5", "opened", {"mask": GREY}, one(*GREY), opened, 0),
    Job("disparity, 16 shifts", "disparity", {"left": (SMALL, U8), "right": (SMALL, U8)},
        one(SMALL, U8), disparity, 0),
    Job("heat in space", "heat_in_space", {"heat": ((256, 256, 256), F32)},
        one((256, 256, 256), F32), heat, numbers={"rate": 0.1}),
    Job("game of life", "game_of_life", {"cells": GREY}, one(*GREY), life, 0),
    Job("thin edges", "thin_edges", {"photo": PICTURE}, one(*PICTURE), thin, 1e-2),
    Job("through a table", "through_a_table", {"photo": GREY, "table": ((256,), U8)}, one(*GREY),
        looked_up, 0),
    Job("rotated", "rotated", {"photo": PICTURE}, one(*PICTURE), rotated, 2e-3,
        {"cos": 0.96, "sin": 0.28}),
    Job("Haar, four bands", "haar", {"photo": PICTURE}, one((4, H // 2, W // 2), F32), haar),
    Job("half size of bytes", "half_size", {"photo": PIXELS}, one((H // 2, W // 2, 3), U8),
        half_size, 0),
    Job("5 + 5 taps of bytes", "blur_pixels", {"photo": PIXELS}, one(*PIXELS), blur_pixels, 0),
    Job("pyramid", "pyramid", {"base": PICTURE}, one(*PICTURE), pyramid, 1e-4),
    Job("demosaic", "demosaic", {"raw": ((H, W), U16)}, one((3, H, W), U16), demosaic, 0),
    Job("bilateral 5 x 5", "bilateral", {"image": PICTURE}, one(*PICTURE), bilateral, 1e-4),
    Job("rows moved by a table", "upsample_by_lookup", {"image": PICTURE, "shift": ((H,), F32)},
        one(*PICTURE), shifted_rows, 1e-3, largest=5.0),
    Job("transposed and flipped", "transpose_and_flip", {"a": ((4096, 4096), F16)},
        one((4096, 4096), F16), lambda a: a.flip(0).t().contiguous(), 0),
    Job("wavelet of rows", "wavelet_rows", {"signal": PICTURE}, one((2, H, W // 2), F32),
        wavelet_rows),
    Job("exponential smoothing", "exponential_smoothing", {"signal": ((16, 1 << 20), F32)},
        one((16, 1 << 20), F32), smoothing, 1e-4, {"a": 0.2}),
    Job("equalized", "equalize", {"image": GREY}, one(*GREY), equalize, 0),
    Job("integral image", "integral_image", {"image": GREY}, one((H, W), I32), integral, 0),
    Job("running maximum of rows", "running_maximum_of_rows", {"table": ((4096, 4096), I32)},
        one((4096, 4096), I32), lambda table: table.cummax(0).values, 0),
    Job("six steps of relaxation", "red_black_relaxation", {"start": PICTURE}, one(*PICTURE),
        relaxed, 1e-4),
]  # fmt: skip
