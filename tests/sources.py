"""Which files have a say in a test file's outcome, found by reading: for ``tests/verified.py``.

``sources(test)`` begins with a test file and the ``conftest.py`` files above it, and goes on with

- what each file imports, inside functions, too: from the packages of the project and from ``tests``
  (not for types only). Of a package above an imported module comes what runs as it is imported;
- modules that are named: ``import_module("a.b")``, each that ``import_module(f"a.{name}")`` may
  mean, and in a file that starts Python every text that is a module's
  name. A test's file that starts Python may run anything: all packages have a say;
- files and folders that paths are made of, ``ROOT / "docs" / name`` as ``docs``, from the file's
  folder or one above it, and of ``Path(__file__).parent / name`` the file's folder;
- the sources of the native module, and the versions that are installed (``ALWAYS``);
- what ``pytest.mark.verified(...)`` names in the test file.

That is more than has a say, as nothing is run to find it. ``Watch`` finds what it misses: it sees
which files of the project this process opens or lists, and the tests that are marked fail where
one is not among their sources.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("selector", "rules", "halide_bridge", "casestudies")
NATIVE, ITS_SOURCES = "halide_bridge/native.py", "cpp"
ALWAYS = ("pyproject.toml", "requirements/compile.lock")
# What decides which tests run is no part of any; these would be in their own digest.
LEFT_OUT = ("tests/verified.py", "tests/verified.txt", "tests/sources.py")
_NO_SOURCE = ("_build", "build", "dist", "out", "artifacts")


@dataclass(frozen=True, slots=True)
class Sources:
    """Files, and folders with all that is in them, by their paths below the root."""

    files: frozenset[str]
    folders: frozenset[str]

    def __contains__(self, path: str) -> bool:
        return path in self.files or any(f"{path}/".startswith(f"{f}/") for f in self.folders)

    def every_file(self) -> list[str]:
        found = set(self.files)
        for folder in self.folders:
            found.update(_beneath(folder))
        return sorted(found)

    def digest(self) -> str:
        """Of the names and texts of all files."""
        total = hashlib.sha256()
        for name in self.every_file():
            total.update(f"{name}\0{_file_digest(name)}\n".encode())
        return total.hexdigest()[:16]


_Step = tuple[str, bool]
"""A file, and whether its functions are called; a package above a module is imported only."""


@dataclass(slots=True)
class _Text:
    """What the text of a file names, wherever it lies: modules that are imported as it is, and as
    its functions run; the words of paths; files below the root; every text, if one of them may be
    the name of a module; whether it starts Python; whether it reads the folder that it lies in.
    """

    at_once: list[str] = field(default_factory=list[str])
    later: list[str] = field(default_factory=list[str])
    paths: list[str] = field(default_factory=list[str])
    named: list[str] = field(default_factory=list[str])
    dynamic: bool = False
    starts_python: bool = False
    own_folder: bool = False


remembered: dict[str, dict[str, Any]] = {}
"""What was read of a text, by its digest: ``verified.py`` keeps it, as reading takes seconds."""


@cache
def sources(test: str) -> Sources:
    """What has a say in the outcome of a test file, given by its path below the root."""
    files, folders = {name for name in ALWAYS if (ROOT / name).exists()}, set[str]()
    begun, waiting = set[_Step](), {(name, True) for name in _with_conftests(test)}
    while waiting:
        step = waiting.pop()
        begun.add(step)
        found, more = _after(*step)
        waiting |= more - begun
        files.add(step[0])
        for path in found:
            (folders if (ROOT / path).is_dir() else files).add(path)
    return Sources(frozenset(files - {*LEFT_OUT}), frozenset(folders))


@cache
def _after(name: str, called: bool) -> tuple[frozenset[str], frozenset[_Step]]:
    """The paths that a file names and the files that it imports; ``called`` or only imported."""
    if name in LEFT_OUT:
        return frozenset(), frozenset()
    text, folder = _text(name), str(Path(name).parent)
    paths, modules = set[str](), [*text.at_once]
    if called:
        modules += [*text.later, *filter(_is_ours, text.named if text.dynamic else ())]
        paths.update(found for words in text.paths for found in _found(words, name))
        if text.starts_python and name.startswith("tests/"):
            paths.update(p for p in (*PACKAGES, ITS_SOURCES) if (ROOT / p).exists())
    if text.own_folder:
        paths.add(folder)
    if name == NATIVE:
        paths.add(ITS_SOURCES)
    return frozenset(paths), frozenset(s for m in modules for s in _files_of(m, folder))


def _with_conftests(test: str) -> Iterator[str]:
    yield test
    for folder in Path(test).parents:
        if (ROOT / folder / "conftest.py").exists():
            yield str(folder / "conftest.py")


@cache
def _files_of(module: str, folder: str) -> tuple[tuple[str, bool], ...]:
    """A module's file, and the packages above it, whose functions it need not call; a ``*`` in the
    name stands for any word. ``folder`` is where the module is asked for.
    """
    parts = module.split(".")
    if "*" in module:
        stem = "/".join(parts)
        files = sorted((*ROOT.glob(f"{stem}.py"), *ROOT.glob(f"{stem}/__init__.py")))
        names = [f.relative_to(ROOT) for f in files]
        above = {folder / "__init__.py" for name in names for folder in name.parents}
        above = {name for name in above if (ROOT / name).exists()}
        return (*((str(n), True) for n in names), *((str(a), False) for a in sorted(above)))
    for place in _places(parts[0], folder):
        for end in (len(parts), len(parts) - 1):  # of ``from a import b``: b is a module or a name
            file = _module_file(ROOT.joinpath(place, *parts[:end])) if end else None
            if file is not None:
                above = (ROOT.joinpath(place, *parts[:i], "__init__.py") for i in range(1, end))
                found = [(file, True), *((f, False) for f in above if f.exists())]
                return tuple((str(f.relative_to(ROOT)), itself) for f, itself in found)
    return ()


def _module_file(stem: Path) -> Path | None:
    return next((f for f in (stem.with_suffix(".py"), stem / "__init__.py") if f.exists()), None)


def _places(first: str, folder: str) -> tuple[str, ...]:
    """Where a module may lie: tests import from ``tests`` and its folders by the file's name, and
    no two files have one (``tests/test_imports.py``), or by the path below the root.
    """
    if first in (*PACKAGES, "tests"):
        return ("",)
    return (folder, "tests", *_folders_of_tests()) if folder.startswith("tests") else ("tests",)


@cache
def _folders_of_tests() -> tuple[str, ...]:
    return tuple(str(p.relative_to(ROOT)) for p in sorted((ROOT / "tests").iterdir()) if p.is_dir())


@cache
def _text(name: str) -> _Text:
    digest = _file_digest(name)
    if digest not in remembered:
        found = _read((ROOT / name).read_bytes())
        if not found.dynamic:
            found.named.clear()
        remembered[digest] = asdict(found)
    return _Text(**remembered[digest])


def _read(text: bytes) -> _Text:
    """What a text names; no part of it is run."""
    found = _Text()
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(text), False)]
    while waiting:
        node, inside = waiting.pop()
        modules = found.later if inside else found.at_once
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                waiting += [(child, inside) for child in node.orelse]
                continue
            case ast.Import():
                modules += [alias.name for alias in node.names]
                continue
            case ast.ImportFrom(module=str(module), level=0):
                modules += [f"{module}.{alias.name}" for alias in node.names]
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                inside = True
            case ast.Attribute(value=ast.Name(id="sys"), attr="executable"):
                found.starts_python = found.dynamic = True
            case ast.Call():
                _called(node, found)
            case ast.Constant(value=str(name)):
                found.named.append(name)
                continue
            case ast.BinOp(op=ast.Div()):
                parts = _parts(node)
                words = _words(parts)
                found.paths += words
                found.own_folder |= not words and _is_folder(parts[0])
                waiting += [(part, inside) for part in parts]
                continue
            case ast.Name() | ast.expr_context() | ast.operator() | ast.Constant():
                continue
            case _:
                pass
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


def _called(node: ast.Call, found: _Text) -> None:
    """Add what a call names."""
    match node.func:
        case ast.Attribute(attr="import_module") | ast.Name(id="import_module"):
            found.dynamic = True
            if isinstance(node.args[0], ast.JoinedStr):
                parts = (getattr(p, "value", "") for p in node.args[0].values)
                found.later.append("".join(p if isinstance(p, str) else "*" for p in parts))
        case ast.Attribute(attr="verified"):  # the mark
            found.paths += [f"/{a.value}" for a in node.args if isinstance(a, ast.Constant)]
        case ast.Name(id="files"):  # of importlib.resources
            found.own_folder = True
        case _:
            pass


def _is_ours(module: str) -> bool:
    parts = module.split(".")
    if len(parts) == 1 or not all(map(str.isidentifier, parts)):
        return False
    return any(_module_file(ROOT.joinpath(place, *parts)) for place in ("", "tests"))


def _parts(path: ast.expr) -> list[ast.expr]:
    """``a``, ``b`` and ``c`` of ``a / b / c``."""
    if isinstance(path, ast.BinOp) and isinstance(path.op, ast.Div):
        return [*_parts(path.left), path.right]
    return [path]


def _is_folder(path: ast.expr) -> bool:
    """Whether a path is that of the folder that a file lies in."""
    return ast.unparse(path) in ("Path(__file__).parent", "Path(__file__).resolve().parent")


def _words(parts: list[ast.expr]) -> list[str]:
    """``a/b``, with which ``FOLDER / "a" / "b" / c`` begins."""
    words = list[str]()
    for part in parts[1:]:
        if not (isinstance(part, ast.Constant) and isinstance(part.value, str)):
            break
        words.append(part.value)
    return [] if not words or any(w.startswith(("/", "..")) for w in words) else ["/".join(words)]


def _found(words: str, name: str) -> Iterator[str]:
    """The path in a file's folder or one above, or below the root where it begins with a slash. A
    package reads nothing outside the packages.
    """
    for folder in (Path("."),) if words[0] == "/" else Path(name).parents:
        path = (folder / words.removeprefix("/")).as_posix()
        if (ROOT / path).exists() and (name.startswith("tests/") or path.startswith(PACKAGES)):
            yield path


def _is_source(path: Path) -> bool:
    name = path.name
    return not (
        name.startswith((".", "__pycache__"))
        or name in _NO_SOURCE
        or path.suffix in (".pyc", ".so", ".egg-info")
    )


@cache
def _beneath(folder: str) -> tuple[str, ...]:
    found, waiting = list[str](), [ROOT / folder]
    while waiting:
        path = waiting.pop()
        if path.is_dir():
            waiting += [p for p in path.iterdir() if _is_source(p)]
        elif path.exists():
            found.append(str(path.relative_to(ROOT)))
    return tuple(f for f in sorted(found) if f not in LEFT_OUT)


@cache
def _file_digest(name: str) -> str:
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()


_READING = ("open", "os.listdir", "os.scandir")
_unwatched = 0


@contextmanager
def unwatched() -> Generator[None]:
    """What is read in here is read for a digest, not for a test."""
    global _unwatched
    _unwatched += 1
    try:
        yield
    finally:
        _unwatched -= 1


class Watch:
    """Which files of the project this process reads, and which folders it lists, while a test runs;
    what only another process reads remains unseen.
    """

    def __init__(self) -> None:
        self._seen: set[str] | None = None
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._seen is None or _unwatched or event not in _READING:
            return
        path, *mode = arguments
        written = mode and ("w" in str(mode[0]) or "a" in str(mode[0]))
        if isinstance(path, str) and path.endswith(".py") and _is_for_examples():
            return
        if isinstance(path, str) and not (written if mode else _is_imported_from(path)):
            self._seen.add(os.path.abspath(path))

    def begin(self) -> None:
        self._seen = set()

    def end(self, declared: Sources) -> list[str]:
        """What was read since ``begin`` and is not declared, by its path below the root."""
        seen, self._seen = self._seen or set[str](), None
        found = (Path(p).relative_to(ROOT) for p in sorted(seen) if p.startswith(f"{ROOT}/"))
        return [
            str(path)
            for path in found
            if str(path) not in declared
            and str(path) not in LEFT_OUT
            and (ROOT / path).exists()
            and all(map(_is_source, (path, *path.parents[:-1])))
        ]


def _is_for_examples() -> bool:
    """Whether Hypothesis reads a module for the constants in it, which it draws now and then."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.endswith("constants_ast.py"):
        frame = frame.f_back
    return frame is not None


def _is_imported_from(folder: str) -> bool:
    """Whether a folder is listed to find a module or a package's version, not for what it holds."""
    return folder in sys.path or sys._getframe(2).f_code.co_filename.startswith("<frozen importlib")


if __name__ == "__main__":
    for test in sys.argv[1:]:
        found = sources(test)
        print(f"{found.digest()}  {test}", *sorted(found.folders), *sorted(found.files), sep="\n  ")
