"""Plots of a run: how much faster than stock Halide each job is, what share of its limit it
reaches, conv1d over its taps, and the README's picture. Needs matplotlib.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from casestudies.results.jobs import Result

GALLERY = Path(__file__).resolve().parent.parent / "gallery"
SHOWN = "conv2d-k16-4080x4080"  # the job of the README's picture, and what its update became:
INSTRUCTION = "wgmma.m64n8k16.f16.f32"
OURS_COLOUR, STOCK_COLOUR, LIMIT_COLOUR = "#1f6fb4", "#999999", "#333333"


def draw(results: Sequence[Result], gpu: str, folder: Path) -> list[Path]:
    """Draw what there is data for; the files. ``ImportError`` without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    drawn = [
        _speed_up(results, gpu, folder / "speed_up.png"),
        _share(results, gpu, folder / "share.png"),
        _conv1d(results, gpu, folder / "conv1d.png"),
    ]
    return [path for path in drawn if path is not None]


def overview(results: Sequence[Result], run: str, folder: Path) -> Path:
    """A photograph before and after, the instruction, and times of the same filter on a large
    image; ``run`` says on what and when these were measured. ``ImportError`` without matplotlib.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    (job,) = (r for r in results if r.problem == SHOWN)
    best, stock = job.best_library, job.best_stock
    assert best is not None
    assert stock is not None
    figure, (before, after, times) = pyplot.subplots(
        1, 3, figsize=(8, 3), dpi=110, gridspec_kw={"width_ratios": (1, 1, 1.2)}
    )
    for axes, file, title in (
        (before, "photograph.png", "in"),
        (after, "conv2d.png", "out: 16 x 16 taps"),
    ):
        axes.imshow(pyplot.imread(GALLERY / file), cmap="gray", vmin=0, vmax=1)
        axes.set_title(title, fontsize=10)
        axes.axis("off")
    bars = (("this compiler", job.ours), ("stock Halide", stock), (best, job.libraries[best]))
    colours = (OURS_COLOUR, STOCK_COLOUR, STOCK_COLOUR)
    times.barh(range(3), [time for _, time in bars], color=colours, height=0.4)
    for row, (name, time) in enumerate(bars):
        times.text(0, row - 0.28, f"{name}: {time:.0f} us", fontsize=9)
    times.set_ylim(2.4, -0.7)
    times.set_yticks([])
    times.set_title(f"the same on 4080 x 4080 pixels\n{INSTRUCTION}\n{run}", fontsize=9)
    times.spines[["top", "right", "bottom"]].set_visible(False)
    times.tick_params(axis="x", bottom=False, labelbottom=False)
    return _save(figure, folder / "overview.png")


def _speed_up(results: Sequence[Result], gpu: str, path: Path) -> Path | None:
    bars = [(r.problem, r.best_stock / r.ours) for r in results if r.best_stock]
    if not bars:
        return None
    figure, axes = _bars(bars, f"speed-up over stock Halide's CUDA cores, {gpu}")
    axes.set_xscale("log")
    axes.axvline(1, color=LIMIT_COLOUR, linewidth=0.8)
    return _save(figure, path)


def _share(results: Sequence[Result], gpu: str, path: Path) -> Path | None:
    bars = [(r.problem, 100 * r.share) for r in results if r.share is not None]
    if not bars:
        return None
    figure, axes = _bars(bars, f"share of the limit in %, {gpu}")
    axes.set_xlim(0, 100)
    return _save(figure, path)


def _bars(bars: Sequence[tuple[str, float]], title: str) -> tuple[Any, Any]:
    """One bar a job, the first on top, with its number behind it."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 0.8 + 0.19 * len(bars)), dpi=100)
    places = range(len(bars))
    found = axes.barh(places, [value for _, value in bars], color=OURS_COLOUR, height=0.7)
    axes.bar_label(found, [f"{value:.3g}" for _, value in bars], padding=2, fontsize=6)
    axes.set_yticks(places, [name for name, _ in bars], fontsize=6)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title(title, fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    return figure, axes


def _conv1d(results: Sequence[Result], gpu: str, path: Path) -> Path | None:
    """Microseconds over the taps: ours, stock Halide, the limit."""
    from matplotlib import pyplot

    found = {
        int(match[1]): r
        for r in results
        if (match := re.fullmatch(r"conv1d-k(\d+)-(\d+)x4096", r.problem))
    }
    if len(found) < 2:
        return None
    taps, rows = list(found), list(found.values())
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), dpi=100)
    stock = [(t, r.best_stock) for t, r in found.items() if r.best_stock]
    axes.plot(*zip(*stock, strict=True), "s-", color=STOCK_COLOUR, label="stock Halide")
    axes.plot(taps, [r.ours for r in rows], "o-", color=OURS_COLOUR, label="tensor")
    limits = [(t, r.limit) for t, r in found.items() if r.limit is not None]
    if limits:
        label = "limit (bytes read, written)"
        axes.plot(*zip(*limits, strict=True), "--", color=LIMIT_COLOUR, label=label)
    axes.set(xlabel="taps", ylabel="us", ylim=(0, None), xlim=(0, None))
    axes.set_title(f"conv1d on 4096 x 4096, f16 -> f32, {gpu}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    """The same picture for the same data."""
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, metadata={"Software": ""})
    pyplot.close(figure)
    return path
