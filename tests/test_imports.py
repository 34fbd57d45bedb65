"""Who may import whom: the table of rooms and no circles, held by reading every file's import
statements.

A room is the longest entry of ``ALLOWED`` that a file's module name begins with. Imports inside
functions count.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("selector", "rules", "halide_bridge", "casestudies")

# What every room may use: dataclasses, errors, targets, environment variables, what reports are
# made of, and that garbage is not looked for.
COMMON = (
    "selector.dataclass",
    "selector.diagnostics",
    "selector.targets",
    "selector.environment",
    "selector.garbage",
    "selector.report",
)
PUBLIC = (
    "selector.load", "selector.compile", "selector.Kernel", "selector.resolve_target",
    "selector.tuning", "selector.families", "selector.machine", *COMMON,
)  # fmt: skip


# What each room may import of ours, besides itself and COMMON.
ALLOWED: dict[str, tuple[str, ...]] = {
    "selector.ir": (),
    "selector.intrinsics": ("selector.ir",),
    "selector.operands": ("selector.ir", "selector.intrinsics"),
    "selector.eqsat": ("selector.ir", "selector.intrinsics", "selector.operands", "rules"),
    "selector.lowering": ("selector.ir", "selector.intrinsics", "selector.gpu"),
    "selector.gpu": ("selector.ir",),
    "selector.gpu.codegen": (
        "selector.ir",
        "selector.intrinsics",
        "selector.gpu",
        "selector.lowering",
        "selector.runtime.plan",
    ),
    "selector.cpu": (
        "selector.ir",
        "selector.intrinsics",
        "selector.lowering",
        "selector.gpu",
        "selector.gpu.codegen",
        "selector.runtime.plan",
    ),
    "selector.runtime": ("selector.ir", "selector.intrinsics"),
    "selector.machine": (),
    "selector.families": ("selector.machine",),
    "selector.tuning": ("selector.ir", "selector.runtime", "selector.api"),
    "selector.dask": ("selector.ir", "selector.runtime", "selector.api"),
    # Kernels for other libraries; a pipeline that is handed in is compiled.
    "selector.interop": (
        "selector.ir",
        "selector.runtime",
        "selector.kernel",
        "selector.api",
        "halide_bridge",
    ),
    "selector.workbench": (
        "selector.ir",
        "selector.intrinsics",
        "selector.operands",
        "selector.eqsat",
        "rules",
    ),
    # The server drives the compiler from outside; a client needs the saved kernels alone.
    "selector.service": (
        "selector.ir",
        "selector.intrinsics",
        "selector.pipeline",
        "selector.runtime",
        "selector.workbench",
        "rules",
    ),
    "rules": (),
    "halide_bridge": ("selector",),
    "casestudies": (*PUBLIC, "selector.interop.torch_backend", "halide_bridge"),
    # The root of the package sees every room.
    "selector": OURS[:2],
}

# Only these may import these libraries.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "cupy": (
        "selector.runtime.cuda",
        "selector.tuning",
        "selector.machine",
        "casestudies",
        "tests",
    ),
    "halide": ("halide_bridge", "casestudies"),
    "egglog": ("selector.eqsat", "selector.workbench", "rules"),
    "z3": ("selector.workbench.prove",),
    "torch": (
        "selector.runtime",
        "selector.interop.torch",
        "selector.interop.calls",
        "selector.interop.gradients",
        "selector.interop.functional",
        "selector.interop.torch_backend",
        "casestudies",
    ),
    "jax": ("selector.interop.jax", "casestudies"),
    "ray": ("selector.tuning",),
    **dict.fromkeys(("dask", "distributed", "tifffile", "zarr"), ("selector.dask",)),
    **dict.fromkeys(("fastapi", "starlette", "pydantic", "uvicorn"), ("selector.service",)),
}

# On a machine with NumPy and CuPy only, saved kernels are loaded, checked and timed: what that
# imports may import neither Halide nor the rule engine, not even inside functions that it calls.
WITHOUT_HALIDE = (
    "algorithm.py", "algorithms.py", "schedule.py", "stock.py", "runner.py", "live.py", "cli.py",
    "build.py", "amx.py", "padding.py", "filters.py", "fast.py", "warpgroups.py", "blocks.py",
    "automatic.py", "tuning.py", "chunks.py", "family.py", "scores.py",
)  # fmt: skip


def files() -> list[Path]:
    return sorted(p for room in OURS for p in (ROOT / room).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> tuple[tuple[str, int], ...]:
    """Absolute names of the modules that a file imports, with lines; ``from a import b`` gives
    ``a.b``.
    """
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                yield from ((alias.name, node.lineno) for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
            case ast.ImportFrom():
                yield (f"relative:{module_name(path)}", node.lineno)
            case _:
                pass


def inside(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def room_of(name: str) -> str:
    return max((room for room in ALLOWED if inside(name, (room,))), key=len)


def may_import(room: str, target: str) -> bool:
    """A room within a room is one of its own: who may use the outer may not yet use the inner."""
    named = (p for p in (room, *COMMON, *ALLOWED[room]) if inside(target, (p,)))
    return any(p in OURS or room_of(p) == room_of(target) for p in named)


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_only_what_its_room_may(path: Path) -> None:
    name = module_name(path)
    room = room_of(name)
    wrong = []
    for target, line in imported(path):
        where = f"{path.relative_to(ROOT)}:{line}: {room} imports {target}"
        if target.startswith("relative:"):
            wrong.append(f"{where}: imports are absolute here")
        elif inside(target, OURS) and not may_import(room, target):
            wrong.append(where)
        library = target.split(".")[0]
        if library in LIBRARIES and not inside(name, LIBRARIES[library]):
            wrong.append(where)
    assert not wrong, "\n".join(wrong)


# Fields for ``__post_init__`` alone.
STANDARD_DATACLASSES = ("selector.dataclass", "selector.workbench.prove.values", "casestudies")


def test_dataclasses_are_those_that_are_made_quickly() -> None:
    standard = [
        name
        for path in files()
        if not inside(name := module_name(path), STANDARD_DATACLASSES)
        and any(target == "dataclasses.dataclass" for target, _ in imported(path))
    ]
    assert not standard, f"{standard}: import it from selector.dataclass"


def imports_of_ours() -> dict[str, set[str]]:
    """Which of our modules each of them imports, for types and inside functions, too."""
    ours = {module_name(path): path for path in files()}
    found: dict[str, set[str]] = {}
    for name, path in ours.items():
        targets = (target for target, _ in imported(path))
        # ``from a import b``: the module a.b, or a name of the module a.
        modules = (t if t in ours else t.rpartition(".")[0] for t in targets)
        found[name] = {m for m in modules if m in ours}
    return found


def reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    """The modules that one needs, others in between or not."""
    found: set[str] = set()
    waiting = [*imports[start]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports[name]
    return found


def circles(imports: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Modules that each need all others of their circle, and themselves."""
    needs = {name: reached(name, imports) for name in imports}
    found = {
        tuple(sorted(m for m in needs[name] if name in needs[m]))
        for name in imports
        if name in needs[name]
    }
    return sorted(found)


def test_circles_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(imports) == [("a", "b", "c"), ("d", "e")]
    assert circles({"a": {"a"}, "b": set()}) == [("a",)]


def test_no_imports_go_in_circles() -> None:
    """A module can be read, tested and moved with what stands below it."""
    lines = [" <-> ".join(circle) for circle in circles(imports_of_ours())]
    assert not lines, "\n".join(lines)


def test_saved_kernels_are_measured_without_halide() -> None:
    for path in (ROOT / "casestudies").rglob("*.py"):
        if path.name in WITHOUT_HALIDE:
            continue
        names = {
            target.split(".")[0]
            for target, line in imported(path)
            if target.split(".")[0] in ("halide", "halide_bridge", "egglog")
        }
        assert not names, f"{path.relative_to(ROOT)} imports {names}"


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by their names alone, but those of a package."""
    paths = (p for p in (ROOT / "tests").rglob("*.py") if p.name != "conftest.py")
    names = [p.name for p in paths if not (p.parent / "__init__.py").exists()]
    assert sorted(names) == sorted(set(names))


def test_what_schedules_is_imported_when_it_is_needed() -> None:
    """Half of all modules: who has a schedule starts without them."""
    program = (
        "import sys, halide_bridge as hb\n"
        "assert not [m for m in sys.modules if m.startswith('halide_bridge.schedules')]\n"
        "assert all(getattr(hb, name) for name in hb.__all__)\n"
        "assert hb.Schedule is hb.Schedule and not hasattr(hb, 'no_such_name')\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
