"""Plots of the public sweep, as SVG: over the size of the rows of a family, what share of the limit
each reaches, and how long the best library takes beside it. Needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot

from casestudies.results.swept import Measured

LEVEL = "#333333"


def plot(family: str, rows: Sequence[Measured], gpu: str, path: Path) -> Path:
    """Draw the rows of a family, a colour for each group; the same file for the same rows."""
    matplotlib.use("Agg")
    with matplotlib.rc_context({"svg.hashsalt": family, "svg.fonttype": "none", "font.size": 8}):
        figure, (shares, ratios) = pyplot.subplots(2, 1, figsize=(7.2, 5.4), sharex=True)
        for group in dict.fromkeys(row.entry.group for row in rows):
            found = [row for row in rows if row.entry.group == group]
            _dots(shares, found, [r.result.share for r in found], group)
            _dots(ratios, found, [r.ratio for r in found], group)
        shares.set(ylabel="share of the limit", ylim=(0, 1))
        shares.set_title(f"{family}, {gpu}", fontsize=9)
        shares.legend(frameon=False, fontsize=7, ncols=3)
        ratios.set(ylabel="best library / ours", xlabel="multiply-adds", xscale="log")
        ratios.set_yscale("log", base=2)
        ratios.axhline(1, color=LEVEL, linewidth=0.8)
        for axes in (shares, ratios):
            axes.grid(alpha=0.3)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return path


def _dots(axes: Any, rows: Sequence[Measured], values: Sequence[float | None], group: str) -> None:
    known = [(r.multiply_adds, v) for r, v in zip(rows, values, strict=True) if v is not None]
    axes.plot([x for x, _ in known], [y for _, y in known], ".", markersize=4, label=group)
