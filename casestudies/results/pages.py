"""Pages whose tables are made from data: what stands between the markers of a section."""

from __future__ import annotations

import sys
from pathlib import Path


def replaced(page: str, section: str, text: str) -> str:
    """A page with ``text`` between the markers of a section."""
    start, stop = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    before, begin, rest = page.partition(start)
    _, end, after = rest.partition(stop)
    if not begin or not end:
        sys.exit(f"error: no {start} ... {stop}")
    return f"{before}{start}\n{text}\n{stop}{after}"


def update(page: Path, section: str, text: str, check: bool) -> int:
    """Write the section of a page, or only look at it; the exit code: 1 if it is out of date."""
    there = page.read_text(encoding="utf-8")
    made = replaced(there, section, text)
    if not check:
        page.write_text(made, encoding="utf-8")
    return int(check and made != there)
