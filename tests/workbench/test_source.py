"""Egglog text as forms with positions."""

from __future__ import annotations

import pytest

from selector.diagnostics import ParseError
from selector.workbench.source import Comment, Form, excerpt, scan

pytestmark = pytest.mark.verified

TEXT = """; a law
; of two lines
(rewrite (Bop "+" x y) (Bop "+" y x) ; (inside
  :ruleset axioms :name "a;b")

; apart

(let $s "a \\" ( b") (check (= $s 3))
"""


def forms(text: str) -> list[Form]:
    return [f for f in scan(text, "f.egg") if isinstance(f, Form)]


def test_forms_have_their_places_and_laws() -> None:
    rewrite, let, check = forms(TEXT)
    assert (rewrite.place, rewrite.head) == ("f.egg:3:1", "rewrite")
    assert rewrite.above == ("; a law", "; of two lines")
    assert (rewrite.option(":name"), rewrite.option(":ruleset")) == ("a;b", "axioms")
    assert rewrite.option(":when") == ""
    assert (let.place, let.above) == ("f.egg:8:1", ())
    assert (check.line, check.column) == (8, 21)
    assert all(TEXT[f.offset :].startswith(f.text) for f in (rewrite, let, check))
    assert check.padded.splitlines()[7][20:] == check.text
    assert rewrite.covers("folder/f.egg", 4)
    assert not rewrite.covers("f.egg", 5)


def test_comments_of_whole_lines_are_told() -> None:
    comments = [c for c in scan(TEXT, "f.egg") if isinstance(c, Comment)]
    assert [(c.line, c.text) for c in comments] == [(1, "a law"), (2, "of two lines"), (6, "apart")]


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("(a))", "f.egg:1:4", "this parenthesis closes nothing"),
        ("(a)\n(b (c)\n", "f.egg:2:1", "this parenthesis is never closed"),
        ("(a\n(b)\n", "f.egg:1:1", "never closed; the command on line 2 begins inside it"),
        ('(a "b)\n', "f.egg:1:4", "this string does not end"),
        ("(a) word", "f.egg:1:5", "a command expected, not `word`"),
    ],
)
def test_what_is_no_egglog_text(text: str, place: str, why: str) -> None:
    with pytest.raises(ParseError) as error:
        list(scan(text, "f.egg"))
    assert error.value.where is not None
    assert error.value.where.location == place
    assert why in error.value.why
    assert "^" in error.value.why


def test_the_caret_stands_under_the_column() -> None:
    shown = excerpt("one\ntwo words\n", 2, 5, 5).splitlines()
    assert shown == ["    two words", "        ^^^^^"]
