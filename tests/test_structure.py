"""How the code is cut: lengths of files and functions, fields of records, and what decides by the
text of emitted code. Who may import whom is ``test_imports.py``'s.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from test_imports import ROOT, files, imported, module_name

LINES = 400  # of a file
STATEMENT_LINES = 60  # of a function
FIELDS = 12  # of a record that changes, those that it inherits among them

FROZEN = ("frozen=True", "unguarded")  # in a decorator
CONTAINERS = ("dict", "list", "set", "defaultdict", "deque", "Counter")
NO_FIELDS = ("ClassVar", "InitVar")

# They read what the IR is printed as, and make names of words.
BY_REGEX = (
    "selector.gpu.codegen.scalars.names",
    "selector.gpu.ir.layouts",
    "selector.gpu.ir.nodes",
    "selector.gpu.ir.products",
    "selector.gpu.ir.templates",
)
EMITTING = ("selector.gpu", "selector.cpu")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Record:
    """A class: its own fields with their annotations, empty where there is none, and the classes
    of ours that it inherits from.
    """

    frozen: bool
    fields: dict[str, str]
    bases: tuple[str, ...]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files()}
    long = [f"{path.relative_to(ROOT)}: {n} lines" for path, n in lengths.items() if n > LINES]
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    long: list[str] = []
    for path in files():
        for node in ast.walk(tree(path)):
            if isinstance(node, Function) and _length(node) > STATEMENT_LINES:
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                long.append(f"{where}: {node.name} has {_length(node)} lines")
    assert not long, "\n".join(long)


def _length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


# ---------------------------------------------------------------------------- records


def records() -> dict[str, Record]:
    """All classes, by their modules and names."""
    found: dict[str, Record] = {}
    for path in files():
        module, names = module_name(path), {t.rpartition(".")[2]: t for t, _ in imported(path)}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                found[f"{module}.{node.name}"] = _record(node, module, names)
    return found


def _record(node: ast.ClassDef, module: str, names: dict[str, str]) -> Record:
    made = " ".join(map(ast.unparse, node.decorator_list))
    bases = [ast.unparse(b).partition("[")[0] for b in node.bases]
    frozen = any(word in made for word in FROZEN) or "NamedTuple" in bases
    places = tuple(names.get(b, f"{module}.{b}") for b in bases)
    return Record(frozen, dict(_fields(node)), places)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """What is declared, and what methods store."""
    for method in node.body:
        for x in ast.walk(method) if isinstance(method, Function) else ():
            match x:
                case ast.Attribute(ast.Name("self"), name, ast.Store()):
                    yield name, ""
                case _:
                    pass
    for s in node.body:
        match s:
            case ast.AnnAssign(ast.Name(name), annotation):
                kind = ast.unparse(annotation)
                if not kind.startswith(NO_FIELDS):
                    yield name, kind
            case _:
                pass


def all_fields(name: str, known: dict[str, Record]) -> dict[str, str]:
    """Those that a class inherits, too."""
    record = known.get(name)
    if record is None:
        return {}
    inherited = [all_fields(base, known) for base in record.bases if base != name]
    return {k: v for fields in (*inherited, record.fields) for k, v in fields.items()}


def changes(name: str, known: dict[str, Record]) -> bool:
    """Whether a record is not frozen, or holds what is filled later."""
    kinds = (kind.partition("[")[0] for kind in all_fields(name, known).values())
    return not known[name].frozen or any(kind in CONTAINERS for kind in kinds)


def large(known: dict[str, Record]) -> list[str]:
    counts = {name: len(all_fields(name, known)) for name in known if changes(name, known)}
    return [f"{name}: {count} fields" for name, count in counts.items() if count > FIELDS]


def test_records_that_change_are_small() -> None:
    """Whoever changes one field has the others in mind: more than a dozen are two concepts."""
    found = large(records())
    assert not found, "\n".join(found)


def test_large_records_are_found() -> None:
    letters = "abcdefghijklm"
    fields = "".join(f"    {x}: int\n" for x in letters[:-1])
    sources = {
        "own": f"class R:\n{fields}    m: int = 0\n",
        "stored": f"class R:\n{fields}    def f(self):\n        self.m = 0\n",
        "filled": f"@dataclass(frozen=True)\nclass R:\n{fields}    m: dict[str, int]\n",
        "twelve": f"class R:\n{fields}",
        "frozen": f"@dataclass(frozen=True)\nclass R:\n{fields}    m: int\n",
        "class's": f"class R:\n{fields}    m: ClassVar[int]\n",
    }
    known = {
        name: _record(node, name, {})
        for name, text in sources.items()
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    }
    known["inherited"] = Record(False, {"m": ""}, ("twelve",))
    assert large(known) == [f"{x}: 13 fields" for x in ("own", "stored", "filled", "inherited")]


# ---------------------------------------------------------------------------- emitted code


def test_nothing_is_decided_by_regexes_over_emitted_code() -> None:
    found = [
        name
        for path in files()
        if (name := module_name(path)).startswith(EMITTING)
        and any(target.partition(".")[0] == "re" for target, _ in imported(path))
    ]
    assert found == sorted(BY_REGEX)


def test_the_old_emitter_is_gone() -> None:
    assert not any(module_name(path).startswith("selector.emit") for path in files())
