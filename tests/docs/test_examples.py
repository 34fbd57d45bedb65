"""Every program of the pages runs, and prints what the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import (
    DICTIONARY,
    README,
    ROOT,
    Block,
    all_blocks,
    block,
    pages,
    prose,
    read,
    run,
)

pytestmark = pytest.mark.verified

_NUMBERS = (
    (re.compile(r"\d+\.\d ms"), "# ms"),  # times
    (re.compile(r"\d+ rules, (.*), \d+\.\d s"), r"# rules, \1, # s"),
    (re.compile(r"(relative error )\d\.\de-\d\d"), r"\1#"),  # sums of NumPy depend on the machine
)
ERROR = re.compile(r"relative error (\S+)")


def masked(text: str) -> str:
    for pattern, instead in _NUMBERS:
        text = pattern.sub(instead, text)
    return text


def compare(shown: Block, printed: str, request: pytest.FixtureRequest) -> None:
    """What was printed is what the page shows, but for times; an error has its order."""
    if request.config.getoption("--update-golden") and masked(shown.text) != masked(printed):
        head = f"<!-- {shown.kind}: {shown.about} -->\n```text\n"
        text = read(shown.page)
        assert text.count(f"{head}{shown.text}```") == 1
        new = text.replace(f"{head}{shown.text}```", f"{head}{printed}```")
        shown.page.write_text(new, encoding="utf-8")
        return
    assert masked(printed) == masked(shown.text)
    for here, there in zip(ERROR.findall(printed), ERROR.findall(shown.text), strict=True):
        assert float(here) < 10 * float(there)


def changed(program: str, lines: str) -> str:
    """A program with the one line that begins as the first of ``lines`` does replaced by them."""
    start = re.escape(re.split(r"[=(]", lines)[0])
    found = re.findall(rf"^{start}[=(].*\n", program, re.MULTILINE)
    assert len(found) == 1, (lines, found)
    return program.replace(found[0], lines)


def expectations() -> Iterator[Block]:
    """What Python programs of the pages print, or how they end."""
    for shown in all_blocks():
        name = shown.about.split(", ")[0]
        if shown.kind in ("output", "error") and name.endswith(".py") and shown.page != DICTIONARY:
            yield shown


def program(shown: Block) -> str:
    """The text of the program that prints it."""
    name, _, label = shown.about.partition(", ")
    text = block("file", name).text
    if not label:
        return text
    (variant,) = (
        b for b in all_blocks() if b.kind in ("change", "more") and b.about == shown.about
    )
    return changed(text, variant.text) if variant.kind == "change" else text + variant.text


def needs_nvrtc(text: str) -> bool:
    return ".cubin()" in text or ".export(" in text or "build_only=True" in text


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(b, id=b.about, marks=[pytest.mark.nvrtc] if needs_nvrtc(program(b)) else [])
        for b in expectations()
    ],
)
def test_a_program_prints_what_the_page_says(
    shown: Block, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text, name = program(shown), shown.about.split(", ")[0]
    if "import dask" in text:
        pytest.importorskip("dask.array")
    if "import torch" in text:
        pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
    if "import jax" in text:
        pytest.importorskip("jax", reason="JAX is not installed")
    home = block("file", name).page
    for other in all_blocks():
        if other.kind == "file" and other.page == home:
            (tmp_path / other.about).write_text(other.text)
    (tmp_path / name).write_text(text)
    done = run(tmp_path / name)
    if shown.kind == "error":
        assert done.returncode == 1
        kind = re.findall(r"^(?:[\w.]+\.)?(\w+Error): ", done.stderr, re.MULTILINE)[-1]
        compare(shown, kind + done.stderr.rpartition(kind)[2], request)
        return
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    printed = done.stdout
    if 'folder="kernels"' in text:  # what tune_saved reads elsewhere
        assert (tmp_path / "kernels" / "space.json").exists()
    if block_is_more(shown):  # what came before is shown where the program is
        printed = "".join(printed.splitlines(True)[-max(1, len(shown.text.splitlines())) :])
    compare(shown, printed, request)


def block_is_more(shown: Block) -> bool:
    return any(b.kind == "more" and b.about == shown.about for b in all_blocks())


@pytest.mark.parametrize("kind", ["WGMMAAccumulator", "AMXTile"])
def test_memory_without_instructions_is_refused(kind: str, tmp_path: Path) -> None:
    script = tmp_path / "blur.py"
    text = block("file", "blur.py").text
    assert "MemoryType.WMMAAccumulator" in text
    script.write_text(text.replace("WMMAAccumulator", kind))
    assert "SelectionError" in run(script).stderr


def test_the_bench(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The commands run as they stand, and the wrong rule of the example is found."""
    (tmp_path / "rules").symlink_to(ROOT / "rules")
    commands = block("commands", "the bench").text.splitlines()
    lines = [line.split("#")[0].split() for line in commands]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    (tmp_path / "mine.egg").write_text(block("file", "mine.egg").text)
    assert len(lines) == 7
    for line in (*lines, ["python", "-m", "selector", "rules", "check", "mine.egg"]):
        done = subprocess.run(
            [sys.executable, *line[1:]], cwd=tmp_path, env=variables,
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == (line[-1] == "mine.egg"), done.stdout[-2000:] + done.stderr
    assert (tmp_path / "conv1d.svg").exists()
    compare(block("output", "mine.egg"), done.stdout, request)


@pytest.mark.gcc
@pytest.mark.nvrtc
def test_a_program_in_cpp(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What is exported is built, installed, found and called; nothing of it needs Python."""
    for name in ("smooth.py", "main.cpp", "CMakeLists.txt"):
        (tmp_path / name).write_text(block("file", name).text)
    done = run(tmp_path / "smooth.py")
    assert done.returncode == 0, done.stderr
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert cmake is not None
    strict = "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"
    for command in (
        ["-S", "smooth", "-B", "library", "-DCMAKE_INSTALL_PREFIX=installed", strict],
        ["--build", "library", "--target", "install"],
        ["-S", ".", "-B", "built", f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}", strict],
        ["--build", "built"],
    ):
        made = subprocess.run([cmake, *command], cwd=tmp_path, capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr
    program = tmp_path / "built" / "program"
    printed = subprocess.run([program], capture_output=True, text=True, check=True, env={}).stdout
    compare(block("output", "main.cpp"), printed, request)


# -------------------------------------------------------------- what is not marked claims nothing


def test_every_shown_text_is_tested() -> None:
    """A block of text is what something prints, so it has a mark, and the mark a test."""
    for path in pages():
        text = read(path)
        assert text.count("\n```text\n") == sum(
            b.kind in ("output", "error", "file", "edit")
            for b in all_blocks()
            if b.page == path and f"-->\n```text\n{b.text}```" in text
        ), path
    outputs = {b.about for b in all_blocks() if b.kind in ("output", "error")}
    programs = {b.about for b in all_blocks() if b.kind == "file"}
    recipes = {"bytes.py", "CMakeLists.txt"}  # by test_recipes, and with main.cpp
    modules = {"blur2d.py"}  # imported by the others
    assert programs - recipes - modules <= {about.split(", ")[0] for about in outputs}


@pytest.mark.parametrize("path", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_fragment_of_python_is_python(path: Path) -> None:
    for text in re.findall(r"^```python\n(.*?)^```", read(path), re.DOTALL | re.MULTILINE):
        if not text.startswith("    "):  # a line for the middle of a file
            compile(text, path, "exec")


def test_the_readme_is_one_page() -> None:
    assert len(README.read_bytes()) <= 8192
    assert "```" in read(README)
    assert len(prose(README).split()) > 300
