"""The README's table: ten jobs of the measured ones, one kind of work each, in plain words.

Chosen for what they are, not for how they came out: filters, a convolution layer, attention, a
matrix product, image and sound processing, each at its middle or largest size.
"""

from __future__ import annotations

from collections.abc import Sequence

from casestudies.results.jobs import Result, digits, named

JOBS = {
    "conv1d-k32-4064x4096": "filter along rows, 32 taps, 4064 x 4096",
    "conv2d-k16-4080x4080": "filter, 16 x 16 taps, 4080 x 4080",
    "conv2d-k32-4064x4064": "filter, 32 x 32 taps, 4064 x 4064",
    "downsample-k16-2040x2040": "filter and every second pixel, 16 x 16 taps, to 2040 x 2040",
    "resample-2048x2048-921x921": "Lanczos-3, 2048 x 2048 to 921 x 921, RGB",
    "dct_denoise-1024x1024x3": "denoising by overlapped DCTs, 1024 x 1024, RGB",
    "recursive_filter*-2x2097152": "second-order IIR filter, 2 x 2097152 samples",
    "conv_layer-c64-64*-32x56x56": "3 x 3 layer, 64 to 64 channels, 32 x 56 x 56",
    "gemm-f16-f16-4096x4096x4096": "matrix product, f16, 4096 x 4096 x 4096",
    "attention-d128-64x4096": "attention, depth 128, 64 heads x 4096 keys",
}
"""The jobs by the name of their problem (``jobs.named``), and what they are."""


def table(results: Sequence[Result]) -> list[str]:
    """Microseconds of ours, of stock Halide and of the fastest library, and how many times as long
    as ours the library takes; all of ``JOBS`` were measured.
    """
    lines = [
        "| job | this compiler | stock Halide | best library | of it |",
        "|---|---:|---:|---|---:|",
    ]
    for problem, words in JOBS.items():
        r = named(results, problem)
        assert r is not None, problem
        stock, best = r.best_stock, r.best_library
        assert stock is not None
        assert best is not None
        times = f"**{digits(r.ours)}** | {digits(stock)} | {best}, {digits(r.libraries[best])}"
        ratio, _ = r.ratios.get(best, (r.libraries[best] / r.ours, 0.0))
        lines.append(f"| {words} | {times} | {digits(ratio)}x |")
    return lines
