"""Tests that need not run again: ``tests/verified.txt`` says with which inputs each has passed.

The outcome of some expensive tests follows from a few texts: the emulation of a kernel from its
CUDA text, its plan and the emulator, the machine code from the text and NVRTC, the soundness of a
rule from the rules, the engine around them and the checker. Such a test names what is fixed, the
*checker*, by files and folders below the root, and asks with its inputs in hand::

    @pytest.mark.verified("tests/emulation", "selector/ir/interpreter.py")
    def test_text_computes_what_the_interpreter_does(name, target, verified):
        kernel = ...
        if verified(kernel.source):
            return
        ...

``verified`` makes a digest of the inputs, the checker's files and the test's own file. The test is
as good as passed if that is what the file has for it, or what it passed with here before (pytest's
cache). So a change of anything that has a say runs it again, and `make nightly` runs all.
``make verified`` writes the file: run it when tests that changed inputs have passed. A line is a
digest and a test, as ``sha256sum`` prints them; lines of two branches may stand side by side (a
merge leaves both; see ``.gitattributes``) until that is done.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from selector.runtime import nvrtc
from selector.runtime.plan_json import plan_to_json

Verified = Callable[..., bool]

# The checkers: what has a say in a verdict besides the inputs and the test's own file.
_CALLS = ("arguments", "arrays", "host", "interpret", "plan", "prepare", "sizes", "tensor_map")
_INTERPRETER = (
    "selector/ir", "selector/intrinsics", *(f"selector/runtime/{name}.py" for name in _CALLS),
)  # fmt: skip
MACHINE_CODE = pytest.mark.verified(
    "selector/runtime/nvrtc.py", "tests/casestudies/machine_code.py"
)
INTERPRETED = pytest.mark.verified(*_INTERPRETER)
EMULATED = pytest.mark.verified(*_INTERPRETER, "tests/emulation", "tests/gpu/corpus_case.py")
IN_C = pytest.mark.verified(
    *_INTERPRETER, "selector/runtime/cpu.py", "selector/runtime/cpu_compile.py",
    "tests/emit/c_programs.py", "tests/robustness",
)  # fmt: skip
SOUND = pytest.mark.verified(
    "rules", "selector/ir", "selector/intrinsics", "selector/eqsat", "selector/lowering",
    "selector/workbench", "tests/rules", "tests/eqsat", "tests/robustness",
)  # fmt: skip

ROOT = Path(__file__).resolve().parent.parent
FILE = Path(__file__).resolve().parent / "verified.txt"
_DIGEST, _SPARED = "verified digest", "verified before"  # properties of a test
_HERE = "verified/here"  # pytest's cache


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-verified", action="store_true", help="write tests/verified.txt: see its module"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "verified(*checker): passes for the inputs of tests/verified.txt; the checker's "
        "files and folders have a say, too",
    )  # fmt: skip
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Writer(config), "verified-writer")


@pytest.fixture
def verified(request: pytest.FixtureRequest) -> Verified:
    """``verified(*inputs)``: whether this test has passed with these inputs before."""
    node = request.node

    def ask(*inputs: str | bytes) -> bool:
        marks = list(node.iter_markers("verified"))
        assert marks, f"{node.nodeid}: which files have a say (pytest.mark.verified)?"
        checker = sorted({str(name) for mark in marks for name in mark.args})
        digest = _digest(files_digest(*checker), files_digest(_inside(node.path)), *inputs)
        spared = not os.environ.get("SELECTOR_NIGHTLY") and digest in _known(request.config).get(
            node.nodeid, ()
        )
        node.user_properties.append((_DIGEST, digest))
        if spared:
            node.user_properties.append((_SPARED, ""))
        return spared

    return ask


def text_of(kernel: Any) -> str:
    """All that a kernel's launches are: the emitted text and its plan."""
    return json.dumps(plan_to_json(kernel.plan)) + kernel.source


def texts_of_case(case: Any) -> str:
    """What a case study's inputs and its reference follow from, besides the problem."""
    return files_digest(f"casestudies/{case.name}", "casestudies/common/data.py")


def nvrtc_inputs(kernel: Any) -> tuple[str, str, str]:
    """What a kernel's machine code follows from."""
    return kernel.source, kernel.plan.target, nvrtc.version()


@cache
def files_digest(*names: str) -> str:
    """One digest of files and of all Python, C++ and rule files in folders, by their names."""
    parts: list[str | bytes] = []
    for name in names:
        path = ROOT / name
        assert path.exists(), f"{name} is not there"
        found = sorted(
            p for p in path.rglob("*") if p.suffix in (".py", ".cpp", ".h", ".egg", ".vir")
        )
        for file in found if path.is_dir() else [path]:
            parts += [_inside(file), file.read_bytes()]
    return _digest(*parts)


def _inside(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _digest(*parts: str | bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(hashlib.sha256(data).digest())
    return total.hexdigest()[:16]


def read(file: Path) -> dict[str, tuple[str, ...]]:
    """The digests of each test."""
    found: dict[str, tuple[str, ...]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        digest, test = line.split("  ", 1)
        found[test] = (*found.get(test, ()), digest)
    return found


_tables: dict[int, dict[str, tuple[str, ...]]] = {}


def _known(config: pytest.Config) -> dict[str, tuple[str, ...]]:
    """The file's digests and those of this machine's earlier runs."""
    if id(config) not in _tables:
        table = read(FILE)
        for test, digest in _kept(config).items():
            table[test] = (*table.get(test, ()), digest)
        _tables[id(config)] = table
    return _tables[id(config)]


def _kept(config: pytest.Config) -> dict[str, str]:
    kept = getattr(config, "cache", None)  # `-p no:cacheprovider`: there is none
    return {} if kept is None else kept.get(_HERE, {})


class _Writer:
    """Notes what passed; where the tests were begun, not in the workers of xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.passed: dict[str, str] = {}
        self.spared = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            properties: dict[str, Any] = dict(report.user_properties)
            if _DIGEST in properties:
                self.passed[report.nodeid] = properties[_DIGEST]
                self.spared += _SPARED in properties

    def pytest_sessionfinish(self) -> None:
        if self.passed and getattr(self.config, "cache", None) is not None:
            self.config.cache.set(_HERE, {**_kept(self.config), **self.passed})  # pyright: ignore
        if self.config.getoption("--update-verified"):
            write(FILE, self.passed, whole=self._whole())

    def _whole(self) -> bool:
        """Whether the files that ran did so as a whole: what did not pass there is not there."""
        chosen = self.config.getoption("keyword") or any("::" in a for a in self.config.args)
        return not chosen

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.passed:
            terminalreporter.write_line(
                f"{self.spared} of {len(self.passed)} tests had passed with the same inputs before "
                "(tests/verified.py)"
            )


def write(file: Path, passed: dict[str, str], whole: bool) -> None:
    """Put what passed into the file; if its test files ran as a whole, what it had of them goes."""
    ran = {test.partition("::")[0] for test in passed} if whole else set[str]()
    lines = {t: d for t, d in read(file).items() if t.partition("::")[0] not in ran}
    lines |= {test: (digest,) for test, digest in passed.items()}
    text = "".join(f"{d}  {t}\n" for t in sorted(lines) for d in lines[t])
    file.write_text(text, encoding="utf-8")
