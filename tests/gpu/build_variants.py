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
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path.cwd()
sys.path.insert(0, str(ROOT))

import halide_bridge as hb  # noqa: E402
from casestudies.common.registry import gpu_cases  # noqa: E402
from selector.diagnostics import UserError  # noqa: E402

OLD, NEW = "old", "new"


def build(folder: Path, label: str, match: str, target: str) -> None:
    """The kernels of the checkout at hand, an old one as well: by what all revisions have."""
    for case in gpu_cases():
        programs: dict[str, list[Any]] = {}
        for problem in case.benchmark:
            programs.setdefault(problem.program, []).append(problem)
        for name, problems in programs.items():
            timed = [p for p in problems if re.search(match, p.name)]
            if not timed or "tensor" not in case.schedules:
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    output = case.scheduled(problems[0], "tensor", target)
                    kernel = hb.compile(output, target=target)
            except UserError as error:
                print(f"{label}: no {name}: {error.what}", flush=True)
                continue
            for problem in timed:
                place = folder / problem.name
                place.mkdir(parents=True, exist_ok=True)
                kernel.save(place / f"{label}.kernel")
                about = {"case": case.name, "problem": dataclasses.asdict(problem)}
                (place / f"{label}.json").write_text(json.dumps(about), encoding="utf-8")
                (place / f"{label}.cubin").write_bytes(kernel.cubin())
                launches = repr(dataclasses.replace(kernel.plan, source=""))
                (place / f"{label}.launches").write_text(launches, encoding="utf-8")


def describe_old(folder: Path) -> None:
    """Each old kernel is put where its problem is, which is told by the fields that it had and has,
    in the format that this checkout reads; those for none of its problems are removed.
    """
    problems = {p: json.loads(p.read_text("utf-8")) for p in sorted(folder.glob(f"*/{NEW}.json"))}
    for old in sorted(folder.glob(f"*/{OLD}.kernel")):
        about = json.loads(old.with_suffix(".json").read_text("utf-8"))
        read_today(old)
        fits = [new for new, now in problems.items() if _same_problem(about, now)]
        for new in fits[:1]:
            taken = len(list(new.parent.glob(f"{OLD}*.kernel")))
            label = OLD if old.parent == new.parent or not taken else f"{OLD}{taken + 1}"
            for kind in ("kernel", "cubin", "launches"):
                old.with_suffix(f".{kind}").rename(new.with_name(f"{label}.{kind}"))
            shutil.copy(new, new.with_name(f"{label}.json"))
        if not fits or fits[0].parent != old.parent:
            shutil.rmtree(old.parent)


def _same_problem(old: dict[str, Any], new: dict[str, Any]) -> bool:
    was, now = old["problem"], new["problem"]
    return old["case"] == new["case"] and all(now[f] == was[f] for f in was.keys() & now)


def read_today(kernel: Path) -> None:
    """A plan had no promises and no size in the first format (until 26edcd14)."""
    with zipfile.ZipFile(kernel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    plan = json.loads(members["plan.json"])
    if "promises" in plan:
        return
    from selector.runtime.artifact import Artifact, save  # of this checkout, as below
    from selector.runtime.plan_json import plan_from_json

    plan |= {"promises": [], "size": {"characters": 0, "loops": 0, "largest": None}}
    artifact = Artifact(
        plan_from_json(plan, members["kernel.cu"].decode()),
        members["module.vir"].decode(),
        members["report.txt"].decode(),
        json.loads(members["report.json"]),
        {n.removesuffix(".cubin"): x for n, x in members.items() if n.endswith(".cubin")},
        json.loads(members["manifest.json"])["versions"],
    )
    save(artifact, kernel, overwrite=True)


def code_of(kernel: Path) -> str:
    """What decides about its time: the machine code, and how it is launched."""
    sys.path.insert(0, str(ROOT / "tests"))
    from known_code import machine_digest  # not where old kernels are built: there is none

    return machine_digest(kernel.with_suffix(".cubin").read_bytes()) + kernel.with_suffix(
        ".launches"
    ).read_text(encoding="utf-8")


def drop_same(folder: Path) -> int:
    """Remove the problems whose two kernels are the same; how many."""
    pairs = [[place / f"{label}.kernel" for label in (OLD, NEW)] for place in folder.iterdir()]
    same = [
        old.parent
        for old, new in pairs
        if old.exists() and new.exists() and code_of(old) == code_of(new)
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
    with checkout(revision) as root:
        script = str(Path(__file__).resolve())
        command = [sys.executable, "-c", STARTER, str(root), script, str(folder.resolve())]
        subprocess.run([*command, "--label", OLD, *options], cwd=root, check=True)
    describe_old(folder)


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
