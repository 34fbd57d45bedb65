"""Jobs (``plain_jobs``) of the pipelines of ``plain_signals``."""

from __future__ import annotations

from typing import Any

import torch
from plain_chain_jobs import GREY, PICTURE, moved, wider
from plain_jobs import F32, I32, U8, U16, H, Job, W, one
from torch.nn import functional


def spectrogram(sound: Any, tables: Any, hann: Any) -> Any:
    frames = sound.unfold(0, 128, 32) * hann
    real, imaginary = frames @ tables[0].T, frames @ tables[1].T
    return 10 * torch.log10(real * real + imaginary * imaginary + 1e-6)


def sharpness(gray: Any) -> Any:
    p = wider(gray.float(), 1)
    lap = p[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1] + p[2:, 1:-1] - 4 * p[1:-1, 1:-1]
    high, wide = (n // 32 for n in gray.shape)
    tiles = lap[: 32 * high, : 32 * wide].view(high, 32, wide, 32).permute(0, 2, 1, 3)
    return tiles.reshape(high, wide, 1024).var(2, correction=0)


def undistorted(film: Any, bend: float) -> Any:
    high, wide = film.shape[1:]
    y, x = (torch.arange(n, device=film.device, dtype=F32) for n in (high, wide))
    dy, dx = ((y - high * 0.5) / wide)[:, None], ((x - wide * 0.5) / wide)[None]
    far = 1 + bend * (dx * dx + dy * dy)
    sx, sy = dx * far * wide + wide * 0.5, dy * far * wide + high * 0.5
    left, top = sx.floor(), sy.floor()
    fx, fy, ix, iy = sx - left, sy - top, left.long(), top.long()

    def at(ox: int, oy: int) -> Any:
        return film[:, (iy + oy).clamp(0, high - 1), (ix + ox).clamp(0, wide - 1)].float()

    above, below = torch.lerp(at(0, 0), at(1, 0), fx), torch.lerp(at(0, 1), at(1, 1), fx)
    return (torch.lerp(above, below, fy) + 0.5).clamp(0, 255).to(U8)


def developed(raw: Any, matrix: Any) -> Any:
    light = raw.to(matrix.dtype)
    mean = light.sum((1, 2))
    even = light * (mean[1] / mean.clamp(min=1))[:, None, None] / 4095
    mixed = sum(matrix[:, k, None, None] * even[k] for k in range(3))
    return (255 * mixed.clamp(0, 1) ** (1 / 2.2) + 0.5).to(U8)


def motion(now: Any, before: Any) -> Any:
    p, found = wider(before, 4), []
    high, wide = (n // 16 for n in now.shape)
    for dy in range(-4, 5):
        for dx in range(-4, 5):
            off = (now.short() - moved(p, dx, dy, 4).short()).abs()
            tiles = off[: 16 * high, : 16 * wide].view(high, 16, wide, 16)
            found.append(tiles.int().sum((1, 3)))
    least, at = torch.stack(found).min(0)
    return torch.stack((at % 9 - 4, at // 9 - 4, least)).int()


def autocorrelation(signal: Any) -> Any:
    own = signal[:, None, : signal.shape[1] - 64]
    return functional.conv1d(signal[None, :, :-1], own, groups=signal.shape[0])[0]


def blended(top: Any, ground: Any) -> Any:
    alpha, cover = top[..., 3:].int(), torch.full_like(top[..., 3:], 255)
    over = torch.cat((top[..., :3], cover), 2)
    scaled = over.int() * alpha + ground.int() * (255 - alpha) + 128
    return ((scaled + (scaled >> 8)) >> 8).to(U8)


def dithered(gray: Any, bayer: Any) -> Any:
    high, wide = gray.shape
    ink = gray.view(high, wide // 8, 8) < bayer.repeat(-(-high // 8), 1)[:high, None]
    shift = torch.arange(7, -1, -1, device=gray.device)
    return (ink.int() << shift).sum(2).to(U8)


def denoised(film: Any) -> Any:
    p = functional.pad(film[None], (1, 1, 1, 1), mode="replicate")
    near = torch.exp(-72 * functional.avg_pool2d((p - p[:, 2:3]) ** 2, 3, 1)[0])
    return (near * film).sum(0) / near.sum(0)


def census(eye: Any) -> Any:
    p = functional.pad(eye[None, None].float(), (2, 2, 2, 2), mode="reflect")[0, 0].to(U8)
    around = [(x, y) for y in range(-2, 3) for x in range(-2, 3) if (x, y) != (0, 0)]
    return sum((moved(p, x, y, 2) < eye).int() << k for k, (x, y) in enumerate(around))


def levels(sound: Any) -> Any:
    blocks = sound.view(sound.shape[0], -1, 480)
    return blocks.abs().amax(2), (blocks * blocks).mean(2)


def woven(now: Any, before: Any) -> Any:
    p = wider(now, 1)
    a, b = p[:-2, 1:-1], p[2:, 1:-1]
    middle = torch.maximum(torch.minimum(a, b), torch.minimum(torch.maximum(a, b), before))
    even = torch.arange(now.shape[0], device=now.device)[:, None] % 2 == 0
    return torch.where(even, now, middle)


FILM, RGBA = ((3, H, W), U8), ((H, W, 4), U8)
SIGNALS = [
    Job("spectrogram", "spectrogram",
        {"sound": ((128 + 32 * 65535,), F32), "tables": ((2, 65, 128), F32), "hann": ((128,), F32)},
        one((65536, 65), F32), spectrogram, 1e-4),
    Job("sharpness of tiles", "tile_sharpness", {"gray": GREY}, one((H // 32, W // 32), F32),
        sharpness, 1e-4),
    Job("lens straightened", "undistorted", {"film": FILM}, one(*FILM), undistorted, 1,
        {"bend": -0.15}, astray=1e-4),
    Job("raw developed", "developed", {"raw": ((3, H, W), U16), "matrix": ((3, 3), F32)},
        one(*FILM), developed, 1),
    Job("motion of blocks", "motion_vectors", {"now": GREY, "before": GREY},
        one((3, H // 16, W // 16), I32), motion, 0),
    Job("autocorrelation", "autocorrelation", {"signal": ((64, 1 << 18), F32)},
        one((64, 64), F32), autocorrelation, 1e-4),
    Job("RGBA over RGBA", "blended", {"top": RGBA, "ground": RGBA}, one(*RGBA), blended, 0),
    Job("dithered to bits", "dithered", {"gray": GREY, "bayer": ((8, 8), U8)},
        one((H, W // 8), U8), dithered, 0),
    Job("film denoised", "film_denoised", {"film": ((5, H, W), F32)}, one(*PICTURE), denoised,
        1e-4),
    Job("census", "census", {"eye": GREY}, one((H, W), I32), census, 0),
    Job("levels of sound", "levels", {"sound": ((16, 480 * 4000), F32)},
        dict.fromkeys(("peak", "power"), ((16, 4000), F32)), levels),
    Job("fields woven", "fields_woven", {"now": GREY, "before": GREY}, one(*GREY), woven, 0),
]  # fmt: skip
