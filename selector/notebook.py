"""What notebooks show: kernels, reports and schedules as HTML, in the notebook's own colours, and
arrays as pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from io import BytesIO
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError

STYLE = "text-align:left;vertical-align:top"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of HTML below a head of text."""
    titles = "".join(f'<th style="{STYLE}">{escape(title)}</th>' for title in head)
    lines = (
        "<tr>" + "".join(f'<td style="{STYLE}">{cell}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def folded(summary: str, body: str, opened: bool = False) -> str:
    """HTML behind a line of text that a click opens."""
    shown = " open" if opened else ""
    return f"<details{shown}><summary>{escape(summary)}</summary>{body}</details>"


def code(text: str) -> str:
    """Text as it is typed."""
    return f"<pre>{escape(text)}</pre>"


def paragraphs(*lines: str) -> str:
    """Lines of text, those that there are."""
    return "<br>".join(escape(line) for line in lines if line)


@dataclass(frozen=True, slots=True)
class Picture:
    """An array that a notebook shows as a picture.

    ``values``: of shape (height, width), or (height, width, 3) for RGB; NumPy's, CuPy's or torch's.
    ``low`` is shown black and ``high`` white: by default the range of the type for whole numbers,
    and 0 and 1 for floats. ``ArgumentError`` for other shapes.
    """

    values: Any
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.values.shape)
        if len(shape) not in (2, 3) or 0 in shape or shape[2:] not in ((), (3,)):
            raise ArgumentError(
                f"an array of shape {shape} is no picture",
                why="that has (height, width), or (height, width, 3) for RGB",
                hint="choose a plane: values[0]",
            )

    def _repr_png_(self) -> bytes:
        from PIL import Image

        values = self.values.get() if hasattr(self.values, "get") else self.values
        values = values.cpu().numpy() if hasattr(values, "cpu") else np.asarray(values)
        whole = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
        low = (0.0 if whole is None else whole.min) if self.low is None else self.low
        high = (1.0 if whole is None else whole.max) if self.high is None else self.high
        levels = (np.nan_to_num(values.astype(np.float64)) - low) / (high - low) * 255
        file = BytesIO()
        Image.fromarray(np.rint(levels.clip(0, 255)).astype(np.uint8)).save(file, "PNG")
        return file.getvalue()
