"""Every link of the pages leads somewhere, every file that is named exists, and the site builds."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from doc_pages import CONTRIBUTING, DOCS, README, ROOT, pages, prose, read

_LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)\)")
MADE = ("out/", "artifacts/", "docs/_build/")  # by commands of the pages


def anchors(path: Path) -> set[str]:
    """The headings of a page in the form that links name them by."""
    titles = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    found: set[str] = set()
    for title in titles:
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        number = 0
        while (name := slug if not number else f"{slug}-{number}") in found:
            number += 1
        found.add(name)
    return found


def broken(path: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    found = []
    for link in _LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("path", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    assert not broken(path)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page, here\n[1](page.md#a-page-here) [2](page.md#b) [3](none.md) `[4](x)`\n"
    )
    assert broken(page) == ["page.md#b", "none.md"]


def test_every_page_can_be_reached() -> None:
    """From the README by links, and in the site by its table of contents."""
    seen: set[Path] = set()
    ahead = [README]
    while ahead:
        page = ahead.pop()
        seen.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(prose(page)))
        found = {(page.parent / link).resolve() for link in links if link.endswith(".md")}
        ahead += [p for p in found if p.exists() and p not in seen]
    assert not [
        p for p in pages() if p not in seen and (p.is_relative_to(DOCS) or p == CONTRIBUTING)
    ]
    for folder in (DOCS, *(p for p in DOCS.iterdir() if (p / "index.md").exists())):
        listed = re.findall(r"^([\w/-]+)$", read(folder / "index.md"), re.MULTILINE)
        here = {p.stem for p in folder.glob("*.md")} - {"index"}
        assert here == {name for name in listed if "/" not in name}, folder


@cache
def words_of_the_code() -> set[str]:
    """All words of the sources, and the names of their files."""
    found: set[str] = set()
    for folder in ("selector", "halide_bridge", "rules", "casestudies", "cpp", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".egg", ".cpp", ".h", ".sh") and "golden" not in path.parts:
                found |= {path.stem, *re.findall(r"\w+", read(path))}
    return found


@pytest.mark.parametrize(
    "path",
    [CONTRIBUTING, DOCS / "explanation" / "stages.md", *(DOCS / "contributing").glob("*.md")],
    ids=lambda p: p.name,
)
def test_names_of_the_code_are_in_the_code(path: Path) -> None:
    """Those of several words, which only code has."""
    code = re.findall(r"`([^`\n]+)`", prose(path))
    names = {w for text in code for w in re.findall(r"[A-Za-z_]\w+", text) if "_" in w.strip("_")}
    assert names <= words_of_the_code(), names - words_of_the_code()


@pytest.mark.parametrize("path", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_that_is_named_exists(path: Path) -> None:
    named = re.findall(r"`((?:\w[\w.-]*/)+[\w.-]*|\w+/\w+\.\w+)`", prose(path))
    missing = [p for p in named if not (ROOT / p).exists() and not p.startswith(MADE)]
    folders = ("", "selector", "selector/runtime", "casestudies")  # `runtime/cuda.py` and the like
    missing = [p for p in missing if not any((ROOT / f / p).exists() for f in folders)]
    assert not missing


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for module in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(module)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "trees"), str(DOCS), str(tmp_path / "site")],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    front = read(tmp_path / "site" / "index.html")
    assert "http://" not in front.replace("http://www.w3.org", "")
    assert not re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', front)


def test_rooms_are_those_of_the_import_test() -> None:
    from test_imports import ALLOWED

    text = read(CONTRIBUTING)
    for room in ALLOWED:
        name = room.replace(".", "/")
        assert f"| `{name}/`" in text or room in ("rules", "selector"), room
