"""Do the tests notice mistakes? Mutants of the product's code, and which test kills each.

    python tests/mutate.py [--count 60] [--seed 1] [--workers 8] [--tests quick|all]
                           [--seconds 1800] [--out mutants.json] [--list] [--only 3 17]

A mutant is one change of ``selector/`` or ``halide_bridge/`` (the rules have mutants of their own,
``tests/rules/mutants.py``): a comparison, an operation of arithmetic, a number or a truth value is
another, a condition is negated, a call whose result nobody takes is left out. Kinds take turns;
places within a kind are drawn from all, so a seed names the same mutants in the same code.

Each worker has a copy of the tree and one mutant at a time. The tests run in order of their
distance: those of the room, the smoke tests of ``make quick``, then (``--tests all``) the rest.
A mutant is killed by the first test that fails with it, fails again, and passes without it; a test
that fails without it, too, is left out. ``--seconds`` bounds the work on one mutant: one that
lives then is not counted as killed. The file has the mutants, in order, each with what became of
it; written after each, so that a run can be looked at, or ended, at any time.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import difflib
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from quick import SMOKE, needed_by

ROOT = Path(__file__).resolve().parent.parent
CODE = ("selector", "halide_bridge")
SILENT = 400.0  # seconds without a test that ends: the mutant does not end
LEFT_OUT = (".git", ".venv", "build", "dist", "_build", "__pycache__", ".*_cache", ".hypothesis")
NOWHERE, HANGS = "before any test", "nothing came any more"
# An installation of the project must not stand before the copy.
CUSTOMIZE = """import sys
sys.meta_path = [f for f in sys.meta_path if "editable" not in type(f).__module__]
"""

RUNNING: set[int] = set()  # leaders of the process groups that run tests

COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
OPERATIONS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Mod: "//"}
KINDS = ("comparison", "operation", "number", "truth", "condition", "call")


@dataclass(frozen=True, slots=True)
class Mutant:
    """Another text for a stretch of a file."""

    kind: str
    path: str
    line: int
    begin: int  # in bytes of the file
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.begin] + self.text.encode() + source[self.end :]


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """What might stand for this node: kind, the part that is replaced, its new text."""

    def shown(part: ast.expr) -> str:
        return f"({ast.unparse(part)})"

    match node:
        case ast.Compare(left, [op], [right]):
            yield "comparison", node, f"({shown(left)} {COMPARISONS[type(op)]} {shown(right)})"
        case ast.BinOp(left, op, right) if type(op) in OPERATIONS:
            yield "operation", node, f"({shown(left)} {OPERATIONS[type(op)]} {shown(right)})"
        case ast.Constant(bool(value)):
            yield "truth", node, str(not value)
        case ast.Constant(int(value)):
            yield "number", node, f"({value + 1})"
            yield "number", node, f"({value - 1})"
        case ast.If(test) | ast.IfExp(test) | ast.While(test):
            yield "condition", test, f"(not {shown(test)})"
        case ast.Expr(ast.Call()):
            yield "call", node, "pass"
        case _:
            pass


def _skipped(node: ast.AST) -> bool:
    """Nothing in it does anything when it runs, or only says something."""
    match node:
        case ast.If(ast.Name("TYPE_CHECKING")) | ast.Assert() | ast.JoinedStr():
            return True
        case ast.Call(ast.Name("assert_never" | "TypeVar" | "dataclass")):
            return True
        case _:
            return False


def _reached(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, those that only annotate or decorate left out."""
    if _skipped(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: an assertion
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _reached(child)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All mutants of a file; some may be no Python (inside an f-string, say), or no change."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _reached(ast.parse(source)):
        for kind, spot, text in _changes(node):
            assert spot.end_lineno is not None
            assert spot.end_col_offset is not None
            begin = starts[spot.lineno - 1] + spot.col_offset
            end = starts[spot.end_lineno - 1] + spot.end_col_offset
            yield Mutant(kind, str(path.relative_to(ROOT)), spot.lineno, begin, end, text)


def _is_one(mutant: Mutant) -> bool:
    """Whether it is Python, and other than what is there."""
    source = (ROOT / mutant.path).read_bytes()
    try:
        changed = ast.parse(mutant.applied(source))
    except SyntaxError:
        return False
    return ast.dump(changed) != ast.dump(ast.parse(source))


def drawn(count: int, seed: int) -> list[Mutant]:
    """That many mutants, kinds in turn; no two on one line."""
    places: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for path in sorted(p for room in CODE for p in (ROOT / room).rglob("*.py")):
        for mutant in mutants_of(path):
            places[mutant.kind].append(mutant)
    rng = random.Random(seed)
    for found in places.values():
        rng.shuffle(found)
    chosen: dict[tuple[str, int], Mutant] = {}
    while len(chosen) < count and any(places.values()):
        mutant = places[KINDS[len(chosen) % len(KINDS)]].pop()
        if _is_one(mutant):
            chosen.setdefault((mutant.path, mutant.line), mutant)
    return list(chosen.values())


def difference(mutant: Mutant) -> str:
    source = (ROOT / mutant.path).read_bytes()
    old, new = source.decode().splitlines(), mutant.applied(source).decode().splitlines()
    lines = difflib.unified_diff(old, new, n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


@dataclass(frozen=True, slots=True)
class Run:
    """How a run of tests ended: the test that failed (or was under way when nothing came any more,
    or time was up), and what it said.
    """

    test: str = ""
    said: str = ""
    late: bool = False


class Copy:
    """A copy of the tree, in which one worker tries its mutants."""

    def __init__(self, folder: Path, number: int) -> None:
        self.tree = folder / f"copy{number}"
        shutil.copytree(ROOT, self.tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        (self.tree / "sitecustomize.py").write_text(CUSTOMIZE)
        native = importlib.util.find_spec("halide_bridge._native")
        if native is not None and native.origin is not None:
            shutil.copy(native.origin, self.tree / "halide_bridge")
        temporary = folder / f"temporary{number}"
        temporary.mkdir()
        self.variables = {
            **os.environ,
            "PYTHONPATH": str(self.tree),
            "TMPDIR": str(temporary),
            "SELECTOR_CHECK": "1",
            "SELECTOR_CACHE_DIR": "",
            "CI": "true",  # tests draw the same examples each time
        }
        self.variables.pop("SELECTOR_NIGHTLY", None)
        self.left_out: list[str] = []
        self._written = time.time() - 1e6
        said = self._python("-c", "import selector; print(selector.__file__)")
        if not said.strip().startswith(str(self.tree)):
            sys.exit(f"error: another installation stands before the copy: {said}")

    def _python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.tree, env=self.variables,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    def write(self, path: str, content: bytes) -> None:
        """Write a file; its time is a new one, by which Python knows what it has compiled."""
        self._written += 10
        (self.tree / path).write_bytes(content)
        os.utime(self.tree / path, (self._written, self._written))

    def run(self, tests: list[str], seconds: float, marked: str = "not gpu") -> Run:
        """Run tests with these marks until one fails."""
        options = ["-x", "-v", "-p", "no:cacheprovider", "--tb=line", "--color=no"]
        command = [sys.executable, "-m", "pytest", *options, "-m", marked]
        for test in self.left_out:
            command.append(f"--{'deselect' if '::' in test else 'ignore'}={test}")
        log = self.tree / "log.txt"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, *tests], cwd=self.tree, env=self.variables,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            RUNNING.add(process.pid)
            ended = self._watch(process, log, seconds)
            RUNNING.discard(process.pid)
        text = log.read_text(errors="replace")
        ends = "PASSED|FAILED|ERROR|SKIPPED|XFAIL|Fatal Python"
        begun = re.findall(rf"^(tests/\S+?::.+?)(?: (?:{ends}).*)?$", text, re.MULTILINE)
        if ended != "done":
            at = begun[-1].strip() if begun else NOWHERE
            return Run(at, HANGS if ended == "silent" else "", ended == "late")
        if process.returncode in (0, 5):
            return Run()
        said = "\n".join(re.findall(r"^(?:FAILED|ERROR) .*$", text, re.MULTILINE))[-300:]
        failed = re.findall(r"^(tests/\S+?::.+?) (?:FAILED|ERROR)\b", text, re.MULTILINE)
        unread = re.findall(r"^ERROR (tests/[^\s:]+)(?: - .*)?$", text, re.MULTILINE)
        if failed or unread:
            return Run((failed or unread)[0], said)
        last = begun[-1].strip() if begun else NOWHERE
        return Run(last, f"exit code {process.returncode}: {text[-300:]}")

    def _watch(self, process: subprocess.Popen[bytes], log: Path, seconds: float) -> str:
        """Wait for the end; ``late`` or ``silent`` if it was brought about."""
        end = time.monotonic() + seconds
        ended = "done"
        while process.poll() is None:
            if time.monotonic() > end:
                ended = "late"
            elif time.time() - log.stat().st_mtime > SILENT:
                ended = "silent"
            if ended != "done":
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                break
            time.sleep(0.1)
        return ended


def phases(mutant: Mutant, everything: bool) -> list[tuple[list[str], str]]:
    """The tests in order of their distance from the mutant, and the marks of those that run."""
    room = needed_by(mutant.path)
    smoke = [t for t in SMOKE if t.partition("::")[0] not in room]
    found = [(room, "not gpu and not slow"), (smoke, "not gpu")]
    if everything:
        tests = (p for p in (ROOT / "tests").iterdir() if p.name != "gpu")
        rest = sorted(
            str(p.relative_to(ROOT))
            for p in tests
            if p.name.startswith("test_") or (p.is_dir() and any(p.glob("test_*.py")))
        )
        found += [(room, "not gpu and slow"), ([r for r in rest if r not in room], "not gpu")]
    return [phase for phase in found if phase[0]]


def judge(copy: Copy, mutant: Mutant, everything: bool, seconds: float) -> dict[str, object]:
    """What becomes of a mutant."""
    source = (ROOT / mutant.path).read_bytes()
    end = time.monotonic() + seconds
    result: dict[str, object] = {"outcome": "survived"}
    try:
        for tests, marked in phases(mutant, everything):
            copy.write(mutant.path, mutant.applied(source))
            while (found := copy.run(tests, end - time.monotonic(), marked)).test:
                if found.late:
                    return {"outcome": "survived so long", "test": found.test}
                if _confirmed(copy, mutant, source, found):
                    return {"outcome": "killed", "test": found.test, "said": found.said}
                copy.left_out.append(found.test)
    finally:
        copy.write(mutant.path, source)
    return result


def _confirmed(copy: Copy, mutant: Mutant, source: bytes, found: Run) -> bool:
    """Whether a test (or a file of tests that cannot be read) fails because of the mutant: it
    passes without, and fails once more with it.
    """
    test = [found.test] if found.test != NOWHERE else ["tests/test_imports.py"]
    copy.write(mutant.path, source)
    passes = not copy.run(test, SILENT).test
    copy.write(mutant.path, mutant.applied(source))
    hangs = found.said == HANGS
    return passes and (found.test == NOWHERE or hangs or bool(copy.run(test, SILENT).test))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tests", choices=("quick", "all"), default="all")
    parser.add_argument("--seconds", type=float, default=3600, help="for one mutant")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    parser.add_argument("--list", action="store_true", help="show the mutants, run nothing")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of mutants, from 0")
    options = parser.parse_args()
    chosen = drawn(options.count, options.seed)
    numbers = range(len(chosen)) if options.only is None else options.only
    if options.list:
        for n in numbers:
            print(f"{n} {chosen[n].path}:{chosen[n].line} {chosen[n].kind}")
            print(difference(chosen[n]))
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    with tempfile.TemporaryDirectory() as folder:
        run_all(chosen, list(numbers), Path(folder), options)
    return 0


def _end(number: int, _frame: object) -> None:
    """No test goes on without us."""
    for leader in list(RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
    os._exit(128 + number)


def run_all(
    chosen: list[Mutant], numbers: list[int], folder: Path, options: argparse.Namespace
) -> None:
    """Judge mutants in as many copies as there are workers; write down each result."""
    results: dict[int, dict[str, object]] = {}
    lock = threading.Lock()
    copies = [Copy(folder, n) for n in range(min(options.workers, len(numbers)))]
    free = list(copies)

    def one(number: int) -> None:
        mutant, begin = chosen[number], time.monotonic()
        with lock:
            copy = free.pop()
        try:
            verdict = judge(copy, mutant, options.tests == "all", options.seconds)
        finally:
            with lock:
                free.append(copy)
        with lock:
            results[number] = {
                "number": number,
                **{k: v for k, v in dataclasses.asdict(mutant).items() if k in _SAID},
                "difference": difference(mutant),
                **verdict,
                "seconds": round(time.monotonic() - begin, 1),
            }
            found = [results[n] for n in sorted(results)]
            killed = sum(r["outcome"] == "killed" for r in found)
            summary = {
                "seed": options.seed,
                "tests": options.tests,
                "killed": killed,
                "of": len(found),
                "left out": sorted({t for c in copies for t in c.left_out}),
                "mutants": found,
            }
            options.out.write_text(json.dumps(summary, indent=1) + "\n")
            print(f"{number}: {mutant.path}:{mutant.line} {verdict['outcome']} "
                  f"{verdict.get('test', '')} ({killed} of {len(found)})", flush=True)  # fmt: skip

    with ThreadPoolExecutor(len(copies)) as pool:
        list(pool.map(one, numbers))


_SAID = ("kind", "path", "line", "text")


if __name__ == "__main__":
    sys.exit(main())
