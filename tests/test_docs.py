"""README and CONTRIBUTING are true: their programs print what they say, their recipes work, their
tables are those of the data.

Blocks are found by the comment above them: ``file: NAME`` is a program, ``change: NAME`` a line of
it written otherwise, ``more: NAME`` what follows it, ``output: NAME`` and ``error: NAME`` what it
then prints (``--update-golden`` rewrites those), ``edit: PATH at the end | before | after | replace
'TEXT'`` a step of a recipe.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from casestudies.common.registry import all_cases, gpu_schedules
from casestudies.results import render
from selector import environment

ROOT = Path(__file__).resolve().parent.parent
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
_BLOCK = re.compile(r"<!-- (\w+): ([^\n]*?) -->\n```\w*\n(.*?)```\n", re.DOTALL)
_NUMBERS = (
    (re.compile(r"\d+\.\d ms"), "# ms"),  # times
    (re.compile(r"\d+ rules, (.*), \d+\.\d s"), r"# rules, \1, # s"),
    (re.compile(r"(relative error )\d\.\de-\d\d"), r"\1#"),  # sums of NumPy depend on the machine
)


@dataclass(frozen=True)
class Block:
    """A marked code block: ``output``, ``blur.py``, its text."""

    kind: str
    about: str
    text: str


def blocks(path: Path) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(path.read_text(encoding="utf-8"))]


def block(path: Path, kind: str, about: str) -> str:
    (found,) = (b.text for b in blocks(path) if (b.kind, b.about) == (kind, about))
    return found


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
    return subprocess.run(
        [sys.executable, "-c", START, what, *arguments], cwd=clone, env=variables,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def run_here(script: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as a user does, in its folder, with what is installed."""
    variables = os.environ | {"PYTHONPATH": str(ROOT), "SELECTOR_CACHE_DIR": ""}
    return subprocess.run(
        [sys.executable, script.name], cwd=script.parent, env=variables,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def masked(text: str) -> str:
    for pattern, instead in _NUMBERS:
        text = pattern.sub(instead, text)
    return text


def compare(kind: str, about: str, printed: str, request: pytest.FixtureRequest) -> None:
    """What was printed is what the README shows, but for times."""
    shown = block(README, kind, about)
    if request.config.getoption("--update-golden") and masked(shown) != masked(printed):
        head = f"<!-- {kind}: {about} -->\n```text\n"
        text = README.read_text(encoding="utf-8")
        README.write_text(text.replace(f"{head}{shown}```", f"{head}{printed}```"), "utf-8")
    else:
        assert masked(printed) == masked(shown)


def changed(program: str, line: str) -> str:
    """A program with the one line that begins as ``line`` does replaced by it."""
    start = line.split("=")[0]
    assert program.count(f"\n{start}=") == 1
    return re.sub(rf"^{re.escape(start)}=.*\n", lambda _: line, program, flags=re.MULTILINE)


@pytest.mark.parametrize(("name", "most"), [("blur.py", 1e-6), ("window.py", 2e-3)])
def test_a_program_and_its_error(
    name: str, most: float, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The worked example, and attention with another score; both print their error last."""
    script = tmp_path / name
    script.write_text(block(README, "file", name))
    done = run_here(script)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < most
    compare("output", name, done.stdout, request)


def test_large_images(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("dask.array")
    script = tmp_path / "blur.py"
    script.write_text(block(README, "file", "blur.py") + block(README, "more", "blur.py"))
    done = run_here(script)
    assert done.returncode == 0, done.stderr
    compare("output", "blur.py, in blocks", done.stdout.splitlines(True)[-1], request)


@pytest.mark.nvrtc
def test_tuning(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    script = tmp_path / "tune.py"
    script.write_text(block(README, "file", "tune.py"))
    done = run_here(script)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (tmp_path / "kernels" / "space.json").exists()
    compare("output", "tune.py", done.stdout, request)


def test_what_does_not_fit(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    script = tmp_path / "blur.py"
    line = block(README, "change", "blur.py")
    script.write_text(changed(block(README, "file", "blur.py"), line))
    done = run_here(script)
    assert done.returncode == 1
    message = "SelectionError" + done.stderr.rpartition("SelectionError")[2]
    compare("error", "blur.py", message, request)


@pytest.mark.parametrize("kind", ["WGMMAAccumulator", "AMXTile"])
def test_memory_without_instructions_is_refused(kind: str, tmp_path: Path) -> None:
    script = tmp_path / "blur.py"
    text = block(README, "file", "blur.py")
    assert "MemoryType.WMMAAccumulator" in text
    script.write_text(text.replace("WMMAAccumulator", kind))
    assert "SelectionError" in run_here(script).stderr


def test_the_bench(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The commands run as they stand, and the wrong rule of the example is found."""
    (tmp_path / "rules").symlink_to(ROOT / "rules")
    lines = [
        line.split("#")[0].split() for line in block(README, "commands", "the bench").splitlines()
    ]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    (tmp_path / "mine.egg").write_text(block(README, "file", "mine.egg"))
    assert len(lines) == 6
    for line in (*lines, ["python", "-m", "selector", "rules", "check", "mine.egg"]):
        done = subprocess.run(
            [sys.executable, *line[1:]], cwd=tmp_path, env=variables,
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == (line[-1] == "mine.egg"), done.stdout[-2000:] + done.stderr
    assert (tmp_path / "conv1d.svg").exists()
    compare("output", "mine.egg", done.stdout, request)


def test_tables_are_those_of_the_data() -> None:
    assert render.main(["--check"]) == 0


def test_a_changed_time_is_noticed() -> None:
    data = render.read()
    pages = {render.README: render.render, render.PERFORMANCE: render.limits}
    texts = {path: make(data) for path, make in pages.items()}
    for row in data["rows"]:
        if row["timing"]:
            row["timing"]["median"] *= 2
    for path, make in pages.items():
        assert texts[path] in path.read_text(encoding="utf-8")
        assert make(data) != texts[path]


def test_every_case_is_presented() -> None:
    readme, performance = (p.read_text(encoding="utf-8") for p in (README, render.PERFORMANCE))
    for case in all_cases():
        assert f"| `{case.name}` |" in readme
        assert f"### {case.name}\n" in performance or not gpu_schedules(case)


def test_the_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page, *pictures = render.write_report(render.read(), tmp_path)
    assert page.read_text(encoding="utf-8").strip() == render.render(render.read())
    assert [p.name for p in pictures] == ["speed_up.png", "share.png", "conv1d.png"]
    for path in pictures:
        assert 1000 < path.stat().st_size < 200_000
        assert (render.HERE / path.name).exists()


def test_every_environment_variable_is_in_the_table() -> None:
    assert environment.__doc__ is not None
    names = set(re.findall(r"SELECTOR_\w+", environment.__doc__))
    readme = README.read_text(encoding="utf-8")
    assert names == set(re.findall(r"^\| `(SELECTOR_\w+)`", readme, re.MULTILINE))


@pytest.mark.parametrize("path", [README, CONTRIBUTING], ids=lambda p: p.name)
def test_every_file_that_is_named_exists(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = re.findall(r"`((?:\w[\w.-]*/)+[\w.-]*|\w+/\w+\.\w+)`|\]\((?!http)([^)]+)\)", text)
    paths = {name or link for name, link in named}
    assert len(paths) > 10
    made = ("out/", "artifacts/")
    missing = [p for p in paths if not (ROOT / p).exists() and not p.startswith(made)]
    folders = ("", "selector", "selector/runtime", "casestudies")  # `runtime/cuda.py` and the like
    missing = [p for p in missing if not any((ROOT / f / p).exists() for f in folders)]
    assert not missing


def test_rooms_are_those_of_the_import_test() -> None:
    from test_imports import ALLOWED

    text = CONTRIBUTING.read_text(encoding="utf-8")
    for room in ALLOWED:
        name = room.replace(".", "/")
        assert f"| `{name}/`" in text or room in ("rules", "selector"), room


# ---------------------------------------------------------------------------- the recipes, followed


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of what the recipes touch and need."""
    ignore = shutil.ignore_patterns("__pycache__", "gpu", "*.so")
    for folder in ("selector", "rules", "casestudies", "halide_bridge", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    native = importlib.util.find_spec("halide_bridge._native")
    assert native is not None
    assert native.origin is not None
    shutil.copy(native.origin, tmp_path / "halide_bridge")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def follow(clone: Path, title: str) -> None:
    """Type what the edits of a recipe say; every anchor is there exactly once."""
    _, _, after = CONTRIBUTING.read_text(encoding="utf-8").partition(f"## {title}\n")
    text, _, _ = after.partition("\n## ")
    edits = [Block(*f) for f in _BLOCK.findall(text) if f[0] == "edit"]
    assert edits
    for edit in edits:
        name, how, anchor = re.fullmatch(r"(\S+) (at the end|\w+)(?: '(.*)')?", edit.about).groups()  # type: ignore[union-attr]
        path = clone / name
        old = path.read_text(encoding="utf-8")
        assert how == "at the end" or old.count(anchor) == 1, f"{name}: {anchor}"
        match how:
            case "at the end":
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
    follow(clone, "How to add an instruction")
    out = pytest_in(
        clone, "tests/intrinsics", "tests/eqsat/test_selection.py",
        "-k", "m16n8k16.s8 or half_the_depth or block",
    )  # fmt: skip
    assert " passed" in out


@pytest.mark.nvrtc
def test_the_added_instruction_in_machine_code(clone: Path) -> None:
    follow(clone, "How to add an instruction")
    script = clone / "bytes.py"
    script.write_text(block(CONTRIBUTING, "file", "bytes.py"))
    done = run(script.name, clone=clone)
    assert done.returncode == 0, done.stderr
    assert "mma.m16n8k16.s8.s32" in done.stdout
    assert "{'IMMA.16816.S8.S8'}" in done.stdout


def test_how_to_add_a_rule(clone: Path) -> None:
    follow(clone, "How to add a rule")
    out = pytest_in(clone, "tests/rules", "-k", "select or every_rule")
    assert " passed" in out
    done = run("selector", "rules", "test", "-k", "select-always", clone=clone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule, 2 tests, 0 failed" in done.stdout


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
