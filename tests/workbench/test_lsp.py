"""``rules lsp``, asked by a scripted editor: what it tells, how soon, and what it survives."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pytest
from editor import SOON, Editor, edits, timed

from rules import rule_files
from selector.workbench.live.book import RULES_FOLDER

pytestmark = pytest.mark.verified

URI = "file:///work/mine%20own.egg"
RULE = '; a -> a\n(rewrite (Ramp a b 1) (Ramp a b 1) :ruleset axioms :name "same")\n'
TESTS = """; [same] fires
(let $term (Ramp (Sym "a") (Int 1) 1))
(check (= $term $term))
; [same] must not fire: two lanes
(let $term (Ramp (Sym "a") (Int 1) 2))
(fail (check (= $term (Sym "a"))))
"""
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
NOT_INITIALIZED = -32002

BESIDE_OTHERS = 5  # times as long by the clock


@pytest.fixture
def editor() -> Iterator[Editor]:
    made = Editor()
    yield made
    made.close()


def test_a_session_has_a_beginning_and_an_end(editor: Editor) -> None:
    assert editor.at("hover", URI, 0, 0) == NOT_INITIALIZED
    editor.open(URI, RULE)  # nobody listens yet
    assert editor.ask("initialize")["capabilities"]["hoverProvider"] is True
    assert editor.ask("initialize") == INVALID_REQUEST
    assert editor.ask("textDocument/rename") == NO_METHOD
    editor.tell("$/setTrace", value="off")
    assert editor.at("hover", URI, 1, 10) is None
    assert editor.ask("shutdown") is None
    assert editor.at("hover", URI, 0, 0) == INVALID_REQUEST
    editor.tell("exit")
    assert editor.process.wait(60) == 0
    assert not editor.passed


def test_an_end_without_shutdown(editor: Editor) -> None:
    editor.initialized().tell("exit")
    assert editor.process.wait(60) == 1


def test_the_editor_goes_away(editor: Editor) -> None:
    editor.initialized()
    assert editor.process.stdin is not None
    editor.process.stdin.close()
    assert editor.process.wait(60) == 1


def test_what_is_no_message_is_answered(editor: Editor) -> None:
    editor.initialized()
    for body, code in (
        (b"[]", INVALID_REQUEST),
        (b"7", INVALID_REQUEST),
        (b"{", PARSE_ERROR),
        (b"\xff\xfe", PARSE_ERROR),
        (b"[" * 100_000, PARSE_ERROR),
        (b"{}", INVALID_REQUEST),
        (b'{"id": null, "method": 5}', INVALID_REQUEST),
        (b'{"id": null, "method": ["exit"]}', INVALID_REQUEST),
        (b'{"id": null, "method": "textDocument/hover"}', INVALID_PARAMS),
        (b'{"id": null, "method": "textDocument/hover", "params": [1]}', INVALID_PARAMS),
    ):
        editor.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        assert editor.answer(None) == code, body
    editor.send(id=99, result=None)  # an answer to nothing
    assert editor.end() == 0


@pytest.mark.parametrize("header", [b"Length: 2\r\n\r\n{}", b"Content-Length: 99999999999\r\n\r\n"])
def test_a_broken_header_ends_the_session(editor: Editor, header: bytes) -> None:
    editor.initialized().raw(header)
    assert editor.answer(None) == INVALID_REQUEST
    assert editor.process.wait(60) == 1
    assert editor.messages.get(timeout=60) is None


def test_changes_that_are_none(editor: Editor) -> None:
    editor.initialized()
    editor.open(URI, RULE + TESTS)
    assert editor.diagnostics(URI) == []
    editor.change(URI)
    for change in ([{}], [{"text": 3}], 3):
        document = {"uri": URI, "version": 2}
        editor.tell("textDocument/didChange", textDocument=document, contentChanges=change)
        editor.logged("textDocument/didChange: parameters that are not right")
    editor.change("file:///closed.egg", RULE)
    editor.logged("/closed.egg is not open")
    editor.change(URI, "(", RULE.replace("Ramp", "Rump") + TESTS)
    (first, *_) = editor.diagnostics(URI)
    assert first["message"] == "Unbound function Rump\ndid you mean `Ramp`?\ndid you mean `RampV`?"
    assert editor.end() == 0


MISTAKES = (
    (RULE.replace("Ramp a b 1", "Ramp a b", 1), 1, "(Ramp a b)", 1,
     "Arity mismatch, expected 3 args: (Ramp a b)\n(constructor Ramp (Expr Expr i64) Expr)"),
    (RULE.replace("b 1", '"b" 1'), 1, '"b"', 1,
     'Expect expression "b" to have type Expr, but get type String'),
    (RULE.replace("axioms", "axions"), 1, None, 1,
     "No such ruleset: axions\ndid you mean `axioms`?"),
    ('; \n(relation q (Expr)) (relation "𝒙" p)', 1, '"𝒙"', 1, "expected relation name"),
    (RULE.replace("; a -> a", ""), 1, None, 2, "no law above this rule"),
    (RULE + ")", 2, ")", 1, "mine own.egg is not egglog text"),
    (RULE, 1, None, 3, "no test `; [same] fires`"),
)  # fmt: skip


def test_diagnostics(editor: Editor) -> None:
    editor.initialized()
    for text, line, marked, severity, says in MISTAKES:
        editor.open(URI, text)
        diagnostics = editor.diagnostics(URI)
        found = [d for d in diagnostics if says in d["message"]]
        assert found, diagnostics
        start, end = found[0]["range"]["start"], found[0]["range"]["end"]
        assert (start["line"], found[0]["severity"]) == (line, severity), says
        units = text.splitlines()[line].encode("utf-16-le")
        shown = units[2 * start["character"] : 2 * end["character"]].decode("utf-16-le")
        assert marked in (None, shown)
    editor.change(URI, RULE + TESTS)
    assert editor.diagnostics(URI) == []


def test_diagnostics_of_a_test(editor: Editor) -> None:
    editor.initialized().open(URI, RULE + TESTS.replace("1) 1)", "1) 3)"))
    while not (found := editor.diagnostics(URI)):
        pass
    assert found[0]["message"] == "the rule does not match in this graph"
    assert found[0]["range"]["start"] == {"line": 2, "character": 0}


def test_names_are_explained_and_found(editor: Editor) -> None:
    editor.initialized()
    editor.open("file:///broken.egg", "(rule")
    rule = '(rewrite (Cast "𝒙" (Ramp a b 1)) a :ruleset axioms :name "tile")'
    law = f"; 𝒙\n{rule}\n; [ramp-zero] fires\n"
    editor.open(URI, law)
    shown = editor.at("hover", URI, 1, 22)["contents"]["value"]  # 𝒙 is two UTF-16 units
    assert "**Ramp**, constructor of `rules/00_ir.egg`\n\nvectors\n\n" in shown
    assert "(constructor Ramp (Expr Expr i64) Expr)" in shown
    assert "`ramp(b, 0, n) -> xn(b)`" in editor.at("hover", URI, 2, 6)["contents"]["value"]
    assert editor.at("hover", URI, 1, 27) is None
    assert editor.at("hover", URI, 900, 900) is None
    found = editor.at("definition", URI, 1, 22)
    assert found["uri"] == f"file://{RULES_FOLDER}/00_ir.egg"
    place = found["range"]["start"]
    line = dict(rule_files())["00_ir.egg"].splitlines()[place["line"]]
    assert line[place["character"] : found["range"]["end"]["character"]] == "Ramp"
    quoted = law.splitlines()[1].index('"tile"') + 3  # and not the relation of this name
    assert editor.at("definition", URI, 1, quoted)["uri"] == URI


def test_closing_gives_the_file_of_the_package_back(editor: Editor) -> None:
    editor.initialized()
    uri = f"file://{RULES_FOLDER}/00_ir.egg"
    other = f"file://{RULES_FOLDER}/10_supporting.egg"
    editor.open(uri, "(sort Expr)")
    assert editor.settled(other)
    editor.tell("textDocument/didClose", textDocument={"uri": uri})
    assert editor.settled(other) == []


def test_a_rule_without_an_end_holds_up_nothing(editor: Editor) -> None:
    endless = (
        '; a + b -> (a + 1) + b\n(rewrite (Bop "+" x y) (Bop "+" (Bop "+" x (Int 1)) y) '
        ':ruleset axioms :name "same")\n; [same] fires\n'
        '(let $term (Bop "+" (Sym "a") (Sym "b")))\n(check (= $term $term))\n'
    )
    editor.initialized().open(URI, endless)
    editor.diagnostics(URI)
    late = [timed(lambda: editor.at("hover", URI, 1, 10)) for _ in range(20)]
    assert sorted(late)[10] < SOON, late
    while not any("saturation does not end" in d["message"] for d in editor.diagnostics(URI)):
        pass
    editor.change(URI, RULE + TESTS)
    assert editor.diagnostics(URI) == []


def test_the_end_waits_for_no_proof(editor: Editor) -> None:
    """That of ``toeplitz`` takes seconds."""
    name, text = next((n, t) for n, t in rule_files() if ':name "toeplitz"' in t)
    editor.initialized().open(
        f"file:///{name}", text.replace(':name "toeplitz"', ' :name "toeplitz"')
    )
    editor.diagnostics(f"file:///{name}")
    assert timed(editor.end) < 3


def test_answers_come_soon_on_all_rules(editor: Editor) -> None:
    """Each file of rules: a rule is edited, one is added that is not right, then a declaration,
    after which all rules are read again. Other tests run beside this one: ``test_live.py`` holds
    the checks to their limit, in processor time."""
    editor.initialized()
    late: dict[str, list[float]] = {"hover": [], "rule": [], "wrong": [], "added": []}
    for name, text in rule_files():
        uri = f"file://{RULES_FOLDER}/{name}"
        editor.open(uri, text)
        editor.diagnostics(uri)
        for kind, edit in edits(text).items():
            late[kind].append(timed(partial(_edit, editor, uri, edit)))
            late["hover"].append(timed(partial(editor.at, "hover", uri, 9, 3)))
        editor.tell("textDocument/didClose", textDocument={"uri": uri})
    assert not {
        kind: seconds for kind, seconds in late.items() if median(seconds) > BESIDE_OTHERS * SOON
    }


def _edit(editor: Editor, uri: str, text: str) -> None:
    editor.change(uri, text)
    editor.diagnostics(uri)


EXTENSION = Path(__file__).parents[2] / "selector/workbench/live/vscode"


def test_the_extension_is_whole() -> None:
    """What it names is there, and goes into its package."""
    package = json.loads((EXTENSION / "package.json").read_text())
    (language,) = package["contributes"]["languages"]
    named = {package["main"], language["configuration"]}
    assert named <= set(package["files"]) <= {f.name for f in EXTENSION.iterdir()}
    json.loads((EXTENSION / language["configuration"]).read_text())


@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm")
def test_the_extension_packs() -> None:
    command = ["npm", "pack", "--dry-run", "--offline", "--json"]
    done = subprocess.run(command, cwd=EXTENSION, capture_output=True, text=True, check=True)
    (packed,) = json.loads(done.stdout)
    assert {f["path"] for f in packed["files"]} == {f.name for f in EXTENSION.iterdir()}


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_the_extension_shows_what_the_server_tells(tmp_path: Path) -> None:
    """In Node, with a stand-in for what it uses of Visual Studio Code."""
    (tmp_path / "mine.egg").write_text(RULE.replace("Ramp a b", "Rump a b"))
    script = Path(__file__).parent / "vscode_stand_in.js"
    command = ["node", script, EXTENSION, sys.executable, tmp_path / "mine.egg"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    told = json.loads(done.stdout)
    assert told["diagnostic"].startswith("Unbound function Rump")
    assert "ruleset of `rules/00_ir.egg`" in told["hover"]
    assert told["definition"].endswith("/rules/00_ir.egg")
