"""Saved kernels and baselines with a list of what to run on them: the way to a GPU machine without
Halide.

``manifest.json`` in the folder lists the files by program, and the problems of each. It is written
by ``tests/gpu/build_artifacts.py`` and read by ``tests/gpu/run_all.py`` and ``bench --artifacts``.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from casestudies.common.case import Problem
from casestudies.common.registry import problem_type
from selector.diagnostics import ArtifactError

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class SavedKernel:
    """A kernel of the selector: ``program`` of ``case``, compiled for ``target``, in ``file``."""

    case: str
    program: str
    target: str
    file: str
    schedule: str = "tensor"


@dataclass(frozen=True, slots=True)
class SavedStock:
    """A baseline, compiled for one problem; ``order`` names its input buffers as they are
    passed.
    """

    case: str
    problem: str
    file: str
    order: tuple[str, ...]
    schedule: str = "cuda"


@dataclass(frozen=True, slots=True)
class Job:
    """A problem to check (``small``) or to check and time (``benchmark``)."""

    case: str
    kind: str
    problem: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    kernels: tuple[SavedKernel, ...]
    stock: tuple[SavedStock, ...]
    jobs: tuple[Job, ...]


def job(case: str, kind: str, problem: Any) -> Job:
    return Job(case, kind, dataclasses.asdict(problem))


def problem_of(entry: Job) -> Problem:
    """The problem that a job describes."""
    problem: Problem = problem_type(entry.case)(**entry.problem)
    return problem


def write(folder: Path, manifest: Manifest) -> None:
    text = json.dumps(dataclasses.asdict(manifest), indent=1)
    Path(folder, MANIFEST).write_text(text, encoding="utf-8")


def read(folder: Path) -> Manifest:
    """The manifest of a folder; ``ArtifactError`` if there is none."""
    path = Path(folder, MANIFEST)
    if not path.exists():
        raise ArtifactError(
            f"no {MANIFEST} in {folder}", hint="tests/gpu/build_artifacts.py writes it"
        )
    data = json.loads(path.read_text(encoding="utf-8"))
    return Manifest(
        tuple(SavedKernel(**k) for k in data["kernels"]),
        tuple(_stock(s) for s in data["stock"]),
        tuple(Job(**j) for j in data["jobs"]),
    )


def _stock(data: dict[str, Any]) -> SavedStock:
    fields: dict[str, Any] = data | {"order": tuple(data["order"])}
    return SavedStock(**fields)
