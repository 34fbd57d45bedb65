"""Checks while one types, in this process: the same as ``rules check``, in time, come what may."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clock import assert_quick
from editor import SOON, edits

from rules import rule_files
from selector.diagnostics import UserError
from selector.workbench.live.checking import Checker, Severity, Standing
from selector.workbench.live.loaded import LiveBench, Loaded
from selector.workbench.live.proofs import prove_apart
from selector.workbench.live.watch import LOOK, watch
from selector.workbench.problems import Problem
from selector.workbench.ruleset import lint, read_rules, standard_files

pytestmark = pytest.mark.verified

RULE = '; a -> a\n(rewrite (Ramp a b 1) (Ramp a b 1) :ruleset axioms :name "same")\n'


def first(checker: Checker) -> Standing:
    """What is told at once."""
    checks = checker.check()
    standing = next(checks)
    checks.close()
    assert standing is not None
    return standing


def test_what_is_kept_is_what_all_files_say() -> None:
    """Edits in any order leave what reading all files anew finds."""
    generator = random.Random(21)
    loaded, files = Loaded(), dict(standard_files())
    for _ in range(15):
        name = generator.choice(list(files))
        text = dict(standard_files())[name]
        changed = generator.choice([text, *edits(text).values(), text + RULE, text + "(sort"])
        for word in ("wrong", "same", "added"):  # of two of one name, the one edited last is blamed
            changed = changed.replace(word, f"{word}-{name[6:8]}")
        files[name] = changed
        now = tuple(files.items())
        try:
            expected = _places(lint(now))
        except UserError:
            with pytest.raises(UserError):
                loaded.load(now)
            files[name] = text
            continue
        loaded.load(now)
        assert _places(loaded.problems) == expected


def _places(problems: tuple[Problem, ...]) -> list[tuple[str, str]]:
    return sorted((p.place, p.what.split(";")[0]) for p in problems)


@pytest.mark.parametrize("kind", ["rule", "wrong", "added"])
def test_checks_are_quick_on_all_rules(kind: str) -> None:
    """The longest of each kind of edit: that of the first file, on which all others build, and of
    the last."""
    checker = Checker()
    for name, text in (rule_files()[0], rule_files()[-1]):
        turn = iter(range(1000))

        def edited(file: str = f"rules/{name}", edit: str = edits(text)[kind]) -> None:
            checker.book.open(file, edit.replace("added", f"added{next(turn)}") + "\n" * next(turn))  # noqa: B023
            first(checker)

        assert_quick(edited, SOON)
        checker.book.close(f"rules/{name}")


@pytest.mark.parametrize("error", [RuntimeError("lost"), KeyError(3)])
def test_a_check_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> Any:
        raise error

    checker = Checker()
    checker.book.open("mine.egg", RULE + "; [same] fires\n(check (= 1 1))\n")
    with monkeypatch.context() as changed:
        changed.setattr(LiveBench, "run", fail)
        *_, last = (s for s in checker.check() if s is not None)
    (found,) = (f for f in last.findings if f.severity is Severity.ERROR)
    assert f"this cannot be checked: {type(error).__name__}" in found.problem.what
    assert (found.problem.file, last.finished, last.code) == ("mine.egg", True, 1)
    checker.book.open("mine.egg", RULE)
    assert all(f.severity is Severity.NOTE for f in first(checker).findings)


def test_a_broken_file_of_the_package_can_be_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (("00_ir.egg", "(sort"), *rule_files()[1:])
    for place in (
        "selector.workbench.ruleset.rule_files",
        "selector.workbench.live.book.rule_files",
    ):
        monkeypatch.setattr(place, lambda: broken)
    checker = Checker()
    (found,) = first(checker).findings
    assert found.problem.file == "rules/00_ir.egg"
    checker.book.open("rules/00_ir.egg", rule_files()[0][1])
    assert not any(f.severity is Severity.ERROR for f in first(checker).findings)


def test_proofs_end_when_they_are_not_wanted() -> None:
    pytest.importorskip("z3")
    files = standard_files()
    rules = tuple(r for r in read_rules(files) if r.name == "toeplitz")  # seconds
    proofs = prove_apart(rules, files)
    assert next(proofs) is None
    (process,) = multiprocessing.active_children()
    proofs.close()
    assert not process.is_alive()


def test_what_is_not_proved_is_told() -> None:
    pytest.importorskip("z3")
    files = (*standard_files(), ("mine.egg", RULE.replace("(Ramp a b 1) :r", "(Ramp a a 1) :r")))
    wrong, right = RULE.replace("a b 1)) ", "b a 1)) "), RULE.replace("same", "other")
    rules = read_rules([("mine.egg", wrong.replace("(Ramp a b 1) :", "(Ramp b a 1) :") + right)])
    found = [p for p in prove_apart(rules, files) if p is not None]
    assert [(p.rule, p.what) for p in found] == [("same", "undecided, not proved:")]


class Watched:
    """``rules watch`` on files, with something done to them each time all is said."""

    def __init__(self, *files: Path) -> None:
        self.files, self.said = files, list[str]()

    def run(self, *steps: Callable[[], object]) -> int:
        left, quiet = list(steps), 0

        def looks() -> bool:
            nonlocal quiet
            before = len(self.said)
            quiet = quiet + 1 if before == self.count else 0
            self.count = before
            if quiet < 3:  # what is left are proofs and tests of others
                return True
            quiet = 0
            if left:
                left.pop(0)()
                return True
            return False

        self.count = -1
        return watch([str(f) for f in self.files], self.said.append, looks)


def test_files_are_watched(tmp_path: Path) -> None:
    mine = tmp_path / "mine.egg"
    mine.write_text("(sort Mine)\n")
    watched = Watched(mine)
    code = watched.run(
        lambda: mine.write_text("(sort Mine"),
        lambda: mine.write_bytes(b"(sort \xff)"),
        mine.unlink,
        lambda: mine.write_text("(sort Other)\n"),
    )
    said = [line for text in watched.said for line in text.splitlines() if line[0] != " "]
    heads = [line for line in said if line.startswith("-- ")]
    assert len(heads) == 5
    assert heads[0] == heads[1] == heads[4] == "-- mine.egg"
    assert "-- mine.egg ('utf-8' codec can't decode byte 0xff" in heads[2]
    assert "-- mine.egg ([Errno 2] No such file" in heads[3]
    assert f"error: {mine}:1:1: {mine} is not egglog text: this parenthesis is never closed" in said
    assert code == 0


@pytest.mark.parametrize(("name", "why"), [("no.egg", "there is no such file"), ("", "folder")])
def test_a_file_that_is_not_there(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UserError) as raised:
        watch([str(tmp_path / name)], print)
    assert why in raised.value.why
    assert "without any" in raised.value.hint


@pytest.mark.parametrize(("text", "code"), [("(sort Mine)\n", 0), ("(sort", 1)])
def test_an_interrupt_ends_the_watch(tmp_path: Path, text: str, code: int) -> None:
    """In the middle of proofs, too: neither a trace nor a process is left."""
    mine = tmp_path / "mine.egg"
    mine.write_text(text)
    command = [sys.executable, "-m", "selector", "rules", "watch", str(mine)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # else perhaps ignored
    )  # fmt: skip
    assert process.stdout is not None
    while " ms" not in process.stdout.readline():
        pass
    time.sleep(2 * LOOK)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (code, "")
