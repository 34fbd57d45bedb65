"""Large programs compile within a second once the rules are loaded: nothing else is remembered."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clock import PYTHON, Part, assert_quick

pytest.importorskip("halide")

import halide as hl
from scaled import accumulators, funcs, taps

import halide_bridge as hb
from selector.eqsat.solve import forget

pytestmark = pytest.mark.verified

MOST_SECONDS, MOST_SECONDS_OF_THE_FIRST = 1.0, 0.8
LARGE: dict[str, tuple[Callable[[], hl.Func], int]] = {
    "4096 taps in a loop": (lambda: taps(4096, 8, False), 1),
    "4096 taps unrolled": (lambda: taps(4096, 64, True), 64),
    "64 accumulators": (lambda: accumulators(8), 64),
    "40 Funcs": (lambda: funcs(40), 40),
}
"""How each is made, and its products."""


@pytest.mark.parametrize("name", LARGE)
def test_large_programs_compile_in_a_second(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SELECTOR_CHECK", raising=False)
    make, products = LARGE[name]

    def compiled() -> None:
        forget()
        kernel = hb.compile(make(), target="sm_80", cache=False)
        updates = [u for u in kernel.report.updates if u.block is not None]
        assert sum(u.copies for u in updates) == products

    compiled()
    assert_quick(compiled, MOST_SECONDS, attempts=4)


def test_accumulators_that_differ_by_name_have_one_chain() -> None:
    report = hb.compile(funcs(3), target="sm_80", cache=False).report
    chains = {u.rules for u in report.updates if u.block is not None}
    assert len(chains) == 1
    assert "multiply-add" in chains.pop()


def test_a_search_grows_with_what_differs() -> None:
    """Of Funcs, or of taps that are unrolled into statements that differ by where they begin."""
    rows: dict[str, int] = {}
    for name, make in {
        "few": lambda: funcs(10), "many": lambda: funcs(40),
        "rolled": lambda: taps(4096, 8, False), "unrolled": lambda: taps(4096, 8, True),
    }.items():  # fmt: skip
        forget()
        (search,) = hb.compile(make(), target="sm_80", cache=False).report.searches
        assert {"axioms", "application", "lowering"} == {*search.seconds} == {*search.rounds}
        assert all(t > 0 for t in search.seconds.values())
        assert str(search).startswith(f"{search.rows} rows: axioms ")
        rows[name] = search.rows
    assert rows["few"] < rows["many"] < 5 * rows["few"]
    assert rows["unrolled"] < 2 * rows["rolled"]


FIRST = """
import time
import halide_bridge as hb
from casestudies.conv1d import CASE
from casestudies.conv1d.problem import Problem
hb.compile(CASE.build(Problem(4096, 4096, 256), "mma"), target="sm_90a", cache=False)
print(time.process_time())
"""


def test_the_first_kernel_of_a_process_is_there_soon(tmp_path: Path) -> None:
    """From starting Python to CUDA, modules as bytecode, as they are once installed."""
    without = ("SELECTOR_CHECK", "PYTHONDONTWRITEBYTECODE")
    environment = {k: v for k, v in os.environ.items() if k not in without}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    command = [sys.executable, "-c", FIRST]
    root = Path(__file__).parents[2]
    part = Part(PYTHON, lambda: None)
    for _ in range(4):  # the first one writes the bytecode
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        part.spent.append(float(done.stdout))
        start = time.process_time()
        PYTHON.work()
        part.beside.append(time.process_time() - start)
    assert part.seconds < MOST_SECONDS_OF_THE_FIRST, part
