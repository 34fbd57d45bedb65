"""Plain pipelines (``tests/schedules``) at the sizes of users, and what they are in torch.

Needs torch, no Halide. Each job names the pipeline, its arrays with their shapes in NumPy's order,
and a torch function of the same arguments, which is the peer as it is and the truth in float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

U8, U16, I32, F16, F32 = torch.uint8, torch.uint16, torch.int32, torch.float16, torch.float32
Array = tuple[tuple[int, ...], torch.dtype]
H, W, N = 2160, 3840, 1 << 24


@dataclass(frozen=True)
class Job:
    """``error``: relative, of floats (Frobenius), or the most that an integer may be off, but for a
    share ``astray`` of them, where rounding decides. ``triton``: the function of ``plain_triton``
    of the same arguments, if any.
    """

    name: str
    pipeline: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    call: Callable[..., Any]
    error: float = 1e-5
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    largest: float = 1.0  # of random floats
    astray: float = 0.0
    triton: str = ""

    @property
    def slug(self) -> str:
        """The name as that of a file."""
        return "-".join(re.findall(r"\w+", self.name))


def one(shape: tuple[int, ...], kind: torch.dtype) -> Mapping[str, Array]:
    return {"": (shape, kind)}


def brighten(picture: Any, gain: float) -> Any:
    return (picture.float() * gain + 0.5).clamp(0, 255).to(U8)


def gray(rgb: Any) -> Any:
    r, g, b = rgb.int().unbind(-1)
    return ((77 * r + 150 * g + 29 * b) >> 8).to(U8)


def blur(image: Any) -> Any:
    v = image.to(I32)
    rows = (v[:, :-2] + v[:, 1:-1] + v[:, 2:]) // 3
    return ((rows[:-2] + rows[1:-1] + rows[2:]) // 3).to(U16)


def gradient(image: Any) -> Any:
    dx, dy = image[:-1, 1:] - image[:-1, :-1], image[1:, :-1] - image[:-1, :-1]
    return dx, dy, torch.sqrt(dx * dx + dy * dy)


def harris(image: Any) -> Any:
    p = functional.pad(image, (2, 2, 2, 2))
    left, right = p[:, :-2], p[:, 2:]
    ix = (right - left)[:-2] + 2 * (right - left)[1:-1] + (right - left)[2:]
    above, below = p[:-2], p[2:]
    iy = (below - above)[:, :-2] + 2 * (below - above)[:, 1:-1] + (below - above)[:, 2:]
    ix, iy = ix / 12, iy / 12
    a, b, c = (
        9 * functional.avg_pool2d(v[None, None], 3, 1)[0, 0] for v in (ix * ix, iy * iy, ix * iy)
    )
    return a * b - c * c - 0.04 * (a + b) * (a + b)


def median_of_five(image: Any) -> Any:
    p = functional.pad(image[None, None].float(), (1, 1, 1, 1), mode="replicate")[0, 0]
    five = (p[1:-1, 1:-1], p[1:-1, :-2], p[1:-1, 2:], p[:-2, 1:-1], p[2:, 1:-1])
    return torch.stack(five).median(0).values.to(U8)


def unsharp(photo: Any, amount: float) -> Any:
    p = functional.pad(photo[None], (2, 2, 2, 2), mode="reflect")[0]
    light, taps = 0.3 * p[0] + 0.59 * p[1] + 0.11 * p[2], (0.06, 0.24, 0.4, 0.24, 0.06)
    rows = sum(t * light[:, k : light.shape[1] - 4 + k] for k, t in enumerate(taps))
    soft = sum(t * rows[k : rows.shape[0] - 4 + k] for k, t in enumerate(taps))
    own = light[2:-2, 2:-2]
    return photo * (own + amount * (own - soft)) / (own + 0.01)


def mean_colour(photo: Any) -> Any:
    return photo - photo.mean((1, 2), keepdim=True)


def histogram(image: Any) -> Any:
    return torch.bincount(image.flatten().int(), minlength=256).int()


def brightest(image: Any) -> Any:
    at = image.flatten().argmax()
    width = image.shape[1]
    return torch.stack((at % width, at // width, image.flatten()[at].long())).int()


def window(taps: int, *, edge: str = "", step: int = 1, back: int = 0, dilation: int = 1) -> Any:
    def call(image: Any, weights: Any) -> Any:
        v, w = image[None, None], weights[None, None]
        if edge:
            after = taps - 1 - back
            v = functional.pad(v, (back, after, back, after), mode=edge)
        return functional.conv2d(v, w, stride=step, dilation=dilation)[0, 0]

    return call


def wide(call: Callable[..., Any]) -> Callable[..., Any]:
    """With results in float32, as the pipeline's are."""
    return lambda image, weights: call(image, weights).to(torch.promote_types(image.dtype, F32))


def rows(taps: int) -> Any:
    def call(image: Any, weights: Any) -> Any:
        v = functional.pad(image[:, None], (0, taps - 1), mode="replicate")
        return functional.conv1d(v, weights[None, None])[:, 0].to(
            torch.promote_types(image.dtype, F32)
        )

    return call


def separable(image: Any, weights: Any) -> Any:
    v = functional.pad(image[None, None], (4, 4, 4, 4), mode="replicate")
    across = functional.conv2d(v, weights[None, None, None])
    found = functional.conv2d(across.half().to(across.dtype), weights[None, None, :, None])[0, 0]
    return found.to(torch.promote_types(image.dtype, F32))


def gaussian(image: Any, taps: Any) -> Any:
    v = functional.pad(image[None, None], (2, 2, 3, 3), mode="replicate")
    return functional.conv2d(v, taps[None, None])[0, 0]


def product(a: Any, b: Any) -> Any:
    return torch.mm(a, b, out_dtype=F32) if a.dtype == F16 else torch.mm(a, b)


def bands(sound: Any, bank: Any) -> Any:
    return functional.conv1d(sound[:, None], bank[:, None])


def filter_job(name: str, pipeline: str, call: Any, taps: tuple[int, ...], image: Any, out: Any):
    inputs = {"image": (image, F16), "weights": (taps, F16)}
    return Job(name, pipeline, inputs, one(out, F32), call, 1e-3)


PICTURES = [
    Job(
        "brighten, RGB planes",
        "brighten",
        {"picture": ((3, H, W), U8)},
        one((3, H, W), U8),
        brighten,
        1,
        {"gain": 1.4},
    ),
    Job(
        "brighten, rows of 3837",
        "brighten",
        {"picture": ((3, H, 3837), U8)},
        one((3, H, 3837), U8),
        brighten,
        1,
        {"gain": 1.4},
    ),
    Job(
        "gray of interleaved RGB",
        "interleaved_to_gray",
        {"rgb": ((H, W, 3), U8)},
        one((H, W), U8),
        gray,
        0,
    ),
    Job(
        "gray of interleaved RGB, rows of 3837",
        "interleaved_to_gray",
        {"rgb": ((H, 3837, 3), U8)},
        one((H, 3837), U8),
        gray,
        0,
    ),
    Job(
        "3 x 3 box, rows of 3837",
        "blur_3x3",
        {"image": ((H, 3837), U16)},
        one((H - 2, 3835), U16),
        blur,
        0,
    ),
    Job(
        "3 x 3 box of 16 bits",
        "blur_3x3",
        {"image": ((H, W), U16)},
        one((H - 2, W - 2), U16),
        blur,
        0,
    ),
    Job(
        "gradient and magnitude",
        "gradient_and_magnitude",
        {"image": ((H + 1, W), F32)},
        dict.fromkeys(("dx", "dy", "size"), ((H, W - 1), F32)),
        gradient,
    ),
    Job("Harris corners", "harris", {"input": ((H, W), F32)}, one((H, W), F32), harris, 1e-3),
    Job(
        "median of five",
        "median_of_five",
        {"image": ((H, W), U8)},
        one((H, W), U8),
        median_of_five,
        0,
    ),
    Job(
        "unsharp mask",
        "unsharp_mask",
        {"photo": ((3, H, W), F32)},
        one((3, H, W), F32),
        unsharp,
        1e-4,
        {"amount": 0.7},
    ),
    Job("histogram", "histogram", {"image": ((H, W), U8)}, one((256,), I32), histogram, 0),
    Job(
        "brightest pixel", "brightest_pixel", {"image": ((H, W), U8)}, one((3,), I32), brightest, 0
    ),
    Job(
        "column means",
        "column_means",
        {"table": ((4096, 4096), F32)},
        one((4096,), F32),
        lambda table: table.mean(0),
    ),
    Job(
        "column means, tall",
        "column_means",
        {"table": ((200_000, 64), F32)},
        one((64,), F32),
        lambda table: table.mean(0),
    ),
    Job(
        "less the mean colour",
        "mean_colour",
        {"photo": ((3, H, W), F32)},
        one((3, H, W), F32),
        mean_colour,
        1e-4,
    ),
    Job(
        "over the RMS of all",
        "rms_of_everything",
        {"a": ((N,), F32)},
        one((N,), F32),
        lambda a: a / torch.sqrt((a * a).mean() + 1e-6),
        1e-4,
    ),
    Job(
        "powers, one dimension",
        "everything_in_one_dimension",
        {"a": ((N,), F32), "b": ((N,), F32)},
        one((N,), F32),
        lambda a, b: torch.where(a > b, a - b, a.abs() ** 1.5),
    ),
    filter_job(
        "window 3 x 3", "window_3x3_itself", wide(window(3)), (3, 3), (H, W), (H - 2, W - 2)
    ),
    filter_job("window 5 x 5", "window_5x5", wide(window(5)), (5, 5), (H, W), (H - 4, W - 4)),
    filter_job(
        "window 9 x 9, edge",
        "window_9x9_centred_edge",
        wide(window(9, edge="replicate", back=4)),
        (9, 9),
        (H, W),
        (H, W),
    ),
    filter_job(
        "window 5 x 5, dilated",
        "window_dilated",
        wide(window(5, dilation=2)),
        (5, 5),
        (H, W),
        (H - 8, W - 8),
    ),
    filter_job(
        "window 4 x 4, stride 2",
        "window_strided",
        wide(window(4, step=2)),
        (4, 4),
        (H, W),
        (1079, 1919),
    ),
    filter_job(
        "window 7 x 7, stride 2, edge",
        "window_strided_edge",
        wide(window(7, step=2, edge="replicate", back=3)),
        (7, 7),
        (H, W),
        (1080, 1920),
    ),
    filter_job("rows of 63 taps, edge", "window_rows_63_edge", rows(63), (63,), (H, W), (H, W)),
    filter_job("9 + 9 taps, edge", "window_separable", separable, (9,), (H, W), (H, W)),
    Job(
        "window 5 x 7 of 32 bits, edge",
        "gaussian_window",
        {"image": ((H, W), F32), "taps": ((7, 5), F32)},
        one((H, W), F32),
        gaussian,
    ),
    Job(
        "16 filters of 31 taps, 32 bits",
        "fir_bank",
        {"sound": ((2, 1 << 20), F32), "bank": ((16, 31), F32)},
        one((2, 16, (1 << 20) - 30), F32),
        bands,
    ),
    Job(
        "product, 32 bits",
        "product_f32",
        {"a": ((2048, 2048), F32), "b": ((2048, 2048), F32)},
        one((2048, 2048), F32),
        product,
    ),
    Job(
        "product, 16 bits",
        "product_f16",
        {"a": ((2048, 2048), F16), "b": ((2048, 2048), F16)},
        one((2048, 2048), F32),
        product,
        1e-4,
    ),
]
