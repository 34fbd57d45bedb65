"""The recipes of docs/contributing/ work: their edits, typed into a copy of the project, give what
they say.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import DOCS, ROOT, block, blocks

pytestmark = pytest.mark.verified

INSTRUCTION = DOCS / "contributing" / "instruction.md"
RULE = DOCS / "contributing" / "rule.md"
KERNEL = DOCS / "contributing" / "kernel.md"

# An editable installation finds our packages before PYTHONPATH does: not so in these processes.
START = """
import runpy, sys
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "ScikitBuildRedirectingFinder"]
name, sys.argv = sys.argv[1], sys.argv[1:]
runpy.run_path(name, run_name="__main__") if name.endswith(".py") else runpy.run_module(
    name, run_name="__main__", alter_sys=True)
"""


def run(what: str, *arguments: str, clone: Path) -> subprocess.CompletedProcess[str]:
    """Run a script or a module of a clone, with the clone's packages."""
    variables = os.environ | {"PYTHONPATH": str(clone), "SELECTOR_CACHE_DIR": ""}
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take seconds to import
    return subprocess.run(
        [sys.executable, "-c", START, what, *arguments], cwd=clone, env=variables,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of what the recipes touch and need."""
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for folder in ("cpp", "selector", "rules", "casestudies", "halide_bridge", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    native = importlib.util.find_spec("halide_bridge._native")
    assert native is not None
    assert native.origin is not None
    shutil.copy(native.origin, tmp_path / "halide_bridge")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def follow(clone: Path, recipe: Path) -> None:
    """Type what the edits of a recipe say; every anchor is there exactly once."""
    edits = [b for b in blocks(recipe) if b.kind == "edit"]
    assert edits
    for edit in edits:
        name, how, anchor = re.fullmatch(r"(\S+) (at the end|\w+)(?: '(.*)')?", edit.about).groups()  # type: ignore[union-attr]
        path = clone / name
        assert path.exists() is (how != "new"), name
        old = "" if how == "new" else path.read_text(encoding="utf-8")
        assert how in ("new", "at the end") or old.count(anchor) == 1, f"{name}: {anchor}"
        match how:
            case "new" | "at the end":
                new = old + edit.text
            case "after":
                new = old.replace(f"{anchor}\n", f"{anchor}\n{edit.text}")
            case "before":
                new = old.replace(anchor, f"{edit.text}{anchor}")
            case "replace":
                new = old.replace(anchor, edit.text.strip())
            case _:
                raise AssertionError(edit.about)
        assert new != old
        path.write_text(new, encoding="utf-8")


def pytest_in(clone: Path, *arguments: str) -> str:
    options = ("-q", "-p", "no:cacheprovider", *arguments)
    done = run("pytest", *options, clone=clone)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_how_to_add_an_instruction(clone: Path) -> None:
    follow(clone, INSTRUCTION)
    out = pytest_in(
        clone, "tests/intrinsics", "tests/eqsat/test_selection.py",
        "-k", "m16n8k16.s8 or half_the_depth or block",
    )  # fmt: skip
    assert " passed" in out


@pytest.mark.nvrtc
def test_the_added_instruction_in_machine_code(clone: Path) -> None:
    follow(clone, INSTRUCTION)
    script = clone / "bytes.py"
    script.write_text(block("file", "bytes.py").text)
    done = run(script.name, clone=clone)
    assert done.returncode == 0, done.stderr
    assert "mma.m16n8k16.s8.s32" in done.stdout
    assert "{'IMMA.16816.S8.S8'}" in done.stdout


def test_how_to_add_a_rule(clone: Path) -> None:
    follow(clone, RULE)
    # Mutants of other rules have nothing to do with this one, and take half a minute.
    out = pytest_in(clone, "tests/rules", "-k", "(select or every_rule) and not mutant")
    assert " passed" in out
    done = run("selector", "rules", "test", "-k", "select-always", clone=clone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule, 2 tests, 0 failed" in done.stdout


def rooms_of(recipe: Path, section: str) -> set[str]:
    """The folders of the product that the edits of a section touch."""
    text = recipe.read_text(encoding="utf-8")
    (part,) = (p for p in text.split("\n## ") if p.startswith(section))
    edited = re.findall(r"<!-- edit: (\S+)/\S+ ", part)
    return {folder for folder in edited if not folder.startswith("tests")}


@pytest.mark.parametrize(
    ("section", "room"),
    [
        ("A pass", "selector/gpu/passes"),
        ("A form of copies", "selector/gpu/codegen/copies"),
        ("A store of results", "selector/gpu/codegen/epilogues"),
    ],
)
def test_what_is_added_to_kernels_touches_one_room(section: str, room: str) -> None:
    assert rooms_of(KERNEL, section) == {room}


@pytest.mark.gcc
def test_how_to_add_to_kernels(clone: Path) -> None:
    follow(clone, KERNEL)
    out = pytest_in(
        clone, "tests/kernels/test_passes.py", "tests/codegen/test_by_warp.py",
        "tests/codegen/test_guarded_pairs.py",
    )  # fmt: skip
    assert " passed" in out
    out = pytest_in(
        clone, "tests/codegen/test_corpus.py",
        "-k", "compute and (product_mma-sm_80 or product_stages_3_75-sm_80 or boxes_nn-sm_90a)",
    )  # fmt: skip
    assert " passed" in out


def test_a_rule_file_that_is_dropped_in_is_loaded(clone: Path) -> None:
    path = clone / "rules" / "45_more.egg"
    path.write_text('; x - x -> 0\n(rewrite (Bop "-" (Sym v) (Sym v)) (Int 0) '
                    ':ruleset axioms :name "sub-self")\n')  # fmt: skip
    script = clone / "probe.py"
    script.write_text(
        "import json\n"
        "from selector.eqsat.saturate import Engine\n"
        """matches = Engine('').probe('(let $subject (Bop "-" (Sym "a") (Sym "a")))').matches\n"""
        "print(json.dumps(matches['sub-self']))\n"
    )
    done = run(script.name, clone=clone)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == 1
