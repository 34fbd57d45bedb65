"""What passed with the same inputs is not run again; anything that has a say runs it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import verified as plugin
from verified import ROOT, files_digest, read, write

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
    write(file, {"tests/a.py::other": "dd"}, whole=False)
    assert read(file)["tests/a.py::test[x  y]"] == ("aa", "bb")
    write(file, {"tests/a.py::other": "ee"}, whole=True)
    assert read(file) == {"tests/a.py::other": ("ee",), "tests/b.py::t": ("cc",)}


def test_every_test_in_the_file_is_one() -> None:
    """Of a file that was renamed or is gone, `make verified` has not been run."""
    gone = {test.partition("::")[0] for test in read(plugin.FILE)}
    assert not [name for name in sorted(gone) if not (ROOT / name).exists()]
