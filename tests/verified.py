"""Tests that need not run again: ``tests/verified.txt`` says with which inputs each has passed.

It asks twice. Before a marked test begins: are the **sources** of its file, all files that may have
a say (``tests/sources.py`` finds them), as they were when it passed? Then it is left out, and
nothing is compiled for it. There is one line for each test file: the digest of its sources and of
the names of its tests below. A line that holds no longer costs time, no test: they begin. The mark
speaks for its file::

    pytestmark = pytest.mark.verified

As it runs: the outcome of some tests follows from a few texts, the emulation of a kernel from its
CUDA text, its plan and the emulator, the machine code from the text and NVRTC, the soundness of a
rule from the rules, the engine around them and the checker. Such a test names what is fixed, the
*checker*, by files and folders below the root, and asks with its **inputs** in hand::

    @pytest.mark.verified("tests/emulation", "selector/ir/interpreter.py")
    def test_text_computes_what_the_interpreter_does(name, target, verified):
        kernel = ...
        if verified(kernel.source):
            return
        ...

``verified`` makes a digest of the inputs, the checker's files and the test's own file. The test is
as good as passed if that is what the file has for it. A test that asks nothing has a line of
dashes: it has passed, with the sources of its file.

What passed here before (pytest's cache) counts as what the file has. So a change of anything that
has a say runs a test again, and `make nightly` runs all. ``--sample N`` runs one in N of a marked
file's tests that have to run, at least one, and what failed last: which ones follows from the
sources, so that they are others after the next change. `make test` does so, but not in CI.
``make verified`` writes the file: after `make test` it runs nothing that has just passed. A line is
a digest and a name, as ``sha256sum`` prints them; lines of two branches may stand side by side (a
merge leaves both; see ``.gitattributes``), and sources that neither branch had match neither's,
until that is done.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sources import ROOT, Watch, remembered, sources, unwatched

from selector.runtime import nvrtc
from selector.runtime.plan_json import plan_to_json
from selector.runtime.versions import versions

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
SIMULATED = pytest.mark.verified(
    *_INTERPRETER, "selector/gpu", "selector/cpu", "selector/simulate.py",
    "tests/gpu/corpus_case.py",
)  # fmt: skip
IN_C = pytest.mark.verified(
    *_INTERPRETER, "selector/runtime/cpu.py", "selector/runtime/cpu_builds.py",
    "selector/runtime/cpu_compile.py", "tests/cpu/c_programs.py", "tests/robustness",
)  # fmt: skip
SOUND = pytest.mark.verified(
    "rules", "selector/ir", "selector/intrinsics", "selector/operands", "selector/eqsat",
    "selector/lowering", "selector/workbench", "tests/rules", "tests/eqsat", "tests/robustness",
)  # fmt: skip

FILE = Path(__file__).resolve().parent / "verified.txt"
_DIGEST, _SPARED = "verified digest", "verified before"  # properties of a test
_NO_INPUTS = "-" * 16  # the digest of a test that asks nothing
_HERE, _SOURCES = "verified/here", "verified/sources"  # pytest's cache: digests by test
_READ = "verified/read"  # there, too: see ``sources.remembered``
_LAST_FAILED = "cache/lastfailed"  # pytest's own
_SENT, _RETURNED = "verified sources", "verified spared"  # to and from the workers of xdist
_UNDRAWN = "verified undrawn"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-verified", action="store_true", help="write tests/verified.txt: see its module"
    )
    parser.addoption(
        "--sample", type=int, default=1, metavar="N",
        help="of a marked file's tests that have to run one in N: see tests/verified.py",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "verified(*checker): passes for the inputs of tests/verified.txt; the checker's "
        "files and folders have a say, too",
    )  # fmt: skip
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Writer(config), "verified-writer")
    if config.getoption("--sample") < 1:
        raise pytest.UsageError("--sample: one test in how many? At least 1")
    if os.environ.get("SELECTOR_NIGHTLY") or config.getoption("--update-verified"):
        config.pluginmanager.register(_Watcher(), "verified-watcher")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, Any, Any]:
    """A mark of one test speaks for its file. When it is known which tests cannot run here, leave
    out what has passed with the same sources.
    """
    files = {_file_of(i.nodeid) for i in items if i.get_closest_marker("verified")}
    for item in items:
        if _file_of(item.nodeid) in files and not item.get_closest_marker("verified"):
            item.add_marker(pytest.mark.verified)
    outcome = yield
    if not os.environ.get("SELECTOR_NIGHTLY"):
        _leave_out(config, items)
    return outcome


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = _KnownSources(config)
    marked = [i for i in items if i.get_closest_marker("verified")]
    able = [i for i in marked if not i.get_closest_marker("skip")]
    spared = {item.nodeid: item for item in able if known.cover(item.nodeid)}
    undrawn = _undrawn(config, (i.nodeid for i in able if i.nodeid not in spared), known.now)
    config.stash[_spared], config.stash[_left] = list(spared), sorted(undrawn)
    if out := [item for item in able if item.nodeid in spared or item.nodeid in undrawn]:
        gone = {item.nodeid for item in out}
        items[:] = [item for item in items if item.nodeid not in gone]
        config.hook.pytest_deselected(items=out)


def _undrawn(config: pytest.Config, tests: Iterable[str], now: dict[str, str]) -> set[str]:
    """Which tests ``--sample`` leaves for another time."""
    size = config.getoption("--sample")
    if size == 1:
        return set()
    failed = _kept(config, _LAST_FAILED)
    files: dict[str, list[tuple[str, str]]] = {}
    for test in tests:
        file = _file_of(test)
        files.setdefault(file, []).append((_digest(now.get(file, ""), test), test))
    left = (test for of in files.values() for _, test in sorted(of)[-(-len(of) // size) :])
    return {test for test in left if test not in failed}


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("verified"):
        item.user_properties.append((_DIGEST, _NO_INPUTS))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        for what, key in ((_RETURNED, _spared), (_UNDRAWN, _left)):
            session.config.workeroutput[what] = session.config.stash.get(key, [])


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
    common = (f"casestudies/common/{name}.py" for name in ("data", "filtering"))
    return files_digest(f"casestudies/{case.name}", *common)


def nvrtc_inputs(kernel: Any) -> tuple[str, str, str]:
    """What a kernel's machine code follows from."""
    return kernel.source, kernel.plan.target, nvrtc.version()


@cache
def files_digest(*names: str) -> str:
    """One digest of files and of all Python, C++ and rule files in folders, by their names."""
    with unwatched():
        return _files_digest(*names)


def _files_digest(*names: str) -> str:
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


_spared = pytest.StashKey[list[str]]()
_left = pytest.StashKey[list[str]]()
_sources = pytest.StashKey[dict[str, str]]()
_tables = pytest.StashKey[dict[str, tuple[str, ...]]]()


def _known(config: pytest.Config) -> dict[str, tuple[str, ...]]:
    """The file's digests and those of this machine's earlier runs."""
    if _tables not in config.stash:
        table = read(FILE)
        for test, digest in _kept(config, _HERE).items():
            table[test] = (*table.get(test, ()), digest)
        config.stash[_tables] = table
    return config.stash[_tables]


def _kept(config: pytest.Config, what: str) -> dict[str, Any]:
    kept = getattr(config, "cache", None)  # `-p no:cacheprovider`: there is none
    return {} if kept is None else kept.get(what, {})


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def sources_now(config: pytest.Config) -> dict[str, str]:
    """The digest of the sources of each test file that was asked for and has marked tests, as they
    are when the tests are begun. Workers are told.
    """
    if hasattr(config, "workerinput"):
        return config.workerinput[_SENT]  # pyright: ignore[reportAttributeAccessIssue]
    if _sources not in config.stash:
        asked = [Path(config.invocation_params.dir, a.partition("::")[0]) for a in config.args]
        files = {f for p in asked for f in ([p] if p.is_file() else p.rglob("test_*.py"))}
        marked = (_inside(f) for f in sorted(files) if b"verified" in f.read_bytes())
        remembered.update(_kept(config, _READ))
        before = len(remembered)
        config.stash[_sources] = {name: sources(name).digest() for name in marked}
        if len(remembered) > before and getattr(config, "cache", None) is not None:
            config.cache.set(_READ, remembered)  # pyright: ignore[reportOptionalMemberAccess]
    return config.stash[_sources]


def _with_names(digest: str, tests: Iterable[str]) -> str:
    """Of a file's sources and which of its tests have passed with them."""
    return _digest(digest, *sorted(tests))


class _KnownSources:
    """Which tests have passed with the sources that their files have now."""

    def __init__(self, config: pytest.Config) -> None:
        self.now, self.here = sources_now(config), _kept(config, _SOURCES)
        table = read(FILE)
        tests: dict[str, list[str]] = {}
        for name in table:
            tests.setdefault(_file_of(name), []).extend([name] if "::" in name else [])
        self.passed = {
            test
            for file, digest in self.now.items()
            if _with_names(digest, tests.get(file, ())) in table.get(file, ())
            for test in tests[file]
        }

    def cover(self, test: str) -> bool:
        digest = self.now.get(_file_of(test))
        return test in self.passed or (digest is not None and self.here.get(test) == digest)


class _Watcher:
    """A marked test fails if it reads what ``sources`` did not find."""

    def __init__(self) -> None:
        versions()  # reads all that may make a kernel; what it says is in no verdict
        self.watch = Watch()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        if not (item.get_closest_marker("verified") and item.path.is_relative_to(ROOT)):
            return (yield)
        declared = sources(_inside(item.path))
        self.watch.begin()
        try:
            outcome = yield
        finally:
            missed = self.watch.end(declared)
        if missed:
            pytest.fail(
                f"reads {', '.join(missed)}, not among its sources (tests/sources.py): name them, "
                "pytest.mark.verified('a/folder')", pytrace=False,
            )  # fmt: skip
        return outcome


class _Writer:
    """Notes what passed; where the tests were begun, not in the workers of xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.passed: dict[str, str] = {}
        self.failed: set[str] = set()
        self.left_out: set[str] = set()
        self.undrawn: set[str] = set()
        self.spared = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_SENT] = sources_now(self.config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        self.left_out.update(output.get(_RETURNED, ()))
        self.undrawn.update(output.get(_UNDRAWN, ()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(_file_of(report.nodeid))
        if report.when == "call" and report.passed:
            properties: dict[str, Any] = dict(report.user_properties)
            if _DIGEST in properties:
                self.passed[report.nodeid] = properties[_DIGEST]
                self.spared += _SPARED in properties

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.left_out.update(self.config.stash.get(_spared, ()))
        self.undrawn.update(self.config.stash.get(_left, ()))
        if self.left_out and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK  # they were collected, and have passed
        now = sources_now(self.config)
        if self.passed and getattr(self.config, "cache", None) is not None:
            digests = {test: now[_file_of(test)] for test in self.passed if _file_of(test) in now}
            for what, new in ((_HERE, self.passed), (_SOURCES, digests)):
                self.config.cache.set(what, {**_kept(self.config, what), **new})  # pyright: ignore
        if self.config.getoption("--update-verified"):
            here, kept = (_kept(self.config, what) for what in (_SOURCES, _HERE))
            before = {t: kept[t] for t in self.left_out if here.get(t) == now[_file_of(t)]}
            whole = self._whole() and not (session.shouldstop or session.shouldfail)
            held = {file: digest for file, digest in now.items() if file not in self.failed}
            write(FILE, before | self.passed, self.left_out, held if whole else None)

    def _whole(self) -> bool:
        """Whether the files that ran did so as a whole: what did not pass there is not there."""
        chosen = self.config.getoption("keyword") or self.config.getoption("--sample") > 1
        chosen = chosen or any("::" in a for a in self.config.args)
        return not chosen and self.config.getoption("markexpr") in ("", "verified")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            terminalreporter.write_line(
                f"{len(self.left_out)} tests were left out: they have passed with the same sources "
                "(tests/verified.py; `make nightly` runs all)"
            )
        if self.undrawn:
            terminalreporter.write_line(
                f"{len(self.undrawn)} tests were not drawn; `make verified` runs them"
            )
        if self.passed:
            terminalreporter.write_line(
                f"{self.spared} of {len(self.passed)} tests had passed with the same inputs before"
            )


def write(
    file: Path,
    passed: dict[str, str],
    left_out: Iterable[str] = (),
    held: dict[str, str] | None = None,
) -> None:
    """Put what passed into the file. ``held``: the test files ran as a whole, with these sources:
    then what neither passed nor was left out goes, and each that ran has a line for its sources.
    """
    lines = read(file)
    tests: dict[str, set[str]] = {}
    for test in (*passed, *left_out):
        tests.setdefault(_file_of(test), set()).add(test)
    if held is not None:
        lines = {n: d for n, d in lines.items() if n in tests.get(_file_of(n), {n})}
        lines |= {n: (_with_names(held[n], tests[n]),) for n in held if n in tests}
    lines |= {test: (digest,) for test, digest in passed.items()}
    ordered = sorted(lines, key=lambda name: ("::" in name, name))
    file.write_text("".join(f"{d}  {n}\n" for n in ordered for d in lines[n]), encoding="utf-8")
