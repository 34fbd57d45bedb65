"""Kernels of two revisions for every benchmark problem, on a machine that needs no GPU.

    python tests/gpu/build_variants.py FOLDER --against REVISION [--match REGEX] [--same]

Run from the root of the checkout in question. Writes ``PROBLEM/new.kernel``, of this checkout, and
``PROBLEM/old.kernel``, of the revision (a commit, or the root of another checkout), with the
descriptions that ``run_variants.py`` wants to time them in turns; without ``--against`` the new
ones alone. Problems whose machine code and launches are the same are left out, unless ``--same``.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path.cwd()
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent.parent)]

from known_code import machine_digest  # noqa: E402
from programs import programs_of  # noqa: E402

from casestudies.common.registry import gpu_cases  # noqa: E402
from selector.diagnostics import UserError  # noqa: E402

OLD, NEW = "old", "new"


def code_of(kernel: Any) -> str:
    """What decides about its time: the machine code, and how it is launched."""
    launches = repr(dataclasses.replace(kernel.plan, source=""))
    return machine_digest(kernel.cubin()) + hashlib.sha256(launches.encode()).hexdigest()


def build(folder: Path, label: str, match: str, target: str) -> None:
    """The kernels of this checkout, and what their code is."""
    for case in gpu_cases():
        for program in programs_of(case):
            timed = [
                p for p in program.problems if p in case.benchmark and re.search(match, p.name)
            ]
            if not timed or (program.schedule, program.target) != ("tensor", target):
                continue
            try:
                kernel = program.compile()
            except UserError as error:
                print(f"{label}: no {program.name}: {error.what}", flush=True)
                continue
            for problem in timed:
                place = folder / problem.name
                place.mkdir(parents=True, exist_ok=True)
                kernel.save(place / f"{label}.kernel")
                about = {"case": case.name, "problem": dataclasses.asdict(problem)}
                (place / f"{label}.json").write_text(json.dumps(about), encoding="utf-8")
                (place / f"{label}.code").write_text(code_of(kernel), encoding="utf-8")


def drop_same(folder: Path) -> int:
    """Remove the problems whose two kernels are the same; how many."""
    codes = [[place / f"{label}.code" for label in (OLD, NEW)] for place in folder.iterdir()]
    same = [
        old.parent
        for old, new in codes
        if old.exists() and new.exists() and old.read_text() == new.read_text()
    ]
    for place in same:
        shutil.rmtree(place)
    return len(same)


NATIVE = ("halide_bridge._native", "selector.runtime._launch")
# An editable installation finds its own sources first, whatever the path says: not here.
STARTER = """
import runpy, sys
sys.meta_path[:] = [f for f in sys.meta_path if "_editable" not in type(f).__module__]
sys.path.insert(0, sys.argv[1])
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@contextmanager
def checkout(revision: str) -> Generator[Path]:
    """The root of a copy of that revision, with its own native modules."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "checkout")
        if Path(revision).is_dir():
            leave = shutil.ignore_patterns(".git", ".venv", "build", "out", "artifacts")
            shutil.copytree(revision, root, ignore=leave)
            add_native(root)
            yield root
            return
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "-q", "--detach", str(root), revision], check=True)
        try:
            add_native(root)
            yield root
        finally:
            subprocess.run([*git, "remove", "--force", str(root)], check=True)


def add_native(root: Path) -> None:
    """The native modules: those of this environment if the sources are the same, else built."""
    if sources_of(root) == sources_of(ROOT):
        for name in NATIVE:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin:
                shutil.copy(spec.origin, root.joinpath(*name.split(".")[:-1]))
        return
    with tempfile.TemporaryDirectory() as wheels:
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps"]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        subprocess.run(
            [*pip, "-w", wheels, str(root)], check=True, env={**os.environ, "PATH": path}
        )
        for wheel in Path(wheels).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(root, [n for n in archive.namelist() if n.endswith(".so")])


def sources_of(root: Path) -> list[tuple[str, bytes]]:
    files = (p for p in sorted((root / "cpp").rglob("*")) if p.suffix in (".cpp", ".h", ".txt"))
    return [(str(p.relative_to(root)), p.read_bytes()) for p in files]


def build_old(folder: Path, revision: str, options: list[str]) -> None:
    """By the revision's own script where it has one: modules move."""
    with checkout(revision) as root:
        own = root / "tests" / "gpu" / Path(__file__).name
        script = own if own.exists() else Path(__file__).resolve()
        command = [sys.executable, "-c", STARTER, str(root), str(script), str(folder.resolve())]
        subprocess.run([*command, "--label", OLD, *options], cwd=root, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--against", metavar="REVISION", help="a commit, or a checkout's root")
    parser.add_argument("--match", default="", help="only problems whose name holds this (regex)")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--same", action="store_true", help="keep what has the same code")
    parser.add_argument("--label", default=NEW, help="name of the kernels of this checkout")
    options = parser.parse_args()
    if options.label == NEW and options.folder.exists() and any(options.folder.iterdir()):
        parser.error(f"{options.folder} is not empty")
    build(options.folder, options.label, options.match, options.target)
    if options.against:
        chosen = ["--match", options.match, "--target", options.target]
        build_old(options.folder, options.against, chosen)
        same = 0 if options.same else drop_same(options.folder)
        print(f"{len(list(options.folder.iterdir()))} problems to time, {same} have the same code")
    return 0


if __name__ == "__main__":
    sys.exit(main())
