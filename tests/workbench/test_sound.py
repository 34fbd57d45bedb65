"""``python -m selector rules soundness``: right rules agree, a wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.__main__ import main

pytestmark = pytest.mark.verified

PROGRAM = """module wrong
input A: int32 [(0, 16, 1)]
output out: int32 [(0, 8, 1)]
body {
allocate acc[int32 * 8] in WMMAAccumulator
acc[ramp(0, 1, 8)] = A[ramp(0, 1, 8) - x8(3)]
out[ramp(0, 1, 8)] = acc[ramp(0, 1, 8)]
}
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "program.vir"
    file.write_text(PROGRAM)
    return str(file)


def test_our_rules_agree(program: str, capsys: pytest.CaptureFixture[str]):
    assert main(["rules", "soundness", program]) == 0
    assert capsys.readouterr().out.endswith("all agree\n")


def test_a_wrong_rule_is_named(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    law = (
        "; a law\n(rule ((= e (Ramp b (Int 1) n)) (> n 1)) ((union e (Ramp b (Int 2) n)))\n"
        ' :ruleset axioms :name "turned")\n'
    )
    (tmp_path / "more.egg").write_text(law)
    assert main(["rules", "soundness", program, "--rules", str(tmp_path / "more.egg")]) == 1
    out = capsys.readouterr().out
    assert "more.egg:2: [turned]" in out
    assert "1 graphs are wrong" in out
