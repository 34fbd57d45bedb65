"""The record of emitted code: complete, read as it was written, and what is said to differ."""

from __future__ import annotations

import pytest
from digests import difference, differences, updated
from known_code import FILE, MOST_REASONS, Code, Known, is_known, known, parse
from programs import programs

ONE, TWO = ("conv1d-k64", "sm_90a"), ("corpus/blur", "sm_80")


def test_there_is_a_line_for_every_program() -> None:
    there = {(p.name, p.target) for p in programs()}
    assert known().codes.keys() == there, "make digests UPDATE=..."


def test_the_file_is_as_it_would_be_written() -> None:
    assert str(known()) == FILE.read_text(encoding="utf-8")


def test_lines_stand_in_order_whatever_order_they_come_in() -> None:
    codes = {ONE: Code("a", "b"), TWO: Code("c")}
    text = str(Known("13.0", ("why",), codes))
    assert text == str(Known("13.0", ("why",), dict(reversed(codes.items()))))
    assert text.splitlines()[-2:] == ["conv1d-k64 sm_90a a b", "corpus/blur sm_80 c -"]
    assert parse(text) == Known("13.0", ("why",), codes)


def test_a_program_is_there_once() -> None:
    text = str(Known("13.0", (), {ONE: Code("a", "b")}))
    with pytest.raises(ValueError, match="conv1d-k64 for sm_90a is there twice"):
        parse(f"{text}conv1d-k64 sm_90a a c\n")


def test_another_text_is_not_known() -> None:
    (program, target), _ = next(iter(known().codes.items()))
    assert not is_known(program, target, "// another text")
    assert not is_known("no such program", target, "// another text")


@pytest.mark.parametrize(
    ("old", "new", "how"),
    [
        (Code("a", "b"), Code("a", "b"), ""),
        (Code("a", "b"), Code("c", "b"), "text only"),
        (Code("a", "b"), Code("c", "d"), "machine code"),
        (Code("a"), Code("c"), "text"),
        (Code("a", "b"), Code("refused"), "refused now"),
        (Code("refused"), Code("a", "b"), "no longer refused"),
        (None, Code("a", "b"), "new"),
        (Code("a", "b"), None, "gone"),
    ],
)
def test_how_code_differs(old: Code | None, new: Code | None, how: str) -> None:
    assert difference(old, new) == how


def test_a_change_is_recorded_with_its_reason() -> None:
    before = Known("13.0", tuple(f"reason {i}" for i in range(MOST_REASONS)), {ONE: Code("a", "b")})
    now = {ONE: Code("c", "b"), TWO: Code("d", "e")}
    assert differences(before.codes, now) == {ONE: "text only", TWO: "new"}
    after = parse(str(updated(before, now, "braces", "13.0")))
    assert after.codes == now
    assert after.reasons[0].endswith(": braces (1 new, 1 text only)")
    assert len(after.reasons) == MOST_REASONS
