"""With all our passes off, the loops are those that stock Halide prints after vectorizing.

The texts are compared word by word; counters in names (``$3``, ``t17``) differ between processes,
so they only have to correspond one to one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from stock_pipelines import STOCK

from halide_bridge.lowering import Options, lower_text

pytestmark = pytest.mark.verified

HERE = Path(__file__).parent
PLAIN = Options(accumulators=False, tails=False, rows=False, strip=False)
_NAME = re.compile(r"[A-Za-z_.$][\w.$]*")
_SUFFIX = re.compile(r"\$\d+")
_NUMBERED = re.compile(r"(?<![A-Za-z0-9_])[a-z]\d+(?![A-Za-z0-9_])")


@pytest.fixture(scope="session")
def stock_texts() -> dict[str, str]:
    environment = {**os.environ, "HL_DEBUG_CODEGEN": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(HERE / "stock_pipelines.py")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    texts = json.loads(run.stdout)
    assert isinstance(texts, dict)
    return texts


def words(text: str) -> list[str]:
    """Names and what stands between them, spaces apart."""
    pieces: list[str] = []
    end = 0
    for match in _NAME.finditer(text):
        pieces += text[end : match.start()].split()
        pieces.append(match[0])
        end = match.end()
    return pieces + text[end:].split()


def without_counters(name: str) -> str:
    return _NUMBERED.sub("#", _SUFFIX.sub("", name))


def assert_same_text(ours: str, stock: str) -> None:
    a, b = words(ours), words(stock)
    forward: dict[str, str] = {}
    backward: dict[str, str] = {}
    for at, (x, y) in enumerate(zip(a, b, strict=False)):
        near = slice(max(at - 20, 0), at + 5)
        context = f"word {at}: ours ...{' '.join(a[near])}\nstock ...{' '.join(b[near])}"
        assert without_counters(x) == without_counters(y), context
        assert forward.setdefault(x, y) == y, context
        assert backward.setdefault(y, x) == x, context
    assert len(a) == len(b)


@pytest.mark.parametrize("name", STOCK)
def test_loops_are_those_of_stock_halide(name: str, stock_texts: dict[str, str]) -> None:
    case = STOCK[name]()
    assert_same_text(lower_text(case.outputs, target=case.target, options=PLAIN), stock_texts[name])


def test_the_comparison_sees_a_difference() -> None:
    assert_same_text("f$1[t3 + t4] = 1", "f[t7 + t8] = 1".replace("f", "f$2"))
    with pytest.raises(AssertionError):
        assert_same_text("f[t3 + t4] = 1", "f[t7 + t7] = 1")
    with pytest.raises(AssertionError):
        assert_same_text("f[t3 + t4] = 1", "f[t7 - t8] = 1")
