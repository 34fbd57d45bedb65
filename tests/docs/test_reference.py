"""The reference pages are those that ``docs/reference.py`` makes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from dictionary import entries
from doc_pages import DICTIONARY, DOCS, ROOT, read

from selector import environment
from selector.eqsat.facts import EXECUTES
from selector.intrinsics import INSTRUCTIONS
from selector.targets import TARGETS

REFERENCE = DOCS / "reference"


@pytest.fixture(scope="module")
def reference() -> object:
    sys.path.insert(0, str(DOCS))
    import reference

    return reference


def test_the_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "reference.py"), "--check"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_public_is_missing(reference: object) -> None:
    """Every public name is on a page: directives, what the packages export, what a kernel can."""
    import halide_bridge
    import rules
    import selector
    import selector.tuning

    directives, interface = read(REFERENCE / "directives.md"), read(REFERENCE / "api.md")
    memory = read(REFERENCE / "memory.md")
    for name in halide_bridge.__all__:
        shown = f"## {name}\n" in directives or f"### hb.{name}\n" in interface
        assert shown or name in ("MemoryType", "Options"), name
    assert all(f"## {kind.name}\n" in memory for kind in halide_bridge.MemoryType)
    for name in set(selector.__all__) - {"Kernel", "SizedKernel"}:
        assert f"### selector.{name}\n" in interface
    for name in vars(selector.Kernel):
        own = name.startswith("_") or name in reference.OUR_OWN  # type: ignore[attr-defined]
        assert own or f"`kernel.{name}" in interface, name
    assert all(f"`{i.name}`" in read(REFERENCE / "instructions.md") for i in INSTRUCTIONS)
    assert all(f"| `{t}` |" in read(REFERENCE / "targets.md") for t in TARGETS)
    assert all(f"| `{name}` |" in read(REFERENCE / "rules.md") for name in rules.laws())
    assert {f for families in EXECUTES.values() for f in families} == {
        i.family for i in INSTRUCTIONS
    }


def test_every_environment_variable_is_in_the_table() -> None:
    assert environment.__doc__ is not None
    names = set(re.findall(r"SELECTOR_\w+", environment.__doc__))
    page = read(REFERENCE / "environment.md")
    assert names == set(re.findall(r"^\| `(SELECTOR_\w+)`", page, re.MULTILINE))


def test_the_dictionary_has_the_scenarios_and_no_others() -> None:
    """Each message is compared where its scenario is tested; here, that none is left over."""
    for room in ("bridge", "eqsat", "errors", "runtime"):
        sys.path.insert(0, str(ROOT / "tests" / room))
    import test_call_errors
    import test_misses
    import test_unselected

    names = {
        *(f"pipelines, {name}" for name in test_unselected.SCENARIOS),
        *(f"text form, {name}" for name in test_misses.SCENARIOS),
        *(f"calls, {name}" for name in test_call_errors.CASES),
    }
    assert set(entries()) == names
    assert DICTIONARY.exists()


def test_every_command_that_is_named_exists(capsys: pytest.CaptureFixture[str]) -> None:
    """The page of command lines: every command and option is one that --help knows."""
    from casestudies.cli import main as of_cases
    from selector.__main__ import main as of_selector

    mains = {"casestudies": of_cases, "selector": of_selector}
    page = read(REFERENCE / "commands.md")
    lines = re.findall(r"^python -m (selector|casestudies) ([\w-]+)(.*)$", page, re.MULTILINE)
    assert len(lines) > 8
    for module, command, rest in {(m, c, r.split("#")[0]) for m, c, r in lines}:
        options = re.findall(r"--[a-z][a-z-]+", rest)
        more = [w for w in rest.split()[:1] if command == "rules" and w.isalpha()]
        with pytest.raises(SystemExit) as ended:
            mains[module]([command, *more, "--help"])
        assert ended.value.code == 0, (module, command)
        known = capsys.readouterr().out
        assert all(option in known for option in options), (module, command, options)


def test_where_a_page_is_made_it_says_so() -> None:
    made = {p.name for p in Path(REFERENCE).glob("*.md") if "do not edit" in read(p)}
    typed = {"index.md", "limits.md", "commands.md", "text-form.md"}
    assert {p.name for p in REFERENCE.glob("*.md")} - made <= typed
