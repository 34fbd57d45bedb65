"""The pages of the project, and what is marked in them.

Blocks of code are found by the comment above them:

- ``file: NAME`` is a program; those of one page lie in one folder when they run;
- ``change: NAME, LABEL`` is a line of it written otherwise (that which begins alike, up to its
  first ``=`` or bracket, and what follows it), ``more: NAME, LABEL`` what stands after its end;
- ``output: NAME`` or ``output: NAME, LABEL``, and ``error: ...``, are what the program then prints
  (``--update-golden`` rewrites those);
- ``edit: PATH new | at the end | before | after | replace 'TEXT'`` is a step of a recipe;
- ``commands: NAME`` are lines for a shell, which have tests of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README, CONTRIBUTING, DOCS = ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs"
DICTIONARY = DOCS / "reference" / "errors.md"
MARKED = re.compile(r"<!-- (\w+): ([^\n]*?) -->\n```\w*\n(.*?)```\n", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A marked block: ``output``, ``blur.py``, its text, and the page that it is on."""

    kind: str
    about: str
    text: str
    page: Path


def pages() -> list[Path]:
    """Every page that a reader may come to."""
    found = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
    return [README, CONTRIBUTING, *found, ROOT / "casestudies" / "gallery" / "README.md"]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose(path: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", read(path), flags=re.DOTALL | re.MULTILINE)


def blocks(path: Path) -> list[Block]:
    return [Block(*found, path) for found in MARKED.findall(read(path))]


def all_blocks() -> Iterator[Block]:
    for path in pages():
        yield from blocks(path)


def block(kind: str, about: str) -> Block:
    """The one block of that kind and name, on whatever page."""
    (found,) = (b for b in all_blocks() if (b.kind, b.about) == (kind, about))
    return found


def run(script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a user does, in its folder, with what is installed."""
    known = {"PYTHONPATH": str(ROOT), "SELECTOR_CACHE_DIR": ""}
    return subprocess.run(
        [sys.executable, script.name], cwd=script.parent, env=os.environ | known | variables,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
