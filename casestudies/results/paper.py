"""The figures and tables of the HardBoiled paper beside ours: the table of their page.

What the paper says is facts on its own GPUs (an A100 in figure 4, an RTX 4070 SUPER in all that
follows), so times are not compared with times but what tensor units gain over CUDA cores, and who
is ahead of libraries. Ours is one run of all case studies (``h200.json``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from casestudies.results.jobs import Result, digits, named, results_of


@dataclass(frozen=True, slots=True)
class Place:
    """Where the paper measures something, what, and what it found: the gain over its own schedule
    for CUDA cores (0: not said) and how it stands to libraries. ``problem``: ours; ``library``:
    the peer of ours that is theirs."""

    where: str
    what: str
    problem: str
    gain: float = 0.0
    theirs: str = ""
    library: str = ""


PLACES = (
    Place("figure 4", "GEMM 1024", "gemm-f16-f32-1024x1024x1024", 3.36,
          "66 us, cuBLASLt 1.5x faster", "cuBLAS"),
    Place("figure 4", "layer, 16 channels", "conv_layer-c16-16-4096x64x64", 0,
          "1.05 ms, 1.6x faster than cuDNN", "cuDNN NHWC"),
    Place("figure 4", "layer, 32 channels", "conv_layer-c32-32-4096x64x64", 3.0,
          "5.34 ms, cuDNN 1.8x faster", "cuDNN NHWC"),
    Place("figure 4", "attention 64 x 4096 x 64", "attention-d64-64x4096", 0,
          "27.8 ms, cuBLAS + softmax 1.3x faster", "torch 3 stages"),
    Place("figure 5", "conv1d, 64 taps", "conv1d-k64-4032x4096", 0,
          "from here on CUDA cores are behind"),
    Place("figure 5", "conv1d, 256 taps", "conv1d-k256-3840x4096", 2.3),
    Place("figure 7", "conv2d, 16 x 16", "conv2d-k16-4080x4080", 3.1),
    Place("figure 7", "downsample by 2, 16 x 16", "downsample-k16-2040x2040", 4.6),
    Place("figure 7", "upsample by 2, 16 x 16", "upsample-k16-4096x4096", 1.4),
    Place("figure 8", "conv2d, 32 x 32", "conv2d-k32-4064x4064", 2.4),
    Place("figure 8", "downsample by 2, 32 x 32", "downsample-k32-2032x2032", 6.1),
    Place("figure 8", "upsample by 2, 32 x 32", "upsample-k32-4096x4096", 2.9),
    Place("table II", "resample to 143", "resample-2048x2048-143x143", 111 / 79, "111 and 79 us"),
    Place("table II", "resample to 245", "resample-2048x2048-245x245", 110 / 73, "110 and 73 us"),
    Place("table II", "resample to 450", "resample-2048x2048-450x450", 113 / 74, "113 and 74 us"),
    Place("table II", "resample to 921", "resample-2048x2048-921x921", 145 / 102,
          "145 and 102 us"),
    Place("section V-D", "recursive filter", "recursive_filter*-2x2097152",
          67.5 / 58, "67.5 and 58 us"),
    Place("section V-E", "denoising by DCTs", "dct_denoise-1024x1024x3", 277 / 68,
          "277 and 68 us; the fast DCT 76"),
)  # fmt: skip

HEAD = ("in the paper", "job", "its gain", "it says", "ours us", "stock Halide us", "our gain",
        "library us")  # fmt: skip


def render(data: dict[str, Any]) -> str:
    """A row for each place that this run has measured."""
    results = results_of(data)
    lines = [
        f"Ours measured {data['date']} on one {data['device']}; a gain is the time of a schedule "
        "for CUDA cores over that of the one for tensor units, of the same algorithm.",
        "",
        f"| {' | '.join(HEAD)} |",
        "|---|---|---:|---|---:|---:|---:|---|",
    ]
    lines += [_row(p, r) for p in PLACES if (r := named(results, p.problem)) is not None]
    return "\n".join(lines)


def _row(p: Place, ours: Result) -> str:
    stock = ours.best_stock
    name = p.library if p.library in ours.libraries else ours.best_library
    library = "" if name is None else f"{name}, {digits(ours.libraries[name])}"
    cells = [
        p.where, p.what, f"{p.gain:.1f}x" if p.gain else "", p.theirs,
        f"**{digits(ours.ours)}**", "" if stock is None else digits(stock),
        "" if stock is None else f"{stock / ours.ours:.1f}x", library,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"
