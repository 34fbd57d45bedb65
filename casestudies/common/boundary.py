"""What lies around a picture: ``valid`` reads nothing there, ``clamp`` repeats the nearest pixel,
``zero`` is zero.

With ``clamp`` and ``zero`` a filter is centred on its output, which so gets the picture's own size.
"""

from __future__ import annotations

from typing import Any

from casestudies.common.case import Option
from selector.diagnostics import UserError

VALID, CLAMP, ZERO = MODES = ("valid", "clamp", "zero")
BOUNDARY = Option("boundary", "what is read around the picture", choices=MODES)


def check(case: str, boundary: str) -> None:
    """``UserError`` for a mode that there is not."""
    if boundary not in MODES:
        raise UserError(
            f"{case}: no boundary mode {boundary!r}", hint=f"it is one of {', '.join(MODES)}"
        )


def before(boundary: str, taps: int, step: int = 1) -> int:
    """Pixels that a window of ``taps`` reaches back from its output; outputs are ``step`` pixels
    apart and the window is centred on that step.
    """
    return 0 if boundary == VALID else max(0, (taps - step) // 2)


def suffix(boundary: str) -> str:
    """The mode as part of a name; nothing for ``valid``."""
    return "" if boundary == VALID else f"-{boundary}"


def extended(image: Any, rows: range, columns: range, boundary: str, xp: Any) -> Any:
    """``image[rows, columns]`` of an array, as it continues beyond its edges."""
    r, c = (xp.arange(part.start, part.stop) for part in (rows, columns))
    height, width = image.shape
    found = image[xp.clip(r, 0, height - 1)][:, xp.clip(c, 0, width - 1)]
    if boundary == ZERO:
        found = found * ((r >= 0) & (r < height))[:, None] * ((c >= 0) & (c < width))
    return found
