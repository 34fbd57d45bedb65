"""Jobs (``plain_jobs``) of the pipelines of ``plain_others``."""

from __future__ import annotations

from typing import Any

import torch
from plain_chain_jobs import GREY, PICTURE, mirrored, wider
from plain_jobs import F16, F32, I32, U8, H, Job, W, one
from torch.nn import functional


def closing(photo: Any) -> Any:
    p = wider(photo, 6).half()[None, None]
    large = functional.max_pool2d(p, 7, 1)
    least = -functional.max_pool2d(-large, 7, 1)
    return (least[0, 0] - photo.half()).to(U8)


def differences(now: Any, before: Any) -> Any:
    off = (now.short() - before.short()).abs()
    high, wide = off.shape
    return off.view(high // 8, 8, wide // 8, 8).int().sum((1, 3)).to(torch.uint16)


def wave(now: Any, before: Any, speed: float) -> Any:
    p, size = functional.pad(now, (2,) * 6), now.shape

    def off(dz: int, dy: int, dx: int) -> Any:
        return p[2 + dz :, 2 + dy :, 2 + dx :][: size[0], : size[1], : size[2]]

    near, far = (sum(off(s, 0, 0) + off(0, s, 0) + off(0, 0, s) for s in (-k, k)) for k in (1, 2))
    return 2 * now - before + speed * (near * (4 / 3) - far / 12 - now * 7.5)


def even(photo: Any) -> Any:
    p = mirrored(photo, 3)[None, None]
    first = functional.avg_pool2d(p, 7, 1)[0, 0]
    second = functional.avg_pool2d(p * p, 7, 1)[0, 0]
    return (photo - first) / ((second - first * first).clamp(min=0) + 1e-2).sqrt()


def peaks(score: Any, least: float) -> Any:
    best = functional.max_pool2d(score[None, None], 3, 1, 1)[0, 0]
    return torch.where((score == best) & (score > least), score, 0.0)


def returns(reward: Any, decay: float) -> Any:
    """By its impulse response: torch has no recursive filter."""
    taps = 512
    k = torch.arange(taps, device=reward.device, dtype=reward.dtype)
    v = functional.pad(reward[:, None], (0, taps - 1))
    return functional.conv1d(v, (decay**k)[None, None])[:, 0]


def masked(tokens: Any, there: Any) -> Any:
    kind = torch.promote_types(tokens.dtype, F32)
    mask = (there > 127)[..., None]
    return torch.where(mask, tokens.to(kind), 0.0).sum(1) / mask.sum(1).clamp(min=1)


def bags(table: Any, words: Any) -> Any:
    kind = torch.promote_types(table.dtype, F32)
    at = words.long().clamp(0, table.shape[0] - 1)
    return table[at].to(kind).sum(1).to(table.dtype)


def yuv(rgb: Any) -> Any:
    r, g, b = rgb.int()

    def half(u: int, v: int, w: int) -> Any:
        own = u * r + v * g + w * b
        rows = own[0::2] + own[1::2]
        return (((rows[:, 0::2] + rows[:, 1::2] + 512) >> 10) + 128).clamp(0, 255).to(U8)

    luma = (((66 * r + 129 * g + 25 * b + 128) >> 8) + 16).clamp(0, 255).to(U8)
    return luma, half(-38, -74, 112), half(112, -94, -18)


SPACE = ((256, 256, 256), F32)
OTHERS = [
    Job("spots by a closing", "closing_less_image", {"photo": GREY}, one(*GREY), closing, 0),
    Job("differences of blocks", "block_differences", {"now": GREY, "before": GREY},
        one((H // 8, W // 8), torch.uint16), differences, 0),
    Job("a step of a wave", "wave_step", {"now": SPACE, "before": SPACE}, one(*SPACE), wave, 1e-4,
        {"speed": 0.1}),
    Job("local contrast", "local_contrast", {"photo": PICTURE}, one(*PICTURE), even, 1e-3),
    Job("peaks", "peaks", {"score": PICTURE}, one(*PICTURE), peaks, 0, {"least": 0.6}),
    Job("space to depth", "space_to_depth", {"image": ((3, H, W), F16)},
        one((12, H // 2, W // 2), F16),
        lambda image: functional.pixel_unshuffle(image[None], 2)[0], 0),
    Job("discounted returns", "sums_from_the_end", {"reward": ((64, 1 << 18), F32)},
        one((64, 1 << 18), F32), returns, 1e-3, {"decay": 0.97}),
    Job("masked means", "masked_means",
        {"tokens": ((64, 512, 768), F16), "there": ((64, 512), U8)}, one((64, 768), F32), masked,
        1e-3),
    Job("sums of differences", "pairwise_l1",
        {"a": ((4096, 64), F32), "b": ((4096, 64), F32)}, one((4096, 4096), F32),
        lambda a, b: torch.cdist(a, b, 1.0), 1e-4),
    Job("bags of words", "bags_of_words",
        {"table": ((100_000, 256), F16), "words": ((16384, 16), I32)}, one((16384, 256), F16),
        bags, 1e-3),
    Job("RGB to YUV 4:2:0", "rgb_to_yuv420", {"rgb": ((3, H, W), U8)},
        {"luma": GREY, "blue": ((H // 2, W // 2), U8), "red": ((H // 2, W // 2), U8)}, yuv, 0),
]  # fmt: skip
