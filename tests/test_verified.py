"""What passed with the same inputs is not run again; anything that has a say runs it again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sources as found_by_reading
import verified as plugin
from sources import ROOT
from verified import files_digest, read, write

SUITE = """
import os
import pytest
from pathlib import Path

@pytest.mark.verified("selector/targets.py")
def test_of_a_text(verified):
    with Path(os.environ["ASKED"]).open("a") as file:
        file.write("asked ")
    if verified(os.environ["TEXT"]):
        return
    with Path(os.environ["ASKED"]).open("a") as file:
        file.write("ran ")
    assert os.environ["TEXT"] != "wrong"
"""


class Suite:
    """A test that says whether it ran, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, folder / "asked"
        (folder / "test_suite.py").write_text(SUITE)

    def __call__(self, text: str, *options: str, **variables: str) -> str:
        """What the test did."""
        self.asked.write_text("")
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        environment.pop("SELECTOR_NIGHTLY", None)
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take seconds to import
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "verified", *options, "test_suite.py"],
            cwd=self.folder, check=False, capture_output=True,
            env={**environment, "ASKED": str(self.asked), "TEXT": text, **variables},
        )  # fmt: skip
        return self.asked.read_text().strip()


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_a_test_runs_once_for_its_inputs(suite: Suite) -> None:
    assert suite("one") == "asked ran"
    assert suite("one") == "asked"
    assert suite("two") == "asked ran"
    assert suite("two", SELECTOR_NIGHTLY="1") == "asked ran"


def test_what_failed_runs_again(suite: Suite) -> None:
    assert suite("wrong") == "asked ran"
    assert suite("wrong") == "asked ran"


def test_the_tests_own_file_has_a_say(suite: Suite) -> None:
    assert suite("one") == "asked ran"
    path = suite.folder / "test_suite.py"
    path.write_text(path.read_text() + "\n")
    assert suite("one") == "asked ran"


def test_without_a_cache_nothing_is_remembered(suite: Suite) -> None:
    assert suite("one", "-p", "no:cacheprovider") == "asked ran"
    assert suite("one", "-p", "no:cacheprovider") == "asked ran"


def test_the_files_of_a_checker_have_a_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "ROOT", tmp_path)
    folder = tmp_path / "checker"
    (folder / "shim").mkdir(parents=True)
    source, header = folder / "a.py", folder / "shim" / "b.h"

    def digest(*names: str) -> str:
        files_digest.cache_clear()
        return files_digest(*names)

    source.write_text("1")
    header.write_text("2")
    found = [digest("checker")]
    header.write_text("3")
    found.append(digest("checker"))
    header.rename(folder / "shim" / "c.h")
    found.append(digest("checker"))
    found.append(digest("checker/a.py"))
    assert len({*found}) == len(found)
    (folder / "notes.txt").write_text("no code")
    assert digest("checker") == found[2]
    with pytest.raises(AssertionError, match="is not there"):
        digest("gone.py")
    files_digest.cache_clear()


def test_lines_of_two_branches_stand_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "verified.txt"
    file.write_text("aa  tests/a.py::test[x  y]\nbb  tests/a.py::test[x  y]\ncc  tests/b.py::t\n")
    assert read(file) == {"tests/a.py::test[x  y]": ("aa", "bb"), "tests/b.py::t": ("cc",)}
    write(file, {"tests/a.py::other": "dd"})
    assert read(file)["tests/a.py::test[x  y]"] == ("aa", "bb")
    write(file, {"tests/a.py::other": "ee"}, held={"tests/a.py": "s", "tests/b.py": "of what"})
    of_b = {"tests/b.py::t": ("cc",)}
    found = read(file)
    assert len(found.pop("tests/a.py")) == 1
    assert found == {"tests/a.py::other": ("ee",)} | of_b, "nothing of b.py ran: no line for it"
    write(file, {}, left_out=["tests/a.py::other"], held={"tests/a.py": "sources"})
    assert read(file)["tests/a.py::other"] == ("ee",)


def test_every_test_in_the_file_is_one() -> None:
    """Of a file that was renamed or is gone, `make verified` has not been run."""
    gone = {test.partition("::")[0] for test in read(plugin.FILE)}
    assert not [name for name in sorted(gone) if not (ROOT / name).exists()]


CASE = """
import pytest
from helper import rows

@pytest.mark.verified
def test_that_asks_nothing():
    with open("ran", "a") as file:
        file.write("ran ")
    assert rows() == 2

def test_beside():
    pass
"""
PROJECT = {
    "pyproject.toml": "", "requirements/compile.lock": "", "cpp/native.cpp": "", "ran": "",
    # What is installed to be edited, this project's packages, is found before any path.
    "tests/conftest.py": "import sys\npytest_plugins = ('verified',)\n"
    "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__]\n",
    "tests/test_case.py": CASE,
    "tests/test_other.py": "def test_without_the_mark(): pass",
    "tests/helper.py": """
from pathlib import Path
from casestudies.one import table
if TYPE_CHECKING:
    import casestudies.for_types

def rows():
    return len(table().splitlines()) + len((Path(__file__).parent / "more" / "a.txt").read_text())
""".replace("if TYPE", "TYPE_CHECKING = False\nif TYPE"),
    "tests/more/a.txt": "",
    "casestudies/__init__.py": "from casestudies import early\ndef __getattr__(name):\n"
    "    import casestudies.unasked\n",
    "casestudies/early.py": "", "casestudies/for_types.py": "", "casestudies/unasked.py": "",
    "casestudies/one.py": """
from importlib import import_module
from pathlib import Path

def table():
    name = "blur"
    return import_module(f"casestudies.{name}.case").read(Path(__file__).parent / "data")
""",
    "casestudies/blur/__init__.py": "", "casestudies/sharpen/case.py": "",
    "casestudies/blur/case.py": "def read(path): return (path / 'rows.txt').read_text()",
    "casestudies/blur/bench.py": "", "casestudies/data/rows.txt": "1\n2\n",
}  # fmt: skip
NO_SAY = {
    "ran", "casestudies/for_types.py", "casestudies/unasked.py", "casestudies/blur/bench.py",
    "cpp/native.cpp", "tests/test_other.py",
}  # fmt: skip


class Project:
    """A small project in a folder of its own, with these two plugins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        own = {f"tests/{name}.py": (ROOT / f"tests/{name}.py").read_text() for name in PLUGINS}
        for name, text in (PROJECT | own).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def __call__(self, *options: str, **variables: str) -> tuple[str, str]:
        """What ran, and what pytest said."""
        (self.folder / "ran").write_text("")
        environment = {**os.environ, "PYTHONPATH": f"{self.folder}:{ROOT}"}
        environment.pop("SELECTOR_NIGHTLY", None)
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--strict-markers", *options],
            cwd=self.folder, check=False, capture_output=True, text=True,
            env={**environment, **variables},
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return (self.folder / "ran").read_text().strip(), done.stdout


PLUGINS = ("sources", "verified")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_same_sources_leave_a_test_out(project: Project) -> None:
    ran, said = project()
    assert (ran, "3 passed" in said) == ("ran", True)
    ran, said = project()
    assert (ran, "1 passed, 2 deselected" in said) == ("", True), said
    assert project("-m", "verified")[0] == "", "nothing is left to run, which is no failure"
    assert project(SELECTOR_NIGHTLY="1")[0] == "ran"
    (project.folder / "casestudies/data/rows.txt").write_text("wrong")
    assert [project()[0] for _ in range(2)] == ["ran", "ran"]
    (project.folder / "casestudies/data/rows.txt").write_text("3\n4\n")
    assert [project()[0] for _ in range(2)] == ["ran", ""]


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "workers"])
def test_a_clone_knows_what_passed(project: Project, workers: tuple[str, ...]) -> None:
    assert project(*workers, "-m", "verified", "--update-verified")[0] == "ran"
    lines = read(project.folder / "tests/verified.txt")
    of_it = ("", "::test_beside", "::test_that_asks_nothing")
    assert list(lines) == [f"tests/test_case.py{test}" for test in of_it]
    fresh = ("-p", "no:cacheprovider", *workers)
    assert project(*fresh)[0] == ""
    project("-m", "verified", "--update-verified", *fresh)
    assert read(project.folder / "tests/verified.txt") == lines
    (project.folder / "casestudies/early.py").write_text("# another text")
    assert project(*fresh)[0] == "ran"


MANY = """
import pytest

@pytest.mark.verified
@pytest.mark.parametrize("case", range(40))
def test_cases(case):
    with open("ran", "a") as file:
        file.write(f"{case} ")
    assert case != WRONG

def test_alone():
    with open("ran", "a") as file:
        file.write("alone ")
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "workers"])
def test_a_sample_of_what_has_to_run(project: Project, workers: tuple[str, ...]) -> None:
    def sample(text: str, *options: str, **variables: str) -> tuple[list[str], str]:
        (project.folder / "tests/test_case.py").write_text(text)
        ran, said = project("--sample", "8", *workers, *options, **variables)
        return sorted(ran.split()), said

    right = MANY.replace("WRONG", "-1")
    first, said = sample(right)
    assert len(first) == 6, "of 41"
    assert "35 tests were not drawn" in said
    assert not {*first} & {*sample(right)[0]}, "what has passed is not drawn again"
    others, _ = sample(f"{right}\n# other sources")
    assert len(others) == 6
    assert others != first
    assert len(sample(right, SELECTOR_NIGHTLY="1")[0]) == 41
    failed = next(case for case in others if case != "alone")
    assert len(sample(MANY.replace("WRONG", failed), "--sample", "1")[0]) == 41
    assert failed in sample(f"{right}\n# mended")[0], "what failed last is drawn"


def test_a_sample_writes_no_line_for_a_file(project: Project) -> None:
    (project.folder / "tests/test_case.py").write_text(MANY.replace("WRONG", "-1"))
    project("--sample", "8", "--update-verified")
    lines = read(project.folder / "tests/verified.txt")
    assert len(lines) == 6
    assert "tests/test_case.py" not in lines


def test_a_merge_vouches_for_nothing_new(project: Project) -> None:
    """Lines of both branches, whose tests are others, are no line of what came of them."""
    project("-m", "verified", "--update-verified")
    file = project.folder / "tests/verified.txt"
    file.write_text(file.read_text() + f"{'-' * 16}  tests/test_case.py::test_of_the_other\n")
    assert project("-p", "no:cacheprovider")[0] == "ran"


def test_what_is_read_unseen_is_a_failure(project: Project) -> None:
    case = project.folder / "tests/test_case.py"
    reading = "open('casestudies/blur/bench' + '.py').close()"
    case.write_text(CASE.replace("assert", f"{reading}\n    assert"))
    assert project()[0] == "ran"
    _, said = project(SELECTOR_NIGHTLY="1")
    assert "reads casestudies/blur/bench.py, not among its sources" in said, said
    case.write_text(case.read_text().replace(".verified", ".verified('casestudies/blur')"))
    assert "3 passed" in project(SELECTOR_NIGHTLY="1")[1]


def test_a_test_that_is_named_by_its_path_is_a_source() -> None:
    found = found_by_reading.sources("tests/codegen/test_turn_tiles.py")
    assert "tests/lowering/test_online.py" in found


def test_rule_files_are_sources_of_what_selects() -> None:
    """``rules`` lists its own folder, by a name that is no text."""
    assert "rules/50_tiles.egg" in found_by_reading.sources("tests/codegen/test_corpus.py")


@pytest.fixture
def forget() -> Iterator[Callable[[], None]]:
    """Forgets what was read of files; afterwards what was read of another project."""

    def clear() -> None:
        for function in vars(found_by_reading).values():
            getattr(function, "cache_clear", int)()

    yield clear
    clear()


def test_which_files_are_sources(
    project: Project, forget: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_by_reading, "ROOT", project.folder)
    none = {f"tests/{name}.py" for name in PLUGINS} | NO_SAY

    def digest() -> str:
        forget()
        return found_by_reading.sources("tests/test_case.py").digest()

    before = digest()
    for name in PROJECT:
        path = project.folder / name
        text = path.read_text()
        path.write_text(text + "\n# more")
        assert (digest() == before) == (name in none), name
        path.write_text(text)
    (project.folder / "casestudies/data/new.txt").write_text("")
    assert digest() != before
    (project.folder / "casestudies/data/new.txt").unlink()
    (project.folder / "tests/helper.py").write_text("import sys\n[sys.executable]")
    with_packages = digest()
    (project.folder / "cpp/native.cpp").write_text("// whoever starts Python may run anything")
    assert digest() != with_packages


def marked_files() -> list[Any]:
    """Test files that have marks; one by day."""
    names = [
        str(p.relative_to(ROOT))
        for p in sorted((ROOT / "tests").rglob("test_*.py"))
        if "mark.verified" in (text := p.read_text()) or "from verified import" in text
    ]
    day = "tests/emulation/test_cases.py"
    return [pytest.param(n, marks=[] if n == day else [pytest.mark.nightly]) for n in names]


def imported_by(code: str, *arguments: str) -> set[str]:
    """The files of this project that are modules after some code has run."""
    code += "\nprint(*(f for m in list(sys.modules.values()) if (f := getattr(m, '__file__', 0))))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    files = [f for f in done.stdout.splitlines()[-1].split() if f.startswith(f"{ROOT}/")]
    ours = {str(Path(f).relative_to(ROOT)) for f in files if f.endswith(".py")}
    return {f for f in ours if f.split("/")[0] in (*found_by_reading.PACKAGES, "tests")}


@cache
def imported_by_the_mark() -> set[str]:
    return imported_by("import sys; sys.path[:0] = ['tests', '.']; import verified")


@pytest.mark.parametrize("name", marked_files())
def test_what_a_test_file_imports_is_among_its_sources(name: str) -> None:
    code = "import sys, pytest; pytest.main(['-q', '--collect-only', sys.argv[1]]); print()"
    ours, declared = imported_by(code, name), found_by_reading.sources(name)
    assert name in ours
    assert not [f for f in sorted(ours - imported_by_the_mark()) if f not in declared]
