"""How rule files are read: command by command, and nothing of them is left out."""

from __future__ import annotations

import pytest

from selector.diagnostics import ParseError
from selector.eqsat.saturate import engine_for

COMMANDS = """(datatype Own (Left) (Right))
  (rewrite (Left) (Right))
; a comment
(rewrite (Right)
  (Left))
"""


@pytest.mark.parametrize(
    ("source", "count"), [("", 0), ("; nothing\n", 0), (COMMANDS, 3), (f"  {COMMANDS}", 3)]
)
def test_every_command_is_read(source: str, count: int) -> None:
    assert len(engine_for("").parsed(source, "own.egg")) == count


def test_what_stands_before_the_first_command_is_read() -> None:
    with pytest.raises(ParseError, match=r"own\.egg"):
        engine_for("").load("own.egg", f"no command\n{COMMANDS}")
