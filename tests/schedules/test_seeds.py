"""However strings are hashed, a pipeline without a schedule has the same report and the same text:
no set's order decides.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plain_pipelines import PIPELINES as OTHERS
from plain_signals import SIGNALS

import halide_bridge as hb

TESTS = Path(__file__).parent.parent
COMPILED = ("developed", "levels", "two_layers")

pytestmark = [pytest.mark.slow, pytest.mark.verified]


def reports() -> list[str]:
    """What becomes of pipelines, and the text of some."""
    found: list[str] = []
    for name, make in {**SIGNALS, "two_layers": OTHERS["two_layers"]}.items():
        outputs = make().outputs
        found.append(f"{name}: {hb.autoschedule(outputs, target='sm_90a').report}")
        if name in COMPILED:
            source = hb.compile(outputs, target="sm_90a").source
            found.append(f"{name}: {hashlib.sha256(source.encode()).hexdigest()}")
    return found


def of_process(seed: str) -> list[str]:
    """The same of a process that hashes strings by a seed."""
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_seeds import reports\n"
        "print('\\0'.join(reports()))"
    )
    command = [sys.executable, "-c", program, str(TESTS), str(TESTS / "schedules")]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.split("\0")


def test_hashes_decide_nothing() -> None:
    """Of two seeds that put strings of a set into another order."""
    for one, other in zip(of_process("0"), of_process("2"), strict=True):
        assert one == other
